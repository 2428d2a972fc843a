"""Decides how large a value a library function may build. Given sizes; raises before memory is spent.

Cost limits stop most expressions first; these bounds hold where a call costs less than what it builds.
"""

from __future__ import annotations

from collections.abc import Sized

from dovetail.cel.evaluate.values import Panic

MAX_ELEMENTS = 1_000_000  # cel-go's own limit for lists.range, held for every list
MAX_TEXT_CHARACTERS = 16 * 2**20
MAX_COMPARISONS = (
    5_000_000  # cel-go charges one or two per pair; the limit of a whole selector is 1,000,000
)


class TooLargeError(Panic):
    """A result too large to build. Upstream would run into its cost limit instead, which nothing absorbs."""


def check_elements(count: int) -> None:
    """Refuses a list of more than MAX_ELEMENTS."""
    if count > MAX_ELEMENTS:
        raise TooLargeError(f"a list of {count} elements: at most {MAX_ELEMENTS} are built")


def check_text(length: int) -> None:
    """Refuses a string of more than MAX_TEXT_CHARACTERS."""
    if length > MAX_TEXT_CHARACTERS:
        raise TooLargeError(
            f"a string of {length} characters: at most {MAX_TEXT_CHARACTERS} are built"
        )


def check_pairs(left: Sized, right: Sized) -> None:
    """Refuses to compare every element of one list with every element of another when that takes too long."""
    if len(left) * len(right) > MAX_COMPARISONS:
        raise TooLargeError(
            f"comparing {len(left)} with {len(right)} elements: at most {MAX_COMPARISONS} pairs"
        )
