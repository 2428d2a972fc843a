"""Other texts of a selector: without one of its conditions, or with another value in it that devices do have.

Given an expression and the devices of a World. A condition is a part joined by && at the top. Values are those that
devices show for the attributes and capacities the condition reads, nearest first. Never decides which text helps.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final, NamedTuple

from dovetail import errors
from dovetail.answer.why.fixes import nearest
from dovetail.cel import device_views, selectors
from dovetail.cel.evaluate.values import Value
from dovetail.cel.language import ast, lexer
from dovetail.cel.language.source import Issue
from dovetail.cel.reads import OWN_DOMAIN, Path
from dovetail.quantity import quantity, semver
from dovetail.world.devices import device_columns
from dovetail.world.world import World

MOST_VALUES: Final = 4  # tried for one literal


class OtherText(NamedTuple):
    """The expression with one change; empty where nothing is left of it."""

    expression: str
    title: str
    is_drop: bool = False
    is_correction: bool = False  # the written value exists nowhere, the new one is nearly the same
    condition: str = ""  # the part that changes


def other_texts(world: World, expression: str) -> Iterator[OtherText]:
    """Each condition with other values, then without it."""
    try:
        program = selectors.selector(expression).program
    except errors.ExpressionError:
        return
    spans = [
        _span(program.checked.spans, part, expression) for part in _parts(program.checked.root)
    ]
    shown = _Shown(world)
    for place, (start, end) in enumerate(spans):
        condition = expression[start:end]
        for changed, title in _other_names(condition, shown):
            yield OtherText(
                expression[:start] + changed + expression[end:],
                f"{_brief(condition)}: {title}",
                is_correction=True,
                condition=condition,
            )
        for literal in _literals(condition):
            for written in _versions(condition, literal, shown):
                yield OtherText(
                    expression[:start] + literal.exchanged(condition, written) + expression[end:],
                    f"{_brief(condition)} -> {written}",
                    is_correction=True,
                    condition=condition,
                )
            for value, is_correction in _values(condition, literal, shown):
                changed = literal.replaced(condition, value)
                yield OtherText(
                    expression[:start] + changed + expression[end:],
                    f"{_brief(condition)} -> {literal.written(value)}",
                    is_correction=is_correction,
                    condition=condition,
                )
        others = [expression[a:b] for at, (a, b) in enumerate(spans) if at != place]
        yield OtherText(
            " && ".join(others), f"drop {_brief(condition)}", is_drop=True, condition=condition
        )


def _brief(condition: str) -> str:
    """The condition with plain names: what precedes the name of an attribute says little."""
    return _PREFIX.sub("", " ".join(condition.split()))


_PREFIX: Final = re.compile(r"""device[.](?:attributes|capacity)\[(?:"[^"]*"|'[^']*')\][.]""")


def _parts(node: ast.Node) -> Iterator[ast.Node]:
    if isinstance(node, ast.Call) and node.function == "_&&_":
        for part in node.args:
            yield from _parts(part)
    else:
        yield node


def _span(spans: dict[int, tuple[int, int]], node: ast.Node, expression: str) -> tuple[int, int]:
    return spans.get(node.id, (0, len(expression)))


# Names


def _other_names(condition: str, shown: _Shown) -> Iterator[tuple[str, str]]:
    """The condition with a name that devices have, for one that none has: of an attribute, or of its domain."""
    try:
        reads = selectors.selector(condition).reads
    except errors.ExpressionError:
        return
    for path in sorted(reads):
        if len(path) != 3 or path[0] not in ("attributes", "capacity") or path[1] == OWN_DOMAIN:
            continue
        kind, domain, name = path
        names = shown.names(kind, domain)
        if not names:
            for other in nearest.names(domain, shown.domains(kind)):
                yield condition.replace(domain, other), f"{domain} -> {other}"
        elif name not in names:
            for other in nearest.names(name, names):
                yield _renamed(condition, name, other), f"{name} -> {other}"


def _renamed(condition: str, name: str, other: str) -> str:
    """The condition with another attribute."""
    return re.sub(rf"(?<=[.]){re.escape(name)}\b", other, condition)


# Literals and values


class _Literal(NamedTuple):
    """A value in a condition that could be another one."""

    token: lexer.Token
    text: str  # without quotes
    is_quoted: bool
    wrapper: str  # the function it stands in, such as quantity

    def replaced(self, condition: str, value: str) -> str:
        """The condition with another value in its place."""
        return self.exchanged(condition, self.written(value))

    def exchanged(self, condition: str, text: str) -> str:
        """The condition with any text in its place."""
        start = self.token.offset
        end = start + len(self.token.text)
        return condition[:start] + text + condition[end:]

    def written(self, value: str) -> str:
        """Another value, in the same quotes."""
        if not self.is_quoted:
            return value
        quote = self.token.text[-1]
        escaped = value.replace("\\", "\\\\").replace(quote, f"\\{quote}")
        return f"{quote}{escaped}{quote}"


def _literals(condition: str) -> Iterator[_Literal]:
    """Texts and numbers that are compared; keys of maps are none of these."""
    tokens = lexer.tokens(condition)
    if isinstance(tokens, Issue):
        return
    for place, token in enumerate(tokens):
        before = tokens[place - 1].text if place else ""
        after = tokens[place + 1].text if place + 1 < len(tokens) else ""
        if token.kind == lexer.STRING and token.text[0] in "\"'" and token.text[:3] not in _LONG:
            if before == "[" and after == "]" and _is_index(tokens, place):
                continue
            wrapper = tokens[place - 2].text if before == "(" and place > 1 else ""
            if "\\" not in token.text:
                yield _Literal(token, token.text[1:-1], True, wrapper)
        elif token.kind == lexer.INT and token.text.isdecimal() and before in _COMPARED:
            is_sign = token.text == "0" and _follows_comparison(tokens, place)
            if not is_sign:
                yield _Literal(token, token.text, False, "")


