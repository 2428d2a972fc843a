"""`dovetail exporter` beside a real API server, with exactly the rights that the chart grants it."""

from __future__ import annotations

import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from dovetail.devcluster import free_ports
from dovetail.install import chart
from tests.e2e.namespace_scene import scene
from tests.support import cluster as planes
from tests.support import live
from tests.support import prometheus as servers

pytestmark = pytest.mark.slow

ACCOUNT = "dovetail-exporter"
PROGRAM = Path(sys.executable).with_name("dovetail")


@pytest.fixture
def exporter() -> Iterator[int]:
    """The port of a running exporter."""
    cluster = live.cluster()
    values = chart.values_of(settings=["image.repository=example", "exporter.enabled=true"])
    rights = [
        item
        for item in chart.objects(values, live.RELEASE)
        if item["kind"] in live.RIGHTS and item["metadata"]["name"] == ACCOUNT
    ]
    namespace = live.RELEASE.namespace
    planes.apply(cluster.plane, rights, namespace=namespace)
    token = planes.kubectl(cluster.plane, "create", "token", ACCOUNT, "-n", namespace).strip()
    kubeconfig = cluster.plane.write_kubeconfig(ACCOUNT, token=token)
    port = free_ports.reserve()
    command = [str(PROGRAM), "exporter", "--kubeconfig", str(kubeconfig)]
    with (cluster.directory / "exporter.log").open("ab") as log:
        process = subprocess.Popen(
            [*live.TETHER, *command, "--listen", f"127.0.0.1:{port}"], stderr=log, cwd=live.ROOT
        )
    try:
        yield port
    finally:
        process.terminate()
        assert process.wait(timeout=60) in (0, -15)


def metrics(port: int) -> str:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=30) as answer:
            text: str = answer.read().decode()
    except OSError:
        return ""
    return text


def test_metrics_follow_a_claim_from_its_allocation_to_its_end(exporter: int) -> None:
    cluster = live.cluster()
    with scene(cluster) as story:
        (node,) = story.fleet(nodes=1, gpus=1)
        story.template()
        story.pod("first", templates=["gpu"])
        story.wait_running("first")
        (claim,) = [item["metadata"]["name"] for item in cluster.claims(story.namespace)]

        def lines() -> list[str]:
            return [line for line in metrics(exporter).splitlines() if f'"{claim}"' in line]

        def is_allocated() -> bool:
            return any(
                line.startswith("kube_resourceclaim_allocation_device_info") and f'"{node}"' in line
                for line in lines()
            )

        story.wait("the claim's device in the metrics", is_allocated)
        assert servers.remarks(metrics(exporter)) == []
        story.rest.delete("pods", "first", story.namespace, gracePeriodSeconds=0)
        story.wait("metrics without the claim", lambda: metrics(exporter) and not lines())
