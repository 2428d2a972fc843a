"""Embedded clusters with their dashboards for tests in a browser, as `dovetail up` starts them."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from dovetail.web.process import dashboard_process
from tests.cli import running
from tests.support import waiting

Tree = dict[str, Any]


def one_gpu(name: str, namespace: str = "default") -> list[Tree]:
    """A pod and its claim of one whole GPU of any kind."""
    request = {"name": "gpu", "exactly": {"deviceClassName": "gpu.nvidia.com"}}
    metadata = {"name": name, "namespace": namespace}
    container = {"name": "main", "image": "i", "resources": {"claims": [{"name": "gpu"}]}}
    return [
        {
            "apiVersion": "resource.k8s.io/v1",
            "kind": "ResourceClaim",
            "metadata": metadata,
            "spec": {"devices": {"requests": [request]}},
        },
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": metadata,
            "spec": {
                "containers": [container],
                "resourceClaims": [{"name": "gpu", "resourceClaimName": name}],
            },
        },
    ]


class Cluster:
    """A running embedded cluster."""

    def __init__(self, state: Path) -> None:
        self.state = state

    def run(self, *arguments: str) -> running.Run:
        """A command about it, as a process of its own."""
        done = running.outside(self.state, *arguments)
        assert done.code == 0, done.err
        return done

    def apply(self, *objects: Tree) -> None:
        """Creates or changes objects."""
        listed = {"apiVersion": "v1", "kind": "List", "items": list(objects)}
        with tempfile.NamedTemporaryFile(suffix=".json") as file:
            file.write(msgspec.json.encode(listed))
            file.flush()
            self.run("apply", "-f", file.name)

    def link(self) -> str:
        """A new link to its dashboard."""
        link: str = waiting.wait_until(
            lambda: dashboard_process.link(self.state), "the dashboard to announce itself"
        )
        return link


@contextlib.contextmanager
def started(directory: Path, *options: str) -> Iterator[Cluster]:
    """A cluster while the block lasts, in a new directory."""
    cluster = Cluster(directory)
    cluster.run("up", "--fresh", "--detach", *options)
    try:
        yield cluster
    finally:
        cluster.run("down", "--purge")
