"""`dovetail run` and `dovetail logs` where containers run: output is followed, and the job's end is the command's."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from dovetail.devcluster.real_node import container_image
from tests.cli import running
from tests.node_e2e import gpu_cluster
from tests.support import cluster as planes
from tests.support import gpu_node

pytestmark = pytest.mark.slow
PROGRAM = container_image.ENTRY_POINT


@pytest.fixture
def options(cluster: gpu_cluster.GpuCluster) -> Iterator[tuple[str, ...]]:
    """The options that name the cluster and a namespace of its own."""
    namespace = planes.fresh_namespace(cluster.plane)
    yield ("--kubeconfig", str(cluster.plane.kubeconfig), "-n", namespace)
    planes.kubectl(cluster.plane, "delete", "namespace", namespace)


def test_a_job_is_followed_to_its_end(
    cluster: gpu_cluster.GpuCluster, options: tuple[str, ...], tmp_path: Path
) -> None:
    job = ("--image", container_image.NAME, "--type", "h100", "--gpus", "1", "--yes")
    done = running.inside(
        tmp_path, "run", *options, *job, "--name", "good", "--env", "WORD=here",
        "--", PROGRAM, "exit", "0",
    )  # fmt: skip
    assert done.code == 0, done.err
    assert "starts now:" in done.out
    printed = msgspec.json.decode(done.lines[-1], type=gpu_node.View)
    assert printed.arguments == ["exit", "0"]
    assert printed.environment["WORD"] == "here"
    assert "/dev/nvidia0" in printed.device_paths or "/dev/nvidia1" in printed.device_paths
    assert "job.batch/good succeeded" in done.err

    failed = running.inside(
        tmp_path, "run", *options, *job, "--name", "bad", "--", PROGRAM, "exit", "3"
    )
    assert failed.code == 1
    assert "job.batch/bad failed" in failed.err
    for arguments in (("good",), ("job/good", "-f"), ("job/good", "--tail", "1")):
        logs = running.inside(tmp_path, "logs", *options, *arguments)
        assert (logs.code, logs.lines) == (0, [done.lines[-1]]), logs.err
    prefixed = running.inside(tmp_path, "logs", *options, "job/good", "--all-pods")
    assert prefixed.out.startswith("[pod/good-0-")
    waited = running.inside(tmp_path, "wait", *options, "job/bad", "--for", "finished")
    assert (waited.code, waited.out) == (1, "job.batch/bad failed\n")
    ended = running.inside(tmp_path, "cancel", *options, "--me", "--yes")
    assert ended.code == 1  # nothing of mine runs any more
    for name in ("job/good", "job/bad"):
        assert running.inside(tmp_path, "cancel", *options, name).code == 0
