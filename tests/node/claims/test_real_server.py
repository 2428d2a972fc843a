"""Claims of a real API server, read and written with the rights of an agent and no more."""

from __future__ import annotations

import contextlib
import shutil
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from dovetail.devcluster import control_plane
from dovetail.devcluster.fake_gpus.hardware import Hardware
from dovetail.kube import client
from dovetail.kube.auth import client_config
from dovetail.kube.http import transport
from tests.node.claims.node import Node
from tests.support import cluster

ON_SERVERS = (pytest.param(cluster.NEWEST, marks=pytest.mark.slow), *cluster.EACH_VERSION[1:])
# A driver whose token names its node has `associated-node:patch`; the tester's token names none.
RIGHTS = """
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: node-agent-claims-test}
rules:
- {apiGroups: [resource.k8s.io], resources: [resourceclaims], verbs: [get]}
- {apiGroups: [resource.k8s.io], resources: [resourceclaims/status], verbs: [patch]}
- apiGroups: [resource.k8s.io]
  resources: [resourceclaims/driver]
  verbs: ["arbitrary-node:patch"]
  resourceNames: [gpu.nvidia.com]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: node-agent-claims-test}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: node-agent-claims-test}
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: tester}]
"""


@contextlib.asynccontextmanager
async def opened(kubeconfig: Path) -> AsyncIterator[client.KubeApi]:
    async with transport.Transport(client_config.load(str(kubeconfig))) as over:
        yield client.KubeApi(over)


@pytest.fixture(params=ON_SERVERS)
def plane(request: pytest.FixtureRequest) -> control_plane.ControlPlane:
    """A real control plane."""
    return cluster.control_plane(request.param)


def test_a_partition_is_prepared_and_reported_with_the_rights_of_an_agent(
    plane: control_plane.ControlPlane,
) -> None:
    cluster.kubectl(plane, "apply", "-f", "-", input=RIGHTS)
    namespace = cluster.fresh_namespace(plane)
    folder = Path(tempfile.mkdtemp(prefix="node-"))
    tester = plane.write_kubeconfig("tester", token=cluster.TESTER.token)
    admin_scope, agent_scope = opened(plane.kubeconfig), opened(tester)
    node = Node(
        folder,
        Hardware.create(folder / "hw", gpus=2),
        namespace=namespace,
        api=AS_SOON_AS_OPENED,
        agent_api=AS_SOON_AS_OPENED,
    )
    try:
        node.api = node.run(admin_scope.__aenter__())
        node.agent_api = node.run(agent_scope.__aenter__())
        node.restart()
        node.prepared("eval", "gpu-0-mig-3g40gb-9-4")
        assert node.run(node.agent._status.write_waiting())
        (device,) = node.stored("eval")["status"]["devices"]
        state = node.hardware.snapshot().gpus[0]
        assert device["data"]["uuid"] == state.gpu_instances[0].compute_instances[0].uuid
        assert device["conditions"][0]["status"] == "True"
        version = node.stored("eval")["metadata"]["resourceVersion"]
        node.restart()
        assert node.run(node.agent._status.write_waiting())
        assert node.stored("eval")["metadata"]["resourceVersion"] == version
        node.delete("eval")
        assert node.unprepare("eval") is None
        node.assert_clean()
    finally:
        node.run(agent_scope.__aexit__(None, None, None))
        node.run(admin_scope.__aexit__(None, None, None))
        node.close()
        shutil.rmtree(folder)


AS_SOON_AS_OPENED = object()  # the node's event loop opens its connections
