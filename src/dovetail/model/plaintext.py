"""Makes text of others safe to show: on one line, and without signs that steer a terminal or turn its direction.

Given any text; what can be printed stays as it is, the rest is written as escapes. Never cuts anything.
"""

from __future__ import annotations


def escaped(text: str) -> str:
    """The text on one line: it cannot start one of its own. Linear; free where there is nothing to escape."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)
