"""Objects with fields our structs do not model pass through our writes whole: finalizer, status, binding, release."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest

from tests.e2e.namespace_scene import Scene, pod_tree, scene
from tests.support import cluster as planes
from tests.support.live import Live

pytestmark = pytest.mark.slow

Tree = dict[str, Any]
# Fields the server knows and no struct of ours does; a field of a later version looks just like them to us.
UNKNOWN_TO_US = {
    "hostname": "named",
    "subdomain": "somewhere",
    "dnsPolicy": "None",
    "dnsConfig": {"nameservers": ["192.0.2.1"], "options": [{"name": "ndots", "value": "2"}]},
    "securityContext": {"runAsUser": 1000, "fsGroup": 2000, "supplementalGroups": [3000]},
    "shareProcessNamespace": True,
    "enableServiceLinks": False,
    "readinessGates": [{"conditionType": "example.com/warm"}],
    "hostAliases": [{"ip": "192.0.2.7", "hostnames": ["other"]}],
}
CONTAINER = {
    "env": [{"name": "A", "value": "b"}],
    "readinessProbe": {"exec": {"command": ["true"]}, "periodSeconds": 7},
    "securityContext": {"runAsNonRoot": True, "capabilities": {"drop": ["ALL"]}},
    "terminationMessagePolicy": "FallbackToLogsOnError",
}
OURS = {"nodeName"}  # what binding sets
CONDITION = {
    "type": "example.com/warm",
    "status": "False",
    "reason": "Cold",
    "message": "told by others",
}


def rich_pod(story: Scene) -> Tree:
    """A pod full of fields we never look at."""
    tree = pod_tree(
        "rich",
        templates=["gpu"],
        annotations={"example.com/later": "kept", "example.com/empty": ""},
    )
    tree["metadata"]["labels"] = {"example.com/label": "kept"}
    tree["metadata"]["finalizers"] = ["example.com/hold"]
    tree["spec"] |= copy.deepcopy(UNKNOWN_TO_US) | {
        "nodeSelector": {"example.com/scene": story.namespace}
    }
    tree["spec"]["containers"][0] |= copy.deepcopy(CONTAINER)
    return story.rest.create("pods", tree, story.namespace)


def test_nothing_that_others_wrote_is_lost_on_the_way_of_a_pod(cluster: Live) -> None:
    with scene(cluster) as story:
        story.classed()
        story.template()
        before = rich_pod(story)
        # As a controller would: merged by type, so that our condition stays if it was first.
        patch = json.dumps({"status": {"conditions": [CONDITION]}})
        how = ("-n", story.namespace, "--subresource=status", "--type=strategic")
        planes.kubectl(cluster.plane, "patch", "pod", "rich", *how, "-p", patch)
        # First it waits and is told why: our condition beside that of others.
        story.wait_refused("rich", "nodes")
        claim = story.wait("its claim", story.claims)[0]
        marked = {
            "metadata": {
                "annotations": {"example.com/later": "kept"},
                "labels": {"example.com/l": "kept"},
            }
        }
        claim = story.rest.patch(
            "resourceclaims", claim["metadata"]["name"], marked, story.namespace
        )
        story.slice(story.node("n0"), [{"name": "gpu-0"}])
        after = story.wait_running("rich")["rich"]
        try:
            assert {key: after["spec"][key] for key in before["spec"] if key not in OURS} == {
                key: value for key, value in before["spec"].items() if key not in OURS
            }
            for place in ("annotations", "labels", "finalizers", "uid", "creationTimestamp"):
                assert after["metadata"][place] == before["metadata"][place], place
            kept = [
                item for item in after["status"]["conditions"] if item["type"] == CONDITION["type"]
            ]
            assert [item | CONDITION for item in kept] == kept != []
            held = story.claims()[0]
            assert held["spec"] == claim["spec"]
            for place in ("annotations", "labels", "ownerReferences", "uid"):
                assert held["metadata"][place] == claim["metadata"][place], place
        finally:
            story.rest.patch("pods", "rich", {"metadata": {"finalizers": None}}, story.namespace)


def test_what_a_driver_reported_survives_another_user_of_the_claim(cluster: Live) -> None:
    """status.devices holds data of the driver that we never write; a second reservation leaves it as it is."""
    with scene(cluster) as story:
        story.fleet(nodes=1, gpus=1)
        story.claim("shared")
        story.pod("first", claims=["shared"])
        story.wait_running("first")
        claim = story.allocated()
        result = claim["status"]["allocation"]["devices"]["results"][0]
        reported = {
            **{key: result[key] for key in ("driver", "pool", "device")},
            "data": {
                "apiVersion": "example.com/v9",
                "kind": "Later",
                "deep": {"list": [1, {"a": None, "b": "c"}]},
            },
            "networkData": {
                "interfaceName": "eth7",
                "ips": ["192.0.2.9/24"],
                "hardwareAddress": "aa:bb:cc:dd:ee:ff",
            },
        }
        story.rest.patch(
            "resourceclaims",
            "shared",
            {"status": {"devices": [reported]}},
            story.namespace,
            "status",
        )
        before = story.rest.read("resourceclaims", "shared", story.namespace)["status"]
        story.pod("second", claims=["shared"])
        story.wait_running("second")
        after = story.rest.read("resourceclaims", "shared", story.namespace)["status"]
        assert len(after["reservedFor"]) == 2
        assert after["devices"] == before["devices"] != []
        assert after["allocation"] == before["allocation"]
