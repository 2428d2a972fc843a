"""Allocation questions from outside: one small cluster a line in, one answer per node out.

In: {"id", "nodes", "deviceClasses", "resourceSlices", "claims", "allocatedClaims" or "inUse", "deviceTaintRules"}, all
objects as in the API; other fields are left alone. Out: {"id", "node", "outcome", "results", "reasons"}, where the
outcome is allocated, none, node-error (an invalid pool was in sight), error (the claims make no sense anywhere) or
undecided (the budget ended first). Objects are taken as they are: nothing is validated or defaulted.
"""

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple, TypeVar, assert_never

import msgspec

from dovetail import errors
from dovetail.allocate import allocator, outcome
from dovetail.cli import jsonlines
from dovetail.model import claims, classes, nodes, objects, quantity, slices, taintrules
from dovetail.world import snapshot, usage
from dovetail.world.view import NodeView

S = TypeVar("S", bound=msgspec.Struct)
Raws = list[msgspec.Raw] | None
Row = dict[str, Any]


class _InUse(msgspec.Struct):
    devices: list[str] | None = None
    shared: list[str] | None = None
    capacity: dict[str, dict[str, Any]] | None = None


class World(msgspec.Struct, rename="camel"):
    """A line of a file, its objects still as they were written."""

    id: Any = None
    nodes: Raws = None
    device_classes: Raws = None
    resource_slices: Raws = None
    allocated_claims: Raws = None
    in_use: _InUse | None = None
    device_taint_rules: Raws = None
    claims: Raws = None


class Question(NamedTuple):
    """A world decoded: where do these claims fit."""

    id: Any
    views: dict[str, NodeView]
    claims: tuple[claims.ResourceClaim, ...]
    classes: dict[str, classes.DeviceClass]


def rows(file: str, *, list_attributes: bool = False) -> Iterator[Row]:
    """The answers for the worlds of a file, as they are found. A line that is no world ends with an error naming it.

    Gates are those of 1.37 by default; attributes that are lists count only when asked for.
    """
    decoder = msgspec.json.Decoder(World)
    for place, line in jsonlines.numbered(file):
        world = jsonlines.decoded(decoder, line, place=place)
        try:
            found = answers(question(world), list_attributes=list_attributes)
        except errors.InputError as error:
            raise errors.InputError(f"{place}: {error}") from None
        yield from found


def question(world: World) -> Question:
    """The world as allocation sees it."""
    views = snapshot.node_views(
        _all(nodes.Node, world.nodes),
        _told_apart(_all(slices.ResourceSlice, world.resource_slices)),
        in_use=_usage(world),
        device_taint_rules=_all(taintrules.DeviceTaintRule, world.device_taint_rules),
    )
    known = {one.metadata.name: one for one in _all(classes.DeviceClass, world.device_classes)}
    return Question(world.id, views, tuple(_all(claims.ResourceClaim, world.claims)), known)


def answers(asked: Question, *, list_attributes: bool = False) -> list[Row]:
    """One answer per node, in the order of the nodes."""
    found = []
    for name, view in asked.views.items():
        came_of_it = allocator.allocate(view, asked.claims, asked.classes, list_attributes=list_attributes)
        found.append({"id": asked.id, "node": name, **_answer(came_of_it)})
    return found


def _answer(found: outcome.Outcome) -> Row:
    match found:
        case outcome.Allocated():
            return {"outcome": "allocated", "results": [objects.tree_of(one) for one in found.results], "reasons": []}
        case outcome.Refused():
            kind = "node-error" if found.invalid_pools else "none"
            return _no(kind, [*(f"invalid pool {one}" for one in found.invalid_pools), *map(str, found.reasons)])
        case outcome.Undecided():
            return _no("undecided", [f"no answer within {found.steps} steps"])
        case outcome.Failed():
            return _no("error", [found.message])
        case _:
            assert_never(found)


def _no(outcome: str, reasons: list[str]) -> Row:
    return {"outcome": outcome, "results": [], "reasons": reasons}


def _usage(world: World) -> usage.Usage:
    """`inUse` where it is given, else what the allocated claims hold."""
    listed = world.in_use
    if listed is None:
        return usage.of_claims(_all(claims.ResourceClaim, world.allocated_claims))
    capacity = {
        device: {name: quantity.from_wire(told).nanos for name, told in held.items()}
        for device, held in (listed.capacity or {}).items()
    }
    _check_paths([*(listed.devices or ()), *capacity], "driver/pool/device")
    _check_paths(listed.shared or (), "driver/pool/device/share")
    return usage.of_listing(listed.devices or (), listed.shared or (), capacity)


def _check_paths(paths: Iterable[str], form: str) -> None:
    for path in paths:
        if path.count("/") < form.count("/"):
            raise errors.InputError(f"inUse: {path!r} is not {form}")


def _all(kind: type[S], raws: Raws) -> list[S]:
    return [objects.decode_struct(kind, bytes(raw)) for raw in raws or ()]


def _told_apart(listed: list[slices.ResourceSlice]) -> list[slices.ResourceSlice]:
    """Slices with names of their own, as in a cluster; a file may repeat them. Order by name stays as it is."""
    seen: Counter[str] = Counter()
    found = []
    for one in listed:
        name = one.metadata.name
        if seen[name]:
            own = msgspec.structs.replace(one.metadata, name=f"{name}\0{seen[name]:06}")
            one = msgspec.structs.replace(one, metadata=own)
        seen[name] += 1
        found.append(one)
    return found
