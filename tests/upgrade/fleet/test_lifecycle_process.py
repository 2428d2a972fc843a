"""Two processes `dovetail lifecycle`, as people start them: one is killed midway, and the API server restarts."""

from __future__ import annotations

import contextlib
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from dovetail.devcluster import control_plane, free_ports, kube_binaries
from tests.cli import running
from tests.support import cluster as planes
from tests.support import live
from tests.upgrade.driver_player import driver_image
from tests.upgrade.fleet import fleet_plane
from tests.upgrade.fleet.fleet_story import Fleet, fleet
from tests.upgrade.operator_story import NEW

pytestmark = pytest.mark.slow
LEASE = "kube-system/dovetail-lifecycle"  # as the command has it


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


@pytest.mark.long
def test_a_process_that_was_held_up_writes_nothing_once_another_leads(tmp_path: Path) -> None:
    plane = fleet_plane.plane()
    first_log = tmp_path / "first.log"
    with fleet(3) as story:
        story.gang("train", "ab")
        story.scene.player.broken = {story.name("c"): 1}
        story.upgrade(waves={"maxUnavailable": "3", "canary": 0})
        lease = f"{story.namespace}/lifecycle"
        with process(plane, first_log, lease) as first:
            story.wait(lambda: holder(story, lease), "the first process to lead")
            with process(plane, tmp_path / "second.log", lease):
                story.wait_reason("c", "1 restart")
                leader = holder(story, lease)
                first.send_signal(signal.SIGSTOP)
                story.wait(lambda: holder(story, lease) not in ("", leader), "the second to lead")
                first.send_signal(signal.SIGCONT)
                story.wait(lambda: "election.lost" in first_log.read_text(), "it to notice")
                story.scene.player.broken = {}
                status = story.wait_ended()
        assert status["phase"] == "Completed", status
        story.checked(most=3)


def holder(story: Fleet, lease: str = LEASE) -> str:
    """Which process holds the Lease."""
    namespace, _, name = lease.partition("/")
    for each in story.api.list("leases", namespace):
        if each["metadata"]["name"] == name:
            return str(each["spec"].get("holderIdentity") or "")
    return ""


@contextlib.contextmanager
def process(
    plane: control_plane.ControlPlane, log: Path, lease: str = LEASE
) -> Iterator[subprocess.Popen[bytes]]:
    """The program with its own log, until the end of the block."""
    port = free_ports.reserve()
    options = ["--kubeconfig", str(plane.kubeconfig), "--listen", f"127.0.0.1:{port}"]
    command = [*live.TETHER, *running.PROGRAM, "lifecycle", "--leader-elect", lease, *options]
    with log.open("wb") as sink:
        started = subprocess.Popen(command, stdout=sink, stderr=sink, cwd=running.ROOT)
        try:
            yield started
        finally:
            started.terminate()
            started.wait()
            free_ports.release(port)
