"""`stack mig --apply` on a real API server: pods wait for partitions, the MIG manager makes them, the pods start.

Scheduler, API server and the upgrade's loop are real; the MIG manager and the device plugin are played by their labels
and counts. The upgrade's definition and its rules are those of the chart.
"""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from dovetail.boot import clocks
from dovetail.devcluster import kube_binaries
from dovetail.kube import client, read_objects
from dovetail.kube.auth import client_config
from dovetail.kube.http import transport
from dovetail.kubetypes import object_set, registry
from dovetail.upgrade import judging, upgrade_loop
from dovetail.upgrade.validation import validation_checks
from tests.cli import running
from tests.e2e import namespace_scene
from tests.support import cluster as planes
from tests.support import live, rest
from tests.upgrade.mig_manager_player import CLIENTS, CONFIG, STATE, MigManager

pytestmark = pytest.mark.slow

Tree = dict[str, Any]
SLICE = "nvidia.com/mig-1g.10gb"
LABELS = {
    "nvidia.com/gpu.present": "true",
    "nvidia.com/gpu.product": "NVIDIA-A100-SXM4-80GB",
    "nvidia.com/gpu.count": "1",
    "nvidia.com/cuda.driver-version.full": "580.95.05",
    "nvidia.com/mig.strategy": "mixed",
    CONFIG: "all-disabled",
    STATE: "success",
    **dict.fromkeys(CLIENTS, "true"),
}
THEIRS = {
    "version": "v1",
    "mig-configs": {
        "all-disabled": [{"devices": "all", "mig-enabled": False}],
        "theirs": [{"devices": "all", "mig-enabled": True, "mig-devices": {"7g.80gb": 1}}],
    },
}


def test_pods_that_wait_for_partitions_start_once_the_manager_has_made_them(tmp_path: Path) -> None:
    shared = live.cluster(kube_binaries.DEFAULT)
    planes.apply(shared.plane, [_definition()], namespace="default")
    with namespace_scene.scene(shared) as scene:
        node = scene.node("n0", labels=LABELS, offers={"nvidia.com/gpu": "1"})
        _manager(scene, node)
        _config_map(scene)
        for number in range(3):
            scene.pod(f"small-{number}", limits={SLICE: "1"})
        scene.wait_refused("small-0", "nodes")

        def dovetail(*words: str) -> running.Run:
            options = ("--kubeconfig", str(shared.plane.kubeconfig))
            return running.inside(tmp_path / "none", "stack", *words, *options)

        def apply(name: str, *words: str) -> running.Run:
            place = ("--config-map", "mig", "--operator-namespace", scene.namespace)
            return dovetail("mig", "--apply", "--name", name, *place, *words)

        rehearsed = apply(scene.namespace, "--dry-run")
        assert rehearsed.code == 0, rehearsed.err
        assert "would be extended: 3 configurations" in rehearsed.out
        assert set(_configs(scene)) == {"all-disabled", "theirs"}

        started = apply(scene.namespace)
        assert started.code == 0, started.err
        assert f"started stackupgrade/{scene.namespace}: 1 node" in started.out
        configs = _configs(scene)
        assert configs["theirs"] == THEIRS["mig-configs"]["theirs"]
        again = apply("other")
        assert again.code == 1
        assert f"stackupgrade/{scene.namespace} is under way" in again.err

        _refuse_changes(scene)
        assert dovetail("upgrade", "pause", scene.namespace).code == 0
        assert dovetail("upgrade", "resume", scene.namespace).code == 0
        _carry_out(scene, node, configs)
        ended = scene.rest.read("stackupgrades", scene.namespace)["status"]
        assert ended["phase"] == "Completed", ended
        scene.wait_running("small-0", "small-1", "small-2")
        status = dovetail("upgrade", "status", scene.namespace)
        assert status.code == 0, status.err
        assert "MIG on 1 node: Completed" in status.out
        assert "0 would have started before, 3 by the plan; 3 have started" in status.out
        _remove(scene)


