"""Gives every node a type and every call its overloads, or reports what does not fit. Rewrites qualified names."""

from __future__ import annotations

from dovetail.cel.check import types
from dovetail.cel.check.declarations import Library, Overload
from dovetail.cel.check.messages import Messages
from dovetail.cel.check.types import Kind, Type
from dovetail.cel.check.unify import Bindings, most_general
from dovetail.cel.evaluate.values import TYPE_OF_CLASS, Value
from dovetail.cel.language import ast
from dovetail.cel.language.source import Issue


class Reference:
    """What a name or call was resolved to: a variable, a constant, or overloads of a function."""

    __slots__ = ("name", "overloads", "value")

    def __init__(
        self, *, name: str = "", overloads: tuple[str, ...] = (), value: Value = None
    ) -> None:
        self.name = name
        self.overloads = overloads
        self.value = value


class Checked:
    """A tree with types and references by node id."""

    __slots__ = ("references", "root", "spans", "types")

    def __init__(
        self, root: ast.Node, types_: dict[int, Type], references: dict[int, Reference]
    ) -> None:
        self.root = root
        self.types = types_
        self.references = references
        self.spans: dict[int, tuple[int, int]] = {}

    def type_of(self, node: ast.Node) -> Type:
        """The static type of a node."""
        return self.types[node.id]


def check(
    root: ast.Node, *, variables: dict[str, Type], library: Library, messages: Messages
) -> tuple[Checked, list[Issue]]:
    """The types of the whole tree and every issue. With issues the result is unusable."""
    checker = _Checker(variables, library, messages)
    checker.visit(root)
    resolved = {
        node_id: checker.bindings.resolve(type_, unbound_is_dyn=True)
        for node_id, type_ in checker.types.items()
    }
    return Checked(root, resolved, checker.references), checker.issues


