"""Hollow nodes: leases renewed, failures on demand, fleets published; and all of it on a real control plane."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from dovetail.boot import hollow_nodes
from dovetail.devcluster import control_plane
from dovetail.hollow import hollow_kubelets, node_marks, publish_nodes
from dovetail.kubetypes import registry
from dovetail.ports import failures
from dovetail.ports.api import Target
from dovetail.sim.fleet import fleet_objects, fleet_spec
from dovetail.sim.server.api_server import SimApi
from dovetail.sim.virtual_clock import VirtualClock
from tests.live.hollow_cluster import HollowCluster, run_story
from tests.support import cluster

# Nodes


def test_every_lease_is_renewed_in_time_and_not_all_at_once() -> None:
    async def story(hollow: HollowCluster) -> None:
        names = [f"n{index}" for index in range(40)]
        for name in names:
            hollow.node(name)
        await hollow.passes(10)
        begun = {name: hollow.renewed(name) for name in names}
        assert all(begun.values())
        assert len({str(item) for item in begun.values()}) > 20
        await hollow.passes(10.5)
        for name in names:
            assert hollow.renewed(name) != begun[name]
        lease = hollow.api.find(registry.LEASE, "n0", namespace="kube-node-lease")
        assert (lease.spec.holder_identity, lease.spec.lease_duration_seconds) == ("n0", 40)
        assert [owner.kind for owner in lease.metadata.owner_references] == ["Node"]

    run_story(HollowCluster(), story)


def test_a_large_fleet_renews_half_as_often() -> None:
    async def story(hollow: HollowCluster) -> None:
        for index in range(hollow_kubelets.LARGE_FLEET):
            hollow.node(f"n{index}")
        await hollow.passes(hollow_kubelets.RENEW_SECONDS_LARGE)
        hollow.writes.clear()
        await hollow.passes(hollow_kubelets.RENEW_SECONDS_LARGE)
        assert len(hollow.writes) == hollow_kubelets.LARGE_FLEET

    run_story(HollowCluster(), story)


def test_a_node_taken_for_dead_says_at_once_that_it_is_not() -> None:
    async def story(hollow: HollowCluster) -> None:
        hollow.node()
        await hollow.passes(10)
        await hollow.unready("n1")
        assert hollow.is_ready()

    run_story(HollowCluster(), story)


def test_a_silent_node_is_left_alone_until_it_speaks_again() -> None:
    async def story(hollow: HollowCluster) -> None:
        hollow.node()
        for name in ("runs", "waits"):
            hollow.pod(name)
        await hollow.bind("runs")
        await hollow.passes(10)
        await hollow.marks("n1", **{node_marks.SILENT: "true"})
        last = hollow.renewed()
        await hollow.unready("n1")
        await hollow.bind("waits")
        await hollow.delete_pod("runs")
        await hollow.passes(120)
        assert (hollow.is_ready(), hollow.renewed() == last) == (False, True)
        assert (hollow.phase("runs"), hollow.phase("waits")) == ("Running", "Pending")
        await hollow.marks("n1", **{node_marks.SILENT: None})
        assert hollow.is_ready()
        assert hollow.renewed() != last
        assert (hollow.phase("runs"), hollow.phase("waits")) == ("gone", "Running")

    run_story(HollowCluster(), story)


def test_a_pod_taken_for_lost_with_its_node_is_ready_again() -> None:
    async def story(hollow: HollowCluster) -> None:
        hollow.node()
        hollow.pod()
        await hollow.bind()
        conditions = [
            item | ({"status": "False"} if item["type"] == "Ready" else {})
            for item in hollow.tree()["status"]["conditions"]
        ]
        target = Target(registry.POD, "default", "p", "status")
        await hollow.api.patch(target, json.dumps({"status": {"conditions": conditions}}).encode())
        await hollow.passes(1)
        assert hollow.conditions()["Ready"] == "True"
        assert hollow.tree()["status"]["startTime"] == "2026-01-01T00:00:00Z"

    run_story(HollowCluster(), story)


def test_leases_are_renewed_while_hundreds_of_pods_wait_for_a_worker() -> None:
    async def story(hollow: HollowCluster) -> None:
        hollow.node()
        hollow.api.delay_seconds = 1
        for index in range(200):  # 100 seconds of work for two workers
            hollow.pod(f"p{index}")
            tree = hollow.api.shelf.find(registry.POD, ("default", f"p{index}"))
            assert tree is not None
            hollow.api.shelf.put(
                registry.POD, tree.tree | {"spec": tree.tree["spec"] | {"nodeName": "n1"}}
            )
        await hollow.passes(40)
        assert hollow.phase("p199") == "Pending"
        last = hollow.renewed()
        assert last is not None
        await hollow.passes(12)
        assert hollow.renewed() != last

    run_story(HollowCluster(concurrency=2), story)


def test_an_api_server_that_is_away_is_asked_again_later() -> None:
    async def story(hollow: HollowCluster) -> None:
        hollow.node()
        hollow.pod()
        hollow.api.before = _away
        hollow.api.shelf.put(registry.POD, _bound(hollow))
        await hollow.passes(20)
        assert hollow.phase() == "Pending"
        hollow.api.before = None
        await hollow.passes(20)
        assert hollow.phase() == "Running"
        assert hollow.renewed() is not None

    run_story(HollowCluster(), story)


def _away(verb: str, target: Target) -> None:
    raise failures.Unavailable(f"{verb} {target}: no answer")


def _bound(hollow: HollowCluster) -> dict[str, Any]:
    tree = hollow.tree()
    return tree | {"spec": tree["spec"] | {"nodeName": "n1"}}


# Publishing


def _published(api: SimApi, clock: VirtualClock, fleet: fleet_spec.Fleet) -> publish_nodes.Progress:
    async def main() -> publish_nodes.Progress:
        publisher = publish_nodes.Publisher(api, clock)
        work = asyncio.create_task(publisher.publish(fleet_objects.objects_of(fleet)))
        await clock.advance(120)
        return await work

    return asyncio.run(main())


def test_a_fleet_that_the_server_refuses_fails_with_the_first_refusal() -> None:
    """As a failure of the API, not as the group of what every worker met."""
    pool = fleet_spec.Pool(name="a", count=40, gpu="L4", labels={"team": "no such value"})
    fleet = fleet_spec.Fleet(name="x", pools=(pool,))
    clock = VirtualClock()
    with pytest.raises(failures.ApiFailure, match=r'Node "a-.*" is invalid: metadata.labels'):
        _published(SimApi(clock), clock, fleet)


def test_a_fleet_is_published_once_however_often_it_is_asked_for() -> None:
    clock = VirtualClock()
    api = SimApi(clock)
    fleet = fleet_spec.sample()
    done = _published(api, clock, fleet)
    assert (done.nodes, done.nodes_wanted) == (26, 26)
    assert done.slices == len(api.all(registry.SLICE)) > 26
    uids = {node.metadata.name: node.metadata.uid for node in api.all(registry.NODE)}
    for item in api.all(registry.SLICE):
        [owner] = item.metadata.owner_references
        assert (owner.kind, owner.uid) == ("Node", uids[item.spec.node_name])
    assert all(node_marks.is_hollow(node) for node in api.all(registry.NODE))
    revision = api.shelf.revision
    for node in uids:
        asyncio.run(
            api.patch(
                Target(registry.NODE, "", node),
                b'{"metadata": {"labels": {"dovetail.dev/pool": "x"}}}',
            )
        )
        less = b'{"status": {"allocatable": {"cpu": "1"}}}'
        asyncio.run(api.patch(Target(registry.NODE, "", node, "status"), less))
    _published(api, clock, fleet)
    assert {node.metadata.name: node.metadata.uid for node in api.all(registry.NODE)} == uids
    assert all(node.metadata.labels["dovetail.dev/pool"] != "x" for node in api.all(registry.NODE))
    assert all(node.status.allocatable["cpu"].value() > 1 for node in api.all(registry.NODE))
    assert all(
        int(item.metadata.resource_version) <= revision for item in api.all(registry.SLICE)
    )  # nothing new in them


def test_publishing_outlasts_a_short_absence_and_gives_up_after_a_long_one() -> None:
    clock = VirtualClock()
    api = SimApi(clock)

    def away(verb: str, target: Target) -> None:
        if clock.monotonic() < 20:
            raise failures.Unavailable("starting")

    api.before = away
    small = fleet_spec.Fleet(
        name="small", pools=(fleet_spec.Pool(name="l4", count=3, gpu="L4", gpus_per_node=2),)
    )
    assert _published(api, clock, small).nodes == 3
    api.before = _away
    with pytest.raises(failures.Unavailable):
        _published(api, clock, small)


# The real thing


class HollowProcesses:
    """Starts `dovetail.boot.hollow_nodes` as processes and reads what they print."""

    def __init__(self) -> None:
        self.running: list[subprocess.Popen[str]] = []

    def start(self, plane: control_plane.ControlPlane, *arguments: str) -> subprocess.Popen[str]:
        command = [
            sys.executable,
            "-m",
            "dovetail.boot.hollow_nodes",
            "--kubeconfig",
            str(plane.kubeconfig),
            *arguments,
        ]
        process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        self.running.append(process)
        assert process.stdout is not None
        assert json.loads(process.stdout.readline())["ready"] is True
        return process

    def stop(self, process: subprocess.Popen[str]) -> list[dict[str, Any]]:
        """Stops a process cleanly; returns what else it printed."""
        process.terminate()
        out, err = process.communicate(timeout=20)
        self.running.remove(process)
        assert process.returncode == 0, err
        return [json.loads(line) for line in out.splitlines()]


@pytest.fixture
def hollow_processes() -> Iterator[HollowProcesses]:
    started = HollowProcesses()
    yield started
    for process in started.running:
        process.kill()
        process.communicate()


JOB = """
apiVersion: resource.k8s.io/v1
kind: ResourceClaimTemplate
metadata: {name: two}
spec: {spec: {devices: {requests: [{name: gpu, exactly: {deviceClassName: gpu.nvidia.com, count: 2}}]}}}
---
apiVersion: batch/v1
kind: Job
metadata: {name: sweep}
spec:
  completions: 12
  parallelism: 12
  backoffLimit: 0
  template:
    metadata: {annotations: {dovetail.dev/run-seconds: "0.3"}}
    spec:
      restartPolicy: Never
      resourceClaims: [{name: gpu, resourceClaimTemplateName: two}]
      containers: [{name: main, image: none, resources: {claims: [{name: gpu}]}}]
