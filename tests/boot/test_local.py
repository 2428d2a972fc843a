"""The local cluster and the clock: reading sees what time has brought, and writes only then."""

from __future__ import annotations

import datetime
from pathlib import Path

import pytest

from dovetail.cli import snapshot as snapshot_command
from dovetail.hollow import pod_stages
from dovetail.kubetypes.core import pods
from dovetail.sim.fleet import fleet_spec
from dovetail.sim.local import local_cluster, state_dir
from dovetail.snapshot import snapshot_files, snapshot_format

FLEET = fleet_spec.read(
    "name: small\npools: [{name: l4, count: 1, gpu: L4, gpusPerNode: 1}]", file="fleet.yaml"
)


class Clock:
    """A clock that stands until it is moved."""

    def __init__(self) -> None:
        self.now = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)

    def __call__(self) -> datetime.datetime:
        return self.now

    def move(self, seconds: float) -> None:
        self.now += datetime.timedelta(seconds=seconds)


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def place(tmp_path: Path, clock: Clock) -> state_dir.Local:
    """One GPU, a pod of a minute on it and one of two minutes that waits for it."""
    place = state_dir.Local(tmp_path / "state", clock=clock)
    place.up(FLEET, fresh=True)
    applied(place, ("first", "60"))
    applied(place, ("second", "120"))
    return place


def applied(place: state_dir.Local, *wanted: tuple[str, str], dry_run: bool = False) -> None:
    limits = {"resources": {"limits": {"nvidia.com/gpu": "1"}}}
    given = [
        local_cluster.Given(
            {
                "apiVersion": "v1",
                "kind": "Pod",
                "metadata": {"name": name, "annotations": {pod_stages.RUN_SECONDS: seconds}},
                "spec": {"containers": [{"name": "main", "image": "train", **limits}]},
            }
        )
        for name, seconds in wanted
    ]
    outcome = place.apply(given, namespace="default", dry_run=dry_run)
    assert isinstance(outcome, local_cluster.Applied), outcome


def phases(cluster: local_cluster.Cluster | None) -> str:
    assert cluster is not None
    found = [stored.struct for stored in local_cluster.listed(cluster, "Pod")]
    return " ".join(pod.status.phase for pod in found if isinstance(pod, pods.Pod))


def test_reading_writes_when_something_was_due_and_only_then(
    place: state_dir.Local, clock: Clock
) -> None:
    kept = place.store.stamp()
    clock.move(59)
    assert phases(place.cluster()) == "Running Pending"
    assert place.store.stamp() == kept
    clock.move(1)
    assert phases(place.cluster()) == "Succeeded Running"
    assert phases(place.store.load()) == "Succeeded Running"
    kept = place.store.stamp()
    assert phases(place.cluster()) == "Succeeded Running"
    assert place.store.stamp() == kept


def test_up_finds_the_cluster_as_it_is_now(place: state_dir.Local, clock: Clock) -> None:
    clock.move(180)
    assert phases(place.up(FLEET, fresh=False).cluster) == "Succeeded Succeeded"
    assert phases(place.store.load()) == "Succeeded Succeeded"


def test_who_may_not_write_sees_the_same(place: state_dir.Local, clock: Clock) -> None:
    lock = place.store.directory / "lock"
    lock.unlink()
    lock.mkdir()  # cannot be locked, not even by root
    clock.move(60)
    assert phases(place.cluster()) == "Succeeded Running"
    assert phases(place.store.load()) == "Running Pending"


def test_what_is_applied_late_finds_the_cluster_of_its_own_time(
    place: state_dir.Local, clock: Clock
) -> None:
    clock.move(200)  # the GPU is free since 20 seconds
    applied(place, ("third", "1"))
    third = local_cluster.get(
        place.store.load() or local_cluster.Cluster(""),
        local_cluster.Key("Pod", "default", "third"),
    )
    assert third is not None
    assert third.tree["status"]["startTime"] == "2026-01-01T00:03:20Z"


def test_a_dry_run_keeps_nothing_not_even_what_was_due(
    place: state_dir.Local, clock: Clock
) -> None:
    kept = place.store.stamp()
    clock.move(60)
    applied(place, ("third", "1"), dry_run=True)
    assert place.store.stamp() == kept


def test_a_snapshot_that_was_loaded_stays_the_moment_it_was(
    place: state_dir.Local, clock: Clock, tmp_path: Path
) -> None:
    cluster = place.cluster()
    assert cluster is not None
    facts = snapshot_format.Facts(
        taken_at="2026-01-01T00:00:00Z", cluster=cluster.name, resource_versions={}
    )
    snapshot_files.write(tmp_path / "saved", snapshot_command.documents_of(cluster), facts)
    other = state_dir.Local(tmp_path / "other", clock=clock)
    snapshot_command.load_into(tmp_path / "saved", other, fresh=True)
    clock.move(3600)
    kept = other.store.stamp()
    assert phases(other.cluster()) == "Running Pending"
    assert other.store.stamp() == kept
    assert phases(place.cluster()) == "Succeeded Succeeded"
