"""`dovetail lifecycle` on a real API server, as the chart's service account, with the chart's rights and with fewer."""

from __future__ import annotations

import copy
import urllib.error
import urllib.request
from collections.abc import Iterator
from typing import Any

import pytest

from tests.e2e.upgrade_scene import UpgradeScene, installed
from tests.support import cluster as planes
from tests.support import prometheus as servers

pytestmark = pytest.mark.slow

ROLES = [item for item in installed() if item["kind"] in ("ClusterRole", "Role")]


@pytest.fixture(scope="module")
def plane(request: pytest.FixtureRequest) -> Iterator[UpgradeScene]:
    with planes.private_plane(request.param) as private:
        scene = UpgradeScene(private)
        try:
            yield scene
        finally:
            scene.close()


@pytest.mark.parametrize("plane", planes.EACH_VERSION, indirect=True)
def test_replicas_with_the_charts_rights_upgrade_nodes_and_take_over(plane: UpgradeScene) -> None:
    for name in ("a", "b", "c"):
        plane.node(name)
    plane.pod("train-0", "a", gang=2)
    plane.pod("train-1", "b", gang=2)
    plane.pod("lone", "c")
    plane.act()
    plane.start("first")
    plane.wait("a replica that works", lambda: leads(plane, "first"))
    plane.start("second")
    plane.upgrade("roll", "a", "b", "c")
    plane.wait("a node that is done", lambda: "Done" in plane.phases("roll").values())
    assert plane.stop("first") == 0
    assert "Done" not in {plane.phases("roll").get("c")}, "there is something left to take over"
    plane.wait("the second replica", lambda: leads(plane, "second"))
    plane.wait("the end", lambda: ended(plane, "roll"))
    assert plane.phases("roll") == dict.fromkeys(("a", "b", "c"), "Done")
    assert plane.fences() == set()
    assert planes.kubectl(plane.plane, "get", "devicetaintrules", "-o", "name") == ""
    conditions = plane.api.read("stackupgrades", "roll")["status"]["conditions"]
    assert {each["type"]: each["status"] for each in conditions} == {
        "Progressing": "False",
        "Completed": "True",
        "Degraded": "False",
    }
    planes.kubectl(
        plane.plane, "wait", "--for=condition=Completed", "stackupgrade/roll", "--timeout=1s"
    )
    for name in ("first", "second"):
        assert "cannot" not in plane.log(name), "no right is missing"
        assert "watches.interrupted" not in plane.log(name)
    reasons = {event["reason"] for event in plane.api.list("events", "default")}
    assert {"StackDraining", "StackDone", "UpgradeCompleted"} <= reasons
    text = metrics(plane, "second")
    assert 'dovetail_lifecycle_upgrade_condition{upgrade="roll",condition="Completed"} 1' in text
    assert servers.remarks(text) == []
    plane.api.delete("stackupgrades", "roll")
    plane.wait("the finalizer's end", lambda: not plane.api.list("stackupgrades"))
    assert plane.stop("second") == 0


@pytest.mark.parametrize("plane", [planes.NEWEST], indirect=True)
def test_it_asks_for_every_right_by_name_and_goes_on_when_it_has_it(plane: UpgradeScene) -> None:
    """It begins with the rights to elect alone. Whatever is missing next is in the log, and nothing goes on before."""
    rights = Rights(plane)
    plane.node("d")
    plane.pod("saves", "d", **{"dovetail.dev/last-checkpoint": "2026-01-01T00:00:00Z"})
    plane.act()
    rights.keep({("leases", "create"), ("leases", "get"), ("leases", "patch")})
    plane.start("bare", address="0.0.0.0")
    plane.upgrade("ask", "d", drain={"force": True, "checkpointGraceSeconds": 3600})

    rights.miss("stackupgrades", "list")
    rights.give("stackupgrades", "list")
    rights.miss("stackupgrades", "watch")
    rights.give("stackupgrades", "watch")
    kinds = rights.readable()
    for verb in ("list", "watch"):
        for kind in kinds:
            rights.miss(kind, verb)
        rights.give("+".join(kinds), verb)
    assert plane.fences() == set()

    for resource, verb in (("stackupgrades", "patch"), ("stackupgrades/status", "patch")):
        rights.miss(resource, verb)
        assert plane.phases("ask") == {}
        rights.give(resource, verb)
    rights.miss("devicetaintrules", "create")
    assert plane.phases("ask") == {"d": "Fencing"}
    rights.give("devicetaintrules", "create")
    rights.miss("nodes", "patch")
    assert plane.fences() == set()
    rights.give("nodes", "patch")
    rights.miss("pods", "patch")
    assert plane.phases("ask") == {"d": "Draining"}
    rights.give("pods", "patch")
    plane.wait("the signal", lambda: requested(plane, "saves"))
    saved = {"dovetail.dev/last-checkpoint": requested(plane, "saves")}
    plane.api.patch("pods", "saves", {"metadata": {"annotations": saved}}, "default")
    rights.miss("pods/eviction", "create")
    assert plane.phases("ask") == {"d": "Draining"}
    rights.give("pods/eviction", "create")
    rights.miss("devicetaintrules", "delete")
    assert plane.phases("ask") == {"d": "Unfencing"}
    rights.give("devicetaintrules", "delete")
    plane.wait("the end", lambda: ended(plane, "ask"))

    for resource in ("tokenreviews", "subjectaccessreviews"):
        with pytest.raises(urllib.error.HTTPError) as refused:
            metrics(plane, "bare", token=plane.plane.token)
        refused.value.close()
        rights.miss(resource, "create")
        rights.give(resource, "create")
    assert "dovetail_lifecycle_leading 1" in metrics(plane, "bare", token=plane.plane.token)
    assert not about(plane, "ask"), "events are all that is left"
    rights.give("events", "create")
    assert rights.left() == set(), "every right that the chart grants was asked for"
    plane.api.delete("stackupgrades", "ask")
    plane.wait("the finalizer's end", lambda: not plane.api.list("stackupgrades"))
    assert plane.stop("bare") == 0