"""


@pytest.mark.slow
def test_a_job_with_claims_runs_to_its_end_on_a_real_control_plane(
    hollow_processes: HollowProcesses,
) -> None:
    with cluster.private_plane() as plane:
        plane.start_scheduler()
        process = hollow_processes.start(plane, "--nodes", "2", "--renew-seconds", "1")
        cluster.kubectl(plane, "apply", "-f", "-", input=JOB)
        cluster.kubectl(plane, "wait", "--for=condition=complete", "job/sweep", "--timeout=60s")
        assert (
            cluster.get(plane, "job", "sweep")["status"]["succeeded"] == 12
        )  # 24 devices, of 16 there are
        cluster.kubectl(plane, "wait", "--for=delete", "resourceclaims", "--all", "--timeout=60s")
        nodes = cluster.get(plane, "nodes")["items"]
        leases = cluster.get(plane, "leases", "-n", "kube-node-lease")["items"]
        assert {lease["metadata"]["name"] for lease in leases} == {
            node["metadata"]["name"] for node in nodes
        }
        cluster.kubectl(plane, "delete", "node", nodes[0]["metadata"]["name"])
        gone = f"spec.nodeName={nodes[0]['metadata']['name']}"
        cluster.kubectl(
            plane,
            "wait",
            "--for=delete",
            "resourceslices",
            f"--field-selector={gone}",
            "--timeout=60s",
        )
        assert hollow_processes.stop(process) == []  # not one violation


@pytest.mark.slow
def test_a_pod_bound_by_hand_without_devices_is_reported_on_a_real_control_plane(
    hollow_processes: HollowProcesses,
) -> None:
    with cluster.private_plane() as plane:
        process = hollow_processes.start(plane, "--nodes", "1")
        pod = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": "bold"},
            "spec": {
                "nodeName": "h100-0",
                "containers": [{"name": "main", "image": "none"}],
                "resourceClaims": [{"name": "gpu", "resourceClaimName": "no-such-claim"}],
            },
        }
        cluster.apply(plane, [pod])
        assert process.stdout is not None
        messages = json.loads(process.stdout.readline())["violation"]
        assert (messages["pod"], messages["node"], messages["code"]) == (
            "bold",
            "h100-0",
            "ClaimMissing",
        )
        assert cluster.get(plane, "pod", "bold")["status"]["phase"] == "Pending"
        cluster.kubectl(plane, "delete", "pod", "bold", "--wait=true", "--timeout=30s")
        assert hollow_processes.stop(process) == []


def test_what_cannot_be_used_is_said_before_anything_is_asked(tmp_path: Path, capsys: Any) -> None:
    stages_file = tmp_path / "stages.yaml"
    stages_file.write_text("rules: [{steps: [{phase: Sleeping}]}]")
    assert (
        hollow_nodes.main(["--kubeconfig", str(tmp_path / "none"), "--stages", str(stages_file)])
        == 2
    )
    assert "rules[0].steps[0].phase" in capsys.readouterr().err
