"""Jobs from a recorded history: as they were submitted, whole GPUs only, without what still runs."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from dovetail import errors
from dovetail.cli.answers import sim_command
from dovetail.history import stores
from dovetail.model.accounting.records import MICRO_GPU, Allocation, Form, Owner, Records, Waiting
from dovetail.study.queueing import recorded_jobs

SECOND = 1000
BEGIN = 1_700_000_000_000


def owner(pod: str, controller: str = "") -> Owner:
    return Owner("team", pod, f"uid-{pod}", "Job" if controller else "", controller, queue="vision")


def held(
    who: Owner, start: int, end: int | None, *, gpus: int = 1, form: Form = Form.COUNTED
) -> Allocation:
    until = None if end is None else BEGIN + end * SECOND
    return Allocation(
        f"{who.pod_uid}/{start}",
        "n1/nvidia.com/gpu",
        "n1",
        gpus * MICRO_GPU,
        form,
        who,
        BEGIN + start * SECOND,
        until,
    )


HISTORY = Records(
    allocations=(
        held(owner("t-0", "train"), 100, 700, gpus=8),
        held(owner("t-1", "train"), 101, 700, gpus=8),
        held(owner("later", "train"), 5000, 5100, gpus=8),
        held(owner("lone"), 0, 50),
        held(owner("service"), 10, None),
        held(owner("slice"), 10, 20, form=Form.MIG),
    ),
    waiting=(
        Waiting(owner("t-0", "train"), 8 * MICRO_GPU, BEGIN - 20 * SECOND, BEGIN + 100 * SECOND),
        Waiting(owner("t-1", "train"), 8 * MICRO_GPU, BEGIN - 20 * SECOND, BEGIN + 101 * SECOND),
    ),
)


def test_pods_of_a_controller_that_came_together_are_one_job() -> None:
    recorded = recorded_jobs.jobs(HISTORY)
    assert [
        (job.submit_seconds, job.duration_seconds, job.gpus, job.pods, job.queue)
        for job in recorded.jobs
    ] == [(0, 600, 16, 2, "vision"), (20, 50, 1, 1, "vision"), (5020, 100, 8, 1, "vision")]
    assert (recorded.open_pods, recorded.divided_pods) == (1, 1)


def test_a_history_without_ended_work_is_refused() -> None:
    with pytest.raises(errors.NotFound, match="no work on whole GPUs that has ended"):
        recorded_jobs.jobs(Records())


def test_the_command_replays_a_store(tmp_path: Path) -> None:
    place = str(tmp_path / "history.db")
    with stores.open_store(place, create=True) as store:
        store.append(HISTORY)
    (tmp_path / "fleet.yaml").write_text(
        "name: f\npools: [{name: node, count: 2, gpu: H100-SXM5-80GB, gpusPerNode: 8}]\n"
    )
    (tmp_path / "study.yaml").write_text("queues: [{name: vision, quota: 16}]\n")
    files = ["--fleet", str(tmp_path / "fleet.yaml"), "--study", str(tmp_path / "study.yaml")]
    result = CliRunner().invoke(
        sim_command.group, ["run", "--history", place, "--policy", "kai", *files]
    )
    assert result.exit_code == 0, result.output
    assert "3 jobs on 16 GPUs, policy kai" in result.output
    assert "left out: 1 pods that still run" in result.output