class Rights:
    """The rights of the process, given back one after the other."""

    def __init__(self, plane: UpgradeScene) -> None:
        self._plane = plane
        self._given: set[tuple[str, str]] = set()

    def keep(self, given: set[tuple[str, str]]) -> None:
        """These alone."""
        self._given = set(given)
        self._write()

    def give(self, resources: str, verb: str) -> None:
        """One more, or of several kinds at once."""
        self._given |= {(resource, verb) for resource in resources.split("+")}
        self._write()

    def miss(self, resource: str, verb: str) -> None:
        """Waits until the log names it."""
        words = f'cannot {verb} resource \\"{resource}\\"'
        self._plane.wait(f"word of {verb} {resource}", lambda: words in self._plane.log("bare"))

    def left(self) -> set[tuple[str, str]]:
        """What the chart grants and was not given."""
        return self._all() - self._given

    def readable(self) -> list[str]:
        """What is listed beside upgrades, of what this server serves."""
        served = planes.kubectl(self._plane.plane, "api-resources", "-o", "name").split()
        names = {name.partition(".")[0] for name in served}
        listed = {resource for resource, verb in self._all() if verb == "list"}
        absent = listed - names
        self._given |= {(resource, verb) for resource in absent for verb in ("list", "watch")}
        return sorted(listed & names - {"stackupgrades"})

    def _all(self) -> set[tuple[str, str]]:
        return {
            (resource, verb)
            for role in ROLES
            for rule in role["rules"]
            for resource in rule["resources"]
            for verb in rule["verbs"]
        }

    def _write(self) -> None:
        for role in ROLES:
            rules = [
                {**copy.deepcopy(rule), "resources": [resource], "verbs": [verb]}
                for rule in role["rules"]
                for resource in rule["resources"]
                for verb in rule["verbs"]
                if (resource, verb) in self._given
            ]
            metadata = role["metadata"]
            plural = f"{role['kind'].lower()}s"
            patch = {"rules": rules or None}
            self._plane.api.patch(plural, metadata["name"], patch, metadata.get("namespace", ""))


def leads(plane: UpgradeScene, name: str) -> bool:
    return "dovetail_lifecycle_leading 1" in metrics(plane, name)


def metrics(plane: UpgradeScene, name: str, *, token: str = "") -> str:
    """What a replica serves; nothing before it does."""
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    url = f"http://127.0.0.1:{plane.ports[name]}/metrics"
    request = urllib.request.Request(url, headers=headers)
    try:
        with urllib.request.urlopen(request, timeout=30) as answer:
            text: str = answer.read().decode()
    except urllib.error.HTTPError:
        raise
    except OSError:
        return ""
    return text


def ended(plane: UpgradeScene, upgrade: str) -> bool:
    status = plane.api.read("stackupgrades", upgrade).get("status", {})
    return status.get("phase") == "Completed"


def requested(plane: UpgradeScene, pod: str) -> str:
    annotations = plane.api.read("pods", pod, "default")["metadata"]["annotations"]
    return str(annotations.get("dovetail.dev/checkpoint-requested", ""))


def about(plane: UpgradeScene, upgrade: str) -> list[dict[str, Any]]:
    events = plane.api.list("events", "default")
    return [event for event in events if event["regarding"]["name"] == upgrade]
