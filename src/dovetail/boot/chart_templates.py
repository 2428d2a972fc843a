"""Renders chart templates without Helm: the part of Go's template language that our own chart is written in.

Given the text of templates and what they may read. Knows output, comments, `if`/`else if`/`else`, `with`, `range`,
`define`, `include`, pipelines, parentheses and the listed functions; no variables, no other actions. Whatever it does
not know is an InputError that names the template: a chart that says more than this cannot be rendered wrongly.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

from dovetail import errors
from dovetail.boot import chart_functions

_ACTION: Final = re.compile(r"\{\{(?P<left>-\s)?(?P<body>.*?)(?P<right>\s-)?\}\}", re.DOTALL)
_COMMENT: Final = re.compile(r"/\*.*\*/", re.DOTALL)
_TOKEN: Final = re.compile(
    r'\s*(?:(?P<text>"(?:\\.|[^"\\])*")|(?P<number>-?[0-9]+)(?![\w.])|(?P<field>\$?(?:\.[A-Za-z_]\w*)+|\$|\.)'
    r"|(?P<word>[A-Za-z]\w*)|(?P<sign>[()|]))"
)
_BLOCKS: Final = ("if", "with", "range", "define")


class Action(NamedTuple):
    """One piece of a template: text, or the words between braces."""

    is_text: bool
    text: str


class Block(NamedTuple):
    """A word that governs what follows it up to its `end`."""

    word: str
    pipeline: str
    body: tuple[Node, ...]
    otherwise: tuple[Node, ...]


Node = Action | Block
Field = tuple[bool, tuple[str, ...]]  # from the root, names


class Rendering:
    """Templates that know each other's definitions, and the functions they may call."""

    def __init__(self, texts: Mapping[str, str]) -> None:
        self._defined: dict[str, tuple[Node, ...]] = {}
        self._bodies: dict[str, tuple[Node, ...]] = {}
        for name, text in texts.items():
            self._bodies[name] = tuple(self._without_definitions(parsed(text, name)))
        self._name = ""

    def render(self, name: str, root: Mapping[str, Any]) -> str:
        """One template's text."""
        self._name = name
        try:
            return self._text(self._bodies[name], _Scope(root, root))
        except errors.InputError:
            raise
        except (TypeError, ValueError, KeyError, IndexError) as error:
            raise errors.InputError(f"{name}: {error}") from None

    def _without_definitions(self, nodes: Sequence[Node]) -> Iterator[Node]:
        for node in nodes:
            if isinstance(node, Block) and node.word == "define":
                self._defined[str(ast.literal_eval(node.pipeline.strip()))] = node.body
            else:
                yield node

    def _text(self, nodes: Sequence[Node], scope: _Scope) -> str:
        return "".join(self._piece(node, scope) for node in nodes)

    def _piece(self, node: Node, scope: _Scope) -> str:
        if isinstance(node, Action):
            return node.text if node.is_text else chart_functions.shown(self._value(node.text, scope))
        value = self._value(node.pipeline, scope)
        match node.word:
            case "if":
                return self._text(node.body if value else node.otherwise, scope)
            case "with":
                return self._text(node.body, scope.at(value)) if value else self._text(node.otherwise, scope)
            case "range":
                pieces = [self._text(node.body, scope.at(item)) for item in value or ()]
                return "".join(pieces) if pieces else self._text(node.otherwise, scope)
            case _:
                raise errors.InputError(f'{self._name}: "{node.word}" is not known here')

    def _value(self, pipeline: str, scope: _Scope) -> Any:
        return _Pipeline(_tokens(pipeline, self._name), scope, self._call).value()

    def _call(self, word: str, arguments: Sequence[Any], scope: _Scope) -> Any:
        if word == "include":
            name, dot = arguments
            if name not in self._defined:
                raise errors.InputError(f'{self._name}: there is no template "{name}"')
            return self._text(self._defined[name], scope.at(dot))
        if word not in chart_functions.FUNCTIONS:
            raise errors.InputError(f'{self._name}: there is no function "{word}"')
        return chart_functions.FUNCTIONS[word](*arguments)


class _Scope(NamedTuple):
    """What `$` and `.` mean."""

    root: Any
    dot: Any

    def at(self, dot: Any) -> _Scope:
        return self._replace(dot=dot)

    def read(self, field: str) -> Any:
        """A field by its path. One that is not there is an error: values.yaml names them all."""
        found = self.root if field.startswith("$") else self.dot
        for name in [part for part in field.removeprefix("$").split(".") if part]:
            if not isinstance(found, Mapping) or name not in found:
                raise errors.InputError(f"{field}: there is no value of this name")
            found = found[name]
        return found


