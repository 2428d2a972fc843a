"""`dovetail run`: the plan it shows is what then happens, and what it writes is ordinary YAML."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.cli import embedded, running

H100 = ("run", "--image", "train:1", "--type", "h100")
NODE_TREE = {
    "apiVersion": "v1",
    "kind": "Node",
    "metadata": {
        "name": "plugin-0",
        "labels": {
            "kubernetes.io/hostname": "plugin-0",
            "nvidia.com/gpu.product": "NVIDIA-B200",
            "nvidia.com/gpu.count": "8",
        },
    },
    "status": {
        "allocatable": {"cpu": "64", "memory": "512Gi", "pods": "110", "nvidia.com/gpu": "8"},
        "capacity": {"cpu": "64", "memory": "512Gi", "pods": "110", "nvidia.com/gpu": "8"},
        "conditions": [{"type": "Ready", "status": "True"}],
    },
}


def documents(text: str) -> list[dict[str, Any]]:
    return [running.yaml_tree(part) for part in text.split("---\n")]


def test_the_forecast_of_a_gang_is_what_happens(small: Path) -> None:
    done = running.inside(
        small, *H100, "--gpus", "8", "--nodes", "2", "--time", "2h", "--name", "big", "-y", "-d",
        "--", "python", "train.py", "--epochs", "3",
    )  # fmt: skip
    assert done.code == 0, done.err
    assert done.lines[0] == (
        "job default/big: 2 pods with 8 GPUs (NVIDIA H100 80GB HBM3) each, at most 2h"
    )
    forecast = {line.split()[1] for line in done.lines if line.startswith("  big-")}
    assert forecast == {"h100-0", "h100-1"}
    assert done.lines[-1] == "job.batch/big submitted"
    pods = running.inside(small, "get", "pods")
    assert pods.column("STATUS") == ["Running", "Running"]
    assert set(pods.column("NODE")) == forecast


def test_a_job_that_waits_shows_why_and_when_it_starts(small: Path) -> None:
    first = (*H100, "--gpus", "8", "--nodes", "2", "--time", "2h", "--name", "first", "-y", "-d")
    running.inside(small, *first)
    done = running.inside(small, *H100, "--gpus", "4", "--time", "1h", "--dry-run")
    assert done.code == 0
    assert done.out.startswith("apiVersion: ")  # what would be created
    assert "\nwaits: " in done.out
    assert "at the latest" in done.out
    assert "when default/job/first ends" in done.out
    assert "once submitted: dovetail why job/" in done.out
    assert "nothing was submitted (dry run)" in done.err
    assert running.inside(small, "get", "jobs", "-o", "name").out == "job.batch/first\n"


def test_who_would_yield_is_named_before_anything_is_submitted(small: Path) -> None:
    running.inside(small, "apply", "-f", "-", stdin=PRIORITIES)
    low = (*H100, "--gpus", "8", "--nodes", "2", "--name", "low", "--priority", "low", "-y", "-d")
    assert running.inside(small, *low).code == 0
    done = running.inside(small, *H100, "--gpus", "8", "--priority", "high", "--dry-run")
    assert "starts once others have made room:" in done.out, done.out + done.err
    assert "would yield:" in done.out
    assert "default/low-" in done.out
    assert "(Preempted" in done.out


def test_the_manifest_alone_can_be_applied(small: Path) -> None:
    done = running.inside(
        small, *H100, "--gpus", "2", "--nodes", "2", "--cpu", "8", "--memory", "64Gi",
        "--env", "A=1", "--env", "B=x=y", "--name", "sweep", "-o", "yaml", "--", "sh", "-c", "true",
    )  # fmt: skip
    template, job = documents(done.out)
    assert (template["kind"], job["kind"]) == ("ResourceClaimTemplate", "Job")
    spec = job["spec"]["template"]["spec"]
    container = spec["containers"][0]
    assert container["command"] == ["sh", "-c", "true"]
    assert container["env"] == [{"name": "A", "value": "1"}, {"name": "B", "value": "x=y"}]
    assert container["resources"]["requests"] == {"cpu": "8", "memory": "64Gi"}
    assert job["metadata"]["annotations"]["dovetail.dev/gang-min"] == "all"
    assert running.inside(small, "get", "jobs", "-o", "name").out == ""
    applied = running.inside(small, "apply", "-f", "-", stdin=done.out)
    assert applied.code == 0, applied.err
    pods = running.inside(small, "get", "pods")
    assert pods.column("STATUS") == ["Running", "Running"]
    assert len(set(pods.column("NODE"))) == 2  # --nodes means nodes


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--mig", "1g.10gb", "--gpus", "2"), "2 MIG 1g.10gb"),
        (("--gpu-memory", "30Gi"), "1 MIG slice of at least 30Gi"),
    ],
)
def test_a_part_of_a_gpu_is_asked_for_by_profile_or_memory(
    small: Path, options: tuple[str, ...], words: str
) -> None:
    done = running.inside(
        small, "run", "--image", "x", *options, "--name", "part", "-y", "-d", "--", "sh"
    )
    assert done.code == 0, done.err
    assert words in done.lines[0]
    assert "starts now:" in done.out
    assert running.inside(small, "get", "pods").column("STATUS") == ["Running"]


def test_gpus_of_a_device_plugin_are_limits_and_the_forecast_holds(
    small: Path, request: pytest.FixtureRequest
) -> None:
    cluster: embedded.Embedded = request.getfixturevalue("_small")
    cluster.put(NODE_TREE)
    done = running.inside(
        small, "run", "--image", "x", "--type", "b200", "--gpus", "4", "--name", "counted",
        "--dry-run", "--show", "yaml",
    )  # fmt: skip
    assert "nvidia.com/gpu: '4'" in done.out or 'nvidia.com/gpu: "4"' in done.out, done.out
    assert "ResourceClaimTemplate" not in done.out
    assert done.lines[-2:] == ["starts now:", "  counted-0   plugin-0"]


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (("--time", "soon"), "expected a duration"),
        (("--cpu", "much"), "expected an amount"),
        (("--cpu", "-1"), "expected an amount"),
        (("--env", "A"), "expected NAME=VALUE"),
        (("--mig", "1g.10gb", "--gpu-memory", "20Gi"), "give one of them"),
        (("--name", "No_Name"), "expected lower case letters"),
        (("--nodes", "0"), "0 is not in the range"),
        ((), "add --yes, or --dry-run"),
    ],
)
def test_wrong_usage_ends_with_2_and_submits_nothing(
    small: Path, arguments: tuple[str, ...], complaint: str
) -> None:
    done = running.inside(small, "run", "--image", "x", *arguments, "--", "sh")
    assert done.code == 2, done.err
    assert complaint in done.err


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (("--type", "b300"), "h100-80gb-hbm3   16 of 16 free"),
        (("--queue", "nowhere"), 'no queue "nowhere"; the cluster has none'),
        (("--priority", "nowhere"), "system-cluster-critical"),
        (("--type", "l4", "--mig", "1g.10gb"), "it offers no MIG slices"),
        (("--mig", "9g.9gb"), "1g.10gb, "),
    ],
)
def test_what_the_cluster_does_not_have_is_refused_with_what_it_has(
    small: Path, arguments: tuple[str, ...], complaint: str
) -> None:
    done = running.inside(small, "run", "--image", "x", *arguments, "--yes", "--", "sh")
    assert done.code == 2
    assert complaint in done.err


def test_a_name_that_is_taken_changes_nothing(small: Path) -> None:
    first = running.inside(small, *H100, "--name", "same", "-y", "-o", "name")
    assert first.out == "job.batch/same\n"
    again = running.inside(small, *H100, "--name", "same", "-y", "-o", "name")
    assert (again.code, again.out) == (1, "")
    assert 'jobs.batch "same" already exists' in again.err
    assert "give it another --name" in again.err


def test_a_snapshot_answers_what_a_job_would_do_there(small: Path, tmp_path: Path) -> None:
    saved = tmp_path / "saved"
    assert running.inside(small, "snapshot", "save", str(saved)).code == 0
    arguments = (*H100, "--gpus", "8", "--snapshot", str(saved))
    runner = running.inside(tmp_path / "none", *arguments, "--dry-run")
    assert runner.code == 0, runner.err
    assert "starts now:" in runner.out
    refused = running.inside(tmp_path / "none", *arguments, "--yes")
    assert (refused.code, refused.out) == (2, "")


def test_a_terminal_is_asked_and_no_means_no(small: Path) -> None:
    with running.terminal(small, *H100, "--name", "asked", "--", "sh") as terminal:
        terminal.wait_for("submit? [y/N]")
        terminal.press("n\n")
        assert terminal.ending() == 1
    assert "nothing was submitted" in terminal.text
    with running.terminal(small, *H100, "--name", "asked", "--", "sh") as terminal:
        terminal.wait_for("submit? [y/N]")
        terminal.press("y\n")
        assert terminal.ending() == 0
    assert "1 of 1 pod running on h100-" in terminal.text
    assert "runs no containers" in terminal.text


PRIORITIES = """
apiVersion: scheduling.k8s.io/v1
kind: PriorityClass
metadata: {name: low}
value: 10
---
apiVersion: scheduling.k8s.io/v1
kind: PriorityClass
metadata: {name: high}
value: 1000
"""
