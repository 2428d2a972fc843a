"""Priority without queues, decided by us and by kube-scheduler's own preemption plugin: who starts, where, who goes."""

from __future__ import annotations

import random
from typing import Final

import pytest

from tests.generators import preemptions
from tests.schedule import preempting
from tests.support import oracle

pytestmark = pytest.mark.slow

SEEDS: Final = range(1, 101)  # clusters of up to seven nodes and 60 pods, with up to five that wait


def test_pod_by_pod_we_preempt_as_kube_scheduler_does() -> None:
    tally = preempting.Tally()
    for seed in SEEDS:
        preempting.compare_singly(_case(seed), oracle.session(), tally)
        assert not tally.differences, _describe(seed, tally)
    _assert_that_much_was_compared(tally)


def test_one_decision_about_all_is_what_kube_scheduler_does_one_after_the_other() -> None:
    tally = preempting.Tally()
    for seed in SEEDS:
        preempting.compare_together(_case(seed), oracle.session(), tally)
        assert not tally.differences, _describe(seed, tally)
    _assert_that_much_was_compared(tally)


def test_a_pod_only_one_side_may_end_is_noticed() -> None:
    """The comparison itself: only our side knows that every other running pod may not be evicted."""
    tally = preempting.Tally()
    for seed in SEEDS:
        case = _case(seed)
        both = preempting.Both(oracle.session(), case.objects)
        running = [item["metadata"]["uid"] for item in case.objects if item["kind"] == "Pod"]
        for pod in case.waiting[:1]:
            outcome = both.ours([pod], spared=running[::2])[pod["metadata"]["uid"]]
            preempting.compared(both, pod, outcome, tally)
    assert (
        len({difference.ours.kind for difference in tally.differences}) == 2
    )  # waits in vain, ends others


def _assert_that_much_was_compared(tally: preempting.Tally) -> None:
    assert tally.outcomes["preempts"] > 80
    assert tally.outcomes["starts"] > 40
    assert tally.outcomes["waits"] > 80
    assert tally.outcomes["a budget protects"] > 5
    assert tally.victims > 130
    assert tally.heard_late <= 2


def _case(seed: int) -> preemptions.Case:
    return preemptions.case(random.Random(seed))


def _describe(seed: int, tally: preempting.Tally) -> str:
    result = tally.differences[0]
    return f"seed {seed}: pod {result.pod['metadata']['name']}: ours {result.ours}, theirs {result.theirs}"
