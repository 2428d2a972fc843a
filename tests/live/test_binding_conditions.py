"""Devices that must be prepared before a pod may be bound, in memory and simulated time."""

from __future__ import annotations

from dovetail.kubetypes import registry
from tests.live.live_scheduler import Stage, play


def test_a_pod_that_waits_for_a_device_of_a_lost_node_starts_elsewhere() -> None:
    """A driver on a lost node never says anything again: waiting for its word must not outlast the node."""

    async def story() -> None:
        stage = _fabric(nodes=2)
        stage.pod("a", templates=("one",))
        async with stage.scheduling():
            await stage.pass_time(3)
            ((lost, _),) = stage.devices()
            assert stage.node_of("a") == ""
            stage.api.shelf.delete(registry.NODE, ("", lost))
            await stage.pass_time(5)
            ((pool, _),) = stage.devices()
            assert pool != lost
            assert stage.node_of("a") == ""
            _prepared(stage, "Attached")
            await stage.pass_time(3)
            assert stage.node_of("a") == pool
            assert stage.differences() == ()

    play(story)


def test_a_pod_is_bound_only_when_its_device_is_prepared() -> None:
    async def story() -> None:
        stage = _fabric(nodes=1)
        stage.pod("a", templates=("one",))
        async with stage.scheduling():
            await stage.pass_time(30)
            assert len(stage.devices()) == 1
            assert stage.node_of("a") == ""
            _prepared(stage, "Attached")
            await stage.pass_time(3)
            assert stage.node_of("a")

    play(story)


def test_a_device_that_is_not_prepared_in_time_is_given_back() -> None:
    async def story() -> None:
        stage = _fabric(nodes=1)
        stage.pod("a", templates=("one",))
        async with stage.scheduling(conditions_timeout_seconds=10.0):
            await stage.pass_time(3)
            first = stage.claims()[0].metadata.resource_version
            await stage.pass_time(10)
            assert stage.claims()[0].metadata.resource_version != first
            assert stage.node_of("a") == ""

    play(story)


def test_other_pods_get_their_reason_while_one_waits_for_its_device() -> None:
    async def story() -> None:
        stage = _fabric(nodes=1)
        stage.pod("a", templates=("one",))
        async with stage.scheduling():
            await stage.pass_time(3)
            stage.pod("b", templates=("one",))
            await stage.pass_time(3)
            assert stage.node_of("a") == ""
            conditions = {each.type: each for each in stage.the_pod("b").status.conditions}
            assert conditions["PodScheduled"].message.startswith("1 node: ")

    play(story)


def _fabric(*, nodes: int) -> Stage:
    """Nodes with one GPU each that is attached when it is asked for."""
    stage = Stage(nodes=nodes, gpus=1)
    stage.template("one")
    for item in stage.api.all(registry.SLICE):
        tree = stage.api.tree(registry.SLICE, item.metadata.name)
        for device in tree["spec"]["devices"]:
            device |= {
                "bindsToNode": True,
                "bindingConditions": ["Attached"],
                "bindingFailureConditions": ["Failed"],
            }
        stage.api.shelf.put(registry.SLICE, tree)
    return stage


def _prepared(stage: Stage, condition: str) -> None:
    """The driver reports the device of the only claim."""
    name = stage.claims()[0].metadata.name
    tree = stage.api.tree(registry.CLAIM, name, namespace="default")
    (result,) = tree["status"]["allocation"]["devices"]["results"]
    device = {key: result[key] for key in ("driver", "pool", "device")}
    reported = {
        "type": condition,
        "status": "True",
        "reason": "Reported",
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    }
    tree["status"]["devices"] = [device | {"conditions": [reported]}]
    stage.api.shelf.put(registry.CLAIM, tree)
