"""Compatibility rows: what is shipped, what users add, what contradicts, what cannot be read."""

from __future__ import annotations

import json

import pytest

from dovetail import errors
from dovetail.answer.stack import row_file, target_versions
from dovetail.answer.stack.compatibility_rows import Origin, Relation, Rows
from tests.answer.stack import fleets

RELEASES = {
    "580": {
        "type": "production branch",
        "driver_info": [
            {"release_version": "580.95.05", "release_date": "2025-10-01", "architectures": []},
            {"release_version": "580.178.04", "release_date": "2026-07-01"},
        ],
    }
}


def _file(*rows: str) -> str:
    head = 'source: "our lab"\ndate: "2026-11-01"\nconfidence: high\nrows:\n'
    return head + "".join(f"  - {{ {row} }}\n" for row in rows)


def _row(subject: str, relation: str, versions: str) -> str:
    return f'subject: "{subject}", relation: {relation}, range: "{versions}"'


def _rows(*files: str) -> Rows:
    entries = fleets.SHIPPED.all()
    for number, file in enumerate(files):
        entries += row_file.read(file, f"mine-{number}.yaml", Origin.USER)
    return Rows(entries)


def test_every_shipped_row_has_a_source_a_day_and_a_confidence() -> None:
    rows = [entry.row for entry in fleets.SHIPPED.all()]
    assert len(rows) > 150
    assert all(row.source and row.date and row.confidence for row in rows)
    assert {row.relation for row in rows} >= set(Relation) - {Relation.RELEASED}


def test_the_users_row_decides_over_a_shipped_one() -> None:
    rows = _rows(
        _file(_row("driver 615", "ends", "2027-12-31"), _row("driver 580", "ends", "2030-01-01"))
    )
    entry = rows.decides(Relation.ENDS, "driver", "580.95.05")
    assert entry is not None
    assert (entry.row.range, entry.row.source) == ("2030-01-01", "our lab")


def test_the_more_specific_row_decides() -> None:
    entry = fleets.SHIPPED.decides(Relation.SUPPORTS, "operator", "25.3.3", other="kubernetes")
    other = fleets.SHIPPED.decides(Relation.SUPPORTS, "operator", "25.3.1", other="kubernetes")
    assert entry is not None
    assert other is not None
    assert (entry.row.range, other.row.range) == ("kubernetes 1.29..1.33", "kubernetes 1.29..1.32")


def test_contradicting_rows_are_an_error_that_names_both() -> None:
    first = _file(_row("cuda 14", "minor-floor", "driver >=620"))
    second = _file(_row("cuda 14", "minor-floor", "driver >=640"))
    with pytest.raises(errors.InputError) as problem:
        _rows(first, second)
    for words in ("mine-0.yaml: rows[0]", ">=620", "mine-1.yaml: rows[0]", ">=640"):
        assert words in str(problem.value)


def test_overlapping_rows_contradict_where_both_would_decide() -> None:
    rows = _rows(
        _file(
            _row("toolkit >=1.21", "needs", "containerd >=2.1"),
            _row("toolkit 1.21..1.22", "needs", "containerd >=2.2"),
        )
    )
    with pytest.raises(errors.InputError, match=r"both speak of toolkit 1\.21\.0"):
        rows.decides(Relation.NEEDS, "toolkit", "1.21.0", other="containerd")


@pytest.mark.parametrize(
    ("row", "problem"),
    [
        (_row("drivr 580", "contains", "cuda 13"), "subject 'drivr 580'"),
        (_row("driver 580", "holds", "cuda 13"), "relation 'holds'"),
        (_row("driver 580", "contains", "13.0"), "range '13.0'"),
        (_row("driver 580", "ends", "soon"), "range 'soon': expected a day"),
        (_row("driver new", "contains", "cuda 13"), "'new' is not a version"),
        ('subject: "driver 580", relation: contains', "range is missing"),
        (_row("driver 580", "contains", "cuda 13") + ", nota: x", "did you mean note"),
        (_row("driver 580", "contains", "cuda 13") + ", confidence: sure", "confidence 'sure'"),
        (_row("driver 580", "contains", "cuda 13") + ", source: 5", "put it in quotes"),
    ],
)
def test_a_row_that_cannot_be_read_names_its_place(row: str, problem: str) -> None:
    with pytest.raises(errors.InputError, match=problem) as raised:
        row_file.read(_file(row), "mine.yaml", Origin.USER)
    assert str(raised.value).startswith("mine.yaml: rows[0]")


def test_a_release_file_says_which_drivers_there_are() -> None:
    releases = row_file.read_releases(json.dumps(RELEASES), "releases.json")
    rows = Rows([*fleets.SHIPPED.all(), *releases])
    target_versions.check_known({"driver": "580.178.04"}, rows)
    with pytest.raises(errors.InputError, match=r"newest of branch 580: 580\.178\.04"):
        target_versions.check_known({"driver": "580.999.99"}, rows)


@pytest.mark.parametrize(
    ("tree", "problem"),
    [
        ({}, "no releases"),
        ([], "expected driver branches"),
        (
            {"580": {"driver_info": [{"release_version": "595.1", "release_date": "2026-01-01"}]}},
            "branch 580",
        ),
        (
            {"580": {"driver_info": [{"release_version": "580.1", "release_date": "May"}]}},
            "expected a day",
        ),
    ],
)
def test_a_release_file_of_another_form_is_refused(tree: object, problem: str) -> None:
    with pytest.raises(errors.InputError, match=problem):
        row_file.read_releases(json.dumps(tree), "releases.json")
