"""Compiles chains of field and index reads: a variable or operand, then qualifiers, resolved together.

A chain is one step for cost: each qualifier costs one, the chain itself one. Chains that start at `device` and use
constant keys become direct dictionary reads.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from dovetail.cel.evaluate import field_access, values
from dovetail.cel.evaluate.field_access import MISSING
from dovetail.cel.evaluate.frame import Frame
from dovetail.cel.evaluate.values import CelError, Value

Run = Callable[[Frame], Value]


class Qualifier:
    """One `.field`, `[key]`, `.?field` or `[?key]` of a chain. The key is constant or computed by a step."""

    __slots__ = ("id", "is_optional", "is_test", "key", "key_run", "step_id")

    def __init__(
        self,
        node_id: int,
        *,
        key: Value = None,
        key_run: Run | None = None,
        is_optional: bool = False,
        is_test: bool = False,
        step_id: int | None = None,
    ) -> None:
        self.id = node_id
        self.key = key
        self.key_run = key_run
        self.is_optional = is_optional
        self.is_test = is_test
        self.step_id = step_id  # set when the key is an ordinary step, which upstream drops from its stack first


class Attribute:
    """A chain under construction. `conditional` holds (condition id, yes, no) for `c ? a : b`."""

    __slots__ = ("base", "branches", "condition_id", "id", "is_unwatched", "qualifiers", "variable")

    def __init__(
        self,
        node_id: int,
        base: Run,
        *,
        variable: str = "",
        branches: tuple[Attribute, Attribute] | None = None,
        condition_id: int = 0,
        is_unwatched: bool = False,
    ) -> None:
        self.id = node_id
        self.is_unwatched = (
            is_unwatched  # upstream does not track reads through a name that a local variable hides
        )
        self.base = base
        self.variable = variable
        self.branches = branches
        self.condition_id = condition_id
        self.qualifiers: list[Qualifier] = []

    def add(self, qualifier: Qualifier) -> None:
        """Appends a qualifier; a conditional passes it to both branches."""
        if self.branches is not None:
            for branch in self.branches:
                branch.add(qualifier)
        else:
            self.qualifiers.append(qualifier)

    @property
    def current_id(self) -> int:
        """The id under which the chain's value is recorded: its last qualifier's."""
        if self.branches is not None:
            yes, no = (branch.current_id for branch in self.branches)
            return yes if yes == no else self.id
        return self.qualifiers[-1].id if self.qualifiers else self.id

    def resolver(self, *, tracked: bool) -> Run:
        """The function that returns the chain's value. Call it once the chain is complete."""
        if self.branches is not None:
            return _conditional(self.base, self.branches, tracked=tracked)
        if not tracked and self.variable == "device" and self.qualifiers:
            direct = _direct(self.qualifiers)
            if direct is not None:
                return direct
        return _general(self.base, self.qualifiers, tracked=tracked and not self.is_unwatched)


def _conditional(condition: Run, branches: tuple[Attribute, Attribute], *, tracked: bool) -> Run:
    yes, no = (branch.resolver(tracked=tracked) for branch in branches)

    def run(frame: Frame) -> Value:
        chosen = condition(frame)
        if chosen is True:
            return yes(frame)
        if chosen is False:
            return no(frame)
        raise values.no_such_overload()

    return run


def _general(base: Run, qualifiers: list[Qualifier], *, tracked: bool) -> Run:
    if not qualifiers:
        return base
    apply = _tracked_apply if tracked else _apply

    def run(frame: Frame) -> Value:
        value = base(frame)
        is_optional = value.__class__ is values.Optional
        if is_optional:
            if not value.has_value:
                return value
            value = value.value
        for qualifier in qualifiers:
            is_optional = is_optional or qualifier.is_optional
            value = apply(frame, value, qualifier, is_optional)
            if value is MISSING:
                return values.NONE
        return values.Optional(value) if is_optional else value

    return run


def _apply(frame: Frame, holder: Value, qualifier: Qualifier, is_optional: bool) -> Value:
    key = qualifier.key if qualifier.key_run is None else _computed(qualifier.key_run(frame))
    if is_optional:
        return field_access.look_up(holder, key)
    if qualifier.is_test:
        return field_access.look_up(holder, key) is not MISSING
    return field_access.read(holder, key)


def _computed(key: Value) -> Value:
    if key.__class__ in field_access.KEY_CLASSES:
        return key
    raise CelError(f"invalid qualifier type: {values.type_of(key)}")


def _tracked_apply(frame: Frame, holder: Value, qualifier: Qualifier, is_optional: bool) -> Value:
    tracker = frame.tracker
    assert tracker is not None
    try:
        value = _apply(frame, holder, qualifier, is_optional)
    except CelError as error:
        if not is_optional:
            _charge(tracker, qualifier, error)
        raise
    if value is not MISSING:  # a missing value of an optional chain is not recorded
        _charge(tracker, qualifier, value)
    return value


def _charge(tracker: Any, qualifier: Qualifier, value: Value) -> None:
    if qualifier.step_id is not None:
        tracker.drop(qualifier.step_id)
    tracker.cost += 1
    tracker.push(qualifier.id, value)


def _direct(chain: list[Qualifier]) -> Run | None:
    """Dictionary reads for chains from `device`: whole for `device.attributes["d"].name`, else for their start."""
    field = _FIELDS.get(chain[0].key) if chain[0].key.__class__ is str else None
    if field is None or chain[0].is_optional or chain[0].is_test:
        return None
    is_plain = all(
        q.key_run is None and not q.is_optional and q.key.__class__ is str for q in chain
    )
    if (
        is_plain
        and len(chain) == 3
        and not chain[1].is_test
        and chain[0].key in ("attributes", "capacity")
    ):
        names = [q.key for q in chain]
        return _direct_test(names) if chain[2].is_test else _direct_read(names)
    return _general(field, chain[1:], tracked=False)


_FIELDS: dict[str, Run] = {
    "driver": lambda frame: frame.device.driver,
    "allowMultipleAllocations": lambda frame: frame.device.allows_multiple,
    "attributes": lambda frame: frame.device.attributes,
    "capacity": lambda frame: frame.device.capacity,
}
_EMPTY: dict[str, Value] = {}


def _direct_read(names: list[str]) -> Run:
    field, domain, name = names
    if field == "attributes":

        def run(frame: Frame) -> Value:
            try:
                return frame.device.attributes[domain][name]
            except KeyError:
                raise field_access.missing_key(name) from None

    else:

        def run(frame: Frame) -> Value:
            try:
                return frame.device.capacity[domain][name]
            except KeyError:
                raise field_access.missing_key(name) from None

    return run


def _direct_test(names: list[str]) -> Run:
    field, domain, name = names
    if field == "attributes":
        return lambda frame: name in frame.device.attributes.get(domain, _EMPTY)
    return lambda frame: name in frame.device.capacity.get(domain, _EMPTY)
