"""Decides what is a semantic version and which of two comes first, as Kubernetes' CEL library does.

Given text; strict by default, with `normalize` as lenient as CEL's `semver(text, true)`.
Never compares build metadata: versions that differ only there are equal.
"""

from __future__ import annotations

import re

import msgspec

from dovetail import cache, errors

UINT64_MAX = (1 << 64) - 1  # numbers in a version: blang/semver v4
MAX_TEXT_LENGTH = (
    4096  # ours: attribute versions have at most 64 characters, a CEL literal may be longer
)

_DIGITS = re.compile(r"[0-9]+")
_IDENTIFIER = re.compile(r"[0-9A-Za-z-]+")
_MEMO = 4096

# One prerelease identifier as a sort key: numbers before words, numbers by size, words by character.
Identifier = tuple[int, int, str]


class Semver(msgspec.Struct, frozen=True, gc=False, eq=False, kw_only=True):
    """A version. Ordered by precedence; build metadata is kept for printing only."""

    major: int
    minor: int
    patch: int
    prerelease: tuple[Identifier, ...] = ()
    build: tuple[str, ...] = ()

    def __str__(self) -> str:
        pre = "".join(
            f"{'.' if at else '-'}{_spelled(part)}" for at, part in enumerate(self.prerelease)
        )
        build = f"+{'.'.join(self.build)}" if self.build else ""
        return f"{self.major}.{self.minor}.{self.patch}{pre}{build}"

    def compare(self, other: Semver) -> int:
        """-1, 0 or 1 as this version is lower, equal or higher."""
        ours, theirs = self._precedence(), other._precedence()
        return (ours > theirs) - (ours < theirs)

    def __eq__(self, other: object) -> bool:
        return (
            self._precedence() == other._precedence()
            if isinstance(other, Semver)
            else NotImplemented
        )

    def __hash__(self) -> int:
        return hash(self._precedence())

    def __lt__(self, other: Semver) -> bool:
        return self._precedence() < other._precedence()

    def __le__(self, other: Semver) -> bool:
        return self._precedence() <= other._precedence()

    def __gt__(self, other: Semver) -> bool:
        return self._precedence() > other._precedence()

    def __ge__(self, other: Semver) -> bool:
        return self._precedence() >= other._precedence()

    def _precedence(self) -> tuple[int, int, int, bool, tuple[Identifier, ...]]:
        # A release comes after all of its prereleases.
        return self.major, self.minor, self.patch, not self.prerelease, self.prerelease


@cache.remembered(_MEMO)
def parse(text: str, *, normalize: bool = False) -> Semver:
    """The version a text spells. Raises errors.SemverError; remembers recent texts."""
    if len(text) > MAX_TEXT_LENGTH:
        raise errors.SemverError(
            f"version of {len(text)} characters: at most {MAX_TEXT_LENGTH} are read"
        )
    return _strict(_normalized(text) if normalize else text)


def is_semver(text: str, *, normalize: bool = False) -> bool:
    """Whether `parse` accepts the text."""
    try:
        parse(text, normalize=normalize)
    except errors.SemverError:
        return False
    return True


def _strict(text: str) -> Semver:
    parts = text.split(".", 2)
    if len(parts) != 3:
        raise errors.SemverError(
            f"{text[:80]!r} is not a version; expected major.minor.patch, such as 1.2.3"
        )
    numbers, plus, build = parts[2].partition("+")
    patch, dash, prerelease = numbers.partition("-")
    return Semver(
        major=_number(parts[0], "major version"),
        minor=_number(parts[1], "minor version"),
        patch=_number(patch, "patch version"),
        prerelease=tuple(_identifier(part) for part in prerelease.split(".")) if dash else (),
        build=tuple(_build(part) for part in build.split(".")) if plus else (),
    )


def _normalized(text: str) -> str:
    """One leading v and leading zeros dropped, missing minor and patch filled in."""
    parts = [_without_leading_zeros(part) for part in text.removeprefix("v").split(".", 2)]
    if len(parts) < 3 and ("+" in parts[-1] or "-" in parts[-1]):
        raise errors.SemverError(
            f"{text[:80]!r}: prerelease or build need all of major.minor.patch before them"
        )
    return ".".join([*parts, "0", "0"][: max(3, len(parts))])


def _without_leading_zeros(part: str) -> str:
    if len(part) < 2:
        return part
    stripped = part.lstrip("0")
    return stripped if stripped[:1] in tuple("123456789") else "0" + stripped


def _number(text: str, what: str) -> int:
    if not _DIGITS.fullmatch(text):
        raise errors.SemverError(f"{what} {text[:40]!r} is not a number")
    if text[0] == "0" and text != "0":
        raise errors.SemverError(f"{what} {text[:40]!r} has leading zeros")
    if len(text) > 20 or int(text) > UINT64_MAX:  # 20 digits hold any uint64
        raise errors.SemverError(f"{what} {text[:40]!r} is larger than {UINT64_MAX}")
    return int(text)


def _identifier(text: str) -> Identifier:
    if _DIGITS.fullmatch(text):
        return 0, _number(text, "numeric prerelease"), ""
    return 1, 0, _checked(text, "prerelease")


def _build(text: str) -> str:
    return _checked(text, "build metadata")


def _checked(text: str, what: str) -> str:
    if not _IDENTIFIER.fullmatch(text):
        raise errors.SemverError(f"{what} {text[:40]!r} is not one or more of A-Z a-z 0-9 -")
    return text


def _spelled(identifier: Identifier) -> str:
    kind, number, word = identifier
    return word if kind else str(number)
