"""Cuts expression text into tokens. Knows CEL's lexical rules; decides nothing about structure."""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from dovetail.cel.language.source import Issue

INT: Final = "int"
UINT: Final = "uint"
FLOAT: Final = "float"
STRING: Final = "string"
BYTES: Final = "bytes"
IDENT: Final = "identifier"
ESCAPED: Final = "escaped identifier"
END: Final = "end of expression"

_ESCAPE = (
    r"\\(?:[abfnrtv\"'\\?`]|[xX][0-9a-fA-F]{2}|u[0-9a-fA-F]{4}|U[0-9a-fA-F]{8}|[0-3][0-7][0-7])"
)
_QUOTED = "|".join(
    [
        r'[rR]"""(?:.|\n)*?"""',
        r"[rR]'''(?:.|\n)*?'''",
        r'[rR]"[^"\n\r]*"',
        r"[rR]'[^'\n\r]*'",
        rf'"""(?:{_ESCAPE}|[^\\])*?"""',
        rf"'''(?:{_ESCAPE}|[^\\])*?'''",
        rf'"(?:{_ESCAPE}|[^\\"\n\r])*"',
        rf"'(?:{_ESCAPE}|[^\\'\n\r])*'",
    ]
)
_TOKEN = re.compile(
    rf"""
    (?P<skip>[\t\ \r\n\f]+|//[^\n]*)
  | (?P<bytes>[bB](?:{_QUOTED}))
  | (?P<string>{_QUOTED})
  | (?P<float>[0-9]+\.[0-9]+(?:[eE][+-]?[0-9]+)?|[0-9]+[eE][+-]?[0-9]+|\.[0-9]+(?:[eE][+-]?[0-9]+)?)
  | (?P<uint>0x[0-9a-fA-F]+[uU]|[0-9]+[uU])
  | (?P<int>0x[0-9a-fA-F]+|[0-9]+)
  | (?P<identifier>[A-Za-z_][A-Za-z0-9_]*)
  | (?P<escaped>`[A-Za-z0-9_.\-/\ ]+`)
  | (?P<symbol>==|!=|<=|>=|&&|\|\||[<>\[\]{{}}().,\-!?:+*/%])
    """,
    re.VERBOSE,
)
KEYWORDS: Final = frozenset(("in", "true", "false", "null"))


class Token(NamedTuple):
    """One token. Symbols and keywords have themselves as kind."""

    kind: str
    text: str
    offset: int


def tokens(text: str) -> list[Token] | Issue:
    """All tokens and a final END, or the offset at which no token begins. Linear."""
    tokens_: list[Token] = []
    position = 0
    while position < len(text):
        match = _TOKEN.match(text, position)
        if match is None:
            return Issue(position, f"unexpected character {text[position]!r}")
        group = match.lastgroup
        if group != "skip":
            tokens_.append(Token(_kind(group or "", match.group()), match.group(), position))
        position = match.end()
    tokens_.append(Token(END, "", len(text)))
    return tokens_


def _kind(group: str, text: str) -> str:
    if group == "symbol" or (group == "identifier" and text in KEYWORDS):
        return text
    return ESCAPED if group == "escaped" else group
