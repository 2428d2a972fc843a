"""The rights with which the node agent runs on a real node: those that the chart gives it, and no more.

Given a control plane and the layout, creates the chart's service account, role and policy for agents, and writes a
kubeconfig with a token that is bound to the Node, like the one a pod of the chart's DaemonSet has there. Never installs
the rest of the chart: the agent is a process of the node, not a pod.
"""

from __future__ import annotations

from typing import Any, Final

from dovetail.devcluster import control_plane, kube_flags
from dovetail.devcluster.real_node import admin_kubectl, node_layout
from dovetail.install import chart

# A name of its own, in a namespace that is always there: an installation of the chart finds nothing of it.
RELEASE: Final = chart.Release("dovetail-dev", "kube-system")
COMPONENT: Final = "node-agent"
ACCOUNT: Final = "ServiceAccount"
KINDS: Final = (
    ACCOUNT,
    "ClusterRole",
    "ClusterRoleBinding",
    "ValidatingAdmissionPolicy",
    "ValidatingAdmissionPolicyBinding",
)
VALIDITY: Final = "8760h"  # longer than any such cluster lives


def grant(plane: control_plane.ControlPlane, layout: node_layout.NodeLayout) -> None:
    """Gives the agent of this node its rights, and writes its kubeconfig."""
    trees = chart_objects()
    (account,) = [tree["metadata"]["name"] for tree in trees if tree["kind"] == ACCOUNT]
    collection = {"apiVersion": "v1", "kind": "List", "items": trees}
    admin_kubectl.run(plane, "apply", "--server-side", "-f", "-", tree=collection)

    bound = ["--bound-object-kind=Node", f"--bound-object-name={layout.name}"]
    namespace = f"--namespace={RELEASE.namespace}"
    duration = f"--duration={VALIDITY}"
    token = admin_kubectl.run(plane, "create", "token", account, namespace, duration, *bound)
    kube_flags.write_kubeconfig(
        layout.agent_kubeconfig,
        port=plane.port,
        ca=layout.configuration / "ca.crt",
        user=account,
        token=token.strip(),
    )


def chart_objects() -> list[dict[str, Any]]:
    """The objects of the chart that give an agent its rights, without the labels of an installation."""
    # The chart requires an image, although none of these objects names it.
    values = chart.values_of(settings=["image.repository=none", "nodeAgent.enabled=true"])
    trees = []
    for tree in chart.objects(values, RELEASE):
        labels = tree["metadata"].pop("labels", {})
        if tree["kind"] in KINDS and labels.get("app.kubernetes.io/component") == COMPONENT:
            trees.append(tree)
    return trees
