"""Writes the configuration and the credentials of a real node into its home.

Given a control plane, the layout, the programs and the ports. The credentials are those a kubelet has on any cluster:
a client certificate of the user system:node:NAME in the group system:nodes, signed by the cluster's authority. They
are copied, since the node sees little of this machine's directories. Never starts anything.
"""

from __future__ import annotations

from dovetail.devcluster import control_plane, kube_flags
from dovetail.devcluster.real_node import (
    node_config,
    node_layout,
    node_programs,
    snapshotter,
)
from dovetail.files import private_files


def write(
    plane: control_plane.ControlPlane,
    layout: node_layout.NodeLayout,
    programs: node_programs.Programs,
    *,
    ports: node_config.Ports,
) -> None:
    """Writes all files that the kubelet and containerd read when they start."""
    place = layout.configuration
    (place / "cni").mkdir(exist_ok=True)
    kubelet = node_config.kubelet_configuration(layout, ports)
    containerd = node_config.containerd_configuration(
        layout, programs, snapshotter=snapshotter.snapshotter(layout.home)
    )
    network = node_config.network_configuration(layout, ports)
    private_files.replace(place / "kubelet.json", node_config.as_json(kubelet))
    private_files.replace(place / "containerd.toml", containerd.encode())
    private_files.replace(place / "cni" / "pods.conflist", node_config.as_json(network))
    _write_credentials(plane, layout)


def _write_credentials(plane: control_plane.ControlPlane, layout: node_layout.NodeLayout) -> None:
    place = layout.configuration
    pair = plane.client_certificate(f"system:node:{layout.name}", ("system:nodes",))
    ca = place / "ca.crt"
    own = pair._replace(certificate=place / "node.crt", key=place / "node.key")
    for source, target in zip((*pair, plane.ca), (*own, ca), strict=True):
        private_files.replace(target, source.read_bytes())
    kube_flags.write_kubeconfig(
        layout.kubeconfig, port=plane.port, ca=ca, user=layout.name, pair=own
    )
