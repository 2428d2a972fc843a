"""One id per scheduling cycle, in events, logs and traces; text of other writers cannot forge it."""

from __future__ import annotations

import logging
from collections.abc import Callable

import pytest

from dovetail.boot import logs
from dovetail.kubetypes import registry
from dovetail.ports import failures, tracing
from dovetail.ports.api import Target
from dovetail.ports.tracing import Fact
from tests.live.live_scheduler import Stage, play

QUOTA = (
    'resourceclaims.resource.k8s.io "x" is forbidden: exceeded quota: gpus, requested: '
    "gpu.nvidia.com.deviceclass.resource.k8s.io/devices=1, used: gpu.nvidia.com.deviceclass.resource.k8s.io/devices=4, "
    "limited: gpu.nvidia.com.deviceclass.resource.k8s.io/devices=4"
)


class Noting:
    """A tracer that remembers."""

    is_on = True

    def __init__(self, uid_of: Callable[[str], str]) -> None:
        self.steps: list[tuple[str, str, dict[str, Fact]]] = []
        self._uid_of = uid_of

    def step(self, uid: str, step: str, **facts: Fact) -> None:
        self.steps.append((uid, step, facts))

    def gone(self, uid: str) -> None:
        self.steps.append((uid, "gone", {}))

    def of(self, pod: str) -> list[str]:
        return [step for uid, step, _ in self.steps if uid == self._uid_of(pod)]

    def facts(self, pod: str, step: str) -> dict[str, Fact]:
        return next(
            facts for uid, one, facts in self.steps if uid == self._uid_of(pod) and one == step
        )


def staged() -> tuple[Stage, Noting]:
    stage = Stage(nodes=1, gpus=1)
    noting = Noting(lambda name: stage.the_pod(name).metadata.uid)
    stage.tracer = noting
    stage.template("gpu")
    return stage, noting


def test_a_pod_is_traced_step_by_step() -> None:
    async def story() -> None:
        stage, noting = staged()
        async with stage.scheduling():
            stage.pod("a", templates=("gpu",))
            await stage.pass_time()
        assert stage.node_of("a")
        steps = noting.of("a")
        assert steps[0] == tracing.SEEN
        assert [step for step in steps if step != tracing.QUEUED][-3:] == [
            tracing.DECIDED,
            tracing.WRITTEN,
            tracing.BOUND,
        ]
        decided = [
            facts for _, step, facts in noting.steps if step == tracing.DECIDED and "node" in facts
        ]
        assert [(facts["pod"], facts["node"]) for facts in decided] == [
            ("default/a", stage.node_of("a"))
        ]

    play(story)


def test_the_event_names_the_turn_in_which_it_was_decided() -> None:
    async def story() -> None:
        stage, noting = staged()
        async with stage.scheduling():
            stage.pod("a", templates=("gpu",))
            await stage.pass_time()
            stage.pod("b", templates=("gpu",))
            await stage.pass_time(10)
        scheduled, refused = stage.events("Scheduled")[0], stage.events("FailedScheduling")[0]
        placed = [
            facts for _, step, facts in noting.steps if step == tracing.DECIDED and "node" in facts
        ]
        assert scheduled.metadata.annotations == {tracing.CYCLE_ANNOTATION: placed[0]["cycle"]}
        cycles = {
            facts["cycle"]
            for _, step, facts in noting.steps
            if step == tracing.DECIDED and "node" not in facts
        }
        assert refused.metadata.annotations[tracing.CYCLE_ANNOTATION] in cycles
        assert len({scheduled.metadata.annotations[tracing.CYCLE_ANNOTATION], *cycles}) > 1

    play(story)


def test_every_line_about_a_placement_carries_its_turn(caplog: pytest.LogCaptureFixture) -> None:
    async def story() -> None:
        stage, _ = staged()
        async with stage.scheduling():
            stage.pod("a", templates=("gpu",))
            await stage.pass_time()

    with caplog.at_level(logging.DEBUG, logger="dovetail"):
        caplog.handler.addFilter(logs.with_cycle)
        play(story)
        caplog.handler.removeFilter(logs.with_cycle)
    messages = {record.message: getattr(record, "cycle", "") for record in caplog.records}
    assert messages["pod.bound"]
    assert messages["cycle.decided"]


def test_a_claim_refused_by_quota_is_reported_with_name_used_and_limit() -> None:
    async def story() -> None:
        stage, _ = staged()

        def refuse(verb: str, target: Target) -> None:
            if verb == "create" and target.kind is registry.CLAIM:
                raise failures.Refused(
                    f"create {target}: 403 Forbidden: {QUOTA}", status=403, reason="Forbidden"
                )

        stage.api.before = refuse
        async with stage.scheduling():
            stage.pod("a", resources={"limits": {"nvidia.com/gpu": "1"}})
            await stage.pass_time()
        messages = next(
            condition.message
            for condition in stage.the_pod("a").status.conditions
            if condition.type == "PodScheduled"
        )
        assert messages.startswith(
            "quota gpus of namespace default is used up: 4 of 4 devices of class gpu.nvidia.com used"
        )
        assert "kubectl -n default describe resourcequota gpus" in messages
        assert [tree.note for tree in stage.events("FailedScheduling")] == [messages]

    play(story)


def test_words_of_others_cannot_steer_a_terminal_from_an_event() -> None:
    async def story() -> None:
        stage, _ = staged()

        def refuse(verb: str, target: Target) -> None:
            if verb == "create" and target.kind is registry.CLAIM:
                raise failures.Refused(
                    "denied by policy: \x1b[2J\nNormal  Scheduled  all is well\u202e", status=403
                )

        stage.api.before = refuse
        async with stage.scheduling():
            stage.pod("a", resources={"limits": {"nvidia.com/gpu": "1"}})
            await stage.pass_time()
        messages = [
            condition.message
            for condition in stage.the_pod("a").status.conditions
            if condition.type == "PodScheduled"
        ]
        notes = [tree.note for tree in stage.events("FailedScheduling")]
        assert messages
        assert notes
        assert all(
            "denied by policy" in text and text.isprintable() for text in (*messages, *notes)
        )

    play(story)
