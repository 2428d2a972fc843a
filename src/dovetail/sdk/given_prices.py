"""Prices of GPU-hours as a program gives them: by type, or in a YAML file.

Raises InputError, in the words of Python, for what is no price. Never prices anything.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from fractions import Fraction

from dovetail.sdk import python_words

Price = str | int | float
Prices = Mapping[str, Price] | str | os.PathLike[str]


def read(given: Prices | None) -> dict[str, Fraction] | None:
    """The prices; None where none are given."""
    from dovetail.ask import what_if_asked

    if given is None:
        return None
    with python_words.said():
        if isinstance(given, Mapping):
            return {
                name: what_if_asked.price(f"{name}={amount}", str(amount))
                for name, amount in given.items()
            }
        return what_if_asked.prices_of_file(os.fspath(given))
