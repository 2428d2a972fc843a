"""The judge itself: it must be able to say no."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.node.claims.double_use import Entry, judge

PARTITION = "gpu-0-mig-3g40gb-9-4"


def history(folder: Path, *changes: dict[str, Any]) -> Path:
    path = folder / "history.jsonl"
    lines = [json.dumps({"sequence": number, **change}) for number, change in enumerate(changes, 1)]
    path.write_text("\n".join(lines), "utf-8")
    return path


def made(gpu: int, gi: int, profile: int, start: int) -> dict[str, Any]:
    event = {"event": "gpu-instance-created", "gpu": gpu, "gi": gi}
    return {**event, "profile_id": profile, "start": start}


def prepared(
    sequence: int, claim: str, device: str, share: str | None = None, mib: int = 0
) -> Entry:
    return Entry(sequence, "prepared", claim, ((device, share, mib),))


def test_two_claims_on_one_gpu_are_noticed(tmp_path: Path) -> None:
    log = [prepared(0, "a", "gpu-0"), prepared(0, "b", "gpu-0")]
    with pytest.raises(AssertionError, match="b has gpu-0 while a has gpu-0"):
        judge(history(tmp_path), log)


def test_overlapping_partitions_are_noticed(tmp_path: Path) -> None:
    path = history(tmp_path, made(0, 1, 9, 4), made(0, 2, 19, 6))
    log = [prepared(1, "a", PARTITION), prepared(2, "b", "gpu-0-mig-1g10gb-19-6")]
    with pytest.raises(AssertionError, match="made on silicon of claim a"):
        judge(path, log)


def test_a_partition_that_is_not_there_is_noticed(tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match="is not there"):
        judge(history(tmp_path), [prepared(0, "a", PARTITION)])


def test_a_partition_destroyed_under_its_claim_is_noticed(tmp_path: Path) -> None:
    gone = {"event": "gpu-instance-destroyed", "gpu": 0, "gi": 1}
    path = history(tmp_path, made(0, 1, 9, 4), gone)
    log = [prepared(1, "a", PARTITION), Entry(2, "unpreparing", "a")]
    with pytest.raises(AssertionError, match="claim a has it"):
        judge(path, log)


def test_too_much_memory_is_noticed(tmp_path: Path) -> None:
    log = [prepared(0, "a", "gpu-0", "s1", 50_000), prepared(0, "b", "gpu-0", "s2", 50_000)]
    with pytest.raises(AssertionError, match="over-committed"):
        judge(history(tmp_path), log)


def test_a_sound_life_passes(tmp_path: Path) -> None:
    path = history(tmp_path, made(0, 1, 9, 4))
    log = [prepared(1, "a", PARTITION), Entry(1, "unpreparing", "a")]
    assert judge(path, log) == 1
