"""ResourceQuota and LimitRange on a real API server: what it refuses is explained, what it fills in is counted."""

from __future__ import annotations

import asyncio
import datetime
from typing import Any

import msgspec
import pytest

from dovetail.doctor import checkup, gather
from dovetail.kube import client
from dovetail.kube.auth import client_config
from dovetail.kube.http import transport
from dovetail.kubetypes import registry
from dovetail.kubetypes.core import pods, resource_quotas
from dovetail.model import pod_requests
from tests.e2e.namespace_scene import Scene, exactly, scene
from tests.support.live import Live

pytestmark = pytest.mark.slow


def limit(story: Scene, **hard: str) -> None:
    """A quota that is enforced."""
    tree = {
        "apiVersion": "v1",
        "kind": "ResourceQuota",
        "metadata": {"name": "team"},
        "spec": {"hard": {key.replace("__", "/"): value for key, value in hard.items()}},
    }
    story.rest.create("resourcequotas", tree, story.namespace)

    def is_enforced() -> bool:
        read = story.rest.read("resourcequotas", "team", story.namespace)
        return set(read.get("status", {}).get("hard", {})) == set(tree["spec"]["hard"])  # type: ignore[index]

    story.wait("the quota in force", is_enforced)


def test_a_claim_for_a_classic_resource_that_the_quota_refuses_is_a_reason(cluster: Live) -> None:
    with scene(cluster) as story:
        resource = f"{story.namespace}.example.com/gpu"
        story.classed(extendedResourceName=resource)
        story.slice(story.node("n0"), [{"name": "gpu-0"}, {"name": "gpu-1"}])
        # Counts claims by class, whichever client creates them: the pod itself passes, our claim for it does not.
        key = story.device_class + resource_quotas.DEVICES_SUFFIX
        limit(story, **{key: "1"})
        story.pod("first", limits={resource: "1"})
        story.wait_running("first")
        story.pod("second", limits={resource: "1"})
        text = story.wait_refused(
            "second", "quota team of namespace", "1 of 1 devices of class", "1 more asked for"
        )
        assert f"kubectl -n {story.namespace} describe resourcequota team" in text
        story.rest.patch("resourcequotas", "team", {"spec": {"hard": {key: "2"}}}, story.namespace)
        story.wait_running("second")


def test_a_claim_from_a_template_that_the_quota_refuses_is_found_by_the_doctor_and_hinted_at(
    cluster: Live,
) -> None:
    with scene(cluster) as story:
        story.fleet(nodes=1, gpus=2)
        limit(story, **{story.device_class + resource_quotas.DEVICES_SUFFIX: "1"})
        story.template("two", exactly("gpu", story.device_class, count=2))
        story.pod("wide", templates=["two"])
        story.wait_refused(
            "wide", "no claim was made from template two yet", "the pod's events say why"
        )
        events = story.wait(
            "the controller's word", lambda: story.events("FailedResourceClaimCreation", "wide")
        )
        over = resource_quotas.exceeded(events[0]["note"])
        assert over is not None
        charged = {shortage.key: shortage.requested for shortage in over.shortages}
        devices = asyncio.run(listed(cluster, registry.TEMPLATE, story.namespace))[
            0
        ].spec.spec.devices
        assert charged == {
            key: str(count)
            for key, count in resource_quotas.charge(devices).items()
            if key in charged
        }
        seen = asyncio.run(
            gather.gather_facts(client_config.load(str(cluster.plane.kubeconfig)), None)
        )
        later = msgspec.structs.replace(seen, now=seen.now + datetime.timedelta(minutes=1))
        findings = [
            finding
            for finding in checkup.report(later).findings
            if finding.where == f"pod {story.namespace}/wide"
        ]
        assert [(finding.severity, finding.check) for finding in findings] == [("error", "claims")]
        assert over.message_for(story.namespace) in findings[0].what


def test_what_a_limit_range_fills_in_is_what_we_count(cluster: Live) -> None:
    with scene(cluster) as story:
        limits = [
            {
                "type": "Container",
                "default": {"memory": "2Gi"},
                "defaultRequest": {"cpu": "40", "memory": "1Gi"},
            }
        ]
        tree = {
            "apiVersion": "v1",
            "kind": "LimitRange",
            "metadata": {"name": "l"},
            "spec": {"limits": limits},
        }
        story.rest.create("limitranges", tree, story.namespace)
        story.node("n0", offers={"cpu": "64"})

        resources = story.pod("counted")["spec"]["containers"][0]["resources"]
        assert resources["requests"] == {"cpu": "40", "memory": "1Gi"}
        result: list[pods.Pod] = asyncio.run(listed(cluster, registry.POD, story.namespace))
        need = pod_requests.pod_request(result[0])
        assert (need.milli_cpu, need.memory_bytes) == (40_000, 1024**3)
        story.wait_running("counted")
        story.pod("too-much")  # asks for nothing itself: 40 more cpu of 64 by default
        story.wait_refused("too-much", "lacks cpu (needs 40, at most 24 free)")


async def listed(cluster: Live, kind: registry.Kind, namespace: str) -> list[Any]:
    """Objects as our own client reads them."""
    async with transport.Transport(client_config.load(str(cluster.plane.kubeconfig))) as over:
        result, _ = await client.list_all(over, kind, namespace=namespace)
    return result
