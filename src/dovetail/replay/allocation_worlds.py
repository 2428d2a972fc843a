"""Answers allocation questions from files: one small cluster per line in, one answer per node out.

In: {"id", "nodes", "deviceClasses", "resourceSlices", "claims", "allocatedClaims" or "inUse", "deviceTaintRules"}, all
objects as in the API; other fields are ignored. Out: {"id", "node", "outcome", "results", "reasons"}, where the
outcome is allocated, none, node-error (the node sees an invalid pool), error (the claims are invalid on any node) or
undecided (the step budget ran out). Objects are read as they are: nothing is validated or defaulted.
"""

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple, TypeVar, assert_never

import msgspec

from dovetail import errors
from dovetail.allocate import allocator, outcome
from dovetail.kubetypes import codec
from dovetail.kubetypes.core import nodes
from dovetail.kubetypes.resource import claims, device_classes, slices, taint_rules
from dovetail.quantity import quantity
from dovetail.replay import json_lines
from dovetail.world.devices import device_usage
from dovetail.world.views import static_views
from dovetail.world.views.node_view import NodeView

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
    """A decoded world: on which nodes do these claims fit?"""

    id: Any
    views: dict[str, NodeView]
    claims: tuple[claims.ResourceClaim, ...]
    classes: dict[str, device_classes.DeviceClass]


def rows(file: str, *, list_attributes: bool = False) -> Iterator[Row]:
    """The answers for the worlds of a file, one by one. Raises InputError with the line if it is not a world.

    Feature gates have the defaults of 1.37; list attributes are used only with `list_attributes`.
    """
    decoder = msgspec.json.Decoder(World)
    for place, line in json_lines.numbered(file):
        world = json_lines.decoded(decoder, line, place=place)
        try:
            node_answers = answers(question(world), list_attributes=list_attributes)
        except errors.InputError as error:
            raise errors.InputError(f"{place}: {error}") from None
        yield from node_answers


def question(world: World) -> Question:
    """The world as the allocator sees it."""
    views = static_views.node_views(
        _all(nodes.Node, world.nodes),
        _with_distinct_names(_all(slices.ResourceSlice, world.resource_slices)),
        in_use=_usage(world),
        device_taint_rules=_all(taint_rules.DeviceTaintRule, world.device_taint_rules),
    )
    classes_by_name = {
        device_class.metadata.name: device_class
        for device_class in _all(device_classes.DeviceClass, world.device_classes)
    }
    return Question(
        world.id, views, tuple(_all(claims.ResourceClaim, world.claims)), classes_by_name
    )


def answers(world_question: Question, *, list_attributes: bool = False) -> list[Row]:
    """One answer per node, in the order of the nodes."""
    answered = []
    for name, view in world_question.views.items():
        outcome_here = allocator.allocate(
            view, world_question.claims, world_question.classes, list_attributes=list_attributes
        )
        answered.append({"id": world_question.id, "node": name, **_answer(outcome_here)})
    return answered


def _answer(answer: outcome.Outcome) -> Row:
    match answer:
        case outcome.Allocated():
            return {
                "outcome": "allocated",
                "results": [codec.tree_of(result) for result in answer.results],
                "reasons": [],
            }
        case outcome.Refused():
            kind = "node-error" if answer.invalid_pools else "none"
            reasons = [f"invalid pool {pool}" for pool in answer.invalid_pools]
            reasons += map(str, answer.reasons)
            return _not_allocated(kind, reasons)
        case outcome.Undecided():
            return _not_allocated("undecided", [f"no answer within {answer.steps} steps"])
        case outcome.Failed():
            return _not_allocated("error", [answer.message])
        case _:
            assert_never(answer)


def _not_allocated(outcome: str, reasons: list[str]) -> Row:
    return {"outcome": outcome, "results": [], "reasons": reasons}


def _usage(world: World) -> device_usage.Usage:
    """`inUse` if it is set, else the devices of the allocated claims."""
    listed = world.in_use
    if listed is None:
        return device_usage.of_claims(_all(claims.ResourceClaim, world.allocated_claims))

    capacity: dict[str, dict[str, int]] = {}
    for device, consumed in (listed.capacity or {}).items():
        amounts = {name: quantity.from_wire(amount) for name, amount in consumed.items()}
        capacity[device] = {name: amount.nanos for name, amount in amounts.items()}

    devices = listed.devices or ()
    shares = listed.shared or ()
    _check_paths([*devices, *capacity], "driver/pool/device")
    _check_paths(shares, "driver/pool/device/share")
    return device_usage.of_listing(devices, shares, capacity)


def _check_paths(paths: Iterable[str], form: str) -> None:
    for path in paths:
        if path.count("/") < form.count("/"):
            raise errors.InputError(f"inUse: {path!r} is not {form}")


def _all(kind: type[S], raws: Raws) -> list[S]:
    return [codec.decode_struct(kind, bytes(raw)) for raw in raws or ()]


def _with_distinct_names(listed: list[slices.ResourceSlice]) -> list[slices.ResourceSlice]:
    """Slices with distinct names, as in a cluster, although a file may repeat them. Keeps the order by name."""
    name_counts: Counter[str] = Counter()
    distinct = []
    for item in listed:
        name = item.metadata.name
        if name_counts[name]:
            own = msgspec.structs.replace(item.metadata, name=f"{name}\0{name_counts[name]:06}")
            item = msgspec.structs.replace(item, metadata=own)
        name_counts[name] += 1
        distinct.append(item)
    return distinct
