"""Renders chart templates without Helm: the subset of Go's template language that our chart uses.

Given the text of templates and the values they may read. Supports output, comments, `if`/`else if`/`else`, `with`,
`range`, `define`, `include`, `.Files.Get`, pipelines, parentheses and the listed functions; no variables. Anything else
is an InputError that names the template, so that a template is never rendered wrongly.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

from dovetail import errors
from dovetail.install import chart_functions

_ACTION: Final = re.compile(r"\{\{(?P<left>-\s)?(?P<body>.*?)(?P<right>\s-)?\}\}", re.DOTALL)
_COMMENT: Final = re.compile(r"/\*.*\*/", re.DOTALL)
_TOKEN: Final = re.compile(
    r'\s*(?:(?P<text>"(?:\\.|[^"\\])*")|(?P<number>-?[0-9]+)(?![\w.])|(?P<field>\$?(?:\.[A-Za-z_]\w*)+|\$|\.)'
    r"|(?P<word>[A-Za-z]\w*)|(?P<sign>[()|]))"
)
_BLOCKS: Final = ("if", "with", "range", "define")
_BOOLEANS: Final = {"true": True, "false": False}


class Action(NamedTuple):
    """One piece of a template: text, or the content of an action's braces."""

    is_text: bool
    text: str


class Block(NamedTuple):
    """A control structure with its body up to `end`."""

    word: str
    pipeline: str
    body: tuple[Node, ...]
    otherwise: tuple[Node, ...]


Node = Action | Block


class Rendering:
    """Parsed templates that share their definitions."""

    def __init__(self, texts: Mapping[str, str]) -> None:
        self._defined: dict[str, tuple[Node, ...]] = {}
        self._bodies: dict[str, tuple[Node, ...]] = {}
        for name, text in texts.items():
            self._bodies[name] = tuple(self._without_definitions(parsed(text, name)))
        self._name = ""

    def render(self, name: str, root: Mapping[str, Any]) -> str:
        """The rendered text of one template."""
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
            return self._action_text(node, scope)
        value = self._value(node.pipeline, scope)
        if node.word not in ("if", "with", "range"):
            raise errors.InputError(f'{self._name}: "{node.word}" is not supported here')

        # Empty lists and mappings are false, as in Go.
        if not value:
            return self._text(node.otherwise, scope)
        if node.word == "if":
            return self._text(node.body, scope)
        if node.word == "with":
            return self._text(node.body, scope.at(value))
        return "".join(self._text(node.body, scope.at(element)) for element in value)

    def _action_text(self, action: Action, scope: _Scope) -> str:
        if action.is_text:
            return action.text
        return chart_functions.shown(self._value(action.text, scope))

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
        """A field by its path. A missing field is an error: values.yaml names them all."""
        value = self.root if field.startswith("$") else self.dot
        names = filter(None, field.removeprefix("$").split("."))
        for name in names:
            if not isinstance(value, Mapping) or name not in value:
                raise errors.InputError(f"{field}: there is no value of this name")
            value = value[name]
        return value


