"""Versions of drivers and programs: leading zeros, suffixes, ranges."""

from __future__ import annotations

import pytest

from dovetail import errors
from dovetail.quantity import dotted_versions


def test_a_leading_zero_is_no_difference() -> None:
    assert dotted_versions.compare("580.95.05", "580.95.5") == 0
    assert dotted_versions.compare("535.86.10", "535.86.9") == 1


def test_what_follows_the_numbers_does_not_count() -> None:
    assert dotted_versions.parse("v1.34.2+k3s1") == (1, 34, 2)
    assert dotted_versions.parse("1.7.28-0ubuntu1") == (1, 7, 28)
    assert dotted_versions.parse("13.0.0") == (13,)


@pytest.mark.parametrize("text", ["", "latest", ".5", "1..2", "hollow", "1" * 40, "5,8", "1.x"])
def test_a_text_without_numbers_is_no_version(text: str) -> None:
    assert not dotted_versions.is_version(text)


@pytest.mark.parametrize(
    ("text", "inside", "outside"),
    [
        ("580", ["580", "580.95.05"], ["581", "58"]),
        ("13.0", ["13", "13.0.2"], ["13.1"]),
        ("1.33..1.36", ["1.33", "1.36.9"], ["1.32.9", "1.37"]),
        ("..580", ["470", "580.178.04"], ["590"]),
        ("570.124.06..570.158.01", ["570.133.20", "570.158.1"], ["570.172.08", "570.86"]),
        (">=1.7.28,<1.8 | >=2.1.3", ["1.7.28", "2.1.3"], ["1.7.27", "2.0.9", "2.1"]),
        ("*", ["0", "999"], []),
        ("!=2.1", ["2.0"], ["2.1.0"]),
    ],
)
def test_ranges(text: str, inside: list[str], outside: list[str]) -> None:
    versions = dotted_versions.parse_range(text)
    assert [each for each in inside if each not in versions] == []
    assert [each for each in outside if each in versions] == []


def test_a_range_that_is_none_says_so() -> None:
    with pytest.raises(errors.InputError, match="range '>=new': 'new' is not a version"):
        dotted_versions.parse_range(">=new")