class _Checker:
    def __init__(self, variables: dict[str, Type], library: Library, messages: Messages) -> None:
        self.globals = variables
        self.library = library
        self.messages = messages
        self.scopes: list[dict[str, Type]] = []
        self.bindings = Bindings()
        self.types: dict[int, Type] = {}
        self.references: dict[int, Reference] = {}
        self.issues: list[Issue] = []

    def complain(self, node: ast.Node | ast.Entry, message: str) -> None:
        self.issues.append(Issue(node.offset, message))

    def visit(self, node: ast.Node) -> Type:
        match node:
            case ast.Literal():
                node_type = TYPE_OF_CLASS[node.value.__class__]
            case ast.Ident():
                node_type = self.ident(node)
            case ast.Select():
                node_type = self.select(node)
            case ast.Call():
                node_type = self.call(node)
            case ast.ListExpr():
                node_type = self.list_literal(node)
            case ast.MapExpr():
                node_type = self.map_literal(node)
            case ast.StructExpr():
                node_type = self.message(node)
            case ast.Comprehension():
                node_type = self.comprehension(node)
            case _:
                raise AssertionError(f"unknown node {node!r}")
        old = self.types.get(node.id)
        if old is not None and old != node_type:
            # A macro may place one node twice (the variable of filter); its two types must agree.
            self.complain(node, f"expression has two types, '{old}' and '{node_type}'")
        self.types[node.id] = node_type
        return node_type

    # Names

    def local(self, name: str) -> Type | None:
        """The type of a local variable; a name with a leading dot never means one."""
        if name.startswith("."):
            return None
        return next((scope[name] for scope in reversed(self.scopes) if name in scope), None)

    def resolve_name(self, name: str) -> tuple[str, Type, Value] | None:
        """A name's meaning: the variable to read (dotted if a local hides it), its type, its constant value."""
        local = self.local(name)
        if local is not None:
            return name, local, None
        bare = name.removeprefix(".")
        hidden = self.local(bare.split(".")[0]) is not None
        if bare in self.globals:
            return ("." + bare if hidden else bare), self.globals[bare], None
        constant = self.messages.constant(bare)
        if constant is not None:
            type_, value = constant
            return bare, type_, value
        return None

    def ident(self, node: ast.Ident) -> Type:
        variable = self.resolve_name(node.name)
        if variable is None:
            self.complain(node, f"undeclared name '{node.name}'")
            return types.ERROR
        return self.resolved(node, variable)

    def resolved(self, node: ast.Node, variable: tuple[str, Type, Value]) -> Type:
        name, type_, value = variable
        self.references[node.id] = Reference(name=name, value=value)
        if isinstance(node, ast.Ident):
            node.name = name
        return type_

    def select(self, node: ast.Select) -> Type:
        qualified = None if node.test_only else qualified_name(node)
        if qualified is not None and self.local(qualified.split(".")[0]) is None:
            variable = self.resolve_name(qualified)
            if variable is not None:
                return self.resolved(node, variable)
        result = self.field(node, node.operand, node.field, is_optional=False)
        return types.BOOL if node.test_only else self.bindings.resolve(result)

    def field(self, node: ast.Node, operand: ast.Node, name: str, *, is_optional: bool) -> Type:
        outer = self.bindings.resolve(self.visit(operand))
        inner = outer.params[0] if types.is_optional(outer) else outer
        result = self.field_of(node, inner, name)

        if is_optional or types.is_optional(outer):
            return types.optional_of(result)
        return result

    def field_of(self, node: ast.Node, inner: Type, name: str) -> Type:
        """The type of a field of a value that is not wrapped in an optional."""
        if inner.kind == Kind.MAP:
            return inner.params[1]
        if inner.kind == Kind.STRUCT:
            return self.message_field(node, inner, name)
        if inner.kind == Kind.PARAM:
            self.bindings.agree(types.DYN, inner)
            return types.DYN

        is_unchecked = types.is_dyn(inner) or inner.kind == Kind.ERROR
        if not is_unchecked:
            self.complain(node, f"type '{inner}' has no fields")
        return types.DYN

    def message_field(self, node: ast.Node, message: Type, name: str) -> Type:
        field_type = self.messages.field(message.name, name)
        if field_type is not None:
            return field_type

        field_names = self.messages.field_names(message.name)
        hint = f"; known: {', '.join(field_names)}" if field_names else ""
        self.complain(node, f"undefined field '{name}' of {message}{hint}")
        return types.ERROR

    # Calls

    def call(self, node: ast.Call) -> Type:
        if node.function == "_?._":
            return self.optional_select(node)
        arg_types = [self.visit(arg) for arg in node.args]
        if node.target is not None:
            prefix = qualified_name(node.target)
            if prefix is not None:
                name = f"{prefix}.{node.function}".removeprefix(".")
                if name in self.library.functions:
                    node.function, node.target = name, None
        if node.target is None:
            node.function = node.function.removeprefix(".")
        else:
            arg_types.insert(0, self.visit(node.target))
        overloads = self.library.functions.get(node.function)
        if overloads is None:
            self.complain(node, f"undeclared function '{node.function}'")
            return types.ERROR
        return self.overload(node, overloads, arg_types)

    def optional_select(self, node: ast.Call) -> Type:
        name = node.args[1]
        assert isinstance(name, ast.Literal)
        self.types[name.id] = types.STRING
        result = self.field(node, node.args[0], name.value, is_optional=True)
        self.references[node.id] = Reference(overloads=("select_optional_field",))
        return self.bindings.resolve(result)

    def overload(self, node: ast.Call, overloads: list[Overload], arg_types: list[Type]) -> Type:
        if node.function in ("_&&_", "_||_"):
            return self.logical(node, overloads[0].id, arg_types)
        result: Type | None = None
        chosen: list[str] = []
        for overload in overloads:
            if overload.is_member != (node.target is not None):
                continue
            fresh = {name: self.bindings.fresh() for name in overload.params}
            parameter_types = tuple(_instantiate(arg, fresh) for arg in overload.args)
            if not self.bindings.agree_all(tuple(arg_types), parameter_types):
                continue
            chosen.append(overload.id)
            result_type = self.bindings.resolve(_instantiate(overload.result, fresh))
            if result is None:
                result = result_type
            elif not types.is_dyn(result) and result_type != result:
                result = types.DYN
        if result is None:
            self.complain(
                node,
                f"'{shown_function(node.function)}' does not take {self.shown(arg_types, node)}",
            )
            return types.ERROR
        self.references[node.id] = Reference(overloads=tuple(chosen))
        return result

    def logical(self, node: ast.Call, overload: str, arg_types: list[Type]) -> Type:
        fine = True
        for arg, type_ in zip(node.args, arg_types, strict=True):
            if not self.bindings.agree(type_, types.BOOL):
                self.complain(
                    arg, f"expected bool, found {self.bindings.resolve(type_, unbound_is_dyn=True)}"
                )
                fine = False
        self.references[node.id] = Reference(overloads=(overload,))
        return types.BOOL if fine else types.ERROR

    def shown(self, arg_types: list[Type], node: ast.Call) -> str:
        texts = [str(self.bindings.resolve(t, unbound_is_dyn=True)) for t in arg_types]
        if node.target is not None:
            return f"({', '.join(texts[1:])}) on {texts[0]}"
        return f"({', '.join(texts)})"

    # Aggregates

    def list_literal(self, node: ast.ListExpr) -> Type:
        joined: Type | None = None
        for index, element in enumerate(node.elements):
            element_type = self.visit(element)
            if index in node.optional:
                element_type = self.unwrapped(element, element_type)
            joined = self.joined(joined, element_type)
        return types.list_of(joined or self.bindings.fresh())

    def map_literal(self, node: ast.MapExpr) -> Type:
        key_type: Type | None = None
        value_type: Type | None = None
        for entry in node.entries:
            assert entry.key is not None
            key_type = self.joined(key_type, self.visit(entry.key))
            entry_type = self.visit(entry.value)
            if entry.optional:
                entry_type = self.unwrapped(entry.value, entry_type)
            value_type = self.joined(value_type, entry_type)
        return types.map_of(key_type or self.bindings.fresh(), value_type or self.bindings.fresh())

    def unwrapped(self, node: ast.Node, type_: Type) -> Type:
        if types.is_optional(type_):
            return type_.params[0]
        if not types.is_dyn(type_):
            self.complain(node, f"expected an optional value, found {type_}")
        return type_

    def joined(self, previous: Type | None, current: Type) -> Type:
        if previous is None:
            return current
        if self.bindings.agree(previous, current):
            return most_general(previous, current)
        return types.DYN  # mixed literals are refused later, except where string.format takes them

    def message(self, node: ast.StructExpr) -> Type:
        name = node.type_name.removeprefix(".")
        result = self.messages.message_type(name)
        if result is None:
            self.complain(node, f"undeclared type '{node.type_name}'")
            for entry in node.entries:
                self.visit(entry.value)
            return types.ERROR
        node.type_name = name
        self.references[node.id] = Reference(name=name)
        for entry in node.entries:
            value_type = self.visit(entry.value)
            if entry.optional:
                value_type = self.unwrapped(entry.value, value_type)
            field_type = self.messages.initial_field(name, entry.name)
            if field_type is None:
                self.complain(entry, f"undefined field '{entry.name}' of {name}")
            elif not self.bindings.agree(field_type, value_type):
                self.complain(entry, f"field '{entry.name}' is {field_type}, not {value_type}")
        return result

    # Folds

    def comprehension(self, node: ast.Comprehension) -> Type:
        over = self.bindings.resolve(self.visit(node.iter_range))
        accumulated = self.visit(node.accu_init)
        over = self.bindings.resolve(over)
        first, second = self.iteration_types(node, over)
        self.scopes.append({node.accu_var: accumulated})
        self.scopes.append(
            {node.iter_var: first, **({node.iter_var2: second} if node.iter_var2 else {})}
        )
        self.wanted(node.condition, types.BOOL)
        self.wanted(node.step, accumulated)
        self.scopes.pop()
        result = self.visit(node.result)
        self.scopes.pop()
        return self.bindings.resolve(result)

    def iteration_types(self, node: ast.Comprehension, over: Type) -> tuple[Type, Type]:
        if over.kind == Kind.LIST:
            element = over.params[0]
            return (types.INT, element) if node.iter_var2 else (element, types.DYN)
        if over.kind == Kind.MAP:
            return over.params[0], over.params[1]
        if over.kind in (Kind.DYN, Kind.ERROR, Kind.PARAM):
            self.bindings.agree(types.DYN, over)
            return types.DYN, types.DYN
        self.complain(node.iter_range, f"'{over}' cannot be iterated; a list or map is needed")
        return types.ERROR, types.ERROR

    def wanted(self, node: ast.Node, type_: Type) -> None:
        actual = self.visit(node)
        if not self.bindings.agree(type_, actual):
            self.complain(node, f"expected type '{type_}' but found '{actual}'")


def qualified_name(node: ast.Node) -> str | None:
    """`a.b.c` as text if the expression consists of names only."""
    if isinstance(node, ast.Ident):
        return node.name
    if isinstance(node, ast.Select) and not node.test_only:
        prefix = qualified_name(node.operand)
        return None if prefix is None else f"{prefix}.{node.field}"
    return None


def shown_function(name: str) -> str:
    """An operator's or function's name as people write it."""
    return {"@in": "in", "_?_:_": "?:", "_[_]": "[]", "_[?_]": "[?]"}.get(
        name, name.strip("_") or name
    )


def _instantiate(type_: Type, fresh: dict[str, Type]) -> Type:
    if type_.kind == Kind.PARAM:
        return fresh.get(type_.name, type_)
    if not type_.params:
        return type_
    return Type(type_.kind, type_.name, tuple(_instantiate(p, fresh) for p in type_.params))
