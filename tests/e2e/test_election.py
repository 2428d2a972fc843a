"""Two replicas on a real API server: one writes, another takes over when it dies, leaves or is held up.

Each replica bears a token of its own, so that the server's audit log tells whose every write was.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from typing import Any

import pytest

from dovetail.devcluster import control_plane
from tests.e2e.namespace_scene import Scene, node_of, phase_of
from tests.support import audit, live
from tests.support import cluster as planes
from tests.support.live import Live

pytestmark = pytest.mark.slow

SHORT = {"leaseDurationSeconds": 3, "renewDeadlineSeconds": 2, "retryPeriodSeconds": 0.5}
LONG = {"leaseDurationSeconds": 600, "renewDeadlineSeconds": 500, "retryPeriodSeconds": 0.5}
REPLICAS = {
    name: control_plane.Bearer(
        f"token-{name}", live.SERVICE_ACCOUNT, ("system:serviceaccounts", name)
    )
    for name in ("one", "two")
}
Place = tuple[Live, audit.Notes]


@pytest.fixture(scope="module")
def place() -> Iterator[Place]:
    """A cluster whose writes are noted, with hollow nodes and no scheduler."""
    with (
        audit.noted() as notes,
        live.private(tokens=tuple(REPLICAS.values()), extra_apiserver_flags=notes.flags) as lives,
    ):
        lives.play("--nodes", "4")
        yield lives, notes


@pytest.fixture
def story(place: Place) -> Iterator[Scene]:
    """A scene on it; all schedulers have ended afterwards."""
    cluster, _ = place
    scene = Scene(cluster, planes.fresh_namespace(cluster.plane))
    scene.fleet(nodes=2, gpus=60)
    scene.template()
    try:
        yield scene
    finally:
        for name in REPLICAS:
            if cluster.is_running(name):
                os.kill(cluster.pid(name), signal.SIGCONT)
                cluster.stop(name, kill=True)
        cluster.rest.delete("leases", "dovetail-scheduler", "kube-system")
        scene.end()


def test_one_leads_and_the_other_takes_over_when_it_is_killed(place: Place, story: Scene) -> None:
    cluster, notes = place
    leader, other = _started(cluster, SHORT)
    assert cluster.pid(leader) != cluster.pid(other)
    _pods(story, "first", 10)
    story.wait_running(*(f"first-{number}" for number in range(10)))
    assert not _work(notes, other, since="")
    assert cluster.is_serving("/readyz", other)  # a standby is ready, or a roll-out would never end
    tenure = _lease(cluster)["leaseTransitions"]
    _pods(story, "second", 20)
    cluster.stop(leader, kill=True)
    story.wait_running(*(f"second-{number}" for number in range(20)))
    lease = _lease(cluster)
    assert f"_{cluster.pid(other)}_" in lease["holderIdentity"]
    assert (
        lease["leaseTransitions"] > tenure
    )  # a short lease may lapse more often on a busy machine
    assert "synced" in cluster.log(other)  # it read the cluster again before it wrote
    assert story.held_once() == 30
    assert cluster.consistent(other)["consistent"]


def test_a_leader_that_receives_a_signal_hands_over_at_once(place: Place, story: Scene) -> None:
    """With a lease of ten minutes: had it to expire, the story would never end."""
    cluster, _ = place
    leader, other = _started(cluster, LONG)
    _pods(story, "p", 20)
    assert cluster.stop(leader) == 0
    story.wait("the other to lead", lambda: cluster.leads(other))
    story.wait_running(*(f"p-{number}" for number in range(20)))
    assert story.held_once() == 20


def test_a_leader_that_was_held_up_changes_nothing_when_it_goes_on(
    place: Place, story: Scene
) -> None:
    """A request on its way when the process stopped may still be sent; it finds its pod bound or gone."""
    cluster, notes = place
    leader, other = _started(cluster, SHORT)
    _pods(story, "p", 40)
    story.wait("the first of many", lambda: _placed(story) > 0)
    os.kill(cluster.pid(leader), signal.SIGSTOP)
    story.wait("the other to lead", lambda: cluster.leads(other))
    since = _lease(cluster)["acquireTime"]
    pods = story.wait_running(*(f"p-{number}" for number in range(40)))
    for name in list(pods)[:10]:
        story.rest.delete("pods", name, story.namespace)
    os.kill(cluster.pid(leader), signal.SIGCONT)
    story.wait("the old leader to notice", lambda: "no longer leading" in cluster.log(leader))
    _pods(story, "late", 10)
    story.wait_running(*(f"late-{number}" for number in range(10)))
    assert [write for write in _work(notes, leader, since=since) if write.status < 400] == []
    assert _work(notes, other, since=since)
    story.held_once()
    cluster.stop(other, kill=True)  # and it stands again
    story.wait("the old leader to lead again", lambda: cluster.leads(leader))
    _pods(story, "last", 5)
    story.wait_running(*(f"last-{number}" for number in range(5)))


def _started(cluster: Live, timing: dict[str, Any]) -> tuple[str, str]:
    """Two replicas; the name of the one that leads first."""
    for name, bearer in REPLICAS.items():
        cluster.schedule(name, configuration={"leaderElection": timing}, token=bearer.token)
    cluster.wait_for(
        "both replicas", lambda: all(cluster.is_serving("/healthz", name) for name in REPLICAS)
    )
    leader: str = cluster.wait_for(
        "a leader", lambda: next((name for name in REPLICAS if cluster.leads(name)), None)
    )
    other = next(name for name in REPLICAS if name != leader)
    assert not cluster.leads(other)
    return leader, other


def _lease(cluster: Live) -> dict[str, Any]:
    spec: dict[str, Any] = cluster.rest.read("leases", "dovetail-scheduler", "kube-system")["spec"]
    return spec


def _pods(story: Scene, prefix: str, count: int) -> None:
    for number in range(count):
        story.pod(f"{prefix}-{number}", templates=["gpu"])


def _placed(story: Scene) -> int:
    return sum(bool(node_of(pod)) or phase_of(pod) == "Running" for pod in story.pods().values())


def _work(notes: audit.Notes, name: str, *, since: str) -> list[audit.Write]:
    """What a replica wrote from a time on, but for its part in the election."""
    mine = [
        write for write in notes.writes() if name in write.groups and write.resource != "leases"
    ]
    return [write for write in mine if write.received > since]
