"""Makes foreign text safe to show: on one line, without characters that control a terminal or turn its direction.

Given any text; printable characters stay as they are, the rest is written as escapes. Never cuts anything.
"""

from __future__ import annotations

import re
from typing import Final

# In JSON and in double quotes of YAML these mean the same as \uXXXX; line breaks stand between values there.
_STEERING: Final = re.compile(r"[^\n\x20-\x7e\xa1-\xac\xae-\u02ff]")


def escaped(text: str) -> str:
    """The text on one line: it cannot begin another. Linear; free where there is nothing to escape."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def escaped_lines(text: str) -> str:
    """The text with its line breaks, each line escaped."""
    return "\n".join(map(escaped, text.split("\n")))


def escaped_json(text: str) -> str:
    """JSON that means the same and steers nothing: JSON itself leaves DEL, C1 and direction marks as they are."""
    if text.isascii() and "\x7f" not in text:
        return text
    return _STEERING.sub(_unit, text)


def _unit(match: re.Match[str]) -> str:
    character = match[0]
    if character.isprintable():
        return character
    raw = character.encode("utf-16-be", errors="surrogatepass")
    units = [int.from_bytes(raw[at : at + 2], "big") for at in range(0, len(raw), 2)]
    return "".join(f"\\u{unit:04x}" for unit in units)
