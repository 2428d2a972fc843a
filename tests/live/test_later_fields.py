"""Fields of a later Kubernetes, which no struct has, on every object we write to: all survive."""

from __future__ import annotations

from typing import Any

from dovetail.kubetypes import registry
from tests.live.live_scheduler import Stage, play

LATER = {"deep": [1, {"a": None, "b": "c"}], "flag": True}
CONDITION = {"type": "example.com/Later", "status": "False", "laterField": LATER}
Tree = dict[str, Any]


def enrich(stage: Stage, kind: registry.Kind, name: str, *, status: Tree) -> None:
    """Puts later fields into metadata, spec and status, as a newer server would show them."""
    tree = stage.api.tree(kind, name, namespace="default")
    tree["metadata"]["laterField"] = LATER
    tree["spec"]["laterField"] = LATER
    tree["laterSection"] = LATER
    tree["status"] = (tree.get("status") or {}) | {"laterField": LATER} | status
    stage.api.shelf.put(kind, tree)


def assert_kept(stage: Stage, kind: registry.Kind, name: str) -> Tree:
    tree = stage.api.tree(kind, name, namespace="default")
    for place in (tree["metadata"], tree["spec"], tree["status"]):
        assert place["laterField"] == LATER
    assert tree["laterSection"] == LATER
    return tree


def test_later_fields_survive_waiting_allocation_binding_and_a_second_user() -> None:
    async def story() -> None:
        stage = Stage(nodes=1, gpus=1)
        stage.claim(
            "shared", count=2
        )  # more than there is: first the pods wait, and their conditions say so
        async with stage.scheduling():
            for name in ("a", "b"):
                stage.pod(name, named=("shared",))
                enrich(stage, registry.POD, name, status={"conditions": [CONDITION]})
            enrich(stage, registry.CLAIM, "shared", status={})
            await stage.pass_time()
            for name in ("a", "b"):
                conditions = assert_kept(stage, registry.POD, name)["status"]["conditions"]
                assert CONDITION in conditions
                assert {condition["type"] for condition in conditions} == {
                    "example.com/Later",
                    "PodScheduled",
                }
            tree = stage.api.tree(registry.CLAIM, "shared", namespace="default")
            tree["spec"]["devices"]["requests"][0]["exactly"]["count"] = 1
            stage.api.shelf.put(registry.CLAIM, tree)
            await stage.pass_time(5)
        assert stage.node_of("a") == stage.node_of("b") != ""
        for name in ("a", "b"):
            assert CONDITION in assert_kept(stage, registry.POD, name)["status"]["conditions"]
        held = assert_kept(stage, registry.CLAIM, "shared")
        assert len(held["status"]["reservedFor"]) == 2
        assert held["status"]["allocation"]

    play(story)
