"""kube-scheduler decides, ours watches: every pod is compared and nothing at all is written, not even a lease."""

from __future__ import annotations

import collections
import json
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from tests.e2e.namespace_scene import exactly, node_of, pod_tree, scene
from tests.support import audit, live
from tests.support.live import Live, devices_of

pytestmark = pytest.mark.slow

COUNT = 60
RESULTS = {"same", "other-devices", "other-node", "we-refuse", "late"}
Place = tuple[Live, audit.Notes]


@pytest.fixture(scope="module")
def place() -> Iterator[Place]:
    """A cluster with kube-scheduler in charge, whose writes are noted."""
    with audit.noted() as notes, live.private(extra_apiserver_flags=notes.flags) as lives:
        lives.play("--nodes", "4")
        lives.plane.start_scheduler()
        yield lives, notes


def test_every_pod_of_the_other_scheduler_is_compared_and_nothing_is_written(place: Place) -> None:
    cluster, notes = place
    with scene(cluster) as story:
        process = cluster.schedule(
            configuration={"schedulerNames": ["default-scheduler"]}, arguments=["--shadow"]
        )
        messages: list[dict[str, Any]] = []
        reader = threading.Thread(target=_read, args=(process.stdout, messages))
        reader.start()
        cluster.wait_for("a ready shadow", cluster.is_serving)
        story.fleet(nodes=4, gpus=20)
        story.template()
        story.template("too-many", exactly("gpus", story.device_class, count=21))
        for number in range(COUNT):
            tree = pod_tree(f"p{number}", templates=["gpu"], scheduler="default-scheduler")
            story.rest.create("pods", tree, story.namespace)
        story.rest.create(
            "pods", pod_tree("ours", templates=["gpu"], scheduler="dovetail"), story.namespace
        )
        story.rest.create(
            "pods",
            pod_tree("never", templates=["too-many"], scheduler="default-scheduler"),
            story.namespace,
        )
        names = [f"p{number}" for number in range(COUNT)]
        pods = story.wait_running(*names)
        cluster.wait_for("a comparison for every pod", lambda: len(messages) >= COUNT)
        totals = collections.Counter(message["result"] for message in messages)
        for result, count in totals.items():
            _wait_counted(cluster, result, count)
        assert cluster.stop() == 0
        reader.join()

        assert {message["pod"] for message in messages} == {
            f"{story.namespace}/{name}" for name in names
        }
        assert set(totals) <= RESULTS
        assert totals["late"] < COUNT, "an opinion that always comes too late is none"
        assert totals["we-refuse"] == 0
        claims = story.claims()
        for message in messages:
            pod = pods[message["pod"].partition("/")[2]]
            assert message["theirs"] == node_of(pod)
            mine = [
                claim for claim in claims if pod["metadata"]["uid"] in json.dumps(claim["status"])
            ]
            assert message["theirDevices"] == sorted(
                "/".join(device) for claim in mine for device in devices_of(claim)
            )
        assert node_of(story.pods()["ours"]) == ""
        assert [write for write in notes.writes() if write.user == live.SERVICE_ACCOUNT] == []
        leases = [item["metadata"]["name"] for item in story.rest.list("leases", "kube-system")]
        assert "dovetail-scheduler" not in leases


def _wait_counted(cluster: Live, result: str, count: int) -> None:
    name = "dovetail_shadow_comparisons_total"
    cluster.wait_for(
        f"{count} counted as {result}", lambda: cluster.metric(name, result=result) == count
    )


def _read(stream: Any, messages: list[dict[str, Any]]) -> None:
    for line in stream:
        messages.append(json.loads(line))
