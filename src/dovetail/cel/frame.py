"""What an evaluation works on: the device as expressions see it, local variables, and the cost so far."""

from __future__ import annotations

from typing import Final

from dovetail.cel.values import DomainMap, Value

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
    dropped with it. Leftovers of abandoned steps therefore matter, and are kept.
    """

    __slots__ = ("cost", "limit", "stack")

    def __init__(self, limit: int = COST_LIMIT) -> None:
        self.cost = 0
        self.limit = limit
        self.stack: list[tuple[int, Value]] = []

    def push(self, id_: int, value: Value) -> None:
        """Records a step's value; ends evaluation once the limit is passed."""
        self.stack.append((id_, value))
        if self.cost > self.limit:
            raise CostExceeded

    def drop(self, *ids: int) -> None:
        """Forgets each step's value and what was recorded after it."""
        stack = self.stack
        for id_ in ids:
            for index in range(len(stack) - 1, -1, -1):
                if stack[index][0] == id_:
                    del stack[index:]
                    break

    def take(self, ids: tuple[int, ...]) -> list[Value] | None:
        """The values of a call's arguments, last argument first on the stack; None when one is missing."""
        stack = self.stack
        found: list[Value] = []
        for id_ in reversed(ids):
            for index in range(len(stack) - 1, -1, -1):
                if stack[index][0] == id_:
                    found.append(stack[index][1])
                    del stack[index:]
                    break
            else:
                return None
        found.reverse()
        return found


class Frame:
    """One evaluation: the device, a slot per local variable, and a tracker when cost is counted."""

    __slots__ = ("device", "slots", "tracker")

    def __init__(self, device: DeviceView, slot_count: int, tracker: Tracker | None = None) -> None:
        self.device = device
        self.slots: list[Value] = [UNSET] * slot_count
        self.tracker = tracker
