"""Queues on a real server: found when their definition comes, told what is wrong with them, gone when it goes."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from typing import Any

import pytest

from dovetail.boot import kubeparts
from tests.support import cluster as planes
from tests.support import live
from tests.support.live import Live

pytestmark = pytest.mark.slow

DEFINITIONS = ("queues.dovetail.dev", "topologies.dovetail.dev")


@pytest.fixture
def cluster() -> Iterator[Live]:
    """The shared cluster, whose scheduler began without the definitions; they go again."""
    found = live.cluster(kubeparts.DEFAULT)
    yield found
    planes.kubectl(found.plane, "delete", "crd", *DEFINITIONS, "--ignore-not-found")


def test_queues_come_to_life_with_their_definition_and_say_what_is_wrong(cluster: Live) -> None:
    assert cluster.leads()
    planes.apply(cluster.plane, [one for one in live.installed() if one["metadata"]["name"] in DEFINITIONS])
    for name in DEFINITIONS:
        planes.kubectl(cluster.plane, "wait", "--for=condition=Established", f"crd/{name}", "--timeout=60s")
    own = f"q-{uuid.uuid4().hex[:8]}"
    queues = {
        "org": {"resources": {"gpu": {"quota": 4}}},
        "team": {"parent": f"{own}-org", "resources": {"nvidia.com/gpu": {"quota": 8}}},
        "lost": {"parent": f"{own}-gone"},
        "egg": {"parent": f"{own}-hen"},
        "hen": {"parent": f"{own}-egg"},
    }
    planes.apply(cluster.plane, [_queue(f"{own}-{name}", spec) for name, spec in queues.items()])
    said: dict[str, tuple[str, str]] = cluster.wait_for("all conditions", lambda: _said(cluster, own, len(queues)))
    assert said == {
        "org": ("True", "QuotasExceedParent"),
        "team": ("True", "Ready"),
        "lost": ("False", "ParentMissing"),
        "egg": ("False", "ParentsFormACircle"),
        "hen": ("False", "ParentsFormACircle"),
    }

    planes.kubectl(cluster.plane, "patch", "queue", f"{own}-hen", "--type=json", "-p", _without_parent())
    planes.kubectl(cluster.plane, "delete", "queue", f"{own}-org")
    wanted = {"team": "ParentMissing", "hen": "Ready", "egg": "Ready", "lost": "ParentMissing"}
    cluster.wait_for("repaired and broken ones", lambda: _reasons(cluster, own, len(wanted)) == wanted)
    found = planes.get(cluster.plane, "queue", f"{own}-hen")
    assert found["status"]["observedGeneration"] == found["metadata"]["generation"] == 2
    assert cluster.consistent()["consistent"], cluster.consistent()

    planes.kubectl(cluster.plane, "delete", "crd", *DEFINITIONS)
    cluster.wait_for("a picture without them", lambda: cluster.consistent()["consistent"])
    assert cluster.leads()


def _said(cluster: Live, own: str, count: int) -> dict[str, tuple[str, str]] | None:
    """What the conditions say by queue, once all have one."""
    found = {}
    for one in planes.get(cluster.plane, "queues")["items"]:
        for condition in one.get("status", {}).get("conditions", ()):
            if condition["type"] == "Ready" and one["metadata"]["name"].startswith(own):
                name = one["metadata"]["name"].removeprefix(f"{own}-")
                found[name] = (condition["status"], condition["reason"])
    return found if len(found) == count else None


def _reasons(cluster: Live, own: str, count: int) -> dict[str, str]:
    return {name: reason for name, (_, reason) in (_said(cluster, own, count) or {}).items()}


def _without_parent() -> str:
    return '[{"op": "remove", "path": "/spec/parent"}]'


def _queue(name: str, spec: dict[str, Any]) -> dict[str, Any]:
    return {"apiVersion": "dovetail.dev/v1alpha1", "kind": "Queue", "metadata": {"name": name}, "spec": spec}
