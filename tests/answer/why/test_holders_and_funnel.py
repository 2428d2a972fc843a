"""Who holds what is missing, and how many nodes and devices each rule leaves."""

from __future__ import annotations

from tests.answer.why import clusters
from tests.answer.why.clusters import claim, device_class, gpus, node, pod


def steps(answer: clusters.Why, of: str) -> list[tuple[int, str]]:
    return [(step.left, step.step) for step in answer.funnel if step.of == of]


def test_nodes_leave_at_the_first_rule_that_keeps_the_pod_off() -> None:
    answer = clusters.ask(
        node("a", 8, unschedulable=True),
        node("b", 8, taints=[clusters.taint("sku", "gpu")]),
        node("c", 8, labels={"zone": "y"}),
        node("d", 8, labels={"zone": "x"}),
        node("e", labels={"zone": "x"}),
        pod("busy", 8, on="d"),
        pod("waits", 4, nodeSelector={"zone": "x"}),
    )
    assert steps(answer, "nodes") == [
        (5, "all"),
        (4, "are not cordoned"),
        (3, "have taints that it tolerates"),
        (2, "have the labels it asks for"),
        (0, "have nvidia.com/gpu left"),
    ]
    assert answer.funnel[-1].detail == "needs 4, at most 0"


def test_devices_are_counted_after_every_condition_of_a_selector() -> None:
    selector = (
        f'{clusters.ATTRIBUTES}.architecture == "Hopper" && '
        f'{clusters.CAPACITY}.memory.compareTo(quantity("96Gi")) >= 0'
    )
    answer = clusters.ask(
        device_class(),
        node("a"),
        gpus("a"),
        node("b"),
        gpus("b"),
        claim("c", when=selector),
        pod("waits", uses=("c",)),
    )
    assert steps(answer, "devices") == [
        (8, "claim c, request gpus (needs 1 per node)"),
        (8, "of class gpu"),
        (8, 'with architecture == "Hopper"'),
        (0, "with memory >= 96Gi"),
        (0, "free"),
    ]
    assert answer.funnel[-2].detail == "memory is 80Gi on all 8 devices"


def test_holders_that_end_first_come_first() -> None:
    annotations = {"dovetail.dev/expected-runtime": "2h"}
    short = pod("short", 2, on="a", metadata={"annotations": annotations})
    answer = clusters.ask(
        node("a", 8), short, pod("long", 6, on="a", priority=5), node("b"), pod("waits", 8)
    )
    assert [holder.pod for holder in answer.holders] == ["team/short", "team/long"]
    first, second = answer.holders
    assert first.holds == "2 nvidia.com/gpu on node a"
    assert first.until is not None
    assert first.until.isoformat() == "2026-11-17T13:00:00+00:00"
    assert (second.until, second.priority, second.node) == (None, 5, "a")


def test_holders_are_bounded_and_the_rest_is_counted() -> None:
    running = [pod(f"r{number:02}", 1, on="a") for number in range(14)]
    answer = clusters.ask(node("a", 14), *running, pod("waits", 1))
    assert (len(answer.holders), answer.more_holders) == (10, 4)


def test_holders_of_devices_are_named_with_them() -> None:
    answer = clusters.ask(
        device_class(),
        node("a"),
        gpus("a", 2),
        *clusters.holding("user", "a", "gpu-1"),
        claim("c", 2),
        pod("waits", uses=("c",)),
    )
    (holder,) = answer.holders
    assert (holder.pod, holder.holds) == ("team/user", "1 device (gpu-1) on node a")


def test_pods_that_start_first_hold_what_they_are_given() -> None:
    answer = clusters.ask(node("a", 8), pod("first", 8, priority=1), pod("waits", 8))
    (holder,) = answer.holders
    assert (holder.pod, holder.since) == ("team/first", None)


def test_holders_are_named_with_the_queue_that_is_charged() -> None:
    everyone = {"namespaceSelector": {}}
    answer = clusters.ask(
        clusters.queue("lab", **everyone),
        node("a", 8),
        pod("busy", 8, on="a", metadata={"labels": {"dovetail.dev/queue": "lab"}}),
        pod("waits", 8, metadata={"labels": {"dovetail.dev/queue": "lab"}}),
    )
    assert [holder.queue for holder in answer.holders] == ["lab"]


def test_a_queue_that_is_full_comes_before_the_nodes_that_are() -> None:
    limit = {"resources": {"gpu": {"limit": 8}}}
    answer = clusters.ask(
        clusters.queue("lab", namespaceSelector={}, **limit),
        node("a", 8),
        node("b", 8),
        pod("busy", 8, on="a", metadata={"labels": {"dovetail.dev/queue": "lab"}}),
        pod("waits", 8, metadata={"labels": {"dovetail.dev/queue": "lab"}}),
    )
    assert answer.cause is not None
    assert (answer.cause.class_, answer.cause.code) == ("quota", "QueueLimitReached")
    assert answer.cause.sentence.startswith("queue lab: 8 in use and 8 wanted exceed its limit, 8")
