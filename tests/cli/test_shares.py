"""Shares of a GPU by KAI's annotations, as a user of the embedded cluster meets them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from dovetail.sim.fleet import fleet_spec
from tests.cli import embedded, running
from tests.support import waiting

JOB = """
apiVersion: batch/v1
kind: Job
metadata: {name: sweep}
spec:
  parallelism: 3
  completions: 3
  template:
    metadata: {annotations: {gpu-fraction: "0.4"}}
    spec:
      restartPolicy: Never
      containers: [{name: main, image: example}]
"""


@pytest.fixture(scope="module")
def _shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[embedded.Embedded]:
    file = running.EXAMPLES / "fleets" / "shared.yaml"
    fleet = fleet_spec.read(file.read_text(), file=str(file))
    with embedded.running(tmp_path_factory.mktemp("shared") / "state", fleet) as cluster:
        yield cluster


@pytest.fixture
def shared(_shared: embedded.Embedded) -> Path:
    """The state directory of a cluster with two GPUs that offer shares."""
    _shared.reset()
    return _shared.directory


def pods(state: Path) -> dict[str, Any]:
    listed = json.loads(running.inside(state, "get", "pods", "-o", "json").out)
    return {pod["metadata"]["name"]: pod for pod in listed["items"]}


def held(state: Path) -> dict[str, list[str]]:
    """The devices of each pod."""
    listed = json.loads(running.inside(state, "get", "claims", "-o", "json").out)
    return {
        claim["metadata"]["ownerReferences"][0]["name"]: [
            result["device"]
            for result in claim.get("status", {})
            .get("allocation", {})
            .get("devices", {})
            .get("results", [])
        ]
        for claim in listed["items"]
    }


def test_the_example_runs_two_halves_on_one_gpu_and_a_third_waits(shared: Path) -> None:
    example = str(running.EXAMPLES / "kai-fraction.yaml")
    run = running.inside(shared, "apply", "-f", example)
    assert run.code == 0, run.err
    _wait_for_devices(shared, 3)
    devices = held(shared)
    assert devices["half-a"] == devices["half-b"] != devices["analysis"]
    users = {
        container["name"]: container.get("resources", {}).get("claims")
        for container in pods(shared)["analysis"]["spec"]["containers"]
    }
    assert users == {"proxy": None, "jupyter": [{"name": "gpu-share"}]}
    gpus = running.inside(shared, "get", "gpus")
    assert (gpus.column("TILES"), gpus.column("OFFERS")) == (["■◧"], ["whole+shared"])

    third = (running.EXAMPLES / "kai-fraction.yaml").read_text().split("---")[0]
    text = third.replace("half-a", "large").replace('"0.5"', '"0.97"')
    running.inside(shared, "apply", "-f", "-", stdin=text)
    waiting.wait_until(
        lambda: (
            "with capacity left" in running.inside(shared, "get", "pods", "large", "-o", "json").out
        ),
        "a reason of the pod without room",
    )
    assert "nodeName" not in pods(shared)["large"]["spec"]


def test_pods_of_a_job_get_shares_too(shared: Path) -> None:
    running.inside(shared, "apply", "-f", "-", stdin=JOB)
    _wait_for_devices(shared, 3)
    assert sorted(device for devices in held(shared).values() for device in devices) == [
        "gpu-0",
        "gpu-0",
        "gpu-1",
    ]


def test_the_same_manifest_can_be_applied_again(shared: Path) -> None:
    example = str(running.EXAMPLES / "kai-fraction.yaml")
    running.inside(shared, "apply", "-f", example)
    again = running.inside(shared, "apply", "-f", example)
    assert again.code == 0, again.err
    assert all(line.endswith("unchanged") for line in again.lines)


def _wait_for_devices(state: Path, count: int) -> None:
    waiting.wait_until(
        lambda: len([devices for devices in held(state).values() if devices]) == count,
        f"devices for {count} pods",
    )
