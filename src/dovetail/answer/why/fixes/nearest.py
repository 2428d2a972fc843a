"""The nearest of several names or values to one that was written: what an author probably meant.

Given what exists. Spelling, case and separators decide between names, amounts between numbers, size between MIG
profiles. Never reads an object.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Collection, Iterable
from typing import Final

LIKE: Final = 0.6  # difflib's ratio from which a name could be meant
SLIP: Final = 0.8  # and from which it surely is
_PART: Final = 0.9  # the least likeness of a name that holds the other one
_SHORTEST_PART: Final = 3
_PROFILE: Final = re.compile(r"^(?:mig-)?(\d+)(?:c\.\d+)?g[.](\d+)gb")


def names(written: str, existing: Collection[str], *, most: int = 3) -> list[str]:
    """The existing names that could be meant, the nearest first; without the written one itself."""
    ratios = {name: _likeness(written, name) for name in existing if name != written}
    near = [name for name, ratio in ratios.items() if ratio >= LIKE]
    return sorted(near, key=lambda name: (-ratios[name], name))[:most]


def is_slip(written: str, name: str) -> bool:
    """Whether one was probably written for the other: H200 for H100 is no slip, h100 is."""
    if _is_part(written, name):
        return True
    has_same_digits = re.findall(r"\d+", written) == re.findall(r"\d+", name)
    return has_same_digits and _likeness(written, name) >= SLIP


def _likeness(written: str, name: str) -> float:
    """1 where only case and separators differ."""
    first, second = _plain(written), _plain(name)
    if first == second:
        return 1.0
    if _is_part(written, name):
        return _PART + (1 - _PART) * len(first) / len(second)  # the shorter the rest, the nearer
    return difflib.SequenceMatcher(None, first, second).ratio()


def _is_part(written: str, name: str) -> bool:
    """Whether a name holds what was written, as `NVIDIA H100 80GB HBM3` holds `H100`."""
    part = _plain(written)
    return len(part) >= _SHORTEST_PART and part in _plain(name)


def _plain(name: str) -> str:
    return re.sub(r"[-_. ]", "", name).lower()


def profiles(written: str, existing: Iterable[str]) -> list[str]:
    """MIG profiles by how much they differ in compute slices, then in memory; empty where it is no profile."""
    wanted = _size(written)
    if wanted is None:
        return []
    sizes = {name: size for name in existing if name != written and (size := _size(name))}
    return sorted(
        sizes,
        key=lambda name: (abs(sizes[name][0] - wanted[0]), abs(sizes[name][1] - wanted[1]), name),
    )


def is_profile(text: str) -> bool:
    """Whether a text names a MIG profile."""
    return _size(text) is not None


def _size(text: str) -> tuple[int, int] | None:
    match = _PROFILE.match(text.rpartition("/")[2])
    return None if match is None else (int(match[1]), int(match[2]))
