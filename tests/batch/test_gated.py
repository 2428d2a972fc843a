"""A gated pod reads which gates hold it, whether there are queues or not, and its gang reads that it is gated."""

from __future__ import annotations

from dovetail.model import plan
from dovetail.model.reasons import ReasonCode
from tests.batch import stories
from tests.schedule import build

GATES = {"schedulingGates": [{"name": "example.com/quota"}, {"name": "example.com/data"}]}


def refusal_of(decided: plan.Plan, name: str) -> plan.Refusal:
    return next(refusal for refusal in decided.refusals if refusal.pod.name == name)


def test_a_gated_pod_reads_its_gates_also_where_queues_exist() -> None:
    for queues in ((), (stories.queue("lab", gpu=2),)):
        world = stories.world(stories.plugin_node("n"), *queues)
        build.put(world, stories.pod("p", "lab", gpus=1, **GATES))
        refusal = refusal_of(stories.decided(world), "p")
        assert refusal.summary == (
            "gate example.com/quota: is not removed yet; gate example.com/data: is not removed yet"
        )
        codes = [obstacle.reason.code for obstacle in refusal.obstacles]
        assert codes == [ReasonCode.GATED, ReasonCode.GATED]


def test_a_gated_pod_of_a_queue_that_does_not_exist_reads_its_gates_first() -> None:
    world = stories.world(stories.plugin_node("n"), stories.queue("lab", gpu=2))
    build.put(world, stories.pod("p", "nowhere", gpus=1, **GATES))
    assert refusal_of(stories.decided(world), "p").summary.startswith("gate example.com/quota")


def test_the_mates_of_a_gated_pod_read_how_many_are_gated() -> None:
    world = stories.world(stories.plugin_node("n"), stories.queue("lab", gpu=8))
    build.put(world, stories.member("free-0", "lab", "train", 3, gpus=1))
    build.put(world, stories.member("free-1", "lab", "train", 3, gpus=1))
    build.put(world, stories.member("held", "lab", "train", 3, gpus=1, **GATES))
    decided = stories.decided(world)
    assert refusal_of(decided, "free-0").summary == (
        "2 of its pods are there and free to start, 1 is gated; its minimum is 3: 1 more is needed"
    )
    assert refusal_of(decided, "held").summary.startswith("gate example.com/quota")
