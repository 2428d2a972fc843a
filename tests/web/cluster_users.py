"""Users of a real API server for tests: service accounts in namespaces of their own, with the rights a test grants."""

from __future__ import annotations

from typing import Final, NamedTuple

from dovetail.boot import cluster_choice
from dovetail.devcluster import control_plane
from tests.support import cluster
from tests.web.serving_dashboards import pod

KEPT_SECONDS: Final = 0.5  # so that a test need not wait half a minute for a right to go
RBAC: Final = "rbac.authorization.k8s.io"


class Scene(NamedTuple):
    """Two namespaces with a pod each, and a service account in the first that may see it."""

    plane: control_plane.ControlPlane
    mine: str
    theirs: str
    token: str

    @property
    def choice(self) -> cluster_choice.Choice:
        options = cluster_choice.Options(kubeconfig=str(self.plane.kubeconfig))
        return cluster_choice.choose(options)

    def token_of(self, namespace: str, name: str) -> str:
        """A new service account's token."""
        cluster.kubectl(self.plane, "create", "serviceaccount", name, "-n", namespace)
        return cluster.kubectl(self.plane, "create", "token", name, "-n", namespace).strip()

    def let(self, namespace: str, subject: dict[str, str], *verbs: str) -> None:
        """Lets a subject do that with pods of the namespace."""
        name = f"pods-{subject['name']}"
        role = {
            "apiVersion": f"{RBAC}/v1",
            "kind": "Role",
            "metadata": {"name": name},
            "rules": [{"apiGroups": [""], "resources": ["pods"], "verbs": list(verbs)}],
        }
        binding = {
            "apiVersion": f"{RBAC}/v1",
            "kind": "RoleBinding",
            "metadata": {"name": name},
            "roleRef": {"apiGroup": RBAC, "kind": "Role", "name": name},
            "subjects": [subject],
        }
        cluster.apply(self.plane, [role, binding], namespace=namespace)


def scene() -> Scene:
    """A new scene on the shared control plane."""
    plane = cluster.control_plane()
    mine, theirs = cluster.fresh_namespace(plane), cluster.fresh_namespace(plane)
    for namespace in (mine, theirs):
        default_account = {
            "apiVersion": "v1",
            "kind": "ServiceAccount",
            "metadata": {"name": "default"},
        }
        cluster.apply(plane, [default_account], namespace=namespace)
        cluster.apply(plane, [pod("a", namespace)], namespace=namespace)
    made = Scene(plane, mine, theirs, "")
    token = made.token_of(mine, "alice")
    made.let(mine, account("alice", mine), "list")
    return made._replace(token=token)


def account(name: str, namespace: str) -> dict[str, str]:
    """A service account as the subject of a binding."""
    return {"kind": "ServiceAccount", "name": name, "namespace": namespace}
