"""Makes gangs of native groups that stand in a tree: PodGroups below CompositePodGroups (scheduling.k8s.io).

A composite that neither counts its groups nor ties them to a place, nor to each other when they are disrupted, leaves
each of them to itself. The first below such composites is the head: with all below it, it is one gang, and its
PodGroups are groups there. Given the objects of one path or tree. Never looks for them, never reads a pod.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final, NamedTuple

import msgspec

from dovetail.model import gangs, meta, wishes
from dovetail.model.gangs import Gang, Group
from dovetail.model.workloads import owners, reading

MOST_LEVELS: Final = 4  # scheduling.k8s.io: of a tree, PodGroups included
MOST_GROUPS: Final = 1_000  # of one gang: anybody can make more, and each is read again when one of them changes

Native = owners.PodGroup | owners.CompositePodGroup
Children = Callable[[owners.CompositePodGroup], Iterable[Native]]


class Path(NamedTuple):
    """From a group up to its root."""

    above: tuple[owners.CompositePodGroup, ...] = ()  # the parent first
    missing: str = ""  # a composite that is named and not there
    problem: str = ""  # why there is no root


def is_loose(composite: owners.CompositePodGroup) -> bool:
    """Whether the groups of a composite have nothing to do with each other."""
    spec = composite.spec
    is_placed = reading.native_topology(spec.scheduling_constraints) is not None
    return spec.scheduling_policy.gang is None and not is_placed and not reading.is_whole(spec.disruption_mode)


def head_of(above: Sequence[owners.CompositePodGroup]) -> owners.CompositePodGroup | None:
    """The composite that is a gang, of those above a group; None where the group stands alone."""
    return next((one for one in reversed(above) if not is_loose(one)), None)


def gang_name(composite: owners.CompositePodGroup) -> str:
    """What the gang of a composite is called."""
    return f"{gangs.COMPOSITE}/{composite.metadata.name}"


def pod_group(found: owners.PodGroup, path: Path, maker: meta.ObjectMeta | None = None) -> Gang | None:
    """What a PodGroup is: a gang, a group of a larger one, or nothing yet where a part of its path lacks."""
    if path.missing or path.problem:
        gang = reading.gang_of(found)
        lacking = path.missing or found.spec.parent_composite_pod_group_name or ""
        if gang is None:
            return None
        return msgspec.structs.replace(
            gang,
            part_of=f"{gangs.COMPOSITE}/{lacking}",
            groups=(),  # whatever else is below: nobody counts before all is known
            min_groups=0,
            is_known=False,
            is_loose=False,
            problems=(*gang.problems, *((path.problem,) if path.problem else ())),
        )
    root = path.above[-1] if path.above else None
    gang = reading.gang_of(found, root.metadata if root is not None else maker)
    if gang is None or root is None:
        return gang
    head = head_of(path.above)
    if head is not None:
        return msgspec.structs.replace(gang, part_of=gang_name(head), is_loose=False)
    return msgspec.structs.replace(gang, **_urgency(root, gang))


def composite(found: owners.CompositePodGroup, path: Path, children: Children) -> Gang | None:
    """The gang of a composite with all that is below it; None where it is part of another, loose, or not in order."""
    if path.missing or path.problem or is_loose(found) or head_of(path.above) is not None:
        return None
    levels = MOST_LEVELS - len(path.above) - 1
    inner = [*itertools.islice(_inner(found, children, levels=levels), MOST_GROUPS + 1)]
    problems = (f"it has more than {MOST_GROUPS} groups",) if len(inner) > MOST_GROUPS else ()
    if problems:
        inner = []
    root = path.above[-1] if path.above else found
    gang = Gang(
        metadata=meta.ObjectMeta(
            namespace=found.metadata.namespace,
            name=gang_name(found),
            creation_timestamp=found.metadata.creation_timestamp,
        ),
        min_groups=_least(found),
        groups=tuple(group for one, parent in inner if (group := _group(one, parent)) is not None) or (gangs.LONE,),
        topology=reading.native_topology(found.spec.scheduling_constraints),
        is_known=not problems,
        problems=problems,
        evicts_whole=any(reading.is_whole(one.spec.disruption_mode) for one in (found, *(one for one, _ in inner))),
    )
    gang = msgspec.structs.replace(gang, **_urgency(root, gang))
    said = wishes.read(*(wishes.place_of(one.metadata) for one, _ in inner))
    asked = wishes.read(*(wishes.place_of(one.metadata) for one in (*reversed(path.above), found)))
    said = said._replace(min=None, max=None, topology=None, segments=None)  # each group's own
    return gangs.asking(gangs.asking(gang, said), asked._replace(min=None, max=None, segments=None))


def _urgency(root: owners.CompositePodGroup, gang: Gang) -> dict[str, int | None]:
    """The whole tree is as urgent as its root says, as Kubernetes' own scheduler has it."""
    never = reading.NEVER_SECONDS if root.spec.preemption_policy == "Never" else 0
    priority = root.spec.priority if root.spec.priority is not None else gang.priority
    return {"priority": priority, "may_evict_after": max(never, gang.may_evict_after)}


def _inner(
    found: owners.CompositePodGroup, children: Children, *, levels: int, parent: str | None = None
) -> Iterator[tuple[Native, str | None]]:
    """Everything below a composite, each with the name of the group it is in. What is too deep is left out."""
    for child in children(found) if levels > 0 else ():
        yield child, parent
        if isinstance(child, owners.CompositePodGroup):
            yield from _inner(child, children, levels=levels - 1, parent=gang_name(child))


def _group(found: Native, parent: str | None) -> Group | None:
    """What stands for a native group in the gang of its head: as if it were alone."""
    if isinstance(found, owners.CompositePodGroup):
        wish = reading.native_topology(found.spec.scheduling_constraints)
        return Group(name=gang_name(found), parent=parent, holds_groups=True, min=_least(found), topology=wish)
    gang = reading.gang_of(found)
    if gang is None:
        return None
    (only,) = gang.groups
    wish = only.topology or gang.topology
    return msgspec.structs.replace(only, name=gang.metadata.name, parent=parent, topology=wish)


def _least(found: owners.CompositePodGroup) -> int:
    """How many groups a composite needs: one, unless it says more."""
    together = found.spec.scheduling_policy.gang
    return max(1, together.min_group_count or 1) if together is not None else 1
