"""MIG profiles that a pod asks for by resource name and no node offers: state, strategy, naming, geometry.

Given the resource, the nodes' labels and what they offer. A profile may be legal on a board and not configured, named
otherwise under the single strategy, or not exist on it at all. Never changes a geometry.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from dovetail.answer.replica.replica import Replica
from dovetail.answer.why.cause_codes import CauseCode
from dovetail.answer.why.evidence import observation
from dovetail.answer.why.evidence.gpu_platform import gpu_nodes
from dovetail.answer.why.evidence.observation import Observed
from dovetail.answer.why.evidence.sources import quoting
from dovetail.gpus import board_facts, catalogue
from dovetail.kubetypes.core import nodes

CONFIG: Final = "nvidia.com/mig.config"
STATE: Final = "nvidia.com/mig.config.state"
STRATEGY: Final = "nvidia.com/mig.strategy"
PRODUCT: Final = "nvidia.com/gpu.product"
PREFIX: Final = "nvidia.com/mig-"
WHOLE: Final = "nvidia.com/gpu"
_UNFINISHED: Final = ("pending", "rebooting", "failed")
_PROFILE: Final = re.compile(
    r"(?:\d{1,3}c\.)?(?P<compute>\d{1,3})g\.(?P<memory>\d{1,5})gb(?P<suffix>[+.\-].*)?"
)
_IN_PRODUCT: Final = re.compile(r"-MIG-(?P<profile>[0-9a-z.+\-]+)$")


def observed_mig(
    replica: Replica, resource: str, all_nodes: Iterable[nodes.Node]
) -> Observed | None:
    """What MIG has to do with a resource that too few nodes offer."""
    machines = [node for node in all_nodes if gpu_nodes.has_gpu(node)]
    offering = [node for node in machines if _amount(node, resource)]
    is_everywhere = not offering
    if seen := _unfinished(resource, machines, is_everywhere=is_everywhere):
        return seen
    if not is_everywhere:
        return None
    if resource.startswith(PREFIX):
        return _profile_absent(resource.removeprefix(PREFIX), machines)
    if resource == WHOLE:
        return _all_partitioned(machines)
    return None


def broken_label(node: nodes.Node) -> str:
    """What the MIG manager reports on a node whose configuration is not in force; empty where it is."""
    state = node.metadata.labels.get(STATE, "")
    if state not in _UNFINISHED:
        return ""
    config = quoting.words(node.metadata.labels.get(CONFIG, ""), 63)
    return f"MIG configuration {config or '?'} is {state}"


def _unfinished(
    resource: str, machines: list[nodes.Node], *, is_everywhere: bool
) -> Observed | None:
    """Nodes whose MIG configuration failed or is under way."""
    broken = [
        node
        for node in machines
        if broken_label(node) and not _amount(node, resource) and _may_concern(node, resource)
    ]
    if not broken:
        return None
    states = sorted(
        {broken_label(node) for node in broken}, key=lambda text: ("failed" not in text, text)
    )
    same = [node.metadata.name for node in broken if broken_label(node) == states[0]]
    advice = ""
    if states[0].endswith("failed"):
        advice = f"; see the MIG manager's log there, then set {CONFIG} to another value and back"
    sentence = f"{states[0]} on {quoting.nodes(same)}, so {resource} is not offered there{advice}"
    lines = [
        quoting.line(f"Node {name}, label {STATE}", None, states[0].rpartition(" ")[2])
        for name in same[:3]
    ]
    return observation.observed_cause(
        CauseCode.MIG_STATE, sentence, *lines, overrides=is_everywhere
    )


def _may_concern(node: nodes.Node, resource: str) -> bool:
    """Whether the node would offer the resource with its configuration in force: `all-disabled` offers whole GPUs."""
    config = node.metadata.labels.get(CONFIG, "")
    if resource.startswith(PREFIX):
        return config != "all-disabled"
    return resource == WHOLE


def _profile_absent(profile: str, machines: list[nodes.Node]) -> Observed | None:
    """A profile that no node offers: named otherwise, not configured, or not legal on any board."""
    if not machines:
        return None
    text = quoting.words(profile, 40)
    single = [node for node in machines if _single_profile(node) == profile]
    if single:
        names = [node.metadata.name for node in single]
        sentence = (
            f"no node offers {PREFIX}{text}: {quoting.nodes(names)} have that profile with MIG strategy "
            f"single, which calls it {WHOLE}; ask for {WHOLE} with node label "
            f"{PRODUCT}={quoting.words(single[0].metadata.labels[PRODUCT], 63)}"
        )
        return observation.observed_cause(
            CauseCode.MIG_PROFILE, sentence, *_label_lines(single, PRODUCT)
        )
    legal = [node for node in machines if profile in _legal(node)]
    offered = _offered_profiles(machines)
    if legal:
        names = [node.metadata.name for node in legal]
        have = f"; they offer {quoting.named(offered)}" if offered else ""
        sentence = (
            f"no node offers {PREFIX}{text}: the boards of {quoting.nodes(names)} can be cut that way, "
            f"but their MIG configuration does not{have}; change {CONFIG}"
        )
        return observation.observed_cause(
            CauseCode.MIG_PROFILE, sentence, *_label_lines(legal, CONFIG)
        )
    candidates = offered or {name for node in machines for name in _legal(node)}
    nearest = nearest_profile(profile, candidates)
    if nearest is None:
        return None
    how = "offered" if offered else "possible"
    sentence = (
        f"no board here has MIG profile {text}; the nearest that is {how}: {nearest}"
        f" ({PREFIX}{nearest})"
    )
    return observation.observed_cause(
        CauseCode.MIG_PROFILE, sentence, *_label_lines(machines, PRODUCT)
    )


def _all_partitioned(machines: list[nodes.Node]) -> Observed | None:
    """Whole GPUs asked for, and every GPU is cut into profiles under names of their own."""
    cut = [node for node in machines if any(_amount(node, name) for name in _profiles_on(node))]
    if not cut or len(cut) < len(machines):
        return None
    names = [node.metadata.name for node in cut]
    sentence = (
        f"no node offers whole GPUs ({WHOLE}): those of {quoting.nodes(names)} are partitioned by MIG; "
        f"ask for {PREFIX}{sorted(_offered_profiles(cut))[0]}, or set {CONFIG}=all-disabled on a node"
    )
    lines = [
        quoting.line(
            f"Node {node.metadata.name}", None, f"offers {quoting.named(_profiles_on(node))}"
        )
        for node in cut[:3]
    ]
    return observation.observed_cause(CauseCode.MIG_PROFILE, sentence, *lines)


def nearest_profile(profile: str, candidates: Iterable[str]) -> str | None:
    """The profile that comes nearest: as much memory or more first, then as much compute, then the smallest."""
    wanted = _size(profile)
    sizes = [(size, name) for name in candidates if (size := _size(name)) is not None]
    if not sizes:
        return None
    if wanted is None:
        return min(sizes)[1]
    compute, memory = wanted

    def distance(entry: tuple[tuple[int, int], str]) -> tuple[int, int, int, int, str]:
        (its_compute, its_memory), name = entry
        is_less = int(its_memory < memory) + int(its_compute < compute)
        return is_less, abs(its_memory - memory), abs(its_compute - compute), len(name), name

    return min(sizes, key=distance)[1]


def _size(profile: str) -> tuple[int, int] | None:
    match = _PROFILE.fullmatch(profile)
    return (int(match["compute"]), int(match["memory"])) if match else None


def _single_profile(node: nodes.Node) -> str:
    """The profile of every GPU of a node under the single strategy."""
    labels = node.metadata.labels
    match = _IN_PRODUCT.search(labels.get(PRODUCT, ""))
    return match["profile"] if match and labels.get(STRATEGY, "single") == "single" else ""


def _legal(node: nodes.Node) -> set[str]:
    """The profiles of the node's board, by resource name; empty for a board that is not known."""
    board = _board(node)
    if board is None:
        return set()
    return {profile.name.value.replace("+", ".") for profile in catalogue.profiles(board)}


