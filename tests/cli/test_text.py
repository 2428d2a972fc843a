"""Small words for people: ages, amounts, tables, order, label selectors."""

from __future__ import annotations

import datetime

import pytest

from dovetail import errors
from dovetail.tables import label_option, text

NOW = datetime.datetime(2026, 3, 10, 12, 0, 0, tzinfo=datetime.UTC)


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [
        (-5, "0s"), (0, "0s"), (119, "119s"), (120, "2m"), (200, "3m20s"), (599, "9m59s"), (600, "10m"),
        (10_799, "179m"), (10_800, "3h"), (11_000, "3h3m"), (28_800, "8h"), (172_799, "47h"), (172_800, "2d"),
        (190_000, "2d4h"), (691_200, "8d"), (63_072_000, "2y"),
    ],
)  # fmt: skip
def test_an_age_reads_as_kubectl_writes_it(seconds: int, shown: str) -> None:
    since = (NOW - datetime.timedelta(seconds=seconds)).strftime("%Y-%m-%dT%H:%M:%SZ")
    assert text.age(since, NOW) == shown


@pytest.mark.parametrize("since", [None, "", "yesterday", "2026-13-01T00:00:00Z"])
def test_an_unknown_age_is_a_dash(since: str | None) -> None:
    assert text.age(since, NOW) == "-"


@pytest.mark.parametrize(
    ("amount", "shown"),
    [
        (0, "0"),
        (1023, "1023"),
        (1024, "1Ki"),
        (81559 * 1024**2, "79.6Gi"),
        (2 * 1024**4, "2Ti"),
        (2**60, "1024Pi"),
    ],
)
def test_bytes_are_shown_in_the_unit_people_use(amount: int, shown: str) -> None:
    assert text.binary(amount) == shown


def test_a_table_is_aligned_has_uppercase_headers_and_no_trailing_blanks() -> None:
    lines = text.table(("name", "state"), [("a", "free"), ("longer", ""), ("b", "x")])
    assert lines == ["NAME     STATE", "a        free", "longer   -", "b        x"]


def test_text_of_others_stays_in_its_cell() -> None:
    lines = text.table(("name", "why"), [("a", "x\n\x1b[2Jb\x9b31m\u202ec")])
    assert len(lines) == 2
    assert all(line.isprintable() for line in lines)


def test_numbers_in_names_count() -> None:
    names = ["gpu-10", "gpu-2", "gpu-1", "gpu-1-mig-1g10gb-19-0", "a", "10"]
    assert sorted(names, key=text.natural) == [
        "10",
        "a",
        "gpu-1",
        "gpu-1-mig-1g10gb-19-0",
        "gpu-2",
        "gpu-10",
    ]


def test_a_uuid_is_cut_to_its_first_group() -> None:
    assert text.short_id("GPU-3abab05b-64b2-518e-8d90-45cc3e5ad518") == "GPU-3abab05b"
    assert text.short_id("3abab05b-64b2-518e-8d90-45cc3e5ad518.7") == "3abab05b.7"
    assert text.short_id("other") == "other"


@pytest.mark.parametrize(
    ("selector", "fits"),
    [
        ("", True), ("a=1", True), ("a==1", True), ("a = 1", True), ("a=2", False), ("a!=2", True), ("a!=1", False),
        ("c!=1", True), ("a", True), ("c", False), ("!c", True), ("!a", False), ("a in (1, 2)", True),
        ("a in (2)", False), ("c in (1)", False), ("a notin (2,3)", True), ("a notin (1)", False),
        ("c notin (1)", True), ("a=1,b=x.y", True), ("a=1,b=z", False), ("a in (1,2),b", True), ("e=", True),
        ("k8s.io/role=gpu", True),
    ],
)  # fmt: skip
def test_a_label_selector_means_what_kubectl_means(selector: str, fits: bool) -> None:
    assert (
        label_option.selector(selector)({"a": "1", "b": "x.y", "e": "", "k8s.io/role": "gpu"})
        is fits
    )


@pytest.mark.parametrize(
    "selector", ["a b", "=1", "a in 1", "a in (1", "a,,b", "a>1", "a=b=c", "!"]
)
def test_an_unreadable_label_selector_is_refused(selector: str) -> None:
    with pytest.raises(errors.InputError, match="cannot read"):
        label_option.selector(selector)
