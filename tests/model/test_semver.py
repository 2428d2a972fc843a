"""Semantic versions: the recorded answers of Kubernetes' CEL library, and the laws of an order."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dovetail import errors
from dovetail.quantity import semver
from tests.support import shared

identifiers = st.from_regex(
    r"(0|[1-9][0-9]{0,3}|[0-9]{0,2}[a-zA-Z-][0-9a-zA-Z-]{0,3})", fullmatch=True
)
numbers = st.integers(0, 12).map(str)
versions = st.builds(
    lambda core, pre, build: (
        ".".join(core) + ("-" + ".".join(pre)) * bool(pre) + ("+" + ".".join(build)) * bool(build)
    ),
    st.tuples(numbers, numbers, numbers),
    st.lists(identifiers, max_size=3),
    st.lists(identifiers, max_size=2),
)


def recorded(table: str) -> list[dict[str, Any]]:
    return list(shared.document("conformance/dra/quantity_semver.json.gz")[table])


def as_cel_int(number: int) -> int:
    """CEL has only signed integers, so the upper half of the unsigned ones comes out negative."""
    return number - (1 << 64) if number >= 1 << 63 else number


def test_every_recorded_text_is_accepted_or_refused_as_upstream_does() -> None:
    for row in recorded("semver"):
        assert semver.is_semver(row["input"]) == row["strictOk"] == row["celIsSemver"], row
        assert semver.is_semver(row["input"], normalize=True) == row["celIsSemverNormalized"], row


def test_every_recorded_version_has_the_recorded_parts() -> None:
    compared = 0
    for row in recorded("semver"):
        if row["strictOk"]:
            version = semver.parse(row["input"])
            assert str(version) == row["canonical"], row
            parts = [as_cel_int(part) for part in (version.major, version.minor, version.patch)]
            assert parts == [row["major"], row["minor"], row["patch"]], row
            compared += 1
        if row["celIsSemverNormalized"]:
            version = semver.parse(row["input"], normalize=True)
            parts = [as_cel_int(part) for part in (version.major, version.minor, version.patch)]
            assert parts == [
                row["normalizedMajor"],
                row["normalizedMinor"],
                row["normalizedPatch"],
            ], row
            compared += 1
    assert compared > 100


def test_every_recorded_pair_is_ordered_as_upstream_says() -> None:
    pairs = recorded("semverPairs")
    assert len(pairs) == 500
    for row in pairs:
        a, b = semver.parse(row["a"]), semver.parse(row["b"])
        assert a.compare(b) == row["compareTo"], row
        assert (a < b, a > b, a == b) == (
            row["isLessThan"],
            row["isGreaterThan"],
            row["celEqual"],
        ), row


@pytest.mark.parametrize(
    ("text", "normal"),
    [
        ("v1", "1.0.0"),
        ("012.004", "12.4.0"),
        ("v1.2.003-rc", "1.2.3-rc"),
        ("0.00.0-a", "0.0.0-a"),
        ("1.2.3+07", "1.2.3+07"),
    ],
)
def test_normalising_fills_in_and_trims(text: str, normal: str) -> None:
    assert str(semver.parse(text, normalize=True)) == normal


@pytest.mark.parametrize(
    "text",
    [
        "",
        "v",
        "vv1.0.0",
        " 1.0.0",
        "1.0.0 ",
        "1.2-rc",
        "1..2",
        "1.2.3.4",
        "1.2.3-",
        "1.2.3+",
        "1.2.3-01",
        "-1.0.0",
    ],
)
def test_what_even_normalising_cannot_save_is_refused(text: str) -> None:
    assert not semver.is_semver(text, normalize=True)


@pytest.mark.parametrize(
    "text", ["9" * 5000, "1.2." + "3" * 4000, "1.2.3-" + "4" * 4000, "1.2.3-" + "a." * 3000]
)
def test_hostile_texts_are_refused_with_a_short_message(text: str) -> None:
    with pytest.raises(errors.SemverError) as refused:
        semver.parse(text)
    assert len(str(refused.value)) < 200


def test_build_metadata_is_printed_but_never_compared() -> None:
    a, b = semver.parse("1.0.0+one"), semver.parse("1.0.0+two")
    assert a == b
    assert len({a, b}) == 1
    assert str(a) != str(b)


@given(versions, versions)
def test_the_order_is_total_and_antisymmetric(left: str, right: str) -> None:
    a, b = semver.parse(left), semver.parse(right)
    assert [a < b, a == b, a > b].count(True) == 1
    assert a.compare(b) == -b.compare(a)
    assert (a <= b, a >= b) == (not a > b, not a < b)


@given(versions, versions, versions)
def test_the_order_is_transitive(first: str, second: str, third: str) -> None:
    low, middle, high = sorted(semver.parse(text) for text in (first, second, third))
    assert low <= middle <= high
    assert low <= high


@given(versions)
def test_versions_read_back_as_written_and_normalising_changes_nothing(text: str) -> None:
    assert str(semver.parse(text)) == text
    assert str(semver.parse(text, normalize=True)) == text
    assert str(semver.parse("v" + text, normalize=True)) == text


@given(versions.filter(lambda text: "-" not in text))
def test_a_release_comes_after_its_prereleases(text: str) -> None:
    core = text.partition("+")[0]
    assert semver.parse(f"{core}-rc.1") < semver.parse(f"{core}-rc.2") < semver.parse(text)


@given(st.text("0123456789.+-av", max_size=12))
def test_any_text_is_either_a_version_or_a_semver_error(text: str) -> None:
    if semver.is_semver(text):
        assert str(semver.parse(text)) == text
