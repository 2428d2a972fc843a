"""The recorder of history on a real API server, with the rights that the chart gives it and no others.

It is killed, and replicas of it take over from each other; the whole history is read and checked afterwards.
"""

from __future__ import annotations

import contextlib
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from dovetail import errors
from dovetail.history import stores
from dovetail.install import chart
from dovetail.model.accounting.records import MICRO_GPU, Allocation, GapSource, Records
from tests.e2e.namespace_scene import Scene, scene
from tests.history import whole_history
from tests.support import cluster as planes
from tests.support import live as lives
from tests.support import postgres
from tests.support.live import Live

pytestmark = pytest.mark.slow
ACCOUNT = "dovetail-history"
ALWAYS = 1 << 50
KINDS = (*lives.RIGHTS, "Lease")


@pytest.fixture(scope="module")
def cluster() -> Live:
    return lives.cluster()


@pytest.fixture(scope="module")
def kubeconfig(cluster: Live) -> Path:
    """Of the chart's service account."""
    settings = [
        "image.repository=example",
        "history.enabled=true",
        "history.store.secretName=database",
    ]
    rendered = chart.objects(chart.values_of(settings=settings), lives.RELEASE)
    mine = [
        item for item in rendered if item["kind"] in KINDS and item["metadata"]["name"] == ACCOUNT
    ]
    assert len(mine) == 6
    planes.apply(cluster.plane, mine, namespace=lives.RELEASE.namespace)
    token = planes.kubectl(
        cluster.plane, "create", "token", ACCOUNT, "-n", lives.RELEASE.namespace, "--duration=1h"
    ).strip()
    return cluster.plane.write_kubeconfig("history", token=token)


@contextlib.contextmanager
def recording(
    kubeconfig: Path, store: str, log: Path, *arguments: str
) -> Iterator[subprocess.Popen[bytes]]:
    """The command, as a user runs it; killed at the end of the block if it still runs."""
    program = Path(sys.executable).with_name("dovetail")
    command = [*lives.TETHER, str(program), "history", "record"]
    command += ["--kubeconfig", str(kubeconfig), "--store", store, *arguments]
    with log.open("ab") as sink, subprocess.Popen(command, stderr=sink, cwd=lives.ROOT) as process:
        try:
            yield process
        finally:
            process.kill()
            print(log.read_text())  # shown where the test fails


def gpus(story: Scene) -> None:
    """One node with two GPUs of a driver whose devices count as GPUs."""
    story.driver = f"gpu.{story.namespace}.example.com"
    story.fleet(nodes=1, gpus=2)
    story.template()


def whole(store: str) -> Records:
    try:
        with stores.open_store(store) as opened:
            return opened.records(0, ALWAYS)
    except errors.NotFound:
        return Records()


def held(store: str, story: Scene) -> dict[str, Allocation]:
    """The latest allocation of each pod of the story."""
    mine = [each for each in whole(store).allocations if each.owner.namespace == story.namespace]
    return {each.owner.pod: each for each in mine if each.owner.pod}


def test_a_recorder_that_is_killed_goes_on_and_counts_nothing_twice(
    cluster: Live, kubeconfig: Path, tmp_path: Path
) -> None:
    store, log = str(tmp_path / "history.sqlite"), tmp_path / "log"
    with scene(cluster) as story:
        gpus(story)
        with recording(kubeconfig, store, log):
            story.pod("a", templates=["gpu"])
            story.pod("b", templates=["gpu"])
            story.pod("late", templates=["gpu"])  # waits for a GPU
            story.wait("two recorded pods", lambda: len(held(store, story)) == 2)
            first, second = sorted(held(store, story))
            waiting = {"a", "b", "late"} - {first, second}
            assert {each.owner.pod for each in whole(store).waiting if each.end is None} >= waiting
            story.rest.delete("pods", first, story.namespace, gracePeriodSeconds=0)
            story.wait("the end", lambda: held(store, story)[first].end is not None)
            story.wait("the next", lambda: waiting <= held(store, story).keys())
        # Killed: what ends now ends unseen.
        story.rest.delete("pods", second, story.namespace, gracePeriodSeconds=0)
        story.wait("its end", lambda: second not in story.pods())
        with recording(kubeconfig, store, log) as process:
            story.wait("a gap", lambda: whole(store).gaps)
            story.wait("its end", lambda: held(store, story)[second].end is not None)
            process.terminate()
            assert process.wait(timeout=60) == 0
        records = whole(store)
    [gap] = records.gaps
    assert gap.source is GapSource.API
    ended = held(store, story)[second]
    assert ended.end == gap.start
    assert ended.micro_gpu == MICRO_GPU
    assert whole_history.problems(records, slack_micro_gpu=8_000) == []
    assert "Traceback" not in log.read_text()


def test_replicas_share_a_database_and_one_of_them_records(
    cluster: Live, kubeconfig: Path, tmp_path: Path
) -> None:
    election = f"--leader-elect={lives.RELEASE.namespace}/{ACCOUNT}"
    with postgres.running() as server, scene(cluster) as story:
        store = server.new_schema()
        gpus(story)
        with (
            recording(kubeconfig, store, tmp_path / "1.log", election) as one,
            recording(kubeconfig, store, tmp_path / "2.log", election) as two,
        ):
            story.pod("a", templates=["gpu"])
            story.wait("a recorded pod", lambda: "a" in held(store, story))
            is_first = "history.recording" in (tmp_path / "1.log").read_text()
            leader, other = (one, tmp_path / "2.log") if is_first else (two, tmp_path / "1.log")
            assert "history.recording" not in other.read_text()
            leader.kill()
            story.pod("b", templates=["gpu"])
            story.wait("the other replica", lambda: "history.recording" in other.read_text())
            story.wait("the next pod", lambda: "b" in held(store, story))
        records = whole(store)
        assert [gap.source for gap in records.gaps] == [GapSource.API]
        assert [each.end for each in held(store, story).values()] == [None, None]
        assert whole_history.problems(records, slack_micro_gpu=8_000) == []