_LONG: Final = ('"""', "'''")
_COMPARED: Final = ("==", "!=", "<", "<=", ">", ">=", "[", ",")


def _is_index(tokens: list[lexer.Token], place: int) -> bool:
    """Whether a text in brackets is a key: something stands before the brackets."""
    opener = tokens[place - 2] if place > 1 else None
    return opener is not None and (opener.kind == lexer.IDENT or opener.text in ("]", ")"))


def _follows_comparison(tokens: list[lexer.Token], place: int) -> bool:
    """Whether a zero is the one that a compareTo is compared with."""
    names = {token.text for token in tokens[:place]}
    return bool(names & {"compareTo", "indexOf"})


def _values(condition: str, literal: _Literal, shown: _Shown) -> list[tuple[str, bool]]:
    """Values that devices show for what the condition reads, the nearest first."""
    try:
        reads = selectors.selector(condition).reads
    except errors.ExpressionError:
        return []
    seen = [value for path in sorted(reads) for value in shown.values(path)]
    if literal.wrapper == "quantity":
        return _quantities(literal.text, seen)
    if literal.wrapper == "semver":
        return [(text, False) for text in _texts(seen, semver.Semver) if text != literal.text][
            :MOST_VALUES
        ]
    if literal.is_quoted:
        return _strings(literal.text, seen)
    numbers = {
        value for value in seen if isinstance(value, int) and not isinstance(value, bool)
    } - {int(literal.text)}
    ordered = sorted(numbers, key=lambda number: (abs(number - int(literal.text)), number))
    return [(str(number), False) for number in ordered if number >= 0][:MOST_VALUES]


def _versions(condition: str, literal: _Literal, shown: _Shown) -> list[str]:
    """A version in place of a text that was compared with one: of different types, the two are never equal."""
    if not literal.is_quoted or literal.wrapper:
        return []
    try:
        reads = selectors.selector(condition).reads
    except errors.ExpressionError:
        return []
    seen = [value for path in sorted(reads) for value in shown.values(path)]
    begun = [text for text in _texts(seen, semver.Semver) if text.startswith(literal.text)]
    return [f"semver({literal.written(text)})" for text in begun[:MOST_VALUES]]


def _texts(seen: list[Value], kind: type) -> list[str]:
    return list(dict.fromkeys(str(value) for value in seen if isinstance(value, kind)))


def _strings(written: str, seen: list[Value]) -> list[tuple[str, bool]]:
    values = {value for value in seen if isinstance(value, str) and len(value) <= _LONGEST}
    if len(values) > _DISTINCT:  # such as uuids: no other value means the same
        return []
    others = values - {written}
    near = nearest.names(written, others, most=len(others))
    profiles = nearest.profiles(written, others)
    ordered = dict.fromkeys([*(profiles or near), *sorted(others)])
    is_slip = written not in values and not profiles
    return [(value, is_slip and nearest.is_slip(written, value)) for value in ordered][:MOST_VALUES]


_LONGEST: Final = 64
_DISTINCT: Final = 64


def _quantities(written: str, seen: list[Value]) -> list[tuple[str, bool]]:
    if not quantity.is_quantity(written):
        return []
    wanted = quantity.parse(written)
    amounts = {value for value in seen if isinstance(value, quantity.Quantity)} - {wanted}
    ordered = sorted(amounts, key=lambda amount: (abs(amount.nanos - wanted.nanos), amount.nanos))
    return [(str(amount), False) for amount in ordered][:MOST_VALUES]


# What devices show


class _Shown:
    """The values that devices show, by what a selector reads. Nodes that publish the same are looked at once."""

    def __init__(self, world: World) -> None:
        self.drivers: set[str] = set()
        self._columns: dict[tuple[str, str], dict[int, device_columns.Column]] = {}
        self._templates: dict[tuple[str, int], device_columns.Template] = {}
        for devices in world.published():
            self.drivers.add(devices.driver)
            for name, column in zip(devices.attributes, devices.columns, strict=True):
                key = device_views.split_name(name, devices.driver)
                self._columns.setdefault(key, {})[id(column)] = column
            for template in devices.templates:
                self._templates[devices.driver, id(template)] = template

    def values(self, path: Path) -> list[Value]:
        """What devices show for one thing that is read, each value once."""
        if path == ("driver",):
            return sorted(self.drivers)
        if len(path) != 3:
            return []
        kind, domain, name = path
        domains = self.drivers if domain == OWN_DOMAIN else {domain}
        if kind == "capacity":
            return [
                value for key, value in self._capacities() if key[0] in domains and key[1] == name
            ]
        attributes = {
            attribute
            for own in domains
            for column in self._columns.get((own, name), {}).values()
            for attribute in column
            if attribute is not None
        }
        values: list[Value] = []
        for attribute in attributes:
            value = device_views.attribute_value(attribute)
            values += value if isinstance(value, list) else [value]
        return sorted(values, key=str)

    def names(self, kind: str, domain: str) -> set[str]:
        """The names of attributes or capacities of a domain."""
        return {name for own, name in self._keys(kind) if own == domain}

    def domains(self, kind: str) -> set[str]:
        """The domains of all attributes or capacities."""
        return {domain for domain, _ in self._keys(kind)}

    def _keys(self, kind: str) -> set[tuple[str, str]]:
        if kind == "capacity":
            return {key for key, _ in self._capacities()}
        return set(self._columns)

    def _capacities(self) -> Iterator[tuple[tuple[str, str], Value]]:
        for (driver, _), template in self._templates.items():
            for name, capacity in template.capacity.items():
                yield device_views.split_name(name, driver), capacity.value