class _Pipeline:
    """Evaluates `a b | c d`: each result is the last argument of the next call."""

    def __init__(
        self, tokens: list[tuple[str, str]], scope: _Scope, call: Callable[[str, Sequence[Any], _Scope], Any]
    ) -> None:
        self._tokens = tokens
        self._scope = scope
        self._call = call

    def value(self) -> Any:
        found = self._command([])
        while self._tokens and self._tokens[0] == ("sign", "|"):
            self._tokens.pop(0)
            found = self._command([found])
        return found

    def _command(self, piped: list[Any]) -> Any:
        kind, text = self._tokens.pop(0)
        is_method = kind == "field" and text.endswith(".Has")
        if kind != "word" and not is_method:
            found = self._literal(kind, text)
            if piped or self._has_argument():
                raise errors.InputError(f'"{text}" is not a function')
            return found
        if text in ("true", "false"):
            return text == "true"
        arguments = []
        while self._has_argument():
            arguments.append(self._literal(*self._tokens.pop(0)))
        if is_method:
            return arguments[0] in self._scope.read(text.removesuffix(".Has"))
        return self._call(text, arguments + piped, self._scope)

    def _has_argument(self) -> bool:
        return bool(self._tokens) and self._tokens[0] not in (("sign", "|"), ("sign", ")"))

    def _literal(self, kind: str, text: str) -> Any:
        match kind:
            case "text":
                return ast.literal_eval(text)
            case "number":
                return int(text)
            case "field":
                return self._scope.read(text)
            case "word" if text in ("true", "false"):
                return text == "true"
            case "sign" if text == "(":
                inner = self.value()
                if not self._tokens or self._tokens.pop(0) != ("sign", ")"):
                    raise errors.InputError("a parenthesis is not closed")
                return inner
            case _:
                raise errors.InputError(f'"{text}" cannot be an argument')


def parsed(text: str, name: str) -> tuple[Node, ...]:
    """The template as a tree. Raises InputError where blocks do not match."""
    pieces = list(_pieces(text))
    nodes, end = _block(pieces, name)
    if end:
        raise errors.InputError(f'{name}: "{end}" without a block')
    return nodes


def _pieces(text: str) -> Iterator[Action]:
    """Text and actions in turn, with the white space that `-` takes away already gone."""
    place, trims = 0, False
    for found in _ACTION.finditer(text):
        before = text[place : found.start()]
        before = before.lstrip() if trims else before
        yield Action(True, before.rstrip() if found["left"] else before)
        body = _COMMENT.sub("", found["body"]).strip()
        if body:
            yield Action(False, body)
        place, trims = found.end(), bool(found["right"])
    yield Action(True, text[place:].lstrip() if trims else text[place:])


def _block(pieces: list[Action], name: str) -> tuple[tuple[Node, ...], str]:
    """Nodes up to `end`, `else` or the end of the text, and which of them it was."""
    nodes: list[Node] = []
    while pieces:
        piece = pieces.pop(0)
        word, _, rest = piece.text.partition(" ")
        if piece.is_text:
            nodes.append(piece)
        elif word in ("end", "else"):
            return tuple(nodes), piece.text
        elif word in _BLOCKS:
            nodes.append(_governed(word, rest, pieces=pieces, name=name))
        else:
            nodes.append(piece)
    return tuple(nodes), ""


def _governed(word: str, rest: str, *, pieces: list[Action], name: str) -> Block:
    body, end = _block(pieces, name)
    otherwise: tuple[Node, ...] = ()
    if end.startswith("else if "):
        otherwise = (_governed("if", end.removeprefix("else if "), pieces=pieces, name=name),)
    elif end == "else":
        otherwise, end = _block(pieces, name)
    if not end:
        raise errors.InputError(f'{name}: "{word} {rest}" has no end')
    return Block(word, rest, body, otherwise)


def _tokens(text: str, name: str) -> list[tuple[str, str]]:
    found: list[tuple[str, str]] = []
    place = 0
    while place < len(text.rstrip()):
        token = _TOKEN.match(text, place)
        if token is None or token.lastgroup is None:
            raise errors.InputError(f'{name}: cannot read "{text[place:].strip()}"')
        found.append((token.lastgroup, token[token.lastgroup]))
        place = token.end()
    if not found:
        raise errors.InputError(f"{name}: an action is empty")
    return found
