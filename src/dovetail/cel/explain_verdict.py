"""Says why a device matched or not: each part of an expression with its own verdict and the values it read."""

from __future__ import annotations

from typing import Final, NamedTuple

from dovetail.cel import reads
from dovetail.cel.check.checker import Checked
from dovetail.cel.effort import UNBOUNDED, Effort
from dovetail.cel.environment import stored
from dovetail.cel.evaluate import compiler, values
from dovetail.cel.evaluate.frame import COST_LIMIT, CostExceeded, DeviceView, Frame, Tracker
from dovetail.cel.evaluate.program import Program
from dovetail.cel.evaluate.values import CelError, Panic, Value
from dovetail.cel.language import ast
from dovetail.cel.language.macros import UNUSED
from dovetail.cel.reads import OWN_DOMAIN, Path
from dovetail.quantity.quantity import Quantity
from dovetail.quantity.semver import Semver

PLANNING_UNITS_PER_NODE: Final = 10


class Read(NamedTuple):
    """What an expression read: `gpu.nvidia.com/memory`, and its value."""

    name: str
    value: str


class Part(NamedTuple):
    """One part of an expression: its text, its verdict (`true`, `false`, `error`), what it read."""

    text: str
    verdict: str
    reason: str
    reads: tuple[Read, ...]


def explain(program: Program, device: DeviceView, effort: Effort = UNBOUNDED) -> list[Part]:
    """The parts joined by && and || (also inside cel.bind), in text order. Raises Unfinished."""
    if device.problem is not None:
        return [Part(program.expression, "error", device.problem, ())]
    planning_units = program.size * PLANNING_UNITS_PER_NODE
    effort.demand(planning_units)
    effort.charge(planning_units)
    parts: list[Part] = []
    _Collector(program, device, effort, parts).collect(program.checked.root, [])
    return parts


class _Collector(NamedTuple):
    program: Program
    device: DeviceView
    effort: Effort
    parts: list[Part]

    def collect(self, node: ast.Node, bindings: list[ast.Comprehension]) -> None:
        if isinstance(node, ast.Call) and node.function in ("_&&_", "_||_"):
            for arg in node.args:
                self.collect(arg, bindings)
        elif (
            isinstance(node, ast.Comprehension)
            and node.iter_var == UNUSED
            and not node.accu_var.startswith("@")
        ):
            self.collect(node.result, [*bindings, node])
        else:
            bound = _bound(node, bindings)
            self.parts.append(_part(self.program, bound, node, self.device, effort=self.effort))


def _bound(node: ast.Node, bindings: list[ast.Comprehension]) -> ast.Node:
    """The node inside the local variables it may use."""
    for binding in reversed(bindings):
        node = ast.Comprehension(
            binding.id,
            binding.offset,
            iter_range=binding.iter_range,
            iter_var=binding.iter_var,
            iter_var2=binding.iter_var2,
            accu_var=binding.accu_var,
            accu_init=binding.accu_init,
            condition=binding.condition,
            step=binding.step,
            result=node,
            macro=binding.macro,
        )
    return node


def _part(
    program: Program, bound: ast.Node, node: ast.Node, device: DeviceView, *, effort: Effort
) -> Part:
    checked = Checked(bound, program.checked.types, program.checked.references)
    start, end = program.checked.spans.get(node.id, (0, len(program.expression)))
    text = " ".join(program.expression[start:end].split())
    looked_at = tuple(_read(path, device) for path in sorted(reads.reads(checked)))
    plan = compiler.plan(checked, stored().library, tracked=True)
    tracker = Tracker() if effort.left is None else Tracker(most_steps=effort.left)
    try:
        value = plan.run(Frame(device, plan.slot_count, tracker))
    except (CelError, Panic) as error:
        return Part(text, "error", str(error), looked_at)
    except CostExceeded:
        if tracker.cost <= COST_LIMIT:
            effort.cut()
        return Part(text, "error", f"cost limit of {COST_LIMIT} exceeded", looked_at)
    finally:
        effort.charge(tracker.steps)
    if value is True or value is False:
        return Part(text, "true" if value else "false", "", looked_at)
    return Part(text, "error", f"a {values.type_of(value)} is not true or false", looked_at)


def _read(path: Path, device: DeviceView) -> Read:
    if path == ("driver",):
        return Read("driver", f'"{device.driver}"')
    if path == ("allowMultipleAllocations",):
        return Read("allowMultipleAllocations", shown(device.allows_multiple))
    if len(path) < 2:
        return Read(path[0] if path else "device", "(all of it)")
    field, domain = path[0], device.driver if path[1] == OWN_DOMAIN else path[1]
    entries = getattr(device, field).get(domain)
    if len(path) == 2:
        return Read(f"{field} of {domain}", "none" if not entries else ", ".join(sorted(entries)))
    value = None if entries is None else entries.get(path[2])
    name = f"{domain}/{path[2]}" if field == "attributes" else f"capacity {domain}/{path[2]}"
    return Read(name, "absent" if value is None else shown(value))


def shown(value: Value) -> str:
    """A value as messages show it."""
    if isinstance(value, str):
        return f'"{value}"'
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, Quantity | Semver):
        return str(value)
    if isinstance(value, list):
        return f"[{', '.join(map(shown, value))}]"
    return str(value)
