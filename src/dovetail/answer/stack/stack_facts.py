"""A fact about the stack with where it is known from, or why it is not known.

Given by the code that read the objects. A fact is never blank: it has a value, or a reason why there is none.
"""

from __future__ import annotations

from typing import Final

import msgspec

NONE: Final = "none"  # known not to be there
UNKNOWN: Final = "unknown"


class Fact(msgspec.Struct, frozen=True, omit_defaults=True, rename="camel"):
    """A value and its source; or, without a value, why it is not known."""

    value: str = ""
    source: str = ""
    unknown: str = ""
    differs: str = ""  # what another source says instead

    @property
    def is_known(self) -> bool:
        """Whether there is a value."""
        return bool(self.value)

    @property
    def is_present(self) -> bool:
        """Whether there is a value that is not `none`."""
        return self.value not in ("", NONE)

    def __str__(self) -> str:
        return self.value or UNKNOWN


def fact(value: str, source: str, *, differs: str = "") -> Fact:
    """A known fact."""
    return Fact(value=value, source=source, differs=differs)


def absent(source: str) -> Fact:
    """The thing is known not to be there."""
    return Fact(value=NONE, source=source)


def unknown(why: str) -> Fact:
    """A fact that nothing states."""
    return Fact(unknown=why)
