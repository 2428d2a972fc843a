"""Judges the control plane and our place in it: versions, kinds served, clocks, rights, leases, other schedulers.

Facts in, findings out, one function per check. Never asks a cluster.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Final

from dovetail.model import leases, pods
from dovetail.model.health.facts import Facts, Finding, Severity, age_seconds, counted, some

FIRST: Final = (1, 34)  # the first server that has resource.k8s.io/v1
TESTED: Final = ((1, 36), (1, 37))  # what the end-to-end tests run on
KUBELET_SKEW: Final = 3  # minor versions a kubelet may be older than its server
CLOCK_SECONDS: Final = 5.0
PATIENCE_SECONDS: Final = 60.0  # a pod that waits so long without anybody answering is worth a word
DEFAULT_SCHEDULER: Final = "default-scheduler"
RESOURCE_V1: Final = "resource.k8s.io/v1"
NEEDED_KINDS: Final = (
    "resourceclaims",
    "resourceclaims/status",
    "resourceclaimtemplates",
    "resourceslices",
    "deviceclasses",
)
TAINT_RULE_VERSIONS: Final = (RESOURCE_V1, "resource.k8s.io/v1beta2", "resource.k8s.io/v1alpha3")
GROUP_VERSIONS: Final = ("scheduling.k8s.io/v1beta1", "scheduling.k8s.io/v1alpha3", "scheduling.k8s.io/v1alpha2")
ADMISSION: Final = "admissionregistration.k8s.io/v1"
ASKED_VERSIONS: Final = tuple(dict.fromkeys((*TAINT_RULE_VERSIONS, *GROUP_VERSIONS, ADMISSION)))
TERMINAL: Final = ("Succeeded", "Failed")


def versions(facts: Facts) -> Iterator[Finding]:
    """Whether the server is one we run on, and kubelets are not too far from it."""
    if facts.server_number is None:
        return
    shown = facts.server_version or "unknown"
    if facts.server_number < FIRST:
        what = f"the server is {shown}; resource.k8s.io/v1 came with 1.34, so devices cannot be scheduled"
        yield _error("versions", what, next="upgrade the control plane to 1.36 or 1.37")
    elif facts.server_number not in TESTED:
        tested = " and ".join(f"{major}.{minor}" for major, minor in TESTED)
        yield _warning("versions", f"the server is {shown}; tested are {tested}", next="try it with --shadow first")
    for version, names in sorted(_by_version(facts.kubelets or {}).items()):
        number = number_of(version)
        if number is None or number[0] != facts.server_number[0]:  # such as v0.0.0-hollow: no kubelet at all
            continue
        behind = facts.server_number[1] - number[1]
        if behind < 0:
            what = f"{counted(len(names), 'kubelet')} {version}, newer than the server {shown}"
            yield _error("versions", what, where=some(names), next="upgrade the control plane before nodes")
        elif behind > KUBELET_SKEW:
            what = f"{counted(len(names), 'kubelet')} {version}, {behind} minor versions older than the server {shown}"
            yield _error("versions", what, where=some(names), next="upgrade these nodes")


def kinds(facts: Facts) -> Iterator[Finding]:
    """Whether the server serves what we use; features that are off show as kinds that are missing."""
    if facts.served is None:
        return
    missing = [one for one in NEEDED_KINDS if one not in facts.served.get(RESOURCE_V1, frozenset())]
    if missing:
        what = f"{RESOURCE_V1} lacks {', '.join(missing)}: claims for devices cannot be used"
        yield _error("kinds", what, next="enable the API (--runtime-config) and the gate DynamicResourceAllocation")
    rule = next((one for one in TAINT_RULE_VERSIONS if "devicetaintrules" in facts.served.get(one, ())), None)
    if rule is None:
        yield _note("kinds", "DeviceTaintRules are not served: devices cannot be owned or drained by rule")
    elif rule != RESOURCE_V1:
        yield _note("kinds", f"DeviceTaintRules are served as {rule}, not yet as {RESOURCE_V1}; both are read")
    if not any("podgroups" in facts.served.get(one, ()) for one in GROUP_VERSIONS):
        yield _note("kinds", "PodGroups of scheduling.k8s.io are not served: native gangs are not available")
    policies = facts.served.get(ADMISSION, frozenset())
    if "mutatingadmissionpolicies" not in policies:
        yield _note(
            "kinds", f"MutatingAdmissionPolicy is not served as {ADMISSION}: pods name their scheduler themselves"
        )


def clocks(facts: Facts) -> Iterator[Finding]:
    """Whether this machine's clock agrees with the server's. Ages and lease times are read with it."""
    ahead = facts.clock_ahead_seconds
    if ahead is not None and abs(ahead) > CLOCK_SECONDS:
        way = "ahead of" if ahead > 0 else "behind"
        yield _warning("clock", f"this machine is {abs(ahead):.0f} s {way} the server", next="timedatectl status")


def rights(facts: Facts) -> Iterator[Finding]:
    """Whether the scheduler may do what it does."""
    asked = facts.rights
    if asked is None or not asked.missing:
        return
    if len(asked.missing) == len(asked.needed):
        if any(_is_ours(one, facts) and _is_alive(one, facts) for one in facts.leases or ()):
            what = f"{asked.subject} has no rights, yet somebody leads: the scheduler runs as another user"
            yield _note("rights", f"{what}; --service-account names whose rights to check")
            return
        what = f"{asked.subject} has none of the {len(asked.needed)} rights a scheduler needs; is it installed?"
        yield _error("rights", what, where=asked.subject, next="dovetail install")
        return
    what = f"{asked.subject} lacks {some([str(one) for one in asked.missing], 6)}"
    yield _error(
        "rights", what, where=asked.subject, next="dovetail upgrade, or compare with `dovetail install --dry-run`"
    )


def leader(facts: Facts) -> Iterator[Finding]:
    """Whether one of our replicas leads."""
    if facts.leases is None:
        return
    ours = facts.ours
    where = f"lease {ours.lease_namespace}/{ours.lease_name}"
    command = f"kubectl -n {ours.lease_namespace} get lease {ours.lease_name} -o yaml"
    found = next((one for one in facts.leases if _is_ours(one, facts)), None)
    if found is None:
        yield _warning("leader", "no scheduler of ours has ever led here", where=where, next="dovetail scheduler")
    elif not found.spec.holder_identity:
        yield _error("leader", "nobody leads: the last leader gave the lease back", where=where, next=command)
    elif not _is_alive(found, facts):
        age = age_seconds(found.spec.renew_time, facts.now)
        since = "at a time nobody can read" if age is None else f"{age:.0f} s ago"
        what = f"nobody leads: {found.spec.holder_identity} renewed the lease last {since}"
        yield _error("leader", what, where=where, next=command)


def schedulers(facts: Facts) -> Iterator[Finding]:
    """Who else schedules here, and whether two could give one device away."""
    if facts.pods is None:
        return
    names = Counter(scheduler_of(pod) for pod in facts.pods if pod.status.phase not in TERMINAL)
    if names:
        census = ", ".join(f"{name} {count}" for name, count in names.most_common())
        yield _note("schedulers", f"pods by scheduler: {census}")
    others = [one for one in facts.leases or () if "scheduler" in one.metadata.name and not _is_ours(one, facts)]
    alive = [f"{one.metadata.namespace}/{one.metadata.name}" for one in others if _is_alive(one, facts)]
    if alive:
        yield _note("schedulers", f"other schedulers lead here: {some(alive)}")
    takers = Counter(scheduler_of(pod) for pod in facts.pods if pod.spec.node_name and _uses_devices(pod))
    rivals = [name for name in takers if name not in facts.ours.names]
    if rivals and any(name in takers for name in facts.ours.names) and not facts.ours.is_bounded:
        held = ", ".join(f"{name} {takers[name]}" for name in sorted(rivals))
        what = f"others give devices to pods too ({held}), and nothing says which nodes are ours: a device can go twice"
        yield _warning(
            "schedulers", what, next="set ownership in the scheduler's configuration; give it to doctor with --config"
        )
    yield from _unheard(facts)


def ownership(facts: Facts) -> Iterator[Finding]:
    """Whether what the configuration calls ours exists."""
    if facts.nodes is None:
        return
    ours = facts.ours
    if ours.node_labels:
        wanted = ours.node_labels.items()
        if not any(wanted <= node.metadata.labels.items() for node in facts.nodes):
            selector = ",".join(f"{key}={value}" for key, value in sorted(wanted))
            yield _error(
                "ownership",
                f"no node carries the labels of our nodes ({selector}): every pod of ours waits",
                next=f"kubectl label node NAME {selector.replace(',', ' ')}",
            )
    if ours.node_taint and not any(t.key == ours.node_taint for node in facts.nodes for t in node.spec.taints):
        yield _error(
            "ownership",
            f"no node carries the taint of our nodes ({ours.node_taint}): every pod of ours waits",
            next=f"kubectl taint node NAME {ours.node_taint}=:NoSchedule",
        )


def scheduler_of(pod: pods.Pod) -> str:
    """Who is to place the pod."""
    return pod.spec.scheduler_name or DEFAULT_SCHEDULER


def number_of(version: str) -> tuple[int, int] | None:
    """(1, 37) of v1.37.1 and the like; None if it is none."""
    parts = version.removeprefix("v").split(".")
    digits = ["".join(c for c in part if c in "0123456789") for part in parts[:2]]
    return (int(digits[0]), int(digits[1])) if len(digits) == 2 and all(digits) else None


def _unheard(facts: Facts) -> Iterator[Finding]:
    """Pods that name a scheduler nobody here is."""
    known = {*facts.ours.names, DEFAULT_SCHEDULER}
    known |= {scheduler_of(pod) for pod in facts.pods or () if pod.spec.node_name}
    known |= {one.metadata.name for one in facts.leases or () if _is_alive(one, facts)}
    waiting: dict[str, list[str]] = {}
    for pod in facts.pods or ():
        name = scheduler_of(pod)
        if name in known or pod.spec.node_name or pod.status.phase in TERMINAL:
            continue
        if (age_seconds(pod.metadata.creation_timestamp, facts.now) or 0) > PATIENCE_SECONDS:
            waiting.setdefault(name, []).append(f"{pod.metadata.namespace}/{pod.metadata.name}")
    for name, found in sorted(waiting.items()):
        what = (
            f'{counted(len(found), "pod")} wait for scheduler "{name}", which has placed nothing here and leads nothing'
        )
        command = f"kubectl get pods -A --field-selector spec.schedulerName={name},status.phase=Pending"
        yield _error("schedulers", what, where=some(sorted(found)), next=command)


def _uses_devices(pod: pods.Pod) -> bool:
    return bool(pod.spec.resource_claims) or pod.status.extended_resource_claim_status is not None


def _is_ours(lease: leases.Lease, facts: Facts) -> bool:
    return (lease.metadata.namespace, lease.metadata.name) == (facts.ours.lease_namespace, facts.ours.lease_name)


def _is_alive(lease: leases.Lease, facts: Facts) -> bool:
    age = age_seconds(lease.spec.renew_time, facts.now)
    ahead = facts.clock_ahead_seconds or 0.0
    return (
        bool(lease.spec.holder_identity)
        and age is not None
        and age - ahead <= (lease.spec.lease_duration_seconds or 0) + CLOCK_SECONDS
    )


def _by_version(kubelets: dict[str, str]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for node, version in sorted(kubelets.items()):
        found.setdefault(version, []).append(node)
    return found


def _error(check: str, what: str, *, where: str = "", next: str = "") -> Finding:
    return Finding(severity=Severity.ERROR, check=check, what=what, where=where, next=next)


def _warning(check: str, what: str, *, where: str = "", next: str = "") -> Finding:
    return Finding(severity=Severity.WARNING, check=check, what=what, where=where, next=next)


def _note(check: str, what: str) -> Finding:
    return Finding(severity=Severity.NOTE, check=check, what=what)
