"""Proposes other amounts of cpu, memory and extended resources: what fits, or a name that nodes do offer.

Given a case. Amounts go down to what some node has left, not to nothing. Never tries a proposal.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

from dovetail.answer.why.fixes import edits, nearest, tree_paths
from dovetail.answer.why.fixes.proposals import Candidate, Case, Edit, Intent, Ladder
from dovetail.answer.why.fixes.tree_paths import Path, Tree
from dovetail.kubetypes.core import pods
from dovetail.model import pod_requests
from dovetail.model.reasons import ReasonCode
from dovetail.schedule.node import extended_resources

# Less than so much of what was requested is another workload, not a smaller one.
LEAST_PART: Final = 8
MOST_STEPS: Final = 64
_BINARY_UNITS: Final = (2**30, 2**20, 2**10)
_RUNNING: Final = "containers"
_INIT: Final = "initContainers"
_CONTAINERS: Final = (_RUNNING, _INIT)
# What devices, which may serve extended resources, or a queue have too little of.
_DEVICE_CODES: Final = (
    ReasonCode.QUEUE_LIMIT,
    ReasonCode.QUEUE_QUOTA,
    ReasonCode.NO_DEVICES,
    ReasonCode.CLASS,
    ReasonCode.SELECTOR,
    ReasonCode.IN_USE,
    ReasonCode.COUNTERS,
    ReasonCode.COMBINATION,
    ReasonCode.TAINT,
)


def ladders(case: Case) -> Iterator[Ladder]:
    """What could be changed about the amounts."""
    short = set(case.subjects(ReasonCode.ROOM))
    need = pod_requests.pod_request(case.pod)
    if case.has(*_DEVICE_CODES):
        short |= {name for name, _ in need.scalars}
    offered = _offered(case)
    for name in sorted(short - {pod_requests.PODS}):
        amount = _amount(need, name)
        if amount <= 0:
            continue
        if name not in offered:
            yield Ladder(("resource name", name), tuple(_other_names(case, name, offered)))
            continue
        rungs = list(_lower(case, name, amount))
        yield Ladder(("amount", name), tuple(rungs), is_monotone=True)
        if nearest.is_profile(name):
            others = nearest.profiles(name, offered)
            yield Ladder(("profile", name), tuple(_renamed(case, name, other) for other in others))


def _offered(case: Case) -> set[str]:
    """Every resource that a node offers, or that devices serve."""
    world = case.replica.world
    names = {
        name
        for node in world.nodes.values()
        for name, amount in node.status.allocatable.items()
        if amount.nanos > 0
    }
    return names | set(extended_resources.classes_by_resource(world.classes))


def _amount(resources: pod_requests.Resources, name: str) -> int:
    amounts = {
        pod_requests.CPU: resources.milli_cpu,
        pod_requests.MEMORY: resources.memory_bytes,
        pod_requests.EPHEMERAL_STORAGE: resources.ephemeral_bytes,
    }
    return amounts[name] if name in amounts else resources.scalar(name)


# Names


def _other_names(case: Case, name: str, offered: set[str]) -> Iterator[Candidate]:
    extended = {other for other in offered if "/" in other}
    likely = [*nearest.profiles(name, extended), *nearest.names(name, extended)]
    for other in dict.fromkeys(likely):
        yield _renamed(case, name, other)


def _renamed(case: Case, name: str, other: str) -> Candidate:
    is_slip = nearest.is_slip(name, other) and not nearest.is_profile(name)
    return Candidate(
        f"resource {name} -> {other}",
        case.pod_change(_renaming_resource(name, other)),
        Intent.CORRECTED if is_slip else Intent.REPLACED,
    )


def _renaming_resource(name: str, other: str) -> Edit:
    def edit(pod: Tree) -> Tree:
        for field in _CONTAINERS:
            for place in range(len(tree_paths.at(pod, ("spec", field)) or ())):
                for part in ("requests", "limits"):
                    base: Path = ("spec", field, place, "resources", part)
                    pod = edits.renaming(base, name, other)(pod)
        return pod

    return edit


# Amounts


def _lower(case: Case, name: str, need: int) -> Iterator[Candidate]:
    """Amounts that nodes have left, or could have, the largest first."""
    world = case.replica.world
    fitting: set[int] = set()
    for node in world.nodes:
        free = _amount(world.free(node), name)
        if 0 < free < need:
            fitting.add(free)
    is_counted = pod_requests.is_extended(name)
    if is_counted:  # devices and queues may allow any smaller number
        fitting |= set(range(1, min(need, MOST_STEPS)))
    else:
        fitting |= {need * part // LEAST_PART for part in range(1, LEAST_PART)}
        fitting = {amount for amount in fitting if amount * LEAST_PART >= need}
    part = _decisive(case.pod, name, need)
    if part is None:
        return
    plain = {amount for amount in (_plain(name, amount) for amount in fitting) if amount < need}
    for amount in sorted(plain, reverse=True)[:MOST_STEPS]:
        less = part.own - (need - amount)
        if less <= 0 or less < part.least:
            continue
        before = pod_requests.amount_text(name, need)
        after = pod_requests.amount_text(name, amount)
        yield Candidate(
            f"{_short(name)}{part.label}: {before} -> {after}",
            case.pod_change(_amount_edit(part, name, less)),
            Intent.LOWERED,
        )


def _plain(name: str, amount: int) -> int:
    """The amount in the unit people write, rounded down."""
    if name == pod_requests.CPU:
        return amount // 100 * 100 if amount >= 100 else amount
    if name in (pod_requests.MEMORY, pod_requests.EPHEMERAL_STORAGE):
        unit = next((unit for unit in _BINARY_UNITS if amount >= unit), 1)
        return amount // unit * unit
    return amount


def _short(name: str) -> str:
    return name if "/" in name else f"{name} request"


class _Part(NamedTuple):
    """What of a pod decides how much it requests: a container, or the pod as a whole."""

    field: str  # containers or initContainers; empty for the pod as a whole
    container: str
    own: int  # how much it requests itself
    least: int = 0  # the server refuses less

    @property
    def label(self) -> str:
        """How it is called in a title; a container that runs needs no mention."""
        if not self.field:
            return " of the pod"
        return f" of init container {self.container}" if self.field == _INIT else ""


def _decisive(pod: pods.Pod, name: str, need: int) -> _Part | None:
    """Where to ask for less of a resource; None where no part requests it."""
    spec = pod.spec
    running = [(_RUNNING, container) for container in spec.containers]
    first: list[tuple[str, pods.Container]] = []
    for container in spec.init_containers:
        is_sidecar = container.restart_policy == pod_requests.RESTART_ALWAYS
        (running if is_sidecar else first).append((_INIT, container))
    together = sum(_requested(container.resources, name) for _, container in running)
    if spec.resources is not None and name in pod_requests.requested(spec.resources):
        return _Part("", "", _requested(spec.resources, name), least=together)
    # While containers start one after the other, one of them may need more than all that run later.
    among = first if first and together < need else running
    parts = [
        _Part(field, container.name, _requested(container.resources, name))
        for field, container in among
    ]
    asking = [part for part in parts if part.own > 0]
    return max(asking, key=lambda part: part.own, default=None)


def _requested(resources: pods.ResourceRequirements, name: str) -> int:
    amount = pod_requests.requested(resources).get(name)
    if amount is None:
        return 0
    return amount.milli_value() if name == pod_requests.CPU else amount.value()


def _amount_edit(part: _Part, name: str, amount: int) -> Edit:
    """By the container's name: pods may have containers that their template does not."""
    text = pod_requests.amount_text(name, amount)

    def edit(pod: Tree) -> Tree:
        if not part.field:
            return _with_amount(pod, ("spec", "resources"), name, text)
        for place, own in tree_paths.objects(pod, ("spec", part.field)):
            if own.get("name") == part.container:
                return _with_amount(pod, ("spec", part.field, place, "resources"), name, text)
        return pod

    return edit


def _with_amount(pod: Tree, base: Path, name: str, text: str) -> Tree:
    resources = tree_paths.at(pod, base) or {}
    requests = resources.get("requests") or {}
    limits = resources.get("limits") or {}
    if name not in requests and name not in limits:
        return pod
    if not pod_requests.is_extended(name):
        result: Tree = tree_paths.with_value(pod, (*base, "requests", name), text)
        return result
    # What is counted in whole units has equal requests and limits.
    for part, amounts in (("requests", requests), ("limits", limits)):
        if name in amounts:
            pod = tree_paths.with_value(pod, (*base, part, name), text)
    return pod
