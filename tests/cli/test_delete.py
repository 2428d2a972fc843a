"""`dovetail delete`, `describe`, `get -w` and `get events`: what a user does with objects that are there."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli import running

ONE_GPU = str(running.EXAMPLES / "one-gpu.yaml")
JOB = """
apiVersion: batch/v1
kind: Job
metadata: {name: sweep, labels: {team: red}}
spec:
  completions: 3
  parallelism: 3
  template:
    spec:
      restartPolicy: Never
      containers: [{name: main, image: x, resources: {limits: {nvidia.com/gpu: "1"}}}]
"""


def test_a_deleted_pod_is_gone_with_its_gpu_when_the_command_ends(state: Path) -> None:
    assert running.inside(state, "apply", "-f", ONE_GPU).code == 0
    assert "■" in running.inside(state, "get", "gpus").out
    run = running.inside(state, "delete", "pod", "one-gpu")
    assert (run.code, run.lines) == (0, ['pod "one-gpu" deleted'])
    assert running.inside(state, "get", "pods").lines == []
    again = running.inside(state, "delete", "pod/one-gpu")
    assert again.code == 1
    assert 'pods "one-gpu" not found' in again.err
    assert running.inside(state, "delete", "pod/one-gpu", "--ignore-not-found").code == 0


def test_the_objects_of_a_file_are_deleted_and_what_they_made_with_them(state: Path) -> None:
    assert running.inside(state, "apply", "-f", "-", stdin=JOB).code == 0
    assert len(running.inside(state, "get", "pods").lines) == 4
    run = running.inside(state, "delete", "-f", "-", "--cascade", "foreground", stdin=JOB)
    assert (run.code, run.lines) == (0, ['job.batch "sweep" deleted'])
    assert running.inside(state, "get", "pods").lines == []
    running.until(
        state, "get", "gpus", shows=lambda gpus: "■" not in gpus.out, what="every GPU is free"
    )


def test_labels_and_all_choose_what_is_deleted(state: Path) -> None:
    assert running.inside(state, "apply", "-f", ONE_GPU).code == 0
    assert running.inside(state, "delete", "claims", "--all", "--no-wait").lines == [
        'resourceclaim.resource.k8s.io "one-gpu" deleted'
    ]
    assert running.inside(state, "apply", "-f", "-", stdin=JOB).code == 0
    assert running.inside(state, "delete", "jobs", "-l", "team=blue").lines == []
    assert running.inside(state, "delete", "jobs", "-l", "team=red").lines == [
        'job.batch "sweep" deleted'
    ]


@pytest.mark.parametrize("arguments", [(), ("pods",), ("pods", "a", "-f", "x")])
def test_what_to_delete_must_be_said(state: Path, arguments: tuple[str, ...]) -> None:
    assert running.inside(state, "delete", *arguments).code == 2


def test_describe_says_what_a_pod_holds_and_what_happened(state: Path) -> None:
    assert running.inside(state, "apply", "-f", ONE_GPU).code == 0
    run = running.until(
        state,
        "describe",
        "pod",
        "one-gpu",
        shows=lambda pod: "Successfully assigned default/one-gpu" in pod.out,
        what="the event of its binding",
    )
    assert run.code == 0
    node = running.inside(state, "get", "pods").column("NODE")[0]
    assert f"devices: {node}/gpu-" in run.out
    shown = running.inside(state, "describe", f"node/{node}").out
    assert "■" in shown
    assert "default" in shown
    assert "Reserved for:  pods/one-gpu" in running.inside(state, "describe", "claims").out


def test_describe_says_why_a_pod_waits(state: Path) -> None:
    pod = "apiVersion: v1\nkind: Pod\nmetadata: {name: big}\n"
    pod += "spec: {containers: [{name: a, image: x, resources: {requests: {cpu: '9999'}}}]}\n"
    assert running.inside(state, "apply", "-f", "-", stdin=pod).code == 0
    assert "Why not:       26 nodes: " in running.inside(state, "describe", "pod/big").out
    missing = running.inside(state, "describe", "pod", "nope")
    assert (missing.code, missing.out) == (1, "")
    assert 'pods "nope" not found' in missing.err


def test_any_kind_can_be_described(state: Path) -> None:
    assert running.inside(state, "apply", "-f", "-", stdin=JOB).code == 0
    shown = running.inside(state, "describe", "job", "sweep").out
    assert "completions: 3" in shown
    assert "SuccessfulCreate" in shown


def test_events_have_the_columns_of_kubectl(state: Path) -> None:
    assert running.inside(state, "apply", "-f", ONE_GPU).code == 0
    run = running.until(
        state,
        "get",
        "events",
        shows=lambda events: events.lines and "Scheduled" in events.column("REASON"),
        what="the event of its binding",
    )
    assert run.lines[0].split()[:2] == ["LAST", "SEEN"]


def test_several_resources_and_names_at_once(state: Path) -> None:
    assert running.inside(state, "apply", "-f", ONE_GPU).code == 0
    run = running.inside(state, "get", "pods,claims")
    assert run.out.count("NAMESPACE") == 2
    named = running.inside(state, "get", "pod/one-gpu", "claim/one-gpu", "-o", "name")
    assert named.lines == ["pod/one-gpu", "resourceclaim.resource.k8s.io/one-gpu"]


def test_the_cluster_is_named_beside_tables_and_never_in_data(state: Path) -> None:
    assert "cluster: embedded sample" in running.inside(state, "get", "nodes").err
    for form in ("json", "yaml", "name"):
        assert running.inside(state, "get", "nodes", "-o", form).err == ""


def test_watching_shows_a_row_for_every_change(state: Path) -> None:
    with running.terminal(state, "get", "pods", "-w", columns=200) as screen:
        assert running.outside(state, "apply", "-f", ONE_GPU).code == 0
        screen.wait_for("one-gpu   Running")
        assert running.outside(state, "delete", "pod", "one-gpu").code == 0
        screen.wait_for("deleted")
        screen.press("\x03")
        assert screen.ending() in (0, 130)