def _board(node: nodes.Node) -> board_facts.Gpu | None:
    product = _IN_PRODUCT.sub("", node.metadata.labels.get(PRODUCT, "")).removesuffix("-SHARED")
    if not product:
        return None
    for board in catalogue.all_gpus():
        # A label holds the product name with dashes for blanks.
        if any(name.replace(" ", "-") == product for name in _product_names(board)):
            return board
    return None


def _product_names(board: board_facts.Gpu) -> tuple[str, ...]:
    others = board.other_products.value if board.other_products is not None else ()
    return board.product.value, *others


def _offered_profiles(machines: Iterable[nodes.Node]) -> set[str]:
    return {
        name.removeprefix(PREFIX)
        for node in machines
        for name in _profiles_on(node)
        if _amount(node, name)
    }


def _profiles_on(node: nodes.Node) -> list[str]:
    return [name for name in node.status.allocatable if name.startswith(PREFIX)]


def _amount(node: nodes.Node, resource: str) -> bool:
    amount = node.status.allocatable.get(resource)
    return amount is not None and amount.sign > 0


def _label_lines(machines: Iterable[nodes.Node], key: str) -> list[str]:
    return [
        quoting.line(f"Node {node.metadata.name}, label {key}", None, node.metadata.labels[key])
        for node in machines
        if key in node.metadata.labels
    ][:3]
