"""The scheduler stays up on a real API server: no room anywhere, deadlines beyond the calendar, its own mistakes."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

from dovetail.devcluster import free_ports
from dovetail.live.cycle import scheduler_loop
from dovetail.model import gangs
from tests.e2e import scheduler_in_process
from tests.e2e.namespace_scene import Scene, Tree, scene
from tests.support import cluster as planes
from tests.support import live
from tests.support.live import Live
from tests.support.waiting import until

pytestmark = pytest.mark.slow

BEYOND = 300_000_000_000  # seconds: no calendar holds the end of it


@pytest.fixture
def cluster() -> Live:
    """The shared cluster, without queues as a fresh installation is."""
    return live.cluster()


@pytest.fixture
def story(cluster: Live) -> Iterator[Scene]:
    """One node for the pods of this story."""
    with scene(cluster) as scenes:
        scenes.fleet()
        yield scenes


def pending_reason(story: Scene, name: str) -> str:
    """The reason of a pod's PodScheduled condition; empty while it has none."""
    conditions = story.pods()[name]["status"].get("conditions", [])
    return next(
        (condition["reason"] for condition in conditions if condition["type"] == "PodScheduled"), ""
    )


def asking(cpu: str) -> list[Tree]:
    return [{"name": "main", "image": "x", "resources": {"requests": {"cpu": cpu}}}]


def test_a_pod_of_high_priority_that_fits_nowhere_ends_nothing(cluster: Live, story: Scene) -> None:
    high = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "value": 1000}
    rank = story.put("priorityclasses", high | {"metadata": {"name": f"{story.namespace}-high"}})
    pid = cluster.pid()
    story.pod("runs")
    story.pod("too-big", containers=asking("9999"))
    cluster.wait_running(story.namespace, 1)
    cluster.wait_for("a reason", lambda: pending_reason(story, "too-big") == "Unschedulable")
    story.pod("important", containers=asking("5000"), priorityClassName=rank["metadata"]["name"])
    cluster.wait_for("a reason", lambda: pending_reason(story, "important") == "Unschedulable")
    story.pod("later")
    cluster.wait_running(story.namespace, 2)
    assert cluster.is_running()
    assert cluster.pid() == pid


def test_a_running_job_with_a_deadline_beyond_the_calendar_delays_no_other_job(
    cluster: Live, story: Scene
) -> None:
    template = {
        "spec": {
            "schedulerName": "dovetail",
            "restartPolicy": "Never",
            "containers": [{"name": "main", "image": "x", "resources": {"requests": {"cpu": "1"}}}],
        }
    }
    metadata = {"name": "evil", "namespace": story.namespace}
    job = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": metadata,
        "spec": {"template": template},
    }
    tied = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": metadata | {"name": "tie"},
        "spec": template["spec"],
    }
    tied["metadata"]["labels"] = {gangs.GANG_LABEL: "tie"}  # type: ignore[index]
    planes.apply(cluster.plane, [job, tied], namespace=story.namespace)
    cluster.wait_running(story.namespace, 2)
    patch = json.dumps({"spec": {"activeDeadlineSeconds": BEYOND}})
    planes.kubectl(cluster.plane, "patch", "job", "evil", "-n", story.namespace, "-p", patch)
    pid = cluster.pid()
    for number in range(4):
        story.pod(f"honest-{number}")
    cluster.wait_running(story.namespace, 6)
    assert cluster.pid() == pid


def failed_tenures(metrics: bytes) -> float:
    match = re.search(rb"^dovetail_tenure_errors_total (\S+)$", metrics, re.MULTILINE)
    return float(match[1]) if match else 0.0


def test_a_mistake_that_ends_a_tenure_is_followed_by_another_in_the_same_process(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    plane = planes.control_plane()
    namespace, port = planes.fresh_namespace(plane), free_ports.reserve()
    honest = scheduler_loop.Scheduler.run
    has_failed_twice = False

    async def failing(self: Any) -> None:
        # Not by number: a tenure may also end because a busy machine kept it from renewing its lease.
        if not has_failed_twice:
            raise ZeroDivisionError
        await honest(self)

    async def story() -> None:
        nonlocal has_failed_twice
        election = msgspec.structs.replace(scheduler_in_process.SHORT, namespace=namespace)
        async with scheduler_in_process.running(plane.kubeconfig, election, port) as process:
            await until(
                lambda: failed_tenures(process.metrics.text()) >= 2,
                "a second failed tenure in the metrics",
            )
            has_failed_twice = True
            assert not process._ready()["tenure"], "repeated failures show"
            await until(
                lambda: process.scheduler is not None and process.scheduler.is_idle,
                "an idle scheduler",
            )
            assert process.election is not None
            assert process.election.status.is_leading

    monkeypatch.setattr(scheduler_loop.Scheduler, "run", failing)
    asyncio.run(story())
