"""Turns a checked tree into nested Python closures. With `tracked` every step also reports its cost.

The plan mirrors cel-go's: constants are folded, `in` over constant lists is a set test, constant patterns are compiled
once, chains of reads are one step. What cannot be compiled (a constant conversion that fails) is a compile error.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from dovetail.cel.check import messages, types
from dovetail.cel.check.checker import Checked
from dovetail.cel.check.declarations import Library, Overload
from dovetail.cel.cost.charge import Watch
from dovetail.cel.evaluate import field_access, operators, values
from dovetail.cel.evaluate.attribute_chains import Attribute, Qualifier, Run
from dovetail.cel.evaluate.call_closures import binary, guarded, sequence
from dovetail.cel.evaluate.comprehensions import Fold, initial, plan_fold
from dovetail.cel.evaluate.frame import NOTHING, UNSET, Frame
from dovetail.cel.evaluate.logic import conjunction, disjunction, not_strictly_false
from dovetail.cel.evaluate.values import CelError, Panic, Value, map_key
from dovetail.cel.language import ast
from dovetail.cel.library import regex
from dovetail.quantity.semver import Semver

CONVERSIONS: Final = frozenset(
    ("bool", "bytes", "double", "duration", "dyn", "int", "string", "timestamp", "type", "uint")
)
_PATTERNED: Final = frozenset(
    ("matches", "find", "findAll")
)  # the pattern is argument 1, the text argument 0
_UNHASHABLE: Final = frozenset((bytes, Semver, values.Format))  # upstream's sets panic on these
_PRIMITIVE: Final = frozenset((bool, int, values.UInt, float, str))


class PlanError(Exception):
    """The expression passes the check but can never run."""


class Step:
    """A planned node: a constant, a chain of reads still growing, or a finished closure."""

    __slots__ = ("attribute", "constant", "has_constant", "id", "is_test", "run")

    def __init__(
        self,
        node_id: int,
        run: Run | None = None,
        *,
        attribute: Attribute | None = None,
        is_test: bool = False,
    ) -> None:
        self.id = node_id
        self.run = run
        self.attribute = attribute
        self.is_test = is_test
        self.has_constant = False
        self.constant: Value = None


class Plan:
    """A finished plan: the closure of the root and how many slots its variables need."""

    __slots__ = ("run", "slot_count")

    def __init__(self, run: Run, slot_count: int) -> None:
        self.run = run
        self.slot_count = slot_count


def plan(checked: Checked, library: Library, *, tracked: bool) -> Plan:
    """The closures for a checked tree. Raises PlanError where upstream refuses to build the program."""
    planner = _Planner(checked, library, tracked)
    root = planner.visit(checked.root)
    run = planner.finished(root)
    return Plan(run, planner.slot_count)


class _Planner:
    def __init__(self, checked: Checked, library: Library, tracked: bool) -> None:
        self.checked = checked
        self.library = library
        self.watch = Watch(tracked)
        self.tracked = tracked
        self.slot_count = 0
        self.locals: dict[str, list[Run]] = {}

    def visit(self, node: ast.Node) -> Step:
        match node:
            case ast.Literal():
                return self.constant(node.id, node.value)
            case ast.Ident():
                return self.ident(node)
            case ast.Select():
                return self.select(node)
            case ast.Call():
                return self.call(node)
            case ast.ListExpr():
                return self.list_literal(node)
            case ast.MapExpr():
                return self.map_literal(node)
            case ast.StructExpr():
                return self.message(node)
            case ast.Comprehension():
                return self.comprehension(node)
        raise AssertionError(f"unknown node {node!r}")

    def finished(self, step: Step) -> Run:
        """The closure of a step; a chain of reads ends here."""
        if step.run is None:
            attribute = step.attribute
            assert attribute is not None
            step.run = self.watch.attribute(
                attribute,
                attribute.resolver(tracked=self.tracked),
                is_test=step.is_test,
                node_id=self.step_id(step),
            )
        return step.run

    def step_id(self, step: Step) -> int:
        """The id a step's value is recorded under. Chains change it as they grow."""
        if step.attribute is not None and not step.is_test:
            return step.attribute.current_id
        return step.id

    def constant(self, node_id: int, value: Value) -> Step:
        step = Step(node_id, self.watch.constant(node_id, value))
        step.has_constant = True
        step.constant = value
        return step

    # Names and chains

    def ident(self, node: ast.Ident) -> Step:
        return self.name(node.id, node.name)

    def name(self, node_id: int, name: str) -> Step:
        reference = self.checked.references.get(node_id)
        if reference is not None and reference.value is not None:
            return self.constant(node_id, reference.value)
        if not name.startswith(".") and self.locals.get(name):
            if self.checked.types[node_id].kind == types.Kind.TYPE:
                raise PlanError(
                    f"reference to undefined type: {name}"
                )  # upstream treats it as a type's name
            return Step(node_id, attribute=Attribute(node_id, self.locals[name][-1]))
        if name.removeprefix(".") != "device":
            raise PlanError(f"reference to undefined type: {name}")
        return Step(
            node_id,
            attribute=Attribute(
                node_id, _whole_device, variable="device", is_unwatched=name[0] == "."
            ),
        )

    def select(self, node: ast.Select) -> Step:
        reference = self.checked.references.get(node.id)
        if reference is not None:
            return self.name(node.id, reference.name)
        attribute = self.chain(node.operand)
        attribute.add(Qualifier(node.id, key=node.field, is_test=node.test_only))
        return Step(node.id, attribute=attribute, is_test=node.test_only)

    def chain(self, node: ast.Node) -> Attribute:
        """The operand if it is a chain, else a new chain that starts from its value."""
        operand = self.visit(node)
        if operand.attribute is not None and not operand.is_test:
            return operand.attribute
        return Attribute(operand.id, self.finished(operand))

    def index(self, node: ast.Call, *, is_optional: bool) -> Step:
        attribute = self.chain(node.args[0])
        key = self.visit(node.args[1])
        if key.has_constant:
            if key.constant.__class__ not in field_access.KEY_CLASSES:
                raise PlanError(f"invalid qualifier type: {values.type_of(key.constant)}")
            attribute.add(Qualifier(node.id, key=key.constant, is_optional=is_optional))
        elif key.attribute is not None:
            run = key.attribute.resolver(tracked=self.tracked)
            attribute.add(Qualifier(node.id, key_run=run, is_optional=is_optional))
        else:
            run = self.finished(key)
            attribute.add(Qualifier(node.id, key_run=run, is_optional=is_optional, step_id=node.id))
        return Step(node.id, attribute=attribute)

    # Calls

    def call(self, node: ast.Call) -> Step:
        special = _SPECIAL.get(node.function)
        if special is not None:
            return special(self, node)
        parts = [*([node.target] if node.target is not None else []), *node.args]
        args = [self.visit(part) for part in parts]
        if node.function in ("or", "orValue") and len(args) == 2:
            return self.optional_or(node, args)
        if (
            node.function in _PATTERNED
            and args[1].has_constant
            and args[1].constant.__class__ is str
        ):
            return self.pattern(node, args)
        if node.function == "@in":
            folded = self.membership(node, args)
            if folded is not None:
                return folded
        step = self.ordinary(node, args)
        if node.function in CONVERSIONS and len(args) == 1 and args[0].has_constant:
            return self.folded(node, args)
        return step

    def ordinary(self, node: ast.Call, args: list[Step]) -> Step:
        runs = tuple(self.finished(arg) for arg in args)
        ids = tuple(self.step_id(arg) for arg in args)
        overloads = self.checked.references[node.id].overloads
        operator = operators.BINARY.get(node.function)
        if operator is not None:
            constant = args[1].constant if args[1].has_constant else values.NONE
            run = binary(node.function, operator, runs, constant=constant, tracked=self.tracked)
        elif node.function in operators.UNARY:
            unary, (operand,) = operators.UNARY[node.function], runs

            def run(frame: Frame) -> Value:
                return unary(operand(frame))

        else:
            implementation = guarded(self.candidates(node, overloads))
            is_pair = len(overloads) == 1 and overloads[0] != "string_format"
            eager = len(runs) == 2 and (is_pair or node.function == "@sortByAssociatedKeys")
            run = sequence(implementation, runs, eager=eager and self.tracked)
            if not self.tracked and args and all(arg.has_constant for arg in args):
                run = self.computed_now(run, args)
        overload = overloads[0] if len(overloads) == 1 else ""
        if node.function in ("_==_", "_!=_"):
            overload = "equals" if node.function == "_==_" else "not_equals"
        return Step(node.id, self.watch.call(node.id, run, node.function, overload, ids))

    def computed_now(self, run: Run, args: list[Step]) -> Run:
        """A library call on constants, such as quantity("80Gi"), evaluated once; a failure is raised at run time."""
        if any(isinstance(arg.constant, list | dict) for arg in args):
            return run
        try:
            value = run(Frame(NOTHING, 0))
        except CelError:
            return run
        return lambda frame: value

    def candidates(self, node: ast.Call, chosen: tuple[str, ...]) -> list[Overload]:
        every = self.library.functions[node.function]
        return [o for o in every if o.id == chosen[0]] if len(chosen) == 1 else every

    def folded(self, node: ast.Call, args: list[Step]) -> Step:
        """A conversion of a constant, done now."""
        convert = guarded(self.candidates(node, self.checked.references[node.id].overloads))
        try:
            return self.constant(node.id, convert(*(arg.constant for arg in args)))
        except (CelError, Panic) as error:
            raise PlanError(str(error)) from None

    def membership(self, node: ast.Call, args: list[Step]) -> Step | None:
        if self.checked.references[node.id].overloads != ("in_list",) or not args[1].has_constant:
            return None
        elements = args[1].constant
        if not elements:
            return self.constant(node.id, False)
        if any(e.__class__ not in _PRIMITIVE for e in elements):
            return None
        element = self.finished(args[0])
        texts = frozenset(e for e in elements if e.__class__ is str)

        def run(frame: Frame) -> Value:
            value = element(frame)
            if value.__class__ is str:
                return value in texts
            if value.__class__ in _UNHASHABLE:
                raise Panic(f"a {values.type_of(value)} cannot be looked up in a set")
            return operators.contained(value, elements)

        return Step(node.id, self.watch.plain(node.id, run))

    def pattern(self, node: ast.Call, args: list[Step]) -> Step:
        """A search with a constant pattern: an invalid pattern is a compile error."""
        try:
            regex.check(args[1].constant)
        except CelError as error:
            raise PlanError(str(error)) from None
        overloads = self.checked.references[node.id].overloads
        runs = (_named(self.finished(args[0])), *(self.finished(arg) for arg in args[1:]))
        run = sequence(guarded(self.candidates(node, overloads)), runs, eager=False)
        overload = overloads[0] if len(overloads) == 1 else ""
        ids = tuple(self.step_id(arg) for arg in args)
        return Step(node.id, self.watch.call(node.id, run, node.function, overload, ids))

    def optional_or(self, node: ast.Call, args: list[Step]) -> Step:
        left, right = (self.finished(arg) for arg in args)
        unwraps = node.function == "orValue"

        def run(frame: Frame) -> Value:
            left_value = left(frame)
            if left_value.__class__ is not values.Optional:
                raise values.no_such_overload()
            if left_value.has_value:
                return left_value.value if unwraps else left_value
            return right(frame)

        return Step(node.id, self.watch.plain(node.id, run))

    def logical(self, node: ast.Call) -> Step:
        steps = [self.visit(arg) for arg in node.args]
        runs = tuple(self.finished(step) for step in steps)
        ids = tuple(self.step_id(step) for step in steps)
        run = conjunction(runs) if node.function == "_&&_" else disjunction(runs)
        return Step(node.id, self.watch.dropping(node.id, run, ids))

    def conditional(self, node: ast.Call) -> Step:
        condition, yes, no = (self.visit(arg) for arg in node.args)
        run = self.finished(condition)
        branches = (self.branch(yes), self.branch(no))
        attribute = Attribute(node.id, run, branches=branches, condition_id=self.step_id(condition))
        return Step(node.id, attribute=attribute)

    def branch(self, step: Step) -> Attribute:
        """A branch that is a chain keeps growing with the conditional; anything else starts one."""
        return (
            step.attribute
            if step.attribute is not None
            else Attribute(step.id, self.finished(step))
        )

    def not_strictly_false(self, node: ast.Call) -> Step:
        arg = self.visit(node.args[0])
        run = not_strictly_false(self.finished(arg))
        ids = (self.step_id(arg),)
        return Step(
            node.id, self.watch.call(node.id, run, node.function, "not_strictly_false", ids)
        )

    # Aggregates

    def list_literal(self, node: ast.ListExpr) -> Step:
        steps = [self.visit(element) for element in node.elements]
        if all(step.has_constant for step in steps) and not node.optional:
            return self.constant(node.id, [step.constant for step in steps])
        runs = [(self.finished(step), index in node.optional) for index, step in enumerate(steps)]

        def run(frame: Frame) -> Value:
            built: list[Value] = []
            for element, is_optional in runs:
                value = element(frame)
                if is_optional:
                    if value.__class__ is not values.Optional:
                        raise CelError("an optional list element needs an optional value")
                    if not value.has_value:
                        continue
                    value = value.value
                built.append(value)
            return built

        ids = tuple(self.step_id(step) for step in steps)
        return Step(node.id, self.watch.construct(node.id, run, ids, kind="list"))

    def map_literal(self, node: ast.MapExpr) -> Step:
        parts = [(self.visit(_key(e)), self.visit(e.value), e.optional) for e in node.entries]
        if all(k.has_constant and v.has_constant for k, v, _ in parts) and not any(
            o for _, _, o in parts
        ):
            return self.constant(node.id, self.constant_map(parts))
        runs = [(self.finished(k), self.finished(v), o) for k, v, o in parts]

        def run(frame: Frame) -> Value:
            built: dict[object, Value] = {}
            for key_run, value_run, is_optional in runs:
                key_given = key_run(frame)
                value = value_run(frame)
                key = map_key(key_given)
                if is_optional:
                    if value.__class__ is not values.Optional:
                        raise CelError("an optional map entry needs an optional value")
                    if not value.has_value:
                        built.pop(key, None)
                        continue
                    value = value.value
                built[key] = value
            return built

        ids = tuple(self.step_id(s) for k, v, _ in parts for s in (k, v))
        return Step(node.id, self.watch.construct(node.id, run, ids, kind="map"))

    def constant_map(self, parts: list[tuple[Step, Step, bool]]) -> dict[object, Value]:
        try:
            return {map_key(key.constant): value.constant for key, value, _ in parts}
        except Panic as error:
            raise PlanError(str(error)) from None

    def message(self, node: ast.StructExpr) -> Step:
        steps = [(e.name, self.visit(e.value), e.optional) for e in node.entries]
        runs = [(name, self.finished(step), optional) for name, step, optional in steps]

        def run(frame: Frame) -> Value:
            fields: dict[str, Value] = {}
            for name, value_run, is_optional in runs:
                value = value_run(frame)
                if is_optional and value.__class__ is values.Optional:
                    if not value.has_value:
                        continue
                    value = value.value
                fields[name] = value
            return messages.build(node.type_name, fields)

        ids = tuple(self.step_id(step) for _, step, _ in steps)
        return Step(node.id, self.watch.construct(node.id, run, ids, kind="message"))

    # Folds

    def comprehension(self, node: ast.Comprehension) -> Step:
        init = self.finished(self.visit(node.accu_init))
        over_step = self.visit(node.iter_range)
        over = self.finished(over_step)
        accumulator, first, second = self.slot_count, self.slot_count + 1, self.slot_count + 2
        self.slot_count += 3
        self.declare(node.accu_var, _lazy(accumulator, init))
        self.declare(node.iter_var, _slot(first))
        if node.iter_var2:
            self.declare(node.iter_var2, _slot(second))
        condition = self.finished(self.visit(node.condition))
        step = self.finished(self.visit(node.step))
        self.locals[node.iter_var].pop()
        if node.iter_var2:
            self.locals[node.iter_var2].pop()
        result = self.finished(self.visit(node.result))
        self.locals[node.accu_var].pop()
        fold = Fold(
            over=over,
            condition=condition,
            step=step,
            result=result,
            accumulator=accumulator,
            first=first,
            second=second if node.iter_var2 else None,
        )
        run = plan_fold(fold)
        return Step(node.id, self.watch.dropping(node.id, run, (self.step_id(over_step),)))

    def declare(self, name: str, reader: Run) -> None:
        self.locals.setdefault(name, []).append(reader)


