"""Which pods are tried next: by rank, after a change, after a time."""

from __future__ import annotations

import datetime

from hypothesis import given
from hypothesis import strategies as st

from dovetail.live.queue import scheduling_queue
from dovetail.schedule.pod_order import Rank

NOON = datetime.datetime(2026, 1, 1, 12, tzinfo=datetime.UTC)


def rank(place: int) -> Rank:
    return (place, NOON, "", "", "")


def test_the_best_ranked_come_first() -> None:
    queue = scheduling_queue.SchedulingQueue()
    for place in (3, 1, 2):
        queue.ready(f"pod-{place}", rank(place))
    assert queue.take(2) == ["pod-1", "pod-2"]
    assert queue.take(2) == ["pod-3"]
    assert queue.take(2) == []


def test_a_pod_that_became_more_important_is_taken_once_at_its_new_place() -> None:
    queue = scheduling_queue.SchedulingQueue()
    queue.ready("a", rank(5))
    queue.ready("b", rank(3))
    queue.ready("a", rank(1))
    assert queue.take(9) == ["a", "b"]


def test_a_refused_pod_waits_for_a_change() -> None:
    queue = scheduling_queue.SchedulingQueue()
    queue.park("a", rank(1), [("team", "gpu")])
    assert queue.take(9) == []
    queue.requeue(("team", "other"))
    assert queue.take(9) == []
    queue.requeue(("team", "gpu"))
    assert queue.take(9) == ["a"]
    queue.park("a", rank(1), [])
    assert queue.requeue_all() == 1
    assert queue.take(9) == ["a"]


def test_a_failed_pod_waits_longer_each_time_and_no_event_shortens_it() -> None:
    queue = scheduling_queue.SchedulingQueue()
    first = queue.delay("a", rank(1), now=100.0)
    queue.ready("a", rank(2))
    assert queue.take(9) == []
    assert queue.end_backoffs(first - 0.01) == first
    assert queue.end_backoffs(first) is None
    assert queue.take(9) == ["a"]
    second = queue.delay("a", rank(1), now=200.0)
    assert second - 200.0 > first - 100.0
    for _ in range(100):
        last = queue.delay("a", rank(1), now=0.0)
    assert last == scheduling_queue.LONGEST_DELAY


def test_who_is_gone_never_comes_back() -> None:
    queue = scheduling_queue.SchedulingQueue()
    queue.ready("ready", rank(1))
    queue.park("parked", rank(1), [("team", "gpu")])
    until = queue.delay("delayed", rank(1), now=0.0)
    for id_ in ("ready", "parked", "delayed"):
        queue.drop(id_)
    queue.requeue_all()
    queue.requeue(("team", "gpu"))
    queue.end_backoffs(until)
    assert queue.take(9) == []
    assert queue.counts == {"active": 0, "backoff": 0, "unschedulable": 0}


VERBS = ("ready", "park", "delay", "drop", "take", "stir", "due")


@given(st.lists(st.tuples(st.sampled_from(VERBS), st.integers(0, 5))))
def test_every_pod_is_in_one_place_at_most(steps: list[tuple[str, int]]) -> None:
    queue, now = scheduling_queue.SchedulingQueue(), 0.0
    known: set[str] = set()
    for verb, number in steps:
        id_ = f"pod-{number}"
        now += 0.1
        match verb:
            case "ready":
                queue.ready(id_, rank(number))
                known.add(id_)
            case "park":
                queue.drop(id_)
                queue.park(id_, rank(number), [("team", str(number % 2))])
                known.add(id_)
            case "delay":
                queue.drop(id_)
                queue.delay(id_, rank(number), now)
                known.add(id_)
            case "drop":
                queue.drop(id_)
                known.discard(id_)
            case "take":
                known -= set(queue.take(number))
            case "stir":
                queue.requeue_all()
            case "due":
                queue.end_backoffs(now + 60)
        assert sum(queue.counts.values()) == len(known)
    queue.requeue_all()
    queue.end_backoffs(now + 60)
    assert sorted(queue.take(100)) == sorted(known)


def test_unfinished_pods_come_after_others_one_place_aside_whatever_their_rank() -> None:
    queue = scheduling_queue.SchedulingQueue()
    for number in range(3):
        assert queue.unfinished(f"hard-{number}", rank(0)) == 1
    for number in range(5):
        queue.ready(f"easy-{number}", rank(number + 1))
    assert len(queue) == 8
    assert queue.take(3) == ["easy-0", "easy-1", "hard-0"]
    assert queue.unfinished("hard-0", rank(0)) == 2
    assert queue.take(3) == ["easy-2", "easy-3", "hard-1"]
    assert queue.take(9) == ["easy-4", "hard-2", "hard-0"]
    queue.park("hard-0", rank(0), ())
    assert queue.unfinished("hard-0", rank(0)) == 1, "it had an answer in between"


def test_one_place_goes_to_others_and_to_unfinished_pods_alternately() -> None:
    queue = scheduling_queue.SchedulingQueue()
    queue.unfinished("hard", rank(0))
    for number in range(3):
        queue.ready(f"easy-{number}", rank(number + 1))
    taken = [queue.take(1)[0] for _ in range(2)]
    assert "hard" in taken
    assert "easy-0" in taken


def test_a_pod_that_is_gone_goes_on_no_more_and_one_that_is_ready_keeps_its_place() -> None:
    queue = scheduling_queue.SchedulingQueue()
    queue.unfinished("gone", rank(0))
    queue.unfinished("hard", rank(0))
    queue.ready("hard", rank(1))
    queue.drop("gone")
    assert queue.take_all() == ["hard"]
    assert len(queue) == 0
