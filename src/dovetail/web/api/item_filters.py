"""The filters that lists share: one of several words, a text in any of some fields, labels.

Given what was asked and values. Words are compared without regard to case. Never sorts, never cuts.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from dovetail import errors
from dovetail.tables import label_option
from dovetail.web import problems


def is_one_of(value: str, wanted: Sequence[str]) -> bool:
    """Whether the value is among the words, or no word was given. A word may hold several with commas between."""
    words = [word.strip().lower() for each in wanted for word in each.split(",") if word.strip()]
    return not words or value.lower() in words


def has_text(text: str, values: Iterable[str]) -> bool:
    """Whether each word of the text occurs in one of the values."""
    lowered = [value.lower() for value in values]
    return all(any(word in value for value in lowered) for word in text.lower().split())


def labels(written: str) -> label_option.Test:
    """The test of a label selector. Raises 400 that names the part which cannot be read."""
    try:
        return label_option.selector(written)
    except errors.InputError as error:
        raise problems.bad_request(str(error), field="labels") from None
