"""`dovetail dev`: a real control plane with hollow nodes comes up, is shown, and goes without a trace."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from dovetail.devcluster import control_plane, dev_cluster, processes
from tests.cli import running
from tests.support import cluster, real

PATIENCE_SECONDS = 120.0  # only something broken takes so long
PARTS = ["etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "player"]
ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Path]:
    """A directory for a cluster; what still runs in it is ended with the test."""
    directory = tmp_path / "my cluster"  # with a blank, as some home directories have
    yield directory
    for process in processes.ProcessRecords(directory / control_plane.ROSTER).all().values():
        processes.end(process, grace_seconds=0)


def dev(place: Path, *arguments: str, **environment: str) -> running.Run:
    kept = {
        name: os.environ[name]
        for name in ("XDG_CACHE_HOME", "KUBEBUILDER_ASSETS")
        if name in os.environ
    }
    return running.outside(
        place.parent / "state", "dev", *arguments, "--dir", str(place), **kept | environment
    )


def recorded(place: Path) -> list[processes.ProcessRecord]:
    return list(processes.ProcessRecords(place / control_plane.ROSTER).all().values())


def shown(place: Path) -> dict[str, Any]:
    answer: dict[str, Any] = msgspec.json.decode(dev(place, "status", "-o", "json").out)
    return answer


def need_parts(version: str = cluster.NEWEST) -> None:
    cluster.parts(version)
    if shutil.which("openssl") is None:
        real.missing("openssl")


@pytest.mark.slow
def test_a_cluster_comes_up_is_shown_and_goes_without_a_trace(place: Path) -> None:
    need_parts()
    up = dev(place, "up", "--nodes", "3")
    assert up.code == 0, up.err
    assert up.out == f"export KUBECONFIG='{place}/admin.kubeconfig'\n"
    assert up.err.splitlines()[0] == f"starting Kubernetes 1.37 in {place}"
    assert "kube-apiserver ready after " in up.err

    status = shown(place)
    assert (status["isUp"], status["problem"], status["nodes"], status["nodesReady"]) == (
        True,
        None,
        3,
        3,
    )
    assert [part["name"] for part in status["parts"]] == PARTS
    assert all(part["isAlive"] for part in status["parts"])
    assert [part["health"] for part in status["parts"]] == ["ok", "ok", "ok", "ok", "-"]
    nodes = kubectl(status, "get", "nodes", "-o", "name")
    assert nodes.split() == ["node/h100-0", "node/h100-1", "node/h100-2"]

    table = dev(place, "status")
    assert table.code == 0
    assert table.column("PART") == PARTS
    assert table.column("ALIVE") == ["yes"] * len(PARTS)
    assert table.column("HEALTH") == ["ok"] * 4 + ["-"]

    queues = running.outside(place.parent, "get", "queues", "--kubeconfig", status["kubeconfig"])
    messages = queues.err.splitlines()
    assert (queues.code, messages[0], messages[-1]) == (
        0,
        "no queues found",
        "next: dovetail apply -f FILE",
    )
    assert messages[1].startswith("cluster: https://127.0.0.1:")
    defined = running.outside(
        place.parent, "install", "--definitions", "--kubeconfig", status["kubeconfig"]
    )
    assert [line.rpartition("/")[2] for line in defined.err.splitlines()[:-1]] == [
        "intents.dovetail.dev unchanged",
        "queues.dovetail.dev unchanged",
        "stackupgrades.dovetail.dev unchanged",
        "topologies.dovetail.dev unchanged",
    ]

    check_that_pods_of_the_default_scheduler_run(status)
    check_that_an_installation_becomes_ready(status)

    again = dev(place, "up", "--nodes", "3")
    assert (again.code, again.out) == (0, up.out)
    assert "is already up" in again.err

    started = recorded(place)
    down = dev(place, "down")
    assert down.code == 0, down.err
    assert [process.name for process in started if processes.is_alive(process)] == []
    assert not place.exists()
    assert dev(place, "status").code == 1


def check_that_pods_of_the_default_scheduler_run(status: dict[str, Any]) -> None:
    """A manifest that was written for any cluster runs, devices included."""
    ours = (ROOT / "examples" / "live" / "gpu-per-pod.yaml").read_text(encoding="utf-8")
    assert "schedulerName: dovetail" in ours
    kubectl(status, "apply", "-f", "-", stdin=ours.replace("schedulerName: dovetail", ""))
    running_phase = "--for=jsonpath={.status.phase}=Running"
    kubectl(status, "wait", running_phase, "pod", "--all", "-n", "gpu-per-pod", "--timeout=100s")


def check_that_an_installation_becomes_ready(status: dict[str, Any]) -> None:
    """kube-scheduler places the replicas; the doctor knows that no container of them runs."""
    kubeconfig = ("--kubeconfig", status["kubeconfig"])
    image = ("--set", "image.repository=example.com/gpu/dovetail")
    home = Path(status["directory"]).parent
    installed = running.outside(home, "install", *image, "--wait", *kubeconfig)
    assert installed.code == 0, installed.err
    assert "2 of 2 replicas ready\nall 3 nodes are hollow: no container runs" in installed.err

    report = running.outside(home, "doctor", *kubeconfig, "-o", "json")
    findings = msgspec.json.decode(report.out)["findings"]
    severe = {finding["check"]: finding for finding in findings if finding["severity"] != "note"}
    assert "2 replicas on hollow nodes" in severe["leader"]["what"]
    assert "schedulers" not in severe, severe  # kube-scheduler leads


def kubectl(status: dict[str, Any], *arguments: str, stdin: str = "") -> str:
    """What kubectl prints; a complaint of it fails the test."""
    done = subprocess.run(
        [status["kubectl"], "--kubeconfig", status["kubeconfig"], *arguments],
        capture_output=True,
        text=True,
        check=False,
        input=stdin,
        env={"HOME": str(Path(status["directory"]).parent)},
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.slow
@pytest.mark.parametrize("version", cluster.EACH_VERSION)
def test_a_part_that_ended_is_shown_and_fails_the_status(place: Path, version: str) -> None:
    need_parts(version)
    up = dev(place, "up", "--nodes", "1", "--kube-version", version, "--no-kube-scheduler")
    assert up.code == 0, up.err
    check_that_pods_of_the_default_scheduler_are_warned_of(shown(place))
    player = next(process for process in recorded(place) if process.name == "player")
    os.kill(player.pid, signal.SIGKILL)
    cluster.wait_until_gone(player)
    status = dev(place, "status")
    assert status.code == 1
    assert dict(zip(status.column("PART"), status.column("ALIVE"), strict=True))["player"] == "no"
    assert "not up: player ended" in status.err
    assert status.err.splitlines()[-1] == "next: dovetail dev down"
    refused = dev(place, "up")
    assert refused.code == 1
    assert "player ended" in refused.err
    assert dev(place, "down").code == 0
    assert not place.exists()


def check_that_pods_of_the_default_scheduler_are_warned_of(status: dict[str, Any]) -> None:
    """Without kube-scheduler such a pod waits without an event; the doctor says why."""
    assert "kube-scheduler" not in [part["name"] for part in status["parts"]]
    kubectl(status, "run", "lonely", "--image=example.com/lonely")
    home = Path(status["directory"]).parent
    report = running.outside(home, "doctor", "--kubeconfig", status["kubeconfig"])
    assert '1 pod waits for scheduler "default-scheduler" (kube-scheduler)' in report.out
    assert "where: default/lonely" in report.out


@contextlib.contextmanager
def half_started(place: Path) -> Iterator[subprocess.Popen[str]]:
    """A start that has come as far as the API server."""
    command = [*running.PROGRAM, "dev", "up", "--nodes", "1000", "--dir", str(place)]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as starting:
        assert starting.stderr is not None
        for line in starting.stderr:
            if line.startswith("kube-apiserver ready"):
                break
        yield starting


@pytest.mark.slow
def test_an_interrupted_start_leaves_nothing_behind(place: Path) -> None:
    need_parts()
    with half_started(place) as starting:
        started = recorded(place)
        refused = dev(place, "down")
        starting.send_signal(signal.SIGINT)
        assert starting.stderr is not None
        starting.stderr.read()
    assert starting.returncode == 130
    assert refused.code == 1
    assert f"is being started by process {starting.pid}" in refused.err
    assert len(started) >= 2
    assert [process.name for process in started if processes.is_alive(process)] == []
    assert not place.exists()


@pytest.mark.slow
def test_a_start_that_was_killed_can_be_cleared_away(place: Path) -> None:
    need_parts()
    with half_started(place) as starting:
        starting.kill()
    refused = dev(place, "up")
    assert refused.code == 1
    assert "its start was interrupted" in refused.err
    started = recorded(place)
    assert any(processes.is_alive(process) for process in started)
    assert dev(place, "down").code == 0
    assert [process.name for process in started if processes.is_alive(process)] == []
    assert not place.exists()


def test_without_a_cluster_status_says_so_and_down_does_nothing(place: Path) -> None:
    status = dev(place, "status")
    assert status.code == 1
    assert status.err == f"error: no cluster in {place}\nnext: dovetail dev up\n"
    down = dev(place, "down")
    assert down.code == 0
    assert down.err.splitlines()[0] == f"no cluster in {place}"


def test_a_directory_with_other_things_in_it_is_left_alone(place: Path) -> None:
    place.mkdir()
    (place / "thesis.txt").write_text("years of work")
    refused = dev(place, "up")
    assert refused.code == 1
    assert f"{place} holds other things (thesis.txt)" in refused.err
    assert dev(place, "down").code == 0
    assert [path.name for path in place.iterdir()] == ["thesis.txt"]


def test_what_is_missing_is_named_before_anything_is_started(place: Path) -> None:
    bare = dev(place, "up", PATH="/nonexistent", KUBEBUILDER_ASSETS="")
    assert bare.code == 1
    assert "needs Go 1.26 or newer" in bare.err
    assert not place.exists()


def test_a_recorded_process_whose_id_now_is_another_is_not_ended(place: Path) -> None:
    place.mkdir()
    me = processes.recorded("etcd", os.getpid(), log=place / "log")
    stranger = msgspec.structs.replace(me, born=me.born - 1)
    processes.ProcessRecords(place / control_plane.ROSTER).add(stranger)
    (place / dev_cluster.STATE).write_bytes(
        msgspec.json.encode(dev_cluster.State(starter=stranger, is_ready=True))
    )
    assert dev(place, "status").code == 1
    assert dev(place, "down").code == 0  # and this test goes on
    assert not place.exists()


def test_a_part_that_lives_but_does_not_answer_fails_the_status(tmp_path: Path) -> None:
    place = tmp_path / "silent"  # no `place`: that fixture would end this very process
    place.mkdir()
    silent = processes.recorded("kube-scheduler", os.getpid(), log=place / "log", port=1)
    processes.ProcessRecords(place / control_plane.ROSTER).add(silent)
    state = dev_cluster.State(starter=silent, is_ready=True, ca=str(place / "ca.crt"))
    (place / dev_cluster.STATE).write_bytes(msgspec.json.encode(state))
    status = dev(place, "status")
    assert status.code == 1
    assert status.column("HEALTH") == ["it does not listen yet"]
    assert "not up: kube-scheduler is not healthy (it does not listen yet)" in status.err


def test_nodes_and_fleet_exclude_each_other(place: Path) -> None:
    assert dev(place, "up", "--nodes", "2", "--fleet", "fleet.yaml").code == 2
    assert dev(place, "up", "--nodes", "0").code == 2
    assert dev(place, "up", "--kube-version", "1.2").code == 2


def test_a_fleet_of_any_size_has_no_problems() -> None:
    from dovetail.sim.fleet import fleet_spec

    for nodes in (1, 500, 10_000):
        assert list(fleet_spec.problems_of(dev_cluster.sized_fleet(nodes))) == []


def test_a_kubelet_is_refused_before_anything_is_built_or_made(place: Path) -> None:
    older = dev(place, "up", "--kubelet", "--kube-version", cluster.OLDER)
    reasons = ("needs a control plane of that version", "which only root may", "a real node needs")
    assert older.code == 1
    assert any(reason in older.err for reason in reasons), older.err
    assert not place.exists()

    without_node = dev(place, "up", "--machine", "dgx-h100")
    assert without_node.code == 2
    assert "--machine needs --kubelet" in without_node.err


@pytest.mark.skipif(os.geteuid() != 0, reason="another user is refused for another reason")
def test_an_unknown_machine_is_refused_with_the_known_ones(place: Path) -> None:
    answer = dev(place, "up", "--kubelet", "--machine", "abacus")
    assert answer.code == 1
    assert 'unknown machine "abacus"; known: ' in answer.err or "a real node needs" in answer.err
    assert not place.exists()
