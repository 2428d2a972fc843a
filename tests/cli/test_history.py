"""`dovetail history`: what a store holds, as tables, JSON and CSV; and what cannot be meant."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec
import pytest

from dovetail.cli import main
from dovetail.history import stores
from dovetail.model.accounting.records import Records, Usage
from tests.history import drawn


@pytest.fixture
def store(tmp_path: Path) -> str:
    location = str(tmp_path / "history.sqlite")
    with stores.open_store(location, create=True) as opened:
        opened.append(drawn.everything(), watched_until=5 * drawn.HOUR)
    return location


def output_of(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert main.main(["history", *arguments]) in (0, None)
    return capsys.readouterr().out


def test_show_says_from_when_to_when_and_lists_gaps(
    store: str, capsys: pytest.CaptureFixture[str]
) -> None:
    text = output_of(capsys, "show", "--store", store)
    assert "1970-01-01T05:00:00Z" in text
    assert "metrics   1970-01-01T02:00:00Z   1970-01-01T03:00:00Z   n1" in text
    summary = json.loads(output_of(capsys, "show", "--store", store, "-o", "json"))
    assert summary["rows"]["usage"] == 10
    assert output_of(capsys, "show", "--store", store, "-o", "csv").startswith("source,start,end")


@pytest.mark.parametrize(
    "what", ["allocations", "assets", "usage", "waiting", "unusable", "decisions", "gaps", "prices"]
)
def test_every_kind_is_exported_in_every_form(
    store: str, what: str, capsys: pytest.CaptureFixture[str]
) -> None:
    count = len(getattr(drawn.everything(), what))
    lines = output_of(capsys, "export", what, "--store", store, "-o", "json").splitlines()
    assert len([json.loads(line) for line in lines]) == count
    for form in ("table", "csv"):
        text = output_of(capsys, "export", what, "--store", store, "-o", form)
        assert len(text.replace("gpu: 2.5\n", "").splitlines()) == count + 1


def test_a_window_and_a_namespace_narrow_the_export(
    store: str, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["export", "usage", "--store", store, "-o", "json"]
    part = output_of(
        capsys, *arguments, "--from", "1970-01-01T01:00:00Z", "--to", "1970-01-01T01:03:00Z"
    )
    assert len(part.splitlines()) == 3
    assert output_of(capsys, *arguments, "-n", "other") == ""


def test_exported_usage_fills_another_store_once(
    store: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "usage.jsonl"
    file.write_text(output_of(capsys, "export", "usage", "--store", store, "-o", "json"))
    other = str(tmp_path / "other.sqlite")
    with stores.open_store(other, create=True) as opened:
        opened.append(Records())
    for _ in range(2):
        output_of(capsys, "backfill", "--store", other, "--file", str(file))
    with stores.open_store(other) as opened:
        assert opened.records(0, drawn.DAY).usage == drawn.everything().usage


def test_compact_drops_what_is_old(store: str, capsys: pytest.CaptureFixture[str]) -> None:
    report = json.loads(
        output_of(capsys, "compact", "--store", store, "--keep", "1d", "-o", "json")
    )
    assert report["dropped_rows"] == 8
    assert "rows dropped" in output_of(capsys, "compact", "--store", store)


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (("show",), 1, "no history is there"),
        (("compact", "--keep", "soon"), 2, "is not a duration"),
        (("export", "usage", "--from", "yesterday"), 2, "neither a time"),
        (("record", "--leader-elect", "here"), 2, "is not NAMESPACE/NAME"),
        (("show", "--context", "x"), 2, "say where history is"),
    ],
)
def test_what_cannot_be_meant_is_named(
    arguments: tuple[str, ...],
    code: int,
    words: str,
    store: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    places = {"show": ("--store", str(tmp_path / "none.sqlite"))}
    more = () if "--context" in arguments else places.get(arguments[0], ("--store", store))
    assert main.main(["history", *arguments, *more]) == code
    assert words in capsys.readouterr().err


def test_a_bad_line_of_a_file_is_named(
    store: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "usage.jsonl"
    good = msgspec.json.encode(Usage("GPU-1", "a", 0, 1)).decode()
    file.write_text(f'{good}\n{{"asset": 1}}\n')
    assert main.main(["history", "backfill", "--store", store, "--file", str(file)]) == 1
    assert f"{file}:2: not a measurement" in capsys.readouterr().err
