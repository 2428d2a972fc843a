"""A claim's device reaches a container: the kubelet calls a DRA driver, containerd applies the CDI edits it names."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import msgspec
import pytest

from dovetail.node.kubelet import claim_service, dra_plugin, socket_paths
from tests.support import cluster, gpu_node
from tests.support.waiting import wait_until

pytestmark = pytest.mark.slow

DRIVER: Final = "test.dovetail.dev"
CDI_KIND: Final = "test.dovetail.dev/gpu"


class Shelf:
    """A claim service with one device for every claim, which a hand-written CDI spec describes."""

    def __init__(self) -> None:
        self.prepared: list[str] = []
        self.unprepared: list[str] = []

    async def prepare(
        self, claims: Sequence[claim_service.ClaimReference]
    ) -> Mapping[str, claim_service.Prepared | claim_service.Failed]:
        self.prepared += [claim.name for claim in claims]
        device = claim_service.PreparedDevice(
            request_names=("gpu",),
            pool_name="pool",
            device_name="gpu-0",
            cdi_device_ids=(f"{CDI_KIND}=gpu-0",),
        )
        return {claim.uid: claim_service.Prepared(devices=(device,)) for claim in claims}

    async def unprepare(
        self, claims: Sequence[claim_service.ClaimReference]
    ) -> Mapping[str, claim_service.Failed | None]:
        self.unprepared += [claim.name for claim in claims]
        return {claim.uid: None for claim in claims}


@pytest.fixture
def node() -> gpu_node.GpuNode:
    return gpu_node.gpu_node()


@pytest.fixture
def shelf(node: gpu_node.GpuNode) -> Iterator[Shelf]:
    """The driver, registered with the kubelet of the node while the test runs."""
    (node.cdi / "test.json").write_bytes(msgspec.json.encode(cdi_spec()))
    service = Shelf()
    paths = socket_paths.socket_paths(node.kubelet_root, DRIVER)
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()

    async def started() -> dra_plugin.DraPlugin:
        plugin = dra_plugin.DraPlugin(paths, service, None, driver=DRIVER)
        await plugin.start()
        return plugin

    plugin = asyncio.run_coroutine_threadsafe(started(), loop).result()
    try:
        yield service
    finally:
        asyncio.run_coroutine_threadsafe(plugin.stop(grace_seconds=1), loop).result()
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


def cdi_spec() -> dict[str, Any]:
    edits = {
        "env": ["EDITED_BY=cdi"],
        "deviceNodes": [{"path": "/dev/example0", "hostPath": "/dev/null"}],
    }
    return {
        "cdiVersion": "0.6.0",
        "kind": CDI_KIND,
        "devices": [{"name": "gpu-0", "containerEdits": edits}],
    }


def allocated_claim(node: gpu_node.GpuNode, namespace: str, name: str, pod: str) -> None:
    """A claim whose device is allocated and reserved for a pod, as a scheduler leaves it. The pod's uid comes later."""
    exactly = {"deviceClassName": DRIVER}
    claim = {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {"name": name},
        "spec": {"devices": {"requests": [{"name": "gpu", "exactly": exactly}]}},
    }
    cluster.apply(node.plane, [claim], namespace=namespace)
    uid = cluster.get(node.plane, "pod", pod, "-n", namespace)["metadata"]["uid"]
    result = {"request": "gpu", "driver": DRIVER, "pool": "pool", "device": "gpu-0"}
    status = {
        "allocation": {"devices": {"results": [result]}},
        "reservedFor": [{"resource": "pods", "name": pod, "uid": uid}],
    }
    patch = msgspec.json.encode({"status": status}).decode()
    cluster.kubectl(
        node.plane,
        *("patch", "resourceclaim", name, "-n", namespace),
        *("--subresource=status", "--type=merge", "-p", patch),
    )


def test_a_claims_device_arrives_in_the_container_and_is_returned(
    node: gpu_node.GpuNode, shelf: Shelf
) -> None:
    namespace = cluster.fresh_namespace(node.plane)
    claims = {"resourceClaims": [{"name": "gpu", "resourceClaimName": "one-gpu"}]}
    node.run_pod(
        namespace,
        "with-claim",
        container={"resources": {"claims": [{"name": "gpu"}]}},
        spec=claims | {"nodeName": None, "schedulerName": "the-test"},
        phase=None,
    )
    allocated_claim(node, namespace, "one-gpu", "with-claim")
    node.bind(namespace, "with-claim")
    view = node.container_view(node.wait_for_phase(namespace, "with-claim", "Running"))

    assert view.environment["EDITED_BY"] == "cdi"
    (device,) = [device for device in view.devices if device.path == "/dev/example0"]
    assert (device.kind, device.major, device.minor, device.open) == ("char", 1, 3, "ok")
    assert shelf.prepared == ["one-gpu"]

    node.delete_pod(namespace, "with-claim")
    wait_until(lambda: shelf.unprepared, "the kubelet to return the claim")
    assert shelf.unprepared == ["one-gpu"]


def test_a_pod_waits_for_the_driver_of_its_claim(node: gpu_node.GpuNode) -> None:
    namespace = cluster.fresh_namespace(node.plane)
    claims = {"resourceClaims": [{"name": "gpu", "resourceClaimName": "one-gpu"}]}
    node.run_pod(
        namespace,
        "without-driver",
        container={"resources": {"claims": [{"name": "gpu"}]}},
        spec=claims | {"nodeName": None, "schedulerName": "the-test"},
        phase=None,
    )
    allocated_claim(node, namespace, "one-gpu", "without-driver")
    node.bind(namespace, "without-driver")
    message = f"DRA driver {DRIVER} is not registered"
    wait_until(
        lambda: message in cluster.kubectl(node.plane, "get", "events", "-n", namespace),
        "an event about the missing driver",
        so_far=lambda: cluster.kubectl(node.plane, "get", "events", "-n", namespace),
    )
