"""Compares versions as Go's golang.org/x/mod/semver does: minor and patch may be missing, prereleases come first.

Given text with or without a leading v. A text that is no such version counts as lower than every version, as it does
there. NVIDIA's container toolkit compares CUDA, driver and architecture with it. Never raises.
"""

from __future__ import annotations

import re
from typing import Final

from dovetail import cache

_NUMBER: Final = r"(?:0|[1-9][0-9]*)"
_PRERELEASE: Final = r"(?:0|[1-9][0-9]*|[0-9]*[A-Za-z-][0-9A-Za-z-]*)"
_BUILD: Final = r"[0-9A-Za-z-]+"
_VERSION: Final = re.compile(
    rf"(?P<major>{_NUMBER})"
    rf"(?:\.(?P<minor>{_NUMBER})"
    rf"(?:\.(?P<patch>{_NUMBER})"
    rf"(?:-(?P<prerelease>{_PRERELEASE}(?:\.{_PRERELEASE})*))?"
    rf"(?:\+{_BUILD}(?:\.{_BUILD})*)?"
    r")?)?"
)
_DIGITS: Final = re.compile(r"[0-9]+")
_MEMO: Final = 4096

# A number as (digits, text): longer is larger, and no text is too long to be compared.
Number = tuple[int, str]
# One identifier of a prerelease: numbers before words.
Identifier = tuple[int, int, str]
Order = tuple[Number, Number, Number, bool, tuple[Identifier, ...]]


def is_valid(text: str) -> bool:
    """Whether the text is a version."""
    return _order(text) is not None


def compare(first: str, second: str) -> int:
    """-1, 0 or 1 as the first version is lower, equal or higher."""
    ours, theirs = _order(first), _order(second)
    if ours is None or theirs is None:
        return (ours is not None) - (theirs is not None)
    return (ours > theirs) - (ours < theirs)


def major_minor(text: str) -> str:
    """The first two numbers, such as 12.9; the second is 0 where it is missing. Empty for what is no version."""
    match = _VERSION.fullmatch(text.removeprefix("v"))
    return f"{match['major']}.{match['minor'] or '0'}" if match else ""


@cache.remembered(_MEMO)
def _order(text: str) -> Order | None:
    match = _VERSION.fullmatch(text.removeprefix("v"))
    if match is None:
        return None
    major, minor, patch = (match[name] or "0" for name in ("major", "minor", "patch"))
    prerelease = match["prerelease"]
    identifiers = prerelease.split(".") if prerelease else []
    # A release comes after all of its prereleases.
    return (
        (len(major), major),
        (len(minor), minor),
        (len(patch), patch),
        not identifiers,
        tuple(_identifier(part) for part in identifiers),
    )


def _identifier(text: str) -> Identifier:
    if _DIGITS.fullmatch(text):
        return 0, len(text), text
    return 1, 0, text
