"""What the chart gives a scheduler that reads metrics from node agents, on a real API server."""

from __future__ import annotations

import asyncio
import base64

import pytest

from dovetail.boot import agent_targets, clocks
from dovetail.install import chart
from dovetail.kube.auth import client_config
from dovetail.kube.http import transport
from dovetail.ports import failures
from tests.support import cluster as planes
from tests.support import live
from tests.support.waiting import wait_until

pytestmark = pytest.mark.slow
NAME = "dovetail-agent-metrics"
SERVICE = "agents-of-a-test"


@pytest.fixture(scope="module")
def cluster() -> live.Live:
    """With the chart's objects for this."""
    shared = live.cluster()
    settings = [
        "nodeAgent.enabled=true",
        "nodeAgent.metricsPort=9400",
        "nodeAgent.idleMetrics=true",
    ]
    values = chart.values_of(settings=["image.repository=example", *settings])
    own = [item for item in chart.objects(values, live.RELEASE) if item["metadata"]["name"] == NAME]
    assert len(own) == 6
    planes.apply(shared.plane, own, namespace=live.RELEASE.namespace)
    return shared


def test_the_token_that_agents_see_opens_metrics_and_nothing_else(cluster: live.Live) -> None:
    plane, namespace = cluster.plane, live.RELEASE.namespace

    def written() -> str | None:
        data = planes.get(plane, "secret", NAME, "-n", namespace).get("data") or {}
        return data.get("token")

    token = base64.b64decode(wait_until(written, "the token")).decode()
    kubeconfig = plane.write_kubeconfig(NAME, token=token)

    def may(*words: str) -> bool:
        return (
            planes.run_kubectl(plane, "auth", "can-i", *words, kubeconfig=kubeconfig).stdout
            == "yes\n"
        )

    wait_until(lambda: may("get", "/metrics"), "the right to read metrics")
    assert not may("list", "pods", "-A")
    assert not may("list", "endpointslices", "-n", namespace)
    assert not may("get", "secrets", "-n", namespace)


def test_the_scheduler_finds_agents_in_its_own_namespace_only(cluster: live.Live) -> None:
    plane, namespace = cluster.plane, live.RELEASE.namespace
    slice_ = {
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": {"name": SERVICE, "labels": {agent_targets.SERVICE_LABEL: SERVICE}},
        "addressType": "IPv4",
        "ports": [{"name": "metrics", "port": 9400}],
        "endpoints": [
            {"addresses": ["10.1.2.3"], "nodeName": "a", "conditions": {"ready": True}},
            {"addresses": ["10.1.2.4"], "nodeName": "b", "conditions": {"ready": False}},
        ],
    }
    planes.apply(plane, [slice_], namespace=namespace)
    account = live.SERVICE_ACCOUNT.rpartition(":")[2]
    token = planes.kubectl(plane, "create", "token", account, "-n", namespace).strip()
    kubeconfig = plane.write_kubeconfig("scheduler-of-a-test", token=token)

    async def found_in(where: str) -> dict[str, str]:
        connection = client_config.load(str(kubeconfig))
        async with transport.Transport(connection) as over:
            targets = agent_targets.AgentTargets(
                over, clocks.SystemClock(), namespace=where, service=SERVICE
            )
            return dict(await targets())

    assert asyncio.run(found_in(namespace)) == {"a": "10.1.2.3:9400"}
    with pytest.raises(failures.ApiFailure):
        asyncio.run(found_in("default"))
    planes.kubectl(plane, "delete", "endpointslice", SERVICE, "-n", namespace)
