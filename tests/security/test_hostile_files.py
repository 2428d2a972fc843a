"""A few hundred broken files at every door of the command line, and that the fuzzer notices what it looks for."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path

import pytest

from dovetail.cli import main
from tests.fuzz import doors, doors_given, process_steps
from tests.fuzz.findings import AGREE, Tally

FILES = 300


@pytest.mark.parametrize("door", doors_given.DOORS)
def test_no_broken_file_ends_in_anything_but_words(door: str) -> None:
    tally, counts = Tally("doors", folder=None), Counter[str]()
    doors.run(
        None, doors.cases(random.Random(11), FILES, (door,)), tally=tally, seed=11, counts=counts
    )
    assert tally.counts == {AGREE: FILES}, [finding.ours for finding in tally.findings]
    assert counts[f"{door}: exit 0"] > 5  # some come through: the others would prove little
    assert counts[f"{door}: exit 1"] + counts[f"{door}: exit 2"] > 5


def test_a_seed_gives_the_same_file_again() -> None:
    for door, made in doors_given.DOORS.items():
        (case,) = doors.cases(random.Random(1), 1, (door,))
        assert made.content(random.Random(case.seed)) == made.content(random.Random(case.seed))


COMMAND = ("get", "pods")


@pytest.mark.parametrize(
    ("ending", "kind"),
    [
        (doors.Ending(1, "", "", "Traceback ...\nKeyError: 'a'\n"), "raised"),
        (doors.Ending(3, "", "no", ""), "exit code"),
        (doors.Ending(-11, "", "", ""), "exit code"),
        (doors.Ending(1, "", f"error: {main.DEFECT}: KeyError: 'a'\n", ""), "defect"),
        (
            doors.Ending(
                1, "", "error: the engine failed, which is a defect of it: KeyError\n", ""
            ),
            "defect",
        ),
        (doors.Ending(1, "", " \n", ""), "silent"),
        (doors.Ending(0, "a\x1b[31m\n", "", ""), "steers"),
        (doors.Ending(1, "é", "a\x9b", ""), "steers"),
        (doors.Ending(1, "", "a\rb", ""), "steers"),
    ],
    ids=lambda item: item if isinstance(item, str) else "",
)
def test_the_fuzzer_takes_a_bad_ending_for_one(ending: doors.Ending, kind: str) -> None:
    judged = doors.judged(COMMAND, ending)
    assert isinstance(judged, doors.Problem)
    assert judged.kind == kind


@pytest.mark.parametrize("code", [0, 1, 2])
def test_the_fuzzer_takes_a_good_ending_for_one(code: int) -> None:
    assert doors.judged(COMMAND, doors.Ending(code, "a\n", "error: é\n", "")) == f"exit {code}"


def test_a_finding_is_made_small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a whole file only what the problem needs is kept."""
    door = doors_given.DOORS["fleet"]._replace(
        content=lambda rng: b"name: x\n" * 100 + b"!" + b"pools: []\n" * 100
    )
    monkeypatch.setitem(doors_given.DOORS, "fleet", door)
    handing = doors.Handing(tmp_path)

    def tried(
        case: doors.Case, content: bytes, rng: random.Random | None = None
    ) -> str | doors.Problem:
        return doors.Problem("raised", "x\nKeyError") if b"!" in content else "exit 1"

    monkeypatch.setattr(handing, "tried", tried)
    assert handing.smallest(doors.Case("fleet", 1), doors.Problem("raised", "y\nKeyError")) == b"!"


def test_what_ends_a_child_or_never_ends_is_a_finding(monkeypatch: pytest.MonkeyPatch) -> None:
    """With real children: one kills itself, one takes all memory, one counts endlessly; the rest is handed over."""

    def read_badly(file: Path) -> None:
        match file.read_bytes():
            case b"kill":
                import os
                import signal

                os.kill(os.getpid(), signal.SIGSEGV)
            case b"memory":
                bytearray(doors.MEMORY_BYTES)
            case b"endless":
                while True:
                    pass

    contents = [b"fine", b"kill", b"fine", b"memory", b"endless", b"fine"]
    door = doors_given.DOORS["kubeconfig"]._replace(
        content=lambda rng: contents[rng.randrange(1 << 30) % len(contents)]
    )
    monkeypatch.setitem(doors_given.DOORS, "kubeconfig", door)
    monkeypatch.setattr(process_steps, "read_kubeconfig", read_badly)
    monkeypatch.setattr(doors, "CASE_SECONDS", 0.2)
    seeds: dict[bytes, int] = {}
    for seed in range(1_000):
        seeds.setdefault(door.content(random.Random(seed)), seed)
    batch = [doors.Case("kubeconfig", seeds[content]) for content in contents]
    tally, counts = Tally("doors", folder=None), Counter[str]()
    doors._round(batch, 1, tally=tally, counts=counts)
    assert tally.counts == {AGREE: 3, "ended": 1, "memory": 1, "too long": 1}
    assert [finding.kind for finding in tally.findings] == ["ended", "memory", "too long"]
