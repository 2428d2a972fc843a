"""Conditions and events of pending pods: once per change of reason, at a bounded rate."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import msgspec
import pytest

from dovetail.kubetypes import registry
from dovetail.kubetypes.core import api_events, pods
from dovetail.live.report import recorder
from dovetail.model import plan
from dovetail.model.reasons import Reason, ReasonCode
from dovetail.ports import failures, meter
from dovetail.ports.api import Target
from tests.live.live_scheduler import Stage, play


def refusal(pod: pods.Pod, code: ReasonCode, text: str) -> plan.Refusal:
    reason = Reason(code=code, subject="gpu", detail=text)
    return plan.Refusal(
        pod=plan.pod_ref(pod), summary=text, obstacles=(plan.Obstacle(reason=reason, nodes=1),)
    )


def run_story(story: Callable[[Stage, recorder.Recorder], Awaitable[None]]) -> None:
    async def main() -> None:
        stage = Stage(nodes=1, gpus=1)
        stage.pod("a")
        reports = recorder.Recorder(
            stage.api, stage.clock, meter.NoMeter(), latest=lambda uid: latest(stage, uid)
        )
        task = asyncio.create_task(reports.run())
        await story(stage, reports)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    play(main)


def latest(stage: Stage, uid: str) -> pods.Pod | None:
    return next((pod for pod in stage.api.all(registry.POD) if pod.metadata.uid == uid), None)


def condition(stage: Stage) -> pods.PodCondition:
    return next(
        item for item in stage.the_pod("a").status.conditions if item.type == "PodScheduled"
    )


def test_numbers_that_change_are_no_new_event_but_reach_the_condition_in_time() -> None:
    async def story(stage: Stage, reports: recorder.Recorder) -> None:
        for number in range(5):
            reports.refused(
                stage.the_pod("a"),
                refusal(stage.the_pod("a"), ReasonCode.IN_USE, f"{number} nodes"),
            )
            await stage.clock.advance(1)
        assert len(stage.events("FailedScheduling")) == 1
        assert condition(stage).message == "0 nodes"
        await stage.clock.advance(recorder.REFRESH_SECONDS)
        reports.refused(
            stage.the_pod("a"), refusal(stage.the_pod("a"), ReasonCode.IN_USE, "9 nodes")
        )
        await stage.clock.advance(1)
        assert len(stage.events("FailedScheduling")) == 1
        assert condition(stage).message == "9 nodes"

    run_story(story)


def test_numbers_of_the_last_decision_reach_the_condition_on_a_quiet_cluster() -> None:
    async def story(stage: Stage, reports: recorder.Recorder) -> None:
        for number in range(5):
            pod = stage.the_pod("a")
            reports.refused(pod, refusal(pod, ReasonCode.IN_USE, f"{number} nodes"))
            reports.report_deferred()
            await stage.clock.advance(1)
        assert condition(stage).message == "0 nodes"

        await stage.clock.advance(recorder.REFRESH_SECONDS)
        reports.report_deferred()
        await stage.clock.advance(1)
        assert condition(stage).message == "4 nodes"
        assert len(stage.events("FailedScheduling")) == 1

    run_story(story)


def test_another_reason_is_another_event_and_keeps_the_time_of_the_transition() -> None:
    async def story(stage: Stage, reports: recorder.Recorder) -> None:
        reports.refused(
            stage.the_pod("a"), refusal(stage.the_pod("a"), ReasonCode.IN_USE, "in use")
        )
        await stage.clock.advance(5)
        since = condition(stage).last_transition_time
        reports.refused(
            stage.the_pod("a"), refusal(stage.the_pod("a"), ReasonCode.TAINT, "tainted")
        )
        await stage.clock.advance(5)
        assert [tree.note for tree in stage.events("FailedScheduling")] == [
            "in use",
            "tainted",
        ] or len(stage.events("FailedScheduling")) == 2
        assert (condition(stage).message, condition(stage).last_transition_time) == (
            "tainted",
            since,
        )

    run_story(story)


def test_a_condition_that_is_always_refused_ends_as_an_event_and_delays_no_report() -> None:
    async def story(stage: Stage, reports: recorder.Recorder) -> None:
        others = [f"big-{number}" for number in range(40)]
        for name in others:
            stage.pod(name)
        tries = 0

        def before(verb: str, target: Target) -> None:
            nonlocal tries
            if target.name.startswith("big-"):
                tries += 1
                raise failures.Unavailable("500: never", status=500)

        stage.api.before = before
        for name in (*others, "a"):
            reports.refused(
                stage.the_pod(name), refusal(stage.the_pod(name), ReasonCode.IN_USE, "in use")
            )
        await stage.clock.advance(0.4)
        assert condition(stage).message == "in use"
        for _ in range(200):
            await stage.clock.advance(1)
        assert tries == len(others) * recorder.MAX_TRIES
        assert len(stage.events("FailedScheduling")) == len(others) + 1

    run_story(story)


@pytest.mark.parametrize(
    "code",
    [
        ReasonCode.CLAIM_NOT_MADE,
        ReasonCode.CLAIM_RETURNING,
        ReasonCode.GANG_INCOMPLETE,
        ReasonCode.VOLUME_MISSING,
        ReasonCode.VOLUME_UNBOUND,
    ],
)
def test_what_is_about_to_be_created_is_reported_only_if_that_takes_long(code: ReasonCode) -> None:
    async def story(stage: Stage, reports: recorder.Recorder) -> None:
        pod = stage.the_pod("a")
        reports.refused(pod, refusal(pod, code, "not yet"))
        await stage.clock.advance(recorder.TRANSIENT_SECONDS - 1)
        assert stage.events("FailedScheduling") == []
        assert reports.overdue() == ()
        await stage.clock.advance(2)
        assert reports.overdue() == (pod.metadata.uid,)
        reports.refused(pod, refusal(pod, code, "not yet"))
        await stage.clock.advance(1)
        assert len(stage.events("FailedScheduling")) == 1
        assert reports.overdue() == ()

    run_story(story)


def test_a_condition_that_could_not_be_written_is_written_later() -> None:
    async def story(stage: Stage, reports: recorder.Recorder) -> None:
        refusals = [
            failures.Conflict("conflict"),
            failures.Unavailable("500"),
            failures.Throttled("slow", retry_after=1),
        ]

        def fail(verb: str, target: Target) -> None:
            if verb == "patch" and refusals:
                raise refusals.pop()

        stage.api.before = fail
        reports.refused(
            stage.the_pod("a"), refusal(stage.the_pod("a"), ReasonCode.IN_USE, "in use")
        )
        await stage.clock.advance(10)
        assert condition(stage).message == "in use"
        assert len(stage.events("FailedScheduling")) == 1

    run_story(story)


def test_an_event_that_could_not_be_sent_yet_outlives_newer_numbers() -> None:
    async def story(stage: Stage, reports: recorder.Recorder) -> None:
        def before(verb: str, target: Target) -> None:
            raise failures.Unavailable("503: not now", status=503)

        def refuse(text: str) -> None:
            pod = stage.the_pod("a")
            reports.refused(pod, refusal(pod, ReasonCode.IN_USE, text))

        stage.api.before = before
        refuse("1 node")
        await stage.clock.advance(recorder.REFRESH_SECONDS + 1)
        refuse("2 nodes")
        stage.api.before = None
        await stage.clock.advance(recorder.MAX_RETRY_SECONDS)
        assert condition(stage).message == "2 nodes"
        assert len(stage.events("FailedScheduling")) == 1

    run_story(story)


def test_an_event_under_way_is_not_lost_when_newer_numbers_are_queued() -> None:
    async def story(stage: Stage, reports: recorder.Recorder) -> None:
        def refuse(text: str) -> None:
            pod = stage.the_pod("a")
            reports.refused(pod, refusal(pod, ReasonCode.IN_USE, text))

        def before(verb: str, target: Target) -> None:
            stage.api.before = None
            raise failures.Unavailable("503: not now", status=503)

        stage.api.before = before
        stage.api.delay_seconds = recorder.REFRESH_SECONDS + 2
        refuse("1 node")
        await stage.clock.advance(recorder.REFRESH_SECONDS + 1)
        refuse("2 nodes")
        await stage.clock.advance(5 * stage.api.delay_seconds)
        assert condition(stage).message == "2 nodes"
        assert len(stage.events("FailedScheduling")) == 1

    run_story(story)


def test_long_notes_are_cut_at_a_character() -> None:
    text = "ü" * 2000
    short = recorder.shortened(text, api_events.MAX_NOTE_BYTES)
    assert len(short.encode()) <= api_events.MAX_NOTE_BYTES
    assert short.endswith("…")
    assert msgspec.json.decode(msgspec.json.encode(short)) == short
    assert recorder.shortened("short", 1024) == "short"


def test_a_new_leader_updates_the_condition_without_repeating_the_event() -> None:
    async def story(stage: Stage, reports: recorder.Recorder) -> None:
        reports.refused(
            stage.the_pod("a"), refusal(stage.the_pod("a"), ReasonCode.IN_USE, "in use")
        )
        await stage.clock.advance(1)
        successor = recorder.Recorder(
            stage.api, stage.clock, meter.NoMeter(), latest=lambda uid: latest(stage, uid)
        )
        task = asyncio.create_task(successor.run())
        successor.refused(
            stage.the_pod("a"), refusal(stage.the_pod("a"), ReasonCode.IN_USE, "in use, 3 nodes")
        )
        await stage.clock.advance(1)
        assert condition(stage).message == "in use, 3 nodes"
        assert len(stage.events("FailedScheduling")) == 1
        successor.refused(
            stage.the_pod("a"), refusal(stage.the_pod("a"), ReasonCode.TAINT, "tainted")
        )
        await stage.clock.advance(1)
        assert len(stage.events("FailedScheduling")) == 2
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    run_story(story)


def test_an_event_is_sent_where_conditions_are_refused() -> None:
    async def story(stage: Stage, reports: recorder.Recorder) -> None:
        def forbid(verb: str, target: Target) -> None:
            if target.subresource == "status":
                raise failures.Refused("pods/status is forbidden", status=403)

        stage.api.before = forbid
        reports.refused(
            stage.the_pod("a"), refusal(stage.the_pod("a"), ReasonCode.IN_USE, "no room")
        )
        await stage.clock.advance(1)
        assert [tree.note for tree in stage.events("FailedScheduling")] == ["no room"]

    run_story(story)


def test_a_reason_that_came_and_went_unsent_is_not_reported() -> None:
    """A is reported, then B is replaced by A before B is sent: no second event reports A."""

    async def story(stage: Stage, reports: recorder.Recorder) -> None:
        pod = stage.the_pod("a")
        reports.refused(pod, refusal(pod, ReasonCode.IN_USE, "A"))
        await stage.clock.advance(1)
        reports.refused(stage.the_pod("a"), refusal(pod, ReasonCode.TAINT, "B"))
        reports.refused(stage.the_pod("a"), refusal(pod, ReasonCode.IN_USE, "A"))
        await stage.clock.advance(1)
        assert [tree.note for tree in stage.events("FailedScheduling")] == ["A"]

    run_story(story)