class _Pipeline:
    """Evaluates `a b | c d`: each result is the last argument of the next call."""

    def __init__(
        self,
        tokens: list[tuple[str, str]],
        scope: _Scope,
        call: Callable[[str, Sequence[Any], _Scope], Any],
    ) -> None:
        self._tokens = tokens
        self._scope = scope
        self._call = call

    def value(self) -> Any:
        result = self._command([])
        while self._tokens and self._tokens[0] == ("sign", "|"):
            self._tokens.pop(0)
            result = self._command([result])
        return result

    def _command(self, piped: list[Any]) -> Any:
        """One command: a constant, a function call, or a lookup by the methods `Has` and `Get`."""
        kind, text = self._tokens.pop(0)
        if kind == "field" and text.endswith(".Has"):
            return self._arguments()[0] in self._scope.read(text.removesuffix(".Has"))
        if kind == "field" and text.endswith(".Files.Get"):
            return self._file(self._arguments()[0], self._scope.read(text.removesuffix(".Get")))
        if kind == "word":
            if text in _BOOLEANS:
                return _BOOLEANS[text]
            return self._call(text, self._arguments() + piped, self._scope)

        operand = self._operand(kind, text)
        if piped or self._has_argument():
            raise errors.InputError(f'"{text}" is not a function')
        return operand

    def _file(self, path: str, files: Mapping[str, str]) -> str:
        """A file of the chart. Helm would take an empty text for one that is missing."""
        if path not in files:
            raise errors.InputError(f'the chart has no file "{path}"')
        return files[path]

    def _arguments(self) -> list[Any]:
        arguments = []
        while self._has_argument():
            arguments.append(self._operand(*self._tokens.pop(0)))
        return arguments

    def _has_argument(self) -> bool:
        return bool(self._tokens) and self._tokens[0] not in (("sign", "|"), ("sign", ")"))

    def _operand(self, kind: str, text: str) -> Any:
        match kind:
            case "text":
                return ast.literal_eval(text)
            case "number":
                return int(text)
            case "field":
                return self._scope.read(text)
            case "word" if text in _BOOLEANS:
                return _BOOLEANS[text]
            case "sign" if text == "(":
                return self._parenthesised()
            case _:
                raise errors.InputError(f'"{text}" cannot be an argument')

    def _parenthesised(self) -> Any:
        inner = self.value()
        if not self._tokens or self._tokens.pop(0) != ("sign", ")"):
            raise errors.InputError("a parenthesis is not closed")
        return inner


def parsed(text: str, name: str) -> tuple[Node, ...]:
    """The template as a tree. Raises InputError if blocks do not match."""
    pieces = list(_pieces(text))
    nodes, end = _block(pieces, name)
    if end:
        raise errors.InputError(f'{name}: "{end}" without a block')
    return nodes


def _pieces(text: str) -> Iterator[Action]:
    """Text and actions in turn; the white space that `-` trims is removed."""
    position = 0
    trims_right = False
    for action in _ACTION.finditer(text):
        before = text[position : action.start()]
        if trims_right:
            before = before.lstrip()
        if action["left"]:
            before = before.rstrip()
        yield Action(True, before)

        body = _COMMENT.sub("", action["body"]).strip()
        if body:
            yield Action(False, body)
        position, trims_right = action.end(), bool(action["right"])

    last = text[position:]
    yield Action(True, last.lstrip() if trims_right else last)


def _block(pieces: list[Action], name: str) -> tuple[tuple[Node, ...], str]:
    """The nodes up to `end`, `else` or the end of the text, and the action that ended them."""
    nodes: list[Node] = []
    while pieces:
        piece = pieces.pop(0)
        word, _, operand = piece.text.partition(" ")
        if piece.is_text:
            nodes.append(piece)
        elif word in ("end", "else"):
            return tuple(nodes), piece.text
        elif word in _BLOCKS:
            nodes.append(_governed(word, operand, pieces=pieces, name=name))
        else:
            nodes.append(piece)
    return tuple(nodes), ""


def _governed(word: str, operand: str, *, pieces: list[Action], name: str) -> Block:
    body, end = _block(pieces, name)
    otherwise: tuple[Node, ...] = ()
    if end.startswith("else if "):
        otherwise = (_governed("if", end.removeprefix("else if "), pieces=pieces, name=name),)
    elif end == "else":
        otherwise, end = _block(pieces, name)
    if not end:
        raise errors.InputError(f'{name}: "{word} {operand}" has no end')
    return Block(word, operand, body, otherwise)


def _tokens(text: str, name: str) -> list[tuple[str, str]]:
    tokens: list[tuple[str, str]] = []
    position = 0
    while position < len(text.rstrip()):
        token = _TOKEN.match(text, position)
        if token is None or token.lastgroup is None:
            raise errors.InputError(f'{name}: cannot read "{text[position:].strip()}"')
        tokens.append((token.lastgroup, token[token.lastgroup]))
        position = token.end()
    if not tokens:
        raise errors.InputError(f"{name}: an action is empty")
    return tokens
