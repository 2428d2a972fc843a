"""The state of an evaluation: the view of the device, local variables, and the cost so far."""

from __future__ import annotations

import sys
from typing import Final

from dovetail.cel.evaluate.values import DomainMap, Value

COST_LIMIT: Final = 1_000_000  # resource.k8s.io/v1 CELSelectorExpressionMaxCost

UNSET: Final = object()  # what a slot holds before it is given a value


class DeviceView:
    """One device as expressions see it. `problem` is set when its attributes cannot be read at all."""

    __slots__ = ("allows_multiple", "attributes", "capacity", "driver", "problem")

    def __init__(
        self,
        *,
        driver: str,
        attributes: DomainMap,
        capacity: DomainMap,
        allows_multiple: bool = False,
        problem: str | None = None,
    ) -> None:
        self.driver = driver
        self.attributes = attributes
        self.capacity = capacity
        self.allows_multiple = allows_multiple
        self.problem = problem

    def as_map(self) -> dict[str, Value]:
        """The `device` variable as a whole; rarely needed, so not kept."""
        return {
            "driver": self.driver,
            "allowMultipleAllocations": self.allows_multiple,
            "attributes": self.attributes,
            "capacity": self.capacity,
        }


NOTHING: Final = DeviceView(driver="", attributes=DomainMap(), capacity=DomainMap())


class CostExceeded(Exception):
    """The cost limit was passed. Not a CEL error: nothing absorbs it."""


class Tracker:
    """Counts cost step by step exactly as cel-go does, value stack included.

    A call is charged when the values of all its arguments are found on the stack; what lies above a found value is
    dropped with it. Leftovers of abandoned steps therefore matter, and are kept. Each operation takes amortised
    constant time: an entry knows where the one before it with the same id lies.
    """

    __slots__ = ("_last", "_stack", "cost", "limit", "most_steps", "steps")

    def __init__(self, limit: int = COST_LIMIT, *, most_steps: int = sys.maxsize) -> None:
        self.cost = 0
        self.limit = limit
        self.steps = 0  # many a step is free, but none takes no time
        self.most_steps = most_steps
        self._stack: list[
            tuple[int, Value, int]
        ] = []  # id, value, position of the previous entry with this id
        self._last: dict[int, int] = {}

    def push(self, node_id: int, value: Value) -> None:
        """Records a step's value; ends evaluation once a limit is passed."""
        last = self._last
        self.steps += 1
        self._stack.append((node_id, value, last.get(node_id, -1)))
        last[node_id] = len(self._stack) - 1
        if self.cost > self.limit or self.steps > self.most_steps:
            raise CostExceeded

    def drop(self, *ids: int) -> None:
        """Forgets each step's value and what was recorded after it."""
        for node_id in ids:
            position = self._last.get(node_id, -1)
            if position >= 0:
                self._cut(position)

    def take(self, ids: tuple[int, ...]) -> list[Value] | None:
        """The values of a call's arguments, last argument first on the stack; None when one is missing."""
        values: list[Value] = []
        for node_id in reversed(ids):
            position = self._last.get(node_id, -1)
            if position < 0:
                return None
            values.append(self._stack[position][1])
            self._cut(position)
        values.reverse()
        return values

    def _cut(self, position: int) -> None:
        stack, last = self._stack, self._last
        while len(stack) > position:
            node_id, _, previous = stack.pop()
            last[node_id] = previous


class Frame:
    """One evaluation: the device, a slot per local variable, and a tracker when cost is counted."""

    __slots__ = ("device", "slots", "tracker")

    def __init__(self, device: DeviceView, slot_count: int, tracker: Tracker | None = None) -> None:
        self.device = device
        self.slots: list[Value] = [UNSET] * slot_count
        self.tracker = tracker
