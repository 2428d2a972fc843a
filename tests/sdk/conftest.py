"""An embedded cluster with queues, running and waiting work, and a snapshot of it, shared by all tests here."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from dovetail.sdk import Cluster
from dovetail.sim.fleet import fleet_spec
from tests.cli import embedded, running

FLEET = running.EXAMPLES / "fleets" / "small.yaml"
WORK = [running.EXAMPLES / "queues" / name for name in ("teams.yaml", "vision.yaml")]
WAITING = """
apiVersion: v1
kind: Pod
metadata: {namespace: speech, name: big, labels: {app: trainer}}
spec:
  containers: [{name: main, image: training, resources: {requests: {cpu: "999"}}}]
---
apiVersion: batch/v1
kind: Job
metadata: {namespace: vision, name: wide}
spec:
  parallelism: 2
  completions: 2
  template:
    spec:
      restartPolicy: Never
      nodeSelector: {dovetail.dev/pool: b300}
      containers: [{name: main, image: training}]
"""


@pytest.fixture(scope="session")
def running_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[embedded.Embedded]:
    """Two H100 nodes and three with L4, two queues, six pods that run and three that wait."""
    fleet = fleet_spec.read(FLEET.read_text(), file=str(FLEET))
    with embedded.running(tmp_path_factory.mktemp("sdk") / "state", fleet) as cluster:
        files = [part for file in WORK for part in ("-f", str(file))]
        assert running.inside(cluster.directory, "apply", *files).code == 0
        applied = running.inside(cluster.directory, "apply", "-f", "-", stdin=WAITING)
        assert applied.code == 0, applied.err
        running.until(
            cluster.directory,
            *("get", "pods", "-A"),
            shows=lambda run: (
                run.column("STATUS").count("Running") >= 6
                and all(
                    why != "-"
                    for why, status in zip(run.column("WHY NOT"), run.column("STATUS"), strict=True)
                    if status == "Pending"
                )
                and run.column("STATUS").count("Pending") == 3
            ),
            what="six pods to run, and three to wait for a reason",
        )
        running.until(
            cluster.directory,
            *("get", "queues", "-o", "json"),
            shows=lambda run: '"fairShare"' in run.out,
            what="the numbers of queues",
        )
        yield cluster


@pytest.fixture(scope="session")
def snapshot(running_cluster: embedded.Embedded, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """That cluster as `dovetail snapshot save` writes it."""
    path = tmp_path_factory.mktemp("saved") / "snapshot"
    saved = running.inside(running_cluster.directory, "snapshot", "save", str(path))
    assert saved.code == 0, saved.err
    return path


@pytest.fixture(scope="session")
def cluster(snapshot: Path) -> Cluster:
    """The saved cluster."""
    return Cluster.load(snapshot)
