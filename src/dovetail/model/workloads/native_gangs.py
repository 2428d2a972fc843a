"""Derives gangs from trees of native groups: PodGroups below CompositePodGroups (scheduling.k8s.io).

A composite is loose if it neither counts its groups, nor requires a place for them, nor disrupts them as a whole: each
of its groups stands alone. The topmost composite that is not loose is the head: with everything below it, it is one
gang, and its PodGroups are groups of that gang. Given the objects of one path or tree. Never searches for them, never
reads a pod.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final, NamedTuple

import msgspec

from dovetail.kubetypes import meta
from dovetail.kubetypes.workloads import owners
from dovetail.model import gangs, workload_annotations
from dovetail.model.gangs import Gang, Group
from dovetail.model.workloads import owner_gangs

MOST_LEVELS: Final = 4  # scheduling.k8s.io: of a tree, PodGroups included
# Groups of one gang: the number is user input, and all of them are read again when one changes.
MOST_GROUPS: Final = 1_000

Native = owners.PodGroup | owners.CompositePodGroup
Children = Callable[[owners.CompositePodGroup], Iterable[Native]]


class Path(NamedTuple):
    """From a group up to its root."""

    above: tuple[owners.CompositePodGroup, ...] = ()  # the parent first
    missing: str = ""  # a composite that is named and does not exist
    problem: str = ""  # why there is no root


def is_loose(composite: owners.CompositePodGroup) -> bool:
    """Whether the groups of a composite are independent of each other."""
    spec = composite.spec
    is_placed = owner_gangs.native_topology(spec.scheduling_constraints) is not None
    return (
        spec.scheduling_policy.gang is None
        and not is_placed
        and not owner_gangs.is_whole(spec.disruption_mode)
    )


def head_of(above: Sequence[owners.CompositePodGroup]) -> owners.CompositePodGroup | None:
    """The topmost composite above a group that is not loose; None where the group stands alone."""
    return next((ancestor for ancestor in reversed(above) if not is_loose(ancestor)), None)


def gang_name(composite: owners.CompositePodGroup) -> str:
    """The name of a composite's gang."""
    return f"{gangs.COMPOSITE}/{composite.metadata.name}"


def pod_group(
    group: owners.PodGroup, path: Path, maker: meta.ObjectMeta | None = None
) -> Gang | None:
    """The gang of a PodGroup: complete, part of a larger one, or not known yet where its path is incomplete."""
    if path.missing or path.problem:
        return _unrooted(group, path)
    root = path.above[-1] if path.above else None
    gang = owner_gangs.gang_of(group, root.metadata if root is not None else maker)
    if gang is None or root is None:
        return gang
    head = head_of(path.above)
    if head is not None:
        return msgspec.structs.replace(gang, part_of=gang_name(head), is_loose=False)
    return msgspec.structs.replace(gang, **_urgency(root, gang))


def _unrooted(group: owners.PodGroup, path: Path) -> Gang | None:
    """The gang of a PodGroup whose root is not known: none of its pods may start."""
    gang = owner_gangs.gang_of(group)
    if gang is None:
        return None
    parent = path.missing or group.spec.parent_composite_pod_group_name or ""
    problems = (path.problem,) if path.problem else ()
    return msgspec.structs.replace(
        gang,
        part_of=f"{gangs.COMPOSITE}/{parent}",
        groups=(),  # what else belongs to the larger gang is not known
        min_groups=0,
        is_known=False,
        is_loose=False,
        problems=(*gang.problems, *problems),
    )


def composite(head: owners.CompositePodGroup, path: Path, children: Children) -> Gang | None:
    """The gang of a composite with everything below it; None where it is part of another, loose, or not in order."""
    if path.missing or path.problem or is_loose(head) or head_of(path.above) is not None:
        return None
    levels = MOST_LEVELS - len(path.above) - 1
    below = [*itertools.islice(_below(head, children, levels=levels), MOST_GROUPS + 1)]
    problems: tuple[str, ...] = ()
    if len(below) > MOST_GROUPS:
        problems = (f"it has more than {MOST_GROUPS} groups",)
        below = []

    members = [member for member, _ in below]
    groups = [_group(member, parent) for member, parent in below]
    modes = [native.spec.disruption_mode for native in (head, *members)]
    gang = Gang(
        metadata=meta.ObjectMeta(
            namespace=head.metadata.namespace,
            name=gang_name(head),
            creation_timestamp=head.metadata.creation_timestamp,
        ),
        min_groups=_min_groups(head),
        groups=tuple(group for group in groups if group is not None) or (gangs.LONE_GROUP,),
        topology=owner_gangs.native_topology(head.spec.scheduling_constraints),
        is_known=not problems,
        problems=problems,
        evicts_whole=any(map(owner_gangs.is_whole, modes)),
    )
    root = path.above[-1] if path.above else head
    gang = msgspec.structs.replace(gang, **_urgency(root, gang))

    # Sizes and topologies of members apply to their own groups; the requests of the path override the members'.
    by_members = _options(members)._replace(min=None, max=None, topology=None, segments=None)
    by_path = _options((*reversed(path.above), head))._replace(min=None, max=None, segments=None)
    return gangs.with_options(gangs.with_options(gang, by_members), by_path)


def _options(natives: Iterable[Native]) -> workload_annotations.WorkloadOptions:
    places = [workload_annotations.labels_and_annotations(native.metadata) for native in natives]
    return workload_annotations.read(*places)


def _urgency(root: owners.CompositePodGroup, gang: Gang) -> dict[str, int | None]:
    """The root's priority and preemption policy hold for the whole tree, as in kube-scheduler."""
    never = owner_gangs.NEVER_SECONDS if root.spec.preemption_policy == "Never" else 0
    priority = root.spec.priority if root.spec.priority is not None else gang.priority
    return {"priority": priority, "may_evict_after": max(never, gang.may_evict_after)}


def _below(
    composite: owners.CompositePodGroup,
    children: Children,
    *,
    levels: int,
    parent: str | None = None,
) -> Iterator[tuple[Native, str | None]]:
    """Everything below a composite, each with the name of its parent group. Deeper levels are left out."""
    if levels <= 0:
        return
    for child in children(composite):
        yield child, parent
        if isinstance(child, owners.CompositePodGroup):
            yield from _below(child, children, levels=levels - 1, parent=gang_name(child))


def _group(native: Native, parent: str | None) -> Group | None:
    """The group that stands for a native group in the gang of its head, with its own minimum and topology."""
    if isinstance(native, owners.CompositePodGroup):
        return Group(
            name=gang_name(native),
            parent=parent,
            holds_groups=True,
            min=_min_groups(native),
            topology=owner_gangs.native_topology(native.spec.scheduling_constraints),
        )
    gang = owner_gangs.gang_of(native)
    if gang is None:
        return None
    (group,) = gang.groups
    topology = group.topology or gang.topology
    return msgspec.structs.replace(group, name=gang.metadata.name, parent=parent, topology=topology)


def _min_groups(composite: owners.CompositePodGroup) -> int:
    """How many groups a composite needs: one, unless its gang policy requires more."""
    gang_policy = composite.spec.scheduling_policy.gang
    return 1 if gang_policy is None else max(1, gang_policy.min_group_count or 1)
