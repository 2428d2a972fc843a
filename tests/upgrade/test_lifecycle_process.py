"""Two processes `dovetail lifecycle`, as people start them: one is killed midway, and the API server restarts."""

from __future__ import annotations

import contextlib
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from dovetail.devcluster import control_plane, free_ports, kube_binaries
from tests.cli import running
from tests.support import cluster as planes
from tests.support import live
from tests.upgrade.driver_player import driver_image
from tests.upgrade.fleet_story import Fleet, fleet
from tests.upgrade.operator_story import NEW

pytestmark = pytest.mark.slow


def test_another_process_goes_on_when_one_is_killed_and_the_api_server_restarts(
    tmp_path: Path,
) -> None:
    with (
        planes.private_plane() as plane,
        fleet(3, plane=plane, is_recorded=False) as story,
    ):
        story.gang("train", "ab")
        story.lone("serve", "c")
        story.scene.player.broken = {story.name("c"): 1}  # until the accidents are over
        story.upgrade(waves={"maxUnavailable": "3", "canary": 0})
        with process(plane, tmp_path / "first.log") as first:
            story.wait(lambda: holder(story), "the first process to lead")
            with process(plane, tmp_path / "second.log"):
                story.wait_reason("c", "1 restart")
                leader = holder(story)
                first.kill()
                plane.kill(kube_binaries.APISERVER)
                plane.start(kube_binaries.APISERVER)
                story.wait(lambda: holder(story) not in ("", leader), "the second to lead")
                story.scene.player.broken = {}
                status = story.wait_ended()
        assert status["phase"] == "Completed", status
        assert set(story.phases().values()) == {"Done"}
        assert set(story.drivers().values()) == {driver_image(NEW)}
        assert story.leftovers() == []


def holder(story: Fleet) -> str:
    """Which process holds the Lease."""
    for lease in story.api.list("leases", "kube-system"):
        if lease["metadata"]["name"] == "dovetail-lifecycle":
            return str(lease["spec"].get("holderIdentity") or "")
    return ""


@contextlib.contextmanager
def process(plane: control_plane.ControlPlane, log: Path) -> Iterator[subprocess.Popen[bytes]]:
    """The program with its own log, until the end of the block."""
    port = free_ports.reserve()
    options = ["--kubeconfig", str(plane.kubeconfig), "--listen", f"127.0.0.1:{port}"]
    command = [*live.TETHER, *running.PROGRAM, "lifecycle", *options]
    with log.open("wb") as sink:
        started = subprocess.Popen(command, stdout=sink, stderr=sink, cwd=running.ROOT)
        try:
            yield started
        finally:
            started.terminate()
            started.wait()
            free_ports.release(port)
