"""`dovetail stack mig --apply` on an embedded cluster: what it writes, what it starts, and what it refuses."""

from __future__ import annotations

import json
from typing import Any

import pytest
import yaml

from dovetail.kubetypes import registry
from dovetail.ports import api as apis
from dovetail.sim.server.api_server import SimApi
from tests.answer.partitioning.test_partition_plan import slice_pod
from tests.answer.what_if import building
from tests.cli import embedded, running
from tests.upgrade import trees

Tree = dict[str, Any]
NAME = "dovetail-mig-config"
THEIRS = {"custom": [{"devices": "all", "mig-enabled": False}]}


@pytest.fixture
def waiting(cluster: embedded.Embedded) -> embedded.Embedded:
    """A node with two whole GPUs and a MIG manager, and pods that wait for partitions."""
    cluster.put({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "gpu-operator"}})
    labels = {"nvidia.com/mig.config": "custom", "nvidia.com/mig.config.state": "success"}
    node = building.plugin_node("static", gpus=2, labels=labels)
    node["status"]["conditions"] = [{"type": "Ready", "status": "True"}]
    cluster.put(node)
    cluster.put(trees.pod("nvidia-mig-manager", "test/mig-manager:v0.15.0", "static"))
    for number in range(2):
        pod = slice_pod(f"small-{number}", "3g.40gb")
        pod["spec"]["schedulerName"] = "dovetail"
        cluster.put(pod)
    return cluster


def _apply(cluster: embedded.Embedded, *words: str) -> running.Run:
    return running.inside(cluster.directory, "stack", "mig", "--apply", *words)


def _upgrades(cluster: embedded.Embedded) -> list[Any]:
    return cluster.call(lambda api: api.all(registry.STACK_UPGRADE))


def _config_map(name: str, configs: Tree) -> Tree:
    file = yaml.safe_dump({"version": "v1", "mig-configs": configs})
    metadata = {"name": name, "namespace": "gpu-operator"}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata} | {
        "data": {"config.yaml": file}
    }


def test_it_starts_once_and_says_what_it_waits_for(waiting: embedded.Embedded) -> None:
    waiting.put(_config_map(NAME, THEIRS))
    rehearsed = _apply(waiting, "--dry-run", "--name", "roll")
    assert rehearsed.code == 0, rehearsed.err
    assert "would start stackupgrade/roll: 1 node" in rehearsed.out
    assert _upgrades(waiting) == []

    done = _apply(waiting, "--name", "roll", "-o", "json")
    assert done.code == 0, done.err
    spec = json.loads(done.out)["spec"]
    (geometry,) = spec["mig"]["nodes"]
    assert geometry["node"] == "static"
    assert geometry["partitions"]["3g.40gb"] >= 2
    assert spec["rollback"] == "FailedNodes"
    assert spec["mig"]["acceptance"]["pods"] == ["default/small-0", "default/small-1"]

    again = _apply(waiting)
    assert again.code == 1
    assert "stackupgrade/roll is under way: Pending" in again.err
    assert len(_upgrades(waiting)) == 1
    status = running.inside(waiting.directory, "stack", "upgrade", "status", "roll")
    assert "0 have started, 2 still wait (default/small-0)" in status.out


def test_without_a_policy_a_new_file_is_not_written_because_no_manager_is_known_to_read_it(
    waiting: embedded.Embedded,
) -> None:
    waiting.put(_config_map("default-mig-parted-config", THEIRS))
    run = _apply(waiting)
    assert run.code == 1
    assert not waiting.call(_has_config_map)
    assert f"no ClusterPolicy says which ConfigMap the MIG manager reads, and {NAME} is new" in (
        run.err
    )
    assert _upgrades(waiting) == []


def test_a_new_file_has_to_have_what_nodes_use(waiting: embedded.Embedded) -> None:
    run = _apply(waiting)
    assert run.code == 1
    assert "node static uses configuration custom" in run.err
    assert _upgrades(waiting) == []
    assert not waiting.call(_has_config_map)


def test_a_way_back_that_the_file_lacks_is_said(waiting: embedded.Embedded) -> None:
    waiting.put(_config_map(NAME, {}))
    run = _apply(waiting, "--dry-run")
    assert run.code == 0, run.err
    assert "warning: node static uses configuration custom" in run.err


def test_a_namespace_that_is_not_the_managers_is_refused(waiting: embedded.Embedded) -> None:
    run = _apply(waiting, "--operator-namespace", "elsewhere")
    assert run.code == 1
    assert "dovetail stack mig --apply --operator-namespace gpu-operator" in run.err


def test_a_node_whose_plugin_counts_no_profiles_is_passed_over(
    waiting: embedded.Embedded,
) -> None:
    def relabel(api: SimApi) -> None:
        tree = api.tree(registry.NODE, "static")
        tree["metadata"]["labels"]["nvidia.com/mig.strategy"] = "single"
        api.write(apis.Target(registry.NODE, "", "static"), tree)

    waiting.call(relabel)
    run = _apply(waiting)
    assert run.code == 1
    assert "its device plugin has MIG strategy single" in run.out
    assert "no change starts more waiting pods; " in run.err


def _has_config_map(api: SimApi) -> bool:
    return any(
        record.key[1] == NAME
        for _, table in api.shelf.tables()
        for record in table.all()
        if record.tree["kind"] == "ConfigMap"
    )
