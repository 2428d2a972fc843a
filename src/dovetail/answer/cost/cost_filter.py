"""The filter language of OpenCost's allocations (v2): `namespace:"a","b" + (pod~:"x" | label[app]!:"y")`.

Given text, returns a test of subjects, or a problem with its position. `+` is and, `|` is or; where both meet,
parentheses must say which comes first. Several values are alternatives; of a negated operator, none may be the value.
Bounded in length and depth. Never looks beyond the records: fields that they do not have are refused.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterator, Sequence
from typing import Final, NamedTuple

from dovetail import errors
from dovetail.answer.cost.cost_keys import UNALLOCATED, Subject
from dovetail.model.accounting import records

MOST_CHARACTERS: Final = 10_000
MOST_DEPTH: Final = 50

Test = Callable[[Subject], bool]
Compare = Callable[[str, str], bool]


def _equals(value: str, wanted: str) -> bool:
    return value == ("" if wanted == UNALLOCATED else wanted)


def _contains(value: str, wanted: str) -> bool:
    return wanted in value


_OPERATORS: Final[dict[str, tuple[Compare, bool]]] = {
    ":": (_equals, False),
    "!:": (_equals, True),
    "~:": (_contains, False),
    "!~:": (_contains, True),
    "<~:": (str.startswith, False),
    "!<~:": (str.startswith, True),
    "~>:": (str.endswith, False),
    "!~>:": (str.endswith, True),
}


def _of_asset(read: Callable[[records.Asset], str]) -> Callable[[Subject], str]:
    return lambda subject: "" if subject.asset is None else read(subject.asset)


def _of_owner(read: Callable[[records.Owner], str]) -> Callable[[Subject], str]:
    return lambda subject: "" if subject.owner is None else read(subject.owner)


def _label(name: str) -> Callable[[Subject], str]:
    return _of_owner(lambda owner: owner.labels.get(name, ""))


_FIELDS: Final[dict[str, Callable[[Subject], str]]] = {
    "cluster": lambda subject: subject.cluster,
    "node": _of_asset(lambda asset: asset.node),
    "namespace": _of_owner(lambda owner: owner.namespace),
    "controllerKind": _of_owner(lambda owner: owner.controller_kind.lower()),
    "controllerName": _of_owner(lambda owner: owner.controller),
    "pod": _of_owner(lambda owner: owner.pod),
    "queue": _of_owner(lambda owner: owner.queue),
    # OpenCost's names for common labels, with its default labels.
    "department": _label("department"),
    "environment": _label("env"),
    "owner": _label("owner"),
    "product": _label("app"),
    "team": _label("team"),
}
_AS_KEYS: Final = frozenset({"cluster", "node", "namespace", "controllerKind", "pod", "queue"})
_LABEL: Final = "label"
_LOWER_VALUES: Final = frozenset({"controllerKind"})
_NOT_RECORDED: Final = frozenset({"container", "provider", "services", "annotation"})
KNOWN: Final = (*_FIELDS, "label[NAME]")

_TOKEN: Final = re.compile(
    r"""
    (?P<blank>[ \t\r\n]+)
  | (?P<text>"[^"]*")
  | (?P<key>\[[^\]]*\])
  | (?P<operator>!?(?:<~|~>|~)?:)
  | (?P<sign>[,+|()])
  | (?P<word>[\w-]+)
    """,
    re.VERBOSE,
)


class _Token(NamedTuple):
    kind: str  # text, key, operator, sign, word, end
    text: str
    position: int


def parse(written: str) -> Test | None:
    """The test; None for an empty filter. Raises InputError that names the position."""
    if len(written) > MOST_CHARACTERS:
        raise errors.InputError(
            f"filter: {len(written)} characters; at most {MOST_CHARACTERS} are read"
        )
    if not written.strip():
        return None
    parser = _Parser(list(_tokens(written)))
    return parser.filter()


def fields(written: str) -> frozenset[str]:
    """What a filter reads of a subject: keys of the same name, and words of the filter for everything else."""
    words = {token.text for token in _tokens(written) if token.kind == "word"}
    return frozenset(word if word in _AS_KEYS else f"filter {word}" for word in words)


def _tokens(written: str) -> Iterator[_Token]:
    position = 0
    while position < len(written):
        match = _TOKEN.match(written, position)
        if match is None:
            sign = written[position]
            problem = "has no end" if sign in '"[' else "is not part of the language"
            raise _problem(position, f"{sign!r} {problem}")
        kind = match.lastgroup or ""
        if kind != "blank":
            yield _Token(kind, match.group(), position)
        position = match.end()
    yield _Token("end", "", len(written))


class _Parser:
    """By recursive descent; one level deeper for each open parenthesis."""

    def __init__(self, tokens: Sequence[_Token]) -> None:
        self._tokens = tokens
        self._at = 0
        self._depth = 0

    def filter(self) -> Test:
        test = self._group()
        token = self._next()
        if token.kind != "end":
            raise _problem(token.position, f'"{token.text[:40]}" after the end of the filter')
        return test

    def _group(self) -> Test:
        tests = [self._element()]
        sign = ""
        while self._peek().text in ("+", "|"):
            token = self._next()
            if sign and token.text != sign:
                raise _problem(token.position, "both + and |: put parentheses around one of them")
            sign = token.text
            tests.append(self._element())
        if len(tests) == 1:
            return tests[0]
        if sign == "+":
            return lambda subject: all(test(subject) for test in tests)
        return lambda subject: any(test(subject) for test in tests)

    def _element(self) -> Test:
        token = self._next()
        if token.text == "(":
            self._depth += 1
            if self._depth > MOST_DEPTH:
                raise _problem(token.position, f"more than {MOST_DEPTH} open parentheses")
            test = self._group()
            self._expect(")")
            self._depth -= 1
            return test
        if token.kind != "word":
            shown = f'"{token.text[:40]}"' if token.text else "the end"
            raise _problem(token.position, f"{shown} where a field such as namespace was expected")
        return self._comparison(token)

    def _comparison(self, field: _Token) -> Test:
        key = self._next().text[1:-1] if self._peek().kind == "key" else None
        operator = self._next()
        if operator.kind != "operator":
            known = " ".join(_OPERATORS)
            raise _problem(
                operator.position, f"expected an operator after {field.text[:40]}: {known}"
            )
        values = [self._value()]
        while self._peek().text == ",":
            self._next()
            values.append(self._value())
        compare, is_negated = _OPERATORS[operator.text]
        if field.text in _LOWER_VALUES:
            values = [value.lower() for value in values]
        if field.text == _LABEL and key is None:
            return _has_label(values, compare, is_negated=is_negated)
        read = _read(field, key)

        def test(subject: Subject) -> bool:
            value = read(subject)
            return any(compare(value, wanted) for wanted in values) != is_negated

        return test

    def _value(self) -> str:
        token = self._next()
        if token.kind != "text":
            raise _problem(token.position, 'expected a value in double quotes, such as "a"')
        return token.text[1:-1]

    def _expect(self, sign: str) -> None:
        token = self._next()
        if token.text != sign:
            shown = f'"{token.text[:40]}"' if token.text else "the end"
            raise _problem(token.position, f'{shown} where "{sign}" was expected')

    def _peek(self) -> _Token:
        return self._tokens[self._at]

    def _next(self) -> _Token:
        token = self._tokens[self._at]
        self._at = min(self._at + 1, len(self._tokens) - 1)  # the end stays
        return token


def _read(field: _Token, key: str | None) -> Callable[[Subject], str]:
    if field.text == _LABEL and key:
        return _label(key)
    if key is not None and field.text in _FIELDS:
        raise _problem(field.position, f"{field.text} has no keys: leave [{key[:40]}] out")
    if field.text in _FIELDS:
        return _FIELDS[field.text]
    if field.text in _NOT_RECORDED:
        raise _problem(field.position, f"{field.text} is not recorded; known: {', '.join(KNOWN)}")
    near = difflib.get_close_matches(field.text, [*_FIELDS, _LABEL], n=1)
    hint = f"did you mean {near[0]}?" if near else f"known: {', '.join(KNOWN)}"
    raise _problem(field.position, f'unknown field "{field.text[:40]}"; {hint}')


def _has_label(values: Sequence[str], compare: Compare, *, is_negated: bool) -> Test:
    """Whether there is a label of such a name."""

    def test(subject: Subject) -> bool:
        names = () if subject.owner is None else subject.owner.labels
        is_there = any(compare(name, wanted) for name in names for wanted in values)
        return is_there != is_negated

    return test


def _problem(position: int, message: str) -> errors.InputError:
    return errors.InputError(f"filter: position {position + 1}: {message}")
