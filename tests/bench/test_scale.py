"""The scale benchmark still runs: a small cluster, whose course depends on the seed alone."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from bench import scale, scale_run
from bench.scale_run import Settings

SMALL = Settings(gpus=32, jobs=40, load=0.9)
OF_TIME = {
    "engineSeconds",
    "eventsPerSecond",
    "latencyMs",
    "fillSeconds",
    "buildSeconds",
    "peakMiB",
}


def course(settings: Settings) -> dict[str, object]:
    """The figures that do not depend on how fast the machine is."""
    figures = scale_run.measured(settings, settles=False)
    return {name: value for name, value in figures.items() if name not in OF_TIME}


def test_a_run_lets_all_jobs_arrive_and_gives_no_device_twice() -> None:
    figures = course(SMALL)
    assert "wrong" not in figures
    assert figures["jobs"] == 40
    assert figures["events"] > 60  # type: ignore[operator]


def test_the_same_seed_gives_the_same_course() -> None:
    assert course(SMALL) == course(SMALL)
    assert course(SMALL) != course(msgspec.structs.replace(SMALL, seed=2))


def test_growth_is_shown_from_size_to_size(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    kept = tmp_path / "scale.json"
    assert scale.main(["--gpus", "16", "32", "--jobs-per-gpu", "0.5", "--output", str(kept)]) == 0
    rows = msgspec.json.decode(kept.read_bytes())["rows"]
    assert list(rows) == ["16 GPUs", "32 GPUs"]
    last_line = capsys.readouterr().out.strip().splitlines()[-1]
    assert last_line.startswith("| 32 |")
    assert last_line.count("x,") == 2
