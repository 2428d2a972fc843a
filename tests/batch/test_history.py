"""Past use: it fades, survives restarts, and lowers what a queue is due until the others caught up."""

from __future__ import annotations

import datetime
import itertools
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dovetail.kubetypes.custom import queues
from dovetail.live.report import queue_usage
from dovetail.model import policy
from dovetail.schedule.queue import amounts, usage_history
from tests.batch import stories
from tests.batch.test_fairshare import Asks, divided, fair, shares
from tests.schedule import build

HALF_LIFE = 3600.0
HOLDS = queues.ShareStatus(charged="4")


class Watch:
    """A clock that the test sets."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def now(self) -> datetime.datetime:
        return stories.NOW + datetime.timedelta(seconds=self.seconds)

    def monotonic(self) -> float:
        return self.seconds

    async def sleep(self, seconds: float) -> None:
        self.seconds += seconds


@given(st.floats(0, 1e6), st.floats(0, 100), st.floats(0, 1e5), st.floats(0, 1e5))
def test_two_steps_are_one(old: float, held: float, first: float, second: float) -> None:
    at_once = usage_history.decayed(old, held, first + second, HALF_LIFE)
    in_steps = usage_history.decayed(
        usage_history.decayed(old, held, first, HALF_LIFE), held, second, HALF_LIFE
    )
    assert in_steps == pytest.approx(at_once, rel=1e-9, abs=1e-6)


def test_use_halves_in_a_half_life_and_never_exceeds_what_lasts() -> None:
    assert usage_history.decayed(100, 0, HALF_LIFE, HALF_LIFE) == pytest.approx(50)
    assert usage_history.decayed(0, 2, 1e9, HALF_LIFE) == pytest.approx(
        2 * usage_history.steady_usage(HALF_LIFE)
    )
    assert usage_history.decayed(100, 5, -3, HALF_LIFE) == 100


@given(st.floats(0, 1), st.floats(0, 1), st.floats(0.1, 3))
def test_of_two_alike_the_one_that_used_more_gets_no_more(
    one: float, other: float, strength: float
) -> None:
    result = shares(
        divided(
            12, Asks("a", 12), Asks("b", 12, age=1), usage={"a": one, "b": other}, strength=strength
        )
    )
    assert result["a"] <= result["b"] + 1 if one >= other else result["b"] <= result["a"] + 1


def test_without_use_nothing_changes() -> None:
    asked = (Asks("a", 12, quota=2), Asks("b", 12, weight=3))
    assert shares(divided(12, *asked, usage={"a": 0.0}, strength=5.0)) == fair(12, *asked)
    assert shares(divided(12, *asked, usage={}, strength=5.0)) == fair(12, *asked)


def test_a_quota_is_sure_however_much_was_used() -> None:
    result = shares(
        divided(12, Asks("a", 12, quota=4), Asks("b", 12), usage={"a": 1.0}, strength=3.0)
    )
    assert result == {"a": 4, "b": 8}


@settings(max_examples=15)
@given(st.floats(0, 0.9))
def test_shares_even_out(ahead: float) -> None:
    """One queue used more: the other has more until both used the same, and then they have the same."""
    used = {"a": ahead * 12 * usage_history.steady_usage(HALF_LIFE), "b": 0.0}
    last = {"a": 0.0, "b": 0.0}
    for _ in range(200):
        past = {
            name: value / (12 * usage_history.steady_usage(HALF_LIFE))
            for name, value in used.items()
        }
        last = shares(divided(12, Asks("a", 12), Asks("b", 12, age=1), usage=past, strength=1.0))
        if used["a"] > used["b"] * 1.1 and past["a"] > 0.1:
            assert last["a"] <= last["b"]
        used = {
            name: usage_history.decayed(value, last[name], 600, HALF_LIFE)
            for name, value in used.items()
        }
    assert abs(last["a"] - last["b"]) <= 2
    assert used["a"] == pytest.approx(used["b"], rel=0.15)


# Kept, over restarts


def kept(
    watch: Watch, known: dict[str, queues.Queue]
) -> tuple[queue_usage.QueueUsage, list[dict[str, queues.QueueStatus]]]:
    messages: list[dict[str, queues.QueueStatus]] = []
    keeper = queue_usage.QueueUsage(
        known,
        lambda numbers: messages.append(dict(numbers)),
        clock=watch,
        half_life_seconds=HALF_LIFE,
    )
    return keeper, messages


def test_use_adds_up_and_survives_a_restart() -> None:
    watch = Watch()
    known = {"a": stories.queue("a", gpu=4)}
    keeper, messages = kept(watch, known)
    keeper.publish({"a": queues.QueueStatus(resources={"gpu": HOLDS})})
    assert messages[-1]["a"].usage == {}
    watch.seconds = HALF_LIFE
    keeper.publish({"a": queues.QueueStatus(resources={"gpu": HOLDS})})
    worth = float(messages[-1]["a"].usage["gpu"])
    assert worth == pytest.approx(4 * usage_history.steady_usage(HALF_LIFE) / 2, rel=1e-6)
    assert messages[-1]["a"].usage_time == "2026-06-01T13:00:00Z"

    known["a"] = msgspec.structs.replace(known["a"], status=messages[-1]["a"])
    watch.seconds = 2 * HALF_LIFE  # what was held meanwhile is unknown
    again, messages = kept(watch, known)
    again.publish({"a": queues.QueueStatus(resources={"gpu": HOLDS})})
    assert float(messages[-1]["a"].usage["gpu"]) == pytest.approx(worth / 2, rel=1e-6)


def test_a_clock_that_was_set_back_loses_nothing() -> None:
    watch = Watch()
    keeper, messages = kept(watch, {"a": stories.queue("a")})
    keeper.publish({"a": queues.QueueStatus(resources={"gpu": HOLDS})})
    watch.seconds = 100.0
    keeper.publish({"a": queues.QueueStatus(resources={"gpu": HOLDS})})
    before = messages[-1]["a"].usage
    watch.seconds = 50.0
    keeper.publish({"a": queues.QueueStatus(resources={"gpu": HOLDS})})
    assert messages[-1]["a"].usage == before


def test_what_shares_count_moves_in_steps_and_survives_a_restart() -> None:
    watch = Watch()
    known = {"a": stories.queue("a"), "b": stories.queue("b")}
    keeper, messages = kept(watch, known)
    item, other = queues.ShareStatus(charged="5"), queues.ShareStatus(charged="4")
    for _ in range(60):
        keeper.publish(
            {
                "a": queues.QueueStatus(resources={"gpu": item}),
                "b": queues.QueueStatus(resources={"gpu": other}),
            }
        )
        watch.seconds += 60
    counts = [status["a"].usage_counted.get("gpu", "") for status in messages]
    minutes = [
        minute
        for minute, (before, now) in enumerate(itertools.pairwise(counts), 1)
        if before != now
    ]
    # An hour is half of what lasts, counted in twentieths; a full minute is the first that has passed a twentieth.
    assert minutes == [5, 10, 15, 21, 27, 34, 41, 49, 57]
    last = messages[-1]
    assert float(last["a"].usage_counted["gpu"]) > float(last["b"].usage_counted["gpu"]) > 0

    known["a"] = msgspec.structs.replace(known["a"], status=last["a"])
    again, messages = kept(watch, known)
    again.publish({"a": queues.QueueStatus(resources={"gpu": item})})
    assert messages[-1]["a"].usage_counted == last["a"].usage_counted


@pytest.mark.parametrize("text", ["", "a lot", "-1", "nan", "inf"])
def test_unreadable_usage_counts_as_none(text: str) -> None:
    status = queues.QueueStatus(usage={"gpu": text}, usage_time="2026-06-01T12:00:00Z")
    assert usage_history.read(status)[0] == {}
    assert (
        usage_history.read(msgspec.structs.replace(status, usage={"gpu": "3"}, usage_time="once"))[
            1
        ]
        is None
    )


# In a decision


def used(name: str, gpu_seconds: float, **spec: Any) -> queues.Queue:
    queue = stories.queue(name, **spec)
    status = queues.QueueStatus(usage_counted={"nvidia.com/gpu": str(gpu_seconds)})
    return msgspec.structs.replace(queue, status=status)


def test_who_used_less_is_due_more() -> None:
    ever = 8 * usage_history.steady_usage(HALF_LIFE)
    world = stories.world(
        stories.plugin_node("n0", 8), used("a", ever * 0.75, gpu=0), used("b", ever * 0.25, gpu=0)
    )
    for number in range(8):
        build.put(
            world, stories.pod(f"a{number}", "a", gpus=1), stories.pod(f"b{number}", "b", gpus=1)
        )
    batch = policy.Batch(usage_weight=1.0, usage_half_life_seconds=int(HALF_LIFE))
    done = stories.decided(world, policy=policy.Policy(batch=batch))
    assert done.queues["a"].resources["gpu"].fair_share == "2"
    assert done.queues["b"].resources["gpu"].fair_share == "6"
    started = [name[0] for name in stories.started(done)]
    assert (started.count("a"), started.count("b")) == (2, 6)
    plain = stories.decided(world)
    assert plain.queues["a"].resources["gpu"].fair_share == "4"  # off by default


def test_parts_need_a_capacity() -> None:
    known = {"a": used("a", 100.0), "b": stories.queue("b")}
    assert usage_history.parts(known, {}, half_life=HALF_LIFE) == {"a": {}}
    assert usage_history.parts(known, {amounts.GPU: 1000}, half_life=HALF_LIFE)["a"][
        "gpu"
    ] == pytest.approx(100 / usage_history.steady_usage(HALF_LIFE))


# The numbers of a decision


def test_a_decision_returns_the_numbers_it_used() -> None:
    shares_ = {"nvidia.com/gpu": {"quota": 2, "limit": 6}, stories.H100_NAME: {"quota": 1}}
    parent = stories.queue("all", {"gpu": {"quota": 8}})
    world = stories.world(
        stories.plugin_node("n0", 8), parent, stories.queue("a", shares_, parent="all")
    )
    build.put(world, stories.pod("runs", "a", gpus=1, node="n0"), stories.pod("waits", "a", gpus=8))
    build.put(world, stories.pod("starts", "a", gpus=2))
    done = stories.decided(world)
    result = done.queues["a"]
    assert set(result.resources) == {"cpu", "memory", "gpu", stories.H100_NAME}
    gpu = result.resources["gpu"]
    assert (gpu.charged, gpu.requested, gpu.fair_share, gpu.allocatable) == ("3", "11", "6", "6")
    assert result.dominant_share == "0.5"
    assert (result.running, result.pending) == (2, 1)
    assert done.queues["all"].running == 2
    assert result.resources["cpu"].allocatable == ""  # without end
    assert "" not in done.queues
