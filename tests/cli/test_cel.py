"""`dovetail cel` as people and programs use it."""

from __future__ import annotations

import gzip
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from tests.cli import running

HOPPER = 'device.attributes["gpu.nvidia.com"].architecture == "Hopper"'
Dovetail = Callable[..., running.Run]
CASES = [
    {"id": "a", "expression": 'device.driver == "d"', "device": {"driver": "d"}},
    {
        "id": "b",
        "expression": 'device.attributes["d"].x > 1',
        "device": {"driver": "d", "attributes": {"x": {"int": 1}}},
    },
    {"id": 3, "expression": 'device.attributes["d"].y', "device": {"driver": "d"}},
    {"id": None, "expression": "device.nothing", "device": {"driver": "d"}},
    {
        "id": "e",
        "expression": "true",
        "device": {"driver": "d", "attributes": {"v": {"version": "x"}}},
    },
    {
        "id": "f",
        "expression": "true",
        "device": {"driver": "d", "capacity": {"m": {"value": "not a quantity"}}},
    },
]
ANSWERS = [
    {"id": "a", "outcome": "match", "cost": 3},
    {"id": "b", "outcome": "no-match", "cost": 5},
    {"id": 3, "outcome": "error", "cost": 4},
    {"id": None, "outcome": "compile-error", "cost": None},
    {"id": "e", "outcome": "error", "cost": None},
    {"id": "f", "outcome": "error", "cost": None},
]


@pytest.fixture
def dovetail(tmp_path: Path) -> Dovetail:
    return lambda *arguments: running.outside(tmp_path / "state", *arguments)


def lines(cases: list[object]) -> bytes:
    return b"\n".join(map(msgspec.json.encode, cases)) + b"\n"


@pytest.mark.parametrize("packed", [False, True])
def test_cases_from_outside_get_a_verdict_each(
    tmp_path: Path, dovetail: Dovetail, packed: bool
) -> None:
    file = tmp_path / ("cases.jsonl.gz" if packed else "cases.jsonl")
    file.write_bytes(gzip.compress(lines([*CASES])) if packed else lines([*CASES]))
    done = dovetail("cel", "eval", "--cases", str(file), "-o", "jsonl")
    assert done.code == 0, done.err
    assert [msgspec.json.decode(line) for line in done.out.splitlines()] == ANSWERS


def test_a_line_that_is_no_case_is_named(tmp_path: Path, dovetail: Dovetail) -> None:
    file = tmp_path / "cases.jsonl"
    file.write_bytes(lines([CASES[0]]) + b"{nonsense\n")
    done = dovetail("cel", "eval", "--cases", str(file))
    assert done.code == 1
    assert "line 2" in done.err


def test_eval_groups_devices_and_explains(dovetail: Dovetail) -> None:
    done = dovetail("cel", "eval", HOPPER)
    assert done.code == 0, done.err
    assert "32 match, 472 do not" in done.out
    assert 'gpu.nvidia.com/architecture = "Ampere"' in done.out


def test_check_says_what_is_read_and_refuses_with_a_place(dovetail: Dovetail) -> None:
    done = dovetail("cel", "check", HOPPER)
    assert (done.code, done.out.splitlines()[0]) == (0, "valid; may cost 5 of 1000000")
    refused = dovetail("cel", "check", "device.colour == 1")
    assert refused.code == 1
    assert "undefined field 'colour'" in refused.out
    assert "^" in refused.out


def test_check_for_programs(dovetail: Dovetail) -> None:
    done = dovetail("cel", "check", HOPPER, "-o", "json")
    verdict = msgspec.json.decode(done.out)
    assert verdict["valid"]
    assert verdict["reads"] == ['device.attributes["gpu.nvidia.com"].architecture']


def test_wrong_arguments_print_the_usage(dovetail: Dovetail) -> None:
    assert dovetail("cel", "eval").code == 2
    assert dovetail("cel", "eval", "true", "--cases", "x").code == 2
