"""Pods that wait because of other pods' places: requeued when those change, and not before."""

from __future__ import annotations

from typing import Any

from tests.live.live_scheduler import Stage, play

HOST = "kubernetes.io/hostname"


def near(app: str) -> dict[str, Any]:
    return {"podAffinity": _required(app)}


def away(app: str) -> dict[str, Any]:
    return {"podAntiAffinity": _required(app)}


def _required(app: str) -> dict[str, Any]:
    term = {"topologyKey": HOST, "labelSelector": {"matchLabels": {"app": app}}}
    return {"requiredDuringSchedulingIgnoredDuringExecution": [term]}


def test_a_pod_follows_its_neighbour_as_soon_as_that_has_a_node() -> None:
    async def story() -> None:
        stage = Stage(nodes=3)
        async with stage.scheduling():
            stage.pod("web", affinity=near("db"))
            await stage.pass_time()
            assert not stage.node_of("web")
            stage.pod("db", labels={"app": "db"}, schedulerName="another-scheduler", nodeName="n-1")
            await stage.pass_time()
            assert stage.node_of("web") == "n-1"
            assert stage.differences() == ()

    play(story)


def test_pods_that_avoid_each_other_take_a_node_each_and_the_next_goes_when_one_ends() -> None:
    async def story() -> None:
        stage = Stage(nodes=2)
        for number in range(3):
            stage.pod(f"p{number}", labels={"app": "p"}, affinity=away("p"))
        async with stage.scheduling():
            await stage.pass_time()
            taken = [stage.node_of(f"p{number}") for number in range(3)]
            assert sorted(filter(None, taken)) == ["n-0", "n-1"]
            (waiting,) = [f"p{number}" for number, node in enumerate(taken) if not node]
            gone = taken.index("n-1")
            await stage.delete(f"p{gone}", grace_seconds=0)
            await stage.pass_time()
            assert stage.node_of(waiting) == "n-1"

    play(story)


def test_a_label_that_changes_on_a_running_pod_counts() -> None:
    async def story() -> None:
        stage = Stage(nodes=1)
        stage.pod("there", labels={"app": "p"}, schedulerName="another-scheduler", nodeName="n-0")
        stage.pod("new", affinity=away("p"))
        async with stage.scheduling():
            await stage.pass_time()
            assert not stage.node_of("new")
            stage.label("there", app="q")
            await stage.pass_time()
            assert stage.node_of("new") == "n-0"

    play(story)
