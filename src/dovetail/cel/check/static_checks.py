"""Checks beyond types: constant patterns and times are valid, aggregate literals hold one type."""

from __future__ import annotations

from collections.abc import Iterator

from dovetail.cel.check import format_checks, types
from dovetail.cel.check.checker import Checked
from dovetail.cel.check.types import Kind, Type
from dovetail.cel.evaluate.values import CelError
from dovetail.cel.language import ast
from dovetail.cel.language.source import Issue
from dovetail.cel.library import regex


def issues(checked: Checked) -> list[Issue]:
    """What upstream's validators refuse in a tree that passed the type check."""
    return [
        *_bad_patterns(checked.root),
        *_bad_formats(checked),
        *_unclear_optionals(checked, checked.root),
        *_mixed_literals(checked, checked.root, is_exempt=False),
    ]


def _walk(node: ast.Node) -> Iterator[ast.Node]:
    pending = [node]
    while pending:
        current = pending.pop()
        yield current
        pending.extend(reversed(ast.children(current)))


def _bad_patterns(root: ast.Node) -> Iterator[Issue]:
    # The first argument is checked even in matches(text, pattern), where it is the text, as upstream does.
    for node in _walk(root):
        if not isinstance(node, ast.Call) or node.function != "matches":
            continue
        argument = node.args[0] if node.args else None
        if not isinstance(argument, ast.Literal) or argument.value.__class__ is not str:
            continue

        problem = _problem(argument.value)
        if problem:
            yield Issue(argument.offset, f"invalid pattern: {problem}")


def _bad_formats(checked: Checked) -> Iterator[Issue]:
    for node in _walk(checked.root):
        if isinstance(node, ast.Call) and node.function == "format" and node.target is not None:
            yield from format_checks.issues(checked, node)


def _problem(pattern: str) -> str | None:
    try:
        regex.check(pattern)
    except CelError as error:
        return str(error)
    return None


def _unclear_optionals(checked: Checked, root: ast.Node) -> Iterator[Issue]:
    # Upstream panics on these while checking, so an API server refuses them too.
    message = "the type of an optional element must be known to be optional"
    for node in _walk(root):
        for part in _optional_parts(node):
            if not types.is_optional(checked.type_of(part)):
                yield Issue(part.offset, message)


def _optional_parts(node: ast.Node) -> list[ast.Node]:
    """The elements of a list or map literal that are marked with a question mark."""
    if isinstance(node, ast.ListExpr):
        return [node.elements[index] for index in sorted(node.optional)]
    if isinstance(node, ast.MapExpr):
        return [entry.value for entry in node.entries if entry.optional]
    return []


def _mixed_literals(checked: Checked, node: ast.Node, *, is_exempt: bool) -> Iterator[Issue]:
    if isinstance(node, ast.Call) and node.function == "format":
        is_exempt = True  # the arguments of string.format may be of any types
    if not is_exempt:
        yield from _mixed_parts(checked, node)
    for child in ast.children(node):
        yield from _mixed_literals(checked, child, is_exempt=is_exempt)


def _mixed_parts(checked: Checked, node: ast.Node) -> Iterator[Issue]:
    """The first element, key and value of a literal whose type differs from those before it."""
    if isinstance(node, ast.ListExpr):
        typed_elements: list[tuple[ast.Node, Type]] = []
        for index, element in enumerate(node.elements):
            element_type = _inner(checked.type_of(element), index in node.optional)
            typed_elements.append((element, element_type))
        yield from _first_difference(typed_elements)

    if isinstance(node, ast.MapExpr):
        typed_keys: list[tuple[ast.Node, Type]] = []
        typed_values: list[tuple[ast.Node, Type]] = []
        for entry in node.entries:
            if entry.key is None:
                continue
            value_type = _inner(checked.type_of(entry.value), entry.optional)
            typed_keys.append((entry.key, checked.type_of(entry.key)))
            typed_values.append((entry.value, value_type))
        yield from _first_difference(typed_keys)
        yield from _first_difference(typed_values)


def _inner(type_: Type, is_optional: bool) -> Type:
    return type_.params[0] if is_optional and types.is_optional(type_) else type_


def _first_difference(typed_elements: list[tuple[ast.Node, Type]]) -> Iterator[Issue]:
    for node, type_ in typed_elements[1:]:
        if not _equivalent(typed_elements[0][1], type_):
            yield Issue(node.offset, f"expected type '{typed_elements[0][1]}' but found '{type_}'")
            return


def _equivalent(first: Type, second: Type) -> bool:
    if first.kind != second.kind or len(first.params) != len(second.params):
        return False
    if first.kind != Kind.PARAM and first.name != second.name:
        return False
    return all(_equivalent(a, b) for a, b in zip(first.params, second.params, strict=True))
