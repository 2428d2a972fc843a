"""Objects that do not decode are read in part, where leaving them out would free what they hold."""

from __future__ import annotations

from typing import Any

import pytest

from dovetail.kube.watching import decode
from dovetail.kubetypes import codec, registry, unreadable
from dovetail.model import gangs, pod_requests
from tests.live.live_scheduler import Stage, play

Tree = dict[str, Any]


def pod(**spec: Any) -> Tree:
    """A pod; what is given goes into its spec as it is."""
    container = {"name": "main", "resources": {"requests": {"cpu": "2", "memory": "1Gi"}}}
    metadata = {"name": "odd", "namespace": "default", "uid": "u-1", "resourceVersion": "7"}
    body = {"schedulerName": "dovetail", "containers": [container]} | spec
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": body}


def claim(**status: Any) -> Tree:
    metadata = {"name": "odd", "namespace": "default", "uid": "u-2", "resourceVersion": "7"}
    spec = {"devices": {"requests": [{"name": "gpu", "exactly": {"deviceClassName": 5}}]}}
    return {
        "apiVersion": registry.CLAIM.api_version,
        "kind": "ResourceClaim",
        "metadata": metadata,
        "spec": spec,
        "status": status,
    }


@pytest.mark.parametrize(
    "odd",
    [
        {"priority": "high"},
        {"tolerations": [{"key": 5}]},
        {"nodeSelector": {"a.b/c": ["x"]}},
        {"overhead": {"cpu": {}}},
        {"volumes": "none"},
        {"priority": "high", "tolerations": 5, "nodeSelector": 7},
    ],
)
def test_a_pod_keeps_its_node_and_what_can_be_read_of_its_requests(odd: Tree) -> None:
    document = codec.encode_tree(pod(nodeName="n-0", **odd))
    read, problem = decode.decode_or_problem(registry.POD, document)
    assert problem
    assert read is not None
    assert (read.metadata.uid, read.spec.node_name, read.kind) == ("u-1", "n-0", "Pod")
    assert pod_requests.pod_request(read).milli_cpu == 2000
    assert unreadable.problem_of(read) == problem


def test_an_unreadable_amount_counts_as_none_and_the_readable_ones_count() -> None:
    container = {"name": "main", "resources": {"requests": {"cpu": "lots", "memory": "1Gi"}}}
    read, _ = decode.decode_or_problem(
        registry.POD, codec.encode_tree(pod(nodeName="n-0", containers=[container]))
    )
    assert read is not None
    taken = pod_requests.pod_request(read)
    assert (taken.milli_cpu, taken.memory_bytes) == (0, 2**30)


def test_a_claim_keeps_its_devices() -> None:
    results = [{"request": "gpu", "driver": "gpu.nvidia.com", "pool": "n-0", "device": "gpu-0"}]
    document = codec.encode_tree(claim(allocation={"devices": {"results": results}}))
    read, problem = decode.decode_or_problem(registry.CLAIM, document)
    assert "deviceClassName" in problem
    assert read is not None
    assert [result.device for result in read.status.allocation.devices.results] == ["gpu-0"]


def test_half_a_request_allocates_no_devices() -> None:
    read, problem = decode.decode_or_problem(registry.CLAIM, codec.encode_tree(claim()))
    assert read is not None
    assert unreadable.problem_of_claim(read) == problem

    async def story() -> None:
        stage = Stage(nodes=1, gpus=2)
        stage.claim("odd")
        tree = stage.api.tree(registry.CLAIM, "odd", namespace="default")
        tree["metadata"]["annotations"] = {
            unreadable.NAME: problem
        }  # the mark that reading left above
        stage.api.shelf.put(registry.CLAIM, tree)
        stage.claim("plain")
        stage.pod("waiting", named=("odd",))
        stage.pod("honest", named=("plain",))
        async with stage.scheduling():
            await stage.pass_time(5)
        assert stage.node_of("honest")
        assert stage.node_of("waiting") == ""
        assert "deviceClassName" in stage.the_pod("waiting").status.conditions[0].message
        assert len(stage.devices()) == 1

    play(story)


@pytest.mark.parametrize(
    "document",
    [b"", b"[]", b"5", b'{"metadata":5}', b'{"metadata":{}}', b'{"metadata":{"name":[]}}'],
)
def test_what_has_no_name_is_nothing(document: bytes) -> None:
    read, problem = decode.decode_or_problem(registry.POD, document)
    assert read is None or not problem


@pytest.mark.parametrize("has_gang", [False, True])
def test_an_unreadable_pod_gets_an_event_and_is_not_scheduled(has_gang: bool) -> None:
    """The mark is the same whether reading left it or, as here, it is written on the pod."""

    async def story() -> None:
        stage = Stage(nodes=1, gpus=1)
        problem = "spec.priority: expected a number"
        labels = {gangs.GANG_LABEL: "gang", gangs.MIN_LABEL: "1"} if has_gang else {}
        gate = {"name": unreadable.NAME}
        stage.pod(
            "odd", annotations={unreadable.NAME: problem}, schedulingGates=[gate], labels=labels
        )
        stage.pod("honest", labels=labels)
        async with stage.scheduling():
            await stage.pass_time(5)
        assert stage.node_of("honest")
        assert stage.node_of("odd") == ""
        (condition,) = [
            item for item in stage.the_pod("odd").status.conditions if item.type == "PodScheduled"
        ]
        assert condition.reason == "SchedulerError"
        assert condition.message.endswith(problem)
        (event,) = stage.events("FailedScheduling")
        assert event.regarding.name == "odd"

    play(story)