_Special = Callable[[_Planner, ast.Call], Step]
_SPECIAL: Final[dict[str, _Special]] = {
    "_&&_": _Planner.logical,
    "_||_": _Planner.logical,
    "_?_:_": _Planner.conditional,
    "_[_]": lambda planner, node: planner.index(node, is_optional=False),
    "_[?_]": lambda planner, node: planner.index(node, is_optional=True),
    "_?._": lambda planner, node: planner.index(node, is_optional=True),
    "@not_strictly_false": _Planner.not_strictly_false,
}


def _named(run: Run) -> Run:
    """With a constant pattern upstream searches a type's name, and the value of an optional, like text."""

    def text(frame: Frame) -> Value:
        value = run(frame)
        while value.__class__ is values.Optional and value.has_value:
            value = value.value
        return value.name if value.__class__ is types.Type else value

    return text


def _whole_device(frame: Frame) -> Value:
    return frame.device.as_map()


def _slot(index: int) -> Run:
    return lambda frame: frame.slots[index]


def _lazy(index: int, init: Run) -> Run:
    """Reads an accumulator, computing its first value when it is first read."""

    def read(frame: Frame) -> Value:
        value = frame.slots[index]
        if value is UNSET:
            value = initial(frame, index, init)
        if value.__class__ is CelError:
            raise value
        return value

    return read


def _key(entry: ast.Entry) -> ast.Node:
    assert entry.key is not None
    return entry.key
