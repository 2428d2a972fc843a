"""The Node object of a real node: created with its addresses before the kubelet registers, and read while it runs.

Given a control plane and the layout. The kubelet takes the addresses of an existing Node as a cloud provider's. They
are on loopback, so that the API server reaches the kubelet for logs and commands, and no other machine does.
"""

from __future__ import annotations

import http
from typing import Any, Final

import msgspec

from dovetail.devcluster import control_plane, probe
from dovetail.devcluster.real_node import admin_kubectl, node_layout

# For the selectors of pods that need real containers.
LABELS: Final = {"dovetail.dev/real-kubelet": "true"}


def create(plane: control_plane.ControlPlane, layout: node_layout.NodeLayout) -> None:
    """Creates the Node, unless it exists from an earlier boot."""
    if read(plane, layout):
        return
    metadata = {"name": layout.name, "labels": LABELS}
    tree = {"apiVersion": "v1", "kind": "Node", "metadata": metadata}
    addresses = [
        {"type": "InternalIP", "address": "127.0.0.1"},
        {"type": "Hostname", "address": layout.name},
    ]
    status = msgspec.json.encode({"status": {"addresses": addresses}}).decode()
    admin_kubectl.run(plane, "create", "-f", "-", tree=tree)
    admin_kubectl.run(plane, "patch", "node", layout.name, "--subresource=status", "-p", status)


def delete(plane: control_plane.ControlPlane, layout: node_layout.NodeLayout) -> None:
    """Deletes the Node, as an administrator does after a machine has gone."""
    admin_kubectl.run(plane, "delete", "node", layout.name, "--ignore-not-found")


def is_ready(plane: control_plane.ControlPlane, layout: node_layout.NodeLayout) -> bool:
    """Whether the Node is ready, and the report is from the current boot."""
    status = read(plane, layout).get("status", {})
    boot_id = layout.boot_id.read_text(encoding="ascii").strip()
    is_of_this_boot = status.get("nodeInfo", {}).get("bootID") == boot_id
    conditions = status.get("conditions", [])
    return is_of_this_boot and any(
        condition["type"] == "Ready" and condition["status"] == "True" for condition in conditions
    )


def read(plane: control_plane.ControlPlane, layout: node_layout.NodeLayout) -> dict[str, Any]:
    """The Node; empty if there is none or the API server does not answer."""
    path = f"/api/v1/nodes/{layout.name}"
    answer = probe.ask(plane.port, path, ca=plane.ca, token=plane.token)
    if answer.status != http.HTTPStatus.OK:
        return {}
    node: dict[str, Any] = msgspec.json.decode(answer.body)
    return node