def _refuse_changes(scene: namespace_scene.Scene) -> None:
    """The rules of the definition: what an upgrade brings cannot change, and is one thing."""
    tree = scene.rest.read("stackupgrades", scene.namespace)
    (geometry,) = tree["spec"]["mig"]["nodes"]
    changed = {"mig": {"nodes": [geometry | {"config": "other"}]}}
    for spec, why in (
        (changed, "the geometry of an upgrade cannot change"),
        ({"mig": None, "to": {"driver": "595.91.07"}}, "what an upgrade brings cannot change"),
        ({"to": {"driver": "595.91.07"}}, "one of both"),
    ):
        with pytest.raises(rest.RefusedError, match=why):
            scene.rest.patch("stackupgrades", scene.namespace, {"spec": spec})


def _remove(scene: namespace_scene.Scene) -> None:
    """No lifecycle process runs on the shared cluster that would release the object."""
    released = {"metadata": {"finalizers": None}}
    scene.rest.patch("stackupgrades", scene.namespace, released)
    scene.rest.delete("stackupgrades", scene.namespace)


def _carry_out(scene: namespace_scene.Scene, node: str, configs: Tree) -> None:
    """The upgrade's loop and the node's side of it, until the upgrade ends."""
    tree = scene.rest.read("nodes", node)
    manager = MigManager(tree)
    manager.known = tuple(configs)

    async def passes() -> None:
        connection = client_config.load(str(scene.live.plane.kubeconfig))
        async with transport.Transport(connection, concurrency=8, user_agent="test") as over:

            async def read() -> upgrade_loop.Reading:
                wanted = [object_set.Read(kind, is_optional=True) for kind in upgrade_loop.KINDS]
                reading = await read_objects.read_over(over, wanted, cluster="test")
                has_rules = registry.TAINT_RULE not in reading.unserved
                return upgrade_loop.Reading(reading.objects, has_rules=has_rules)

            loop = upgrade_loop.UpgradeLoop(
                client.KubeApi(over),
                read,
                clocks.SystemClock(),
                lambda objects: judging.judges_of(objects, validation_checks.DEFAULTS),
            )
            for _ in range(40):  # each pass writes a status or carries out what it says
                if not await loop.run_once():
                    return
                _play(scene, node, manager, configs)
        raise AssertionError(scene.rest.read("stackupgrades", scene.namespace)["status"])

    asyncio.run(passes())


def _play(scene: namespace_scene.Scene, node: str, manager: MigManager, configs: Tree) -> None:
    """One run of the manager, and what the device plugin counts after a change."""
    manager.node = scene.rest.read("nodes", node)
    before, changes = dict(manager.labels), len(manager.changes)
    manager.act()
    if manager.labels != before:
        scene.rest.patch("nodes", node, {"metadata": {"labels": manager.labels}})
    if len(manager.changes) > changes:
        (entry,) = configs[manager.changes[-1]]
        offered: Tree = {"nvidia.com/gpu": None}
        offered |= {
            f"nvidia.com/mig-{profile}": str(count)
            for profile, count in entry["mig-devices"].items()
        }
        status = {"capacity": offered, "allocatable": offered}
        scene.rest.patch("nodes", node, {"status": status}, subresource="status")


def _configs(scene: namespace_scene.Scene) -> Tree:
    text = planes.kubectl(
        scene.live.plane, "get", "configmap", "mig", "-n", scene.namespace, "-o", "json"
    )
    configs: Tree = yaml.safe_load(json.loads(text)["data"]["config.yaml"])["mig-configs"]
    return configs


def _config_map(scene: namespace_scene.Scene) -> None:
    """A file with a configuration that is not ours."""
    tree = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "mig"},
        "data": {"config.yaml": yaml.safe_dump(THEIRS)},
    }
    planes.apply(scene.live.plane, [tree], namespace=scene.namespace)


def _manager(scene: namespace_scene.Scene, node: str) -> None:
    tree = namespace_scene.pod_tree("mig-manager")
    tree["metadata"]["labels"] = {"app": "nvidia-mig-manager"}
    tree["spec"]["nodeName"] = node
    scene.rest.create("pods", tree, scene.namespace)


def _definition() -> Tree:
    (definition,) = [
        item
        for item in live.installed()
        if item["metadata"]["name"] == "stackupgrades.dovetail.dev"
    ]
    return definition
