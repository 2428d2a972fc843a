"""When a gang starts: an hour and how late it may get, or how many say nothing, or why it never does."""

from __future__ import annotations

import datetime

import pytest

from dovetail.answer import simulate, when
from dovetail.model import plan, policy
from dovetail.world.events import Object
from tests.backfill import timed_cluster
from tests.backfill.timed_cluster import NOON, Work
from tests.batch import stories
from tests.schedule import build


def machines(*, nodes: int = 1, gpus: int = 4) -> list[Object]:
    objects: list[Object] = [build.gpu_class()]
    for index in range(nodes):
        objects += [build.node(f"n{index}"), build.gpu_slice(f"n{index}", gpus)]
    return objects


def asked(facts: list[Object], *waiting: Work) -> dict[str, when.Expectation]:
    every = [*facts, *(fact for work in waiting for fact in timed_cluster.facts_of(work))]
    expectations = when.when(every, policy.DEFAULT, NOON)
    return {timed_cluster.short(expectation.gang.name): expectation for expectation in expectations}


def busy(*works: Work, nodes: int = 1) -> list[Object]:
    """A cluster in which these run since noon."""
    course_ = timed_cluster.TimedCluster(nodes=nodes).arrive(*works).go_on(0).course
    world = course_.world
    assert len(world.running()) == sum(work.pods for work in works)
    return [
        *machines(nodes=nodes),
        *world.pods.values(),
        *world.claims.values(),
        *world.queues.values(),
    ]


def minutes(moment: plan.Instant | None) -> float | None:
    return None if moment is None else (moment - NOON).total_seconds() / 60


def test_a_gang_starts_when_what_is_in_its_way_ends() -> None:
    facts = busy(Work("a", 1, 4, 1, states=1200, most=3600))
    result = asked(facts, Work("b", 2, 2, 1, states=600))["b"]
    assert (minutes(result.start), minutes(result.latest)) == (20, 60)
    assert result.why == "when default/pod/a-0 ends"
    assert result.members == ("b-0", "b-1")


def test_one_after_the_other() -> None:
    facts = busy(Work("a", 1, 4, 1, states=600, is_bounded=False))
    result = asked(
        facts, *(Work(f"w{number}", 1, 4, 1, states=600, at=number) for number in range(3))
    )
    assert [minutes(result[f"w{number}"].start) for number in range(3)] == [10, 20, 30]


def test_what_fits_now_starts_now() -> None:
    result = asked(busy(Work("a", 1, 2, 1, states=600)), Work("b", 1, 2, 1, states=None))["b"]
    assert result.start == result.latest == NOON
    assert result.why == ""


def test_work_that_says_nothing_makes_a_start_unbounded() -> None:
    facts = busy(Work("a", 1, 2, None, states=None), Work("b", 1, 2, None, states=None))
    result = asked(facts, Work("c", 1, 4, 1, states=600))["c"]
    assert result.start is None
    assert result.why == "unbounded: 2 holders state no runtime"


def test_what_is_too_large_never_starts_and_says_why() -> None:
    result = asked(busy(Work("a", 1, 4, 1, states=600)), Work("b", 1, 5, 1, states=600))["b"]
    assert result.start is None
    assert result.why.startswith("never, as things are: ")
    assert "needs 5" in result.why


def test_what_waits_behind_work_that_never_ends_is_unbounded_too() -> None:
    facts = busy(Work("a", 1, 4, 1, states=600, is_bounded=False))
    result = asked(
        facts, Work("b", 1, 4, 1, states=None, at=1), Work("c", 1, 4, 1, states=600, at=2)
    )
    assert minutes(result["b"].start) == 10
    assert result["c"].why == "unbounded: 1 holder states no runtime"


def test_what_should_have_ended_is_expected_to_any_moment() -> None:
    facts = busy(Work("a", 1, 4, 1, states=600, is_bounded=False))
    late = NOON + datetime.timedelta(minutes=30)
    (result,) = when.when(
        [*facts, *timed_cluster.facts_of(Work("b", 1, 4, 1, states=60))], policy.DEFAULT, late
    )
    # 600 s, then a tenth more over and over: 660, 726, ... 1706, 1876.
    assert result.start == NOON + datetime.timedelta(seconds=1876)


def test_a_queue_that_limits_runtimes_makes_starts_known() -> None:
    space = stories.world().namespaces.values()
    owned = [
        *busy(Work("a", 1, 4, None, states=None, queue="q")),
        stories.queue("q", max_runtime_seconds=1800),
    ]
    result = asked([*owned, *space], Work("b", 1, 4, 1, states=600, queue="q"))
    assert minutes(result["b"].start) == 30


def test_the_answer_changes_nothing() -> None:
    facts = busy(Work("a", 1, 4, 1, states=600, is_bounded=False))
    assert asked(facts, Work("b", 1, 4, 1, states=60)) == asked(
        facts, Work("b", 1, 4, 1, states=60)
    )


@pytest.mark.parametrize("stuck", [False, True])
def test_a_gang_of_which_too_little_is_left_does_not_keep_the_answer_waiting(stuck: bool) -> None:
    """It was about to be taken back in a minute, at every minute, for thousands of them."""
    leaving = (
        {"deletionTimestamp": stories.stamp(60), "finalizers": ["example.com/kept"]}
        if stuck
        else {}
    )
    left = stories.member("left-0", "", "left", 2, node="n0", metadata=leaving)
    waits = stories.pod("huge", "", gpus=9)
    going = simulate.Simulation([*machines(), left, waits], policy.DEFAULT, stories.NOW)
    going.run()
    assert going.turns < 10
    (result,) = [
        expectation
        for expectation in when.when([*machines(), left, waits], policy.DEFAULT, stories.NOW)
        if "huge" in expectation.members
    ]
    assert result.why.startswith("never, as things are: ")
