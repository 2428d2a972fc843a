"""`dovetail when`, with the example of a line before eight GPUs."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from tests.cli import running


@pytest.fixture
def state(small: Path) -> Path:
    """The small fleet with the line of the example."""
    assert running.inside(small, "apply", "-f", str(running.EXAMPLES / "backfill.yaml")).code == 0
    return small


def test_short_work_runs_ahead_and_the_others_hear_when(state: Path) -> None:
    pods = running.inside(state, "get", "pods")
    assert dict(zip(pods.column("NAME"), pods.column("STATUS"), strict=True)) == {
        "bert": "Running",
        "llama": "Pending",
        "mnist": "Running",
        "opt": "Pending",
    }
    shown = running.inside(state, "when")
    assert shown.code == 0
    assert shown.column("GANG") == ["default/pod/llama", "default/pod/opt"]
    assert shown.column("WHY") == ["when default/pod/bert ends", "when default/pod/llama ends"]
    assert "next: dovetail why " in shown.err


@pytest.mark.parametrize("name", ["llama", "pod/llama", "default/pod/llama"])
def test_one_gang_by_any_of_its_names(state: Path, name: str) -> None:
    run = running.inside(state, "when", name, "-o", "json")
    (result,) = msgspec.json.decode(run.out)
    assert result["gang"] == {"namespace": "default", "name": "pod/llama"}
    assert result["start"] < result["latest"]
    assert result["members"] == ["llama"]


def test_a_name_that_does_not_wait(state: Path) -> None:
    run = running.inside(state, "when", "bert")
    assert run.code == 0
    assert run.err.startswith("default/bert does not wait: Running on h100-0 since ")


def test_a_name_that_does_not_exist(state: Path) -> None:
    run = running.inside(state, "when", "lama")
    assert run.code == 2
    assert run.err == 'error: nothing called "lama" waits for its start; did you mean llama?\n'


def test_another_namespace_waits_for_nothing(state: Path) -> None:
    run = running.inside(state, "when", "-n", "elsewhere")
    assert (run.code, run.out) == (0, "")
    assert run.err.startswith("nothing waits\n")


def test_a_snapshot_is_asked_as_of_the_time_it_was_saved(state: Path, tmp_path: Path) -> None:
    saved = tmp_path / "saved"
    assert running.inside(state, "snapshot", "save", str(saved)).code == 0
    shown = running.inside(tmp_path / "other", "when", "--snapshot", str(saved))
    assert shown.column("GANG") == ["default/pod/llama", "default/pod/opt"]


def test_without_a_cluster_there_is_nothing_to_ask(tmp_path: Path) -> None:
    run = running.inside(tmp_path / "none", "when")
    assert run.code == 1
    assert "next: dovetail up" in run.err


def test_the_schedulers_own_configuration_says_whose_pods_count(
    state: Path, tmp_path: Path
) -> None:
    file = tmp_path / "scheduler.yaml"
    file.write_text(
        "apiVersion: dovetail.dev/v1alpha1\nkind: SchedulerConfiguration\nschedulerNames: [other]\n"
    )
    run = running.inside(state, "when", "--config", str(file))
    assert (run.code, run.out) == (0, "")
    file.write_text(
        "apiVersion: dovetail.dev/v1alpha1\nkind: SchedulerConfiguration\nqueues: {ageSaturationSeconds: -1}\n"
    )
    wrong = running.inside(state, "when", "--config", str(file))
    assert wrong.code == 1
    assert "queues.ageSaturationSeconds" in wrong.err


def test_what_it_waits_for_by_name(state: Path) -> None:
    wide = running.inside(state, "when", "-o", "wide")
    assert wide.column("WAITS FOR") == ["default/pod/bert", "default/pod/llama"]
    yaml = running.inside(state, "when", "llama", "-o", "yaml")
    assert yaml.code == 0
    assert "name: pod/bert" in yaml.out


def test_the_answer_is_followed_until_the_work_has_started(state: Path) -> None:
    with running.terminal(state, "when", "llama", "-w", "--timeout", "60s") as shown:
        shown.wait_for("default/pod/llama")
        assert running.inside(state, "delete", "pod", "bert", "mnist").code == 0
        shown.wait_for("it no longer waits")
        assert shown.ending() == 0


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        (("-w", "-o", "json"), "-w prints rows"),
        (("--timeout", "5s"), "--timeout ends -w"),
        (("-w", "--timeout", "soon"), "expected a time"),
    ],
)
def test_contradictory_options(state: Path, options: tuple[str, ...], problem: str) -> None:
    run = running.inside(state, "when", *options)
    assert run.code == 2
    assert problem in run.err


def test_work_that_still_waits_at_the_timeout_is_exit_code_1(state: Path) -> None:
    """However short it is, the first answer is shown; a row more, if a minute ends meanwhile."""
    run = running.inside(state, "when", "opt", "-w", "--timeout", "1s")
    assert run.code == 1
    assert set(run.column("GANG")) == {"default/pod/opt"}
