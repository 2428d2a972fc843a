"""Names that fit: what other schedulers call a queue, as one of ours may be called. No two come out alike."""

from __future__ import annotations

import re
from typing import Final

MAX_LENGTH: Final = 63  # of a label value, and of a DNS label
_FOREIGN: Final = re.compile(r"[^a-z0-9-]+")


class Names:
    """Gives out names, each once."""

    def __init__(self) -> None:
        self._taken: set[str] = set()

    def of(self, wanted: str, *, otherwise: str) -> str:
        """The name if it fits and is free, else the nearest one; `otherwise` tells twins apart."""
        name = _fitting(wanted) or otherwise
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
