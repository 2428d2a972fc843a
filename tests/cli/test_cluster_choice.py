"""Which cluster a command works on: as kubectl chooses, the embedded one included."""

from __future__ import annotations

from pathlib import Path

import pytest

from dovetail import errors
from dovetail.boot import cluster_choice
from tests.cli import embedded, running

KUBECONFIG = """
apiVersion: v1
kind: Config
current-context: lab
contexts: [{name: lab, context: {cluster: c}}, {name: prod, context: {cluster: c, namespace: train}}]
clusters: [{name: c, cluster: {server: "https://10.0.0.1:6443"}}]
"""


@pytest.fixture
def kubeconfig(tmp_path: Path) -> Path:
    file = tmp_path / "home" / ".kube" / "config"
    file.parent.mkdir(parents=True)
    file.write_text(KUBECONFIG)
    return file


def chosen(environ: dict[str, str], **options: str) -> cluster_choice.Choice:
    return cluster_choice.choose(cluster_choice.Options(**options), environ)


def test_a_named_context_comes_first_then_the_state_directory(
    cluster: embedded.Embedded, kubeconfig: Path
) -> None:
    environ = {"DOVETAIL_STATE": str(cluster.directory), "KUBECONFIG": str(kubeconfig)}
    assert chosen(environ).name == "embedded sample"
    named = chosen(environ, context="prod")
    assert named.name == "https://10.0.0.1:6443 (context prod)"
    assert named.connection.namespace == "train"
    assert chosen({"KUBECONFIG": str(kubeconfig)}, state=str(cluster.directory)).is_embedded


def test_kubeconfig_comes_before_the_default_state_directory_and_that_before_home(
    cluster: embedded.Embedded, kubeconfig: Path, tmp_path: Path
) -> None:
    (tmp_path / "dovetail").symlink_to(cluster.directory)
    environ = {"XDG_STATE_HOME": str(tmp_path), "HOME": str(tmp_path / "home")}
    assert chosen(environ).is_embedded
    assert not chosen(environ | {"KUBECONFIG": str(kubeconfig)}).is_embedded
    elsewhere = {"XDG_STATE_HOME": str(tmp_path / "none"), "HOME": str(tmp_path / "home")}
    assert chosen(elsewhere).name == "https://10.0.0.1:6443 (context lab)"


def test_without_any_cluster_the_next_step_is_up(tmp_path: Path) -> None:
    with pytest.raises(errors.StateError, match=r"no cluster: .*\nnext: dovetail up"):
        chosen({"XDG_STATE_HOME": str(tmp_path), "HOME": str(tmp_path)})
    with pytest.raises(errors.InputError, match="give one"):
        chosen({}, state="s", context="c")


PLUGIN_NODES = """
apiVersion: v1
kind: Node
metadata:
  name: plugin-0
  labels: {nvidia.com/gpu.count: "8", nvidia.com/gpu.product: NVIDIA-H100-80GB-HBM3}
status:
  allocatable: {cpu: "64", memory: 512Gi, pods: "110", nvidia.com/gpu: "8"}
  capacity: {cpu: "64", memory: 512Gi, pods: "110", nvidia.com/gpu: "8"}
---
apiVersion: v1
kind: Node
metadata:
  name: plugin-1
  labels:
    nvidia.com/gpu.count: "2"
    nvidia.com/gpu.product: NVIDIA-A100-SXM4-40GB
    nvidia.com/mig.strategy: mixed
    nvidia.com/mig-1g.5gb.count: "14"
status:
  allocatable: {cpu: "64", memory: 512Gi, pods: "110", nvidia.com/mig-1g.5gb: "14"}
  capacity: {cpu: "64", memory: 512Gi, pods: "110", nvidia.com/mig-1g.5gb: "14"}
"""
PLUGIN_PODS = """
apiVersion: v1
kind: Pod
metadata: {name: three}
spec:
  nodeName: plugin-0
  containers: [{name: a, image: x, resources: {limits: {nvidia.com/gpu: "3"}}}]
---
apiVersion: v1
kind: Pod
metadata: {name: slice}
spec:
  nodeName: plugin-1
  containers: [{name: a, image: x, resources: {limits: {nvidia.com/mig-1g.5gb: "1"}}}]
"""


def test_gpus_that_a_device_plugin_counts_are_in_every_picture(state: Path) -> None:
    assert running.inside(state, "apply", "-f", "-", stdin=PLUGIN_NODES).code == 0
    assert running.inside(state, "apply", "-f", "-", stdin=PLUGIN_PODS).code == 0
    shown = running.inside(state, "get", "gpus")
    rows = dict(zip(shown.column("NODE"), shown.column("TILES"), strict=True))
    assert rows["plugin-0"] == "■■■□□□□□"
    assert rows["plugin-1"] == "▥▤"
    assert rows["h100-0"] == "□" * 8
    alone = running.inside(state, "get", "gpus", "--node", "plugin-0")
    assert alone.column("TILES") == ["■■■□□□□□"]
    devices = running.inside(state, "get", "devices", "--node", "plugin-0")
    assert devices.column("STATE") == ["3 of 8 allocated"]
    nodes = running.inside(state, "get", "nodes", "plugin-0")
    assert nodes.column("GPUS") == ["8"]
