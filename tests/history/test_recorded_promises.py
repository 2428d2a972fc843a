"""Promises, evictions, unusable capacity and prices as the recorder makes records of them. Times are small numbers."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from dovetail.history import unusable_capacity
from dovetail.history.history_recorder import Times
from dovetail.kubetypes import meta
from dovetail.kubetypes.core import pods
from dovetail.kubetypes.custom import intents
from dovetail.model.accounting.records import (
    MICRO_GPU,
    Decision,
    PriceList,
    Promise,
    Records,
    Unusable,
)
from tests.history.test_history_recorder import Story, held, running
from tests.world import build


def intent(
    name: str, start: str = "", *, attempt: int = 1, moved_from: str = "", cause: str = ""
) -> intents.Intent:
    seats = (intents.Member(pod="p", uid="pod-p", node="n"),) if start else ()
    promise = intents.Promise(start=start, moved_from=moved_from, cause=cause, seats=seats)
    return intents.Intent(
        metadata=meta.ObjectMeta(namespace="default", name=name, uid=name),
        spec=intents.IntentSpec(gang="job/train", attempt=attempt, promise=promise),
    )


FIRST = intent("first", "1970-01-01T00:00:07Z")
LATER = intent(
    "later",
    "1970-01-01T00:00:09Z",
    attempt=2,
    moved_from="1970-01-01T00:00:07Z",
    cause="node m is gone",
)


def observe(story: Story, item: intents.Intent, at: int, *, is_there: bool = True) -> None:
    times = Times(at, at)
    story.keep(story.recorder.observe_intent(item, is_there=is_there, times=times))


def test_a_promise_lasts_until_it_moves_and_ends_with_its_intent() -> None:
    story = Story(build.node("n"), build.pod("p"))
    observe(story, FIRST, 200)
    observe(story, LATER, 300)  # written before the old one is deleted
    observe(story, FIRST, 310, is_there=False)
    observe(story, LATER, 500, is_there=False)
    promised, moved = story.of(Promise)
    assert (promised.start, promised.end, promised.promised_start) == (200, 300, 7_000)
    assert (promised.gang, promised.owner.pod, promised.nodes) == ("default/job/train", "p", ("n",))
    assert (moved.start, moved.end, moved.promised_start) == (300, 500, 9_000)
    assert (moved.moved_from, moved.cause) == (7_000, "node m is gone")


def test_a_lost_promise_has_no_start_and_keeps_its_owner() -> None:
    story = Story(build.node("n"), build.pod("p"))
    observe(story, FIRST, 200)
    lost = intent("lost", attempt=2, moved_from="1970-01-01T00:00:07Z", cause="node n is gone")
    observe(story, lost, 300)
    last = story.of(Promise)[-1]
    assert (last.promised_start, last.moved_from, last.owner.pod) == (None, 7_000, "p")


def test_intents_that_promise_nothing_leave_no_trace() -> None:
    story = Story(build.node("n"))
    observe(story, intent("odd", "at noon"), 200)
    observe(story, intents.Intent(metadata=meta.ObjectMeta(namespace="default", name="x")), 210)
    observe(story, FIRST, 220, is_there=False)
    assert story.of(Promise) == []


def test_a_promise_goes_on_after_a_restart_or_ended_unseen() -> None:
    story = Story(build.node("n"), build.pod("p"))
    observe(story, FIRST, 200)
    opened = Records(promises=tuple(story.of(Promise)))
    for present, spans in (([FIRST], [(200, None)]), ([], [(200, 250)])):
        again = Story(build.node("n"), build.pod("p"), opened=Records())
        again.recorder.prime_intents(present)
        again.resume(opened, watched_until=250, now=400)
        assert again.spans(Promise) == spans


def test_a_list_that_lacks_an_intent_ends_its_promise() -> None:
    story = Story(build.node("n"), build.pod("p"))
    observe(story, FIRST, 200)
    story.keep(story.recorder.observe_intents([], times=Times(300, 300)))
    assert story.spans(Promise) == [(200, 300)]


def evicted(message: str) -> pods.Pod:
    condition = pods.PodCondition(
        type="DisruptionTarget", status="True", reason="PreemptionByScheduler", message=message
    )
    pod = running()
    return build.replaced(pod, status=build.replaced(pod.status, conditions=(condition,)))


def test_an_eviction_says_for_whom_and_by_which_rule() -> None:
    story = Story(build.node("n"), build.gpu_slice("n"), held("p"), running())
    story.put(
        evicted("yields to serve/gang/llm (Reclaimed): queue research is over its quota"), 300
    )
    [decision] = [each for each in story.others if isinstance(each, Decision)]
    assert (decision.kind, decision.rule, decision.in_favour_of, decision.detail) == (
        "yielded",
        "Reclaimed",
        "serve/gang/llm",
        "queue research is over its quota",
    )


def test_an_eviction_by_another_component_keeps_its_words() -> None:
    story = Story(build.node("n"), build.gpu_slice("n"), held("p"), running())
    story.put(evicted("the node is drained"), 300)
    [decision] = [each for each in story.others if isinstance(each, Decision)]
    assert (decision.rule, decision.in_favour_of) == ("PreemptionByScheduler", "")
    assert decision.detail == "the node is drained"


# Unusable capacity


def measure(story: Story, at: int, **by_node: int) -> None:
    story.keep(story.recorder.note_unusable(by_node, times=Times(at, at)))


def two_gpus(*more: Any) -> Story:
    return Story(build.node("n"), build.gpu_slice("n", gpus=2), *more)


def parts(story: Story) -> list[tuple[str, int, int, int | None]]:
    return [(each.asset, each.micro_gpu, each.start, each.end) for each in story.of(Unusable)]


def test_unusable_capacity_lasts_until_a_measurement_differs() -> None:
    story = two_gpus()
    measure(story, 200, n=MICRO_GPU * 3 // 2)
    measure(story, 300, n=MICRO_GPU * 3 // 2 + unusable_capacity.STEP - 1)  # the same
    measure(story, 400)
    assert parts(story) == [
        ("GPU-n-0", MICRO_GPU, 200, 400),
        ("GPU-n-1", MICRO_GPU // 2, 200, 400),
    ]


def test_an_allocation_takes_its_part_away_at_the_next_measurement() -> None:
    story = two_gpus()
    measure(story, 200, n=2 * MICRO_GPU)
    story.put(running(), 250)
    story.put(held("p"), 250)
    measure(story, 300, n=MICRO_GPU)
    assert parts(story) == [
        ("GPU-n-0", MICRO_GPU, 200, 300),
        ("GPU-n-1", MICRO_GPU, 200, None),
    ]


def test_a_cordoned_node_has_no_usable_gpus_whatever_the_mix() -> None:
    node = build.node("n")
    cordoned = build.replaced(node, spec=build.replaced(node.spec, unschedulable=True))
    story = two_gpus()
    story.put(cordoned, 150)
    measure(story, 200)
    assert {each.why for each in story.of(Unusable)} == {unusable_capacity.CORDONED}
    assert [each.micro_gpu for each in story.of(Unusable)] == [MICRO_GPU, MICRO_GPU]
    story.put(node, 250)
    measure(story, 300)
    assert [each.end for each in story.of(Unusable)] == [300, 300]


def test_unusable_capacity_and_prices_go_on_after_a_restart() -> None:
    story = two_gpus()
    measure(story, 200, n=MICRO_GPU)
    price = PriceList("prices.yaml", "currency: USD\n", 0)
    story.keep(story.recorder.note_prices(price, times=Times(200, 200)))
    opened = Records(unusable=tuple(story.of(Unusable)), prices=tuple(story.of(PriceList)))
    again = Story(build.node("n"), build.gpu_slice("n", gpus=2), opened=Records())
    again.resume(opened, watched_until=250, now=400)
    measure(again, 450, n=MICRO_GPU)
    again.keep(again.recorder.note_prices(price, times=Times(400, 400)))
    assert again.spans(Unusable) == [(200, None)]
    assert again.spans(PriceList) == [(200, None)]


def test_a_changed_price_file_leaves_no_time_without_prices() -> None:
    story = two_gpus()
    documents = [PriceList("prices.yaml", f"currency: {name}\n", 0) for name in ("USD", "EUR")]
    for at, document in ((200, documents[0]), (300, documents[0]), (400, documents[1])):
        story.keep(story.recorder.note_prices(document, times=Times(at, at)))
    story.keep(story.recorder.note_prices(None, times=Times(500, 500)))
    assert [(each.document[10:13], each.start, each.end) for each in story.of(PriceList)] == [
        ("USD", 200, 400),
        ("EUR", 400, 500),
    ]


@given(
    free=st.dictionaries(st.sampled_from("abcdef"), st.integers(1, MICRO_GPU)),
    amounts=st.lists(st.integers(0, 7 * MICRO_GPU), min_size=1, max_size=4),
)
def test_parts_add_up_to_what_was_measured_and_are_free(
    free: dict[str, int], amounts: list[int]
) -> None:
    before: list[Unusable] = []
    for amount in amounts:
        before = unusable_capacity.unusable({"n": free}, {"n": amount}, {}, before)
        total = sum(part.micro_gpu for part in before)
        expected = min(amount, sum(free.values()))
        assert abs(total - expected) < unusable_capacity.STEP
        assert all(part.micro_gpu <= free[part.asset] for part in before)
        assert len({part.asset for part in before}) == len(before)
