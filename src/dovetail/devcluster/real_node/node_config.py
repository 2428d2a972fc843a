"""The configuration files of a real node: kubelet, containerd, the network of pods.

Given the layout, the programs and the ports, returns file contents and command lines. Never writes or starts anything.
"""

from __future__ import annotations

import ipaddress
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec

from dovetail.devcluster import free_ports
from dovetail.devcluster.real_node import container_image, node_layout, node_programs

POD_NETWORKS: Final = ipaddress.IPv4Network("100.64.0.0/10")  # RFC 6598: no machine is there
POD_NETWORK_BITS: Final = 25  # 126 addresses; a kubelet runs at most 110 pods


class Ports(NamedTuple):
    """The ports of a kubelet on 127.0.0.1."""

    server: int
    health: int


def kubelet_command(
    layout: node_layout.NodeLayout, programs: node_programs.Programs
) -> list[str | Path]:
    """How the kubelet is called."""
    return [
        programs.kubelet,
        f"--config={layout.configuration / 'kubelet.json'}",
        f"--kubeconfig={layout.kubeconfig}",
        f"--root-dir={layout.kubelet_root}",
        f"--cert-dir={layout.kubelet_root / 'pki'}",
        f"--hostname-override={layout.name}",
        # The addresses of the Node are those it was created with, on loopback. Otherwise the kubelet would
        # advertise an address on which it does not listen.
        "--cloud-provider=external",
        "--v=2",
    ]


def containerd_command(
    layout: node_layout.NodeLayout, programs: node_programs.Programs
) -> list[str | Path]:
    """How containerd is called."""
    return [programs.containerd, "--config", layout.configuration / "containerd.toml"]


def kubelet_configuration(layout: node_layout.NodeLayout, ports: Ports) -> dict[str, Any]:
    """The KubeletConfiguration. Claims, health of devices and extended resources of DRA are on by default in 1.37."""
    return {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "address": "127.0.0.1",
        "port": ports.server,
        "healthzBindAddress": "127.0.0.1",
        "healthzPort": ports.health,
        "authentication": {
            "anonymous": {"enabled": False},
            "webhook": {"enabled": True},
            "x509": {"clientCAFile": str(layout.configuration / "ca.crt")},
        },
        "authorization": {"mode": "Webhook"},
        "containerRuntimeEndpoint": f"unix://{layout.containerd_socket}",
        "podLogsDir": str(layout.pod_logs),
        "volumePluginDir": str(layout.kubelet_root / "volume-plugins"),
        # Pods are below a cgroup of the node, so that all of them are found when it goes.
        "cgroupDriver": "cgroupfs",
        "cgroupRoot": f"/{layout.cgroup}",
        "enforceNodeAllocatable": ["none"],
        "failCgroupV1": False,
        "failSwapOn": False,
        "oomScoreAdj": 0,
        # Nothing of this machine is changed: no iptables rules, no name servers, no eviction when its disk is full.
        "makeIPTablesUtilChains": False,
        "resolvConf": "",
        "evictionHard": {
            "memory.available": "0%",
            "nodefs.available": "0%",
            "nodefs.inodesFree": "0%",
            "imagefs.available": "0%",
            "imagefs.inodesFree": "0%",
        },
        "imageGCHighThresholdPercent": 100,
        "imageGCLowThresholdPercent": 99,
        # No DNS server runs there. Without an address the kubelet warns of it in events of every pod.
        "clusterDNS": ["10.0.0.10"],
        "clusterDomain": "cluster.local",
        # Short, so that tests need not wait.
        "syncFrequency": "5s",
        "fileCheckFrequency": "2s",
        "nodeStatusUpdateFrequency": "2s",
        "crashLoopBackOff": {"maxContainerRestartPeriod": "2s"},
        "volumeStatsAggPeriod": "-1s",  # a negative period switches the statistics off
        "featureGates": {"ResourceHealthStatus": True},
    }


def containerd_configuration(
    layout: node_layout.NodeLayout, programs: node_programs.Programs, *, snapshotter: str
) -> str:
    """containerd's configuration, in TOML.

    The lower bound of oom_score_adj is kept: root in a container or a virtual machine may lack the right to go below.
    """
    cri = "plugins.'io.containerd.cri.v1.runtime'"
    images = "plugins.'io.containerd.cri.v1.images'"
    return f"""\
version = 3
root = "{layout.containerd_root}"
state = "{layout.containerd_state}"
disabled_plugins = ["io.containerd.nri.v1.nri"]

[grpc]
  address = "{layout.containerd_socket}"

[plugins.'io.containerd.internal.v1.opt']
  path = "{layout.containerd_root / "opt"}"

[{images}]
  snapshotter = "{snapshotter}"
  [{images}.pinned_images]
    sandbox = "{container_image.NAME}"

[{cri}]
  cdi_spec_dirs = ["{layout.cdi}"]
  restrict_oom_score_adj = true
  disable_apparmor = true
  netns_mounts_under_state_dir = true
  [{cri}.cni]
    bin_dirs = ["{programs.cni}"]
    conf_dir = "{layout.configuration / "cni"}"
  [{cri}.containerd]
    default_runtime_name = "runc"
    [{cri}.containerd.runtimes.runc]
      runtime_type = "io.containerd.runc.v2"
      [{cri}.containerd.runtimes.runc.options]
        BinaryName = "{programs.runc}"
        Root = "{layout.run / "runc"}"
        SystemdCgroup = false
"""


def pod_network(ports: Ports) -> ipaddress.IPv4Network:
    """The addresses of a node's pods: another network for each node on this machine, as their ports differ."""
    index = free_ports.RANGE.index(ports.server)
    size = 1 << (POD_NETWORKS.max_prefixlen - POD_NETWORK_BITS)
    first = POD_NETWORKS.network_address + index * size
    return ipaddress.IPv4Network((first, POD_NETWORK_BITS))


def network_configuration(layout: node_layout.NodeLayout, ports: Ports) -> dict[str, Any]:
    """The network of pods: a cable from each to this machine, which disappears with the pod. It leads no further."""
    ipam = {
        "type": "host-local",
        "ranges": [[{"subnet": str(pod_network(ports))}]],
        "dataDir": str(layout.run / "addresses"),
    }
    return {
        "cniVersion": "1.0.0",
        "name": "pods",
        "plugins": [{"type": "ptp", "ipMasq": False, "ipam": ipam}],
    }


def as_json(tree: dict[str, Any]) -> bytes:
    """JSON for a file that people may read."""
    return msgspec.json.format(msgspec.json.encode(tree)) + b"\n"
