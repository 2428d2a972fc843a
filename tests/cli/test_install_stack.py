"""`dovetail install --stack` and `stack parts` on the embedded cluster, whose controllers run the DaemonSets."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests.answer.stack import fleets
from tests.answer.stack_parts import parts
from tests.cli import embedded, running
from tests.deploy import build

SAMPLE_CLASSES = "device classes gpu.nvidia.com, mig.nvidia.com exist and are used as they are"


def _install(cluster: embedded.Embedded, *more: str, command: str = "install") -> running.Run:
    kubeconfig = str(cluster.directory / "kubeconfig")
    words = (command, "--kubeconfig", kubeconfig, "--set", build.IMAGE, "--stack", *more)
    return running.inside(cluster.directory, *words)


def _parts(state: Path) -> tuple[int, dict[str, Any]]:
    run = running.inside(state, "stack", "parts", "-o", "json")
    return run.code, json.loads(run.out)


def test_one_command_gives_every_gpu_node_its_parts(cluster: embedded.Embedded) -> None:
    state = cluster.directory
    run = _install(cluster, "--wait")
    assert run.code == 0, run.err
    assert SAMPLE_CLASSES in run.err
    assert "daemonset.apps/dovetail-node-agent created" in run.err
    assert "next: dovetail stack parts" in run.err
    code, report = _parts(state)
    assert (code, report["gaps"]) == (0, [])
    assert {node["servedBy"] for node in report["nodes"]} == {"dovetail"}
    assert report["cluster"][2]["state"] == "ready"  # the exporter

    again = _install(cluster)
    assert "created" not in again.err


def test_pools_run_different_agents(cluster: embedded.Embedded) -> None:
    names = [node["metadata"]["name"] for node in _nodes(cluster.directory)]
    selector = f"{{kubernetes.io/hostname: {names[0]}}}"
    pools = f"nodeAgent.pools=[{{name: first, nodeSelector: {selector}, mode: device-plugin}}]"
    assert _install(cluster, "--set", pools).code == 0
    report = running.until(
        cluster.directory,
        *("stack", "parts", "-o", "json"),
        shows=lambda run: [
            node for node in json.loads(run.out)["nodes"] if node["servedBy"] == "dovetail"
        ],
        what="an agent of the pool",
    )
    served = [node for node in json.loads(report.out)["nodes"] if node["servedBy"] == "dovetail"]
    assert [node["node"] for node in served] == names[:1]


def test_it_refuses_a_node_whose_gpus_another_part_serves(cluster: embedded.Embedded) -> None:
    node = parts.counting(fleets.node("rival-0"), gpu=8)
    cluster.put(node, namespace="")
    plugin = parts.part_pod("rival-0", {"app": "nvidia-device-plugin-daemonset"})
    metadata = plugin["metadata"] | {"namespace": "default"}
    cluster.put(plugin | {"metadata": metadata})
    run = _install(cluster)
    assert run.code == 1
    assert "nothing was installed:" in run.err
    assert "rival-0: NVIDIA's device plugin" in run.err
    assert "daemonset" not in run.err
    elsewhere = _install(cluster, "--set", "nodeAgent.nodeSelector={kubernetes.io/arch: none}")
    assert elsewhere.code == 0, elsewhere.err


def _nodes(state: Path) -> list[dict[str, Any]]:
    return list(json.loads(running.inside(state, "get", "nodes", "-o", "json").out)["items"])
