"""Turns another scheduler's names into valid, distinct names for our objects."""

from __future__ import annotations

import re
from typing import Final

MAX_LENGTH: Final = 63  # of a label value, and of a DNS label
_FOREIGN: Final = re.compile(r"[^a-z0-9-]+")


class Names:
    """Hands out each name once."""

    def __init__(self) -> None:
        self._taken: set[str] = set()

    def of(self, proposed: str, *, otherwise: str) -> str:
        """The proposed name if it is valid and free, else a similar one; `otherwise` distinguishes duplicates."""
        name = _fitting(proposed) or otherwise
        if name in self._taken:
            name = f"{name[: MAX_LENGTH - len(otherwise) - 1]}-{otherwise}"
        base, number = name, 2
        while name in self._taken:
            name = f"{base[: MAX_LENGTH - 6]}-{number}"
            number += 1
        self._taken.add(name)
        return name


def _fitting(text: str) -> str:
    return _FOREIGN.sub("-", text.lower())[:MAX_LENGTH].strip("-")
