"""Evictions and nominations in the live loop, in memory: a scripted plan, and the writes that follow."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any

from dovetail.kubetypes import registry
from dovetail.live.evict import evictor, nominator
from dovetail.model import plan, workload_annotations
from dovetail.ports import failures
from dovetail.ports.api import Target
from dovetail.schedule import decide
from tests.live.live_scheduler import Stage, play

DETAIL = "priority 100 in queue everybody"


class Recorder:
    """Decides as the scheduler does, and records what each decision was asked about and had to spare."""

    def __init__(self) -> None:
        self.asked: list[Collection[str] | None] = []
        self.spared: list[frozenset[str]] = []

    def __call__(self, *given: Any, **more: Any) -> plan.Plan:
        self.asked.append(more["among"])
        self.spared.append(frozenset(more["spared"]))
        return decide.decide(*given, **more)


def staged(*victims: str, gpus: int = 2, **queue: Any) -> Stage:
    """A node full of pods that yield to any of a higher priority, and a queue for all of them."""
    stage = Stage(nodes=1, gpus=gpus)
    stage.queue("everybody", **queue)
    stage.template("one")
    stage.template("all", count=gpus)
    for name in victims:
        stage.pod(name, templates=("one",), job=name, priority=0, terminationGracePeriodSeconds=20)
    return stage


def important(stage: Stage, name: str, *, template: str = "all", **options: Any) -> None:
    """A pod the others yield to."""
    stage.pod(name, templates=(template,), priority=100, **options)


def conditions(stage: Stage, name: str) -> dict[str, Any]:
    return {condition.type: condition for condition in stage.the_pod(name).status.conditions}


def writes(stage: Stage) -> tuple[list[str], Callable[[], None]]:
    names: list[str] = []

    def note(verb: str, target: Target) -> None:
        if target.kind is not registry.EVENT:
            names.append(f"{verb} {target.name}/{target.subresource}")

    def listen() -> None:
        stage.api.after = note

    return names, listen


def test_the_beneficiary_is_nominated_before_any_eviction() -> None:
    async def story() -> None:
        stage = staged("a", "b")
        result, listen = writes(stage)
        async with stage.scheduling():
            await stage.pass_time(3)
            assert stage.node_of("a") == stage.node_of("b") == "n-0"
            listen()
            important(stage, "new")
            await stage.pass_time(3)
            assert stage.the_pod("new").status.nominated_node_name == "n-0"
            assert conditions(stage, "new")[nominator.NODE_KEPT].status == "True"
            steps = [item for item in result if "claims" not in item]
            nominated = steps.index("patch new/status")
            evicted = [
                at for at, one in enumerate(steps) if one.startswith("create") and "eviction" in one
            ]
            assert len(evicted) == 2
            assert nominated < min(evicted)
            rehearsed = [at for at, one in enumerate(steps) if one.startswith("rehearse")]
            assert len(rehearsed) == 2
            assert max(rehearsed) < min(evicted)
            assert stage.differences() == ()

    play(story)


def test_a_victim_says_why_it_ends_and_both_get_an_event_with_the_numbers() -> None:
    async def story() -> None:
        stage = staged("a", "b")
        async with stage.scheduling():
            await stage.pass_time(3)
            important(stage, "new")
            await stage.pass_time(3)
            target = conditions(stage, "a")["DisruptionTarget"]
            assert (target.status, target.reason) == ("True", "PreemptionByScheduler")
            assert target.message == f"yields to default/pod/new (Preempted): {DETAIL}"
            messages = {tree.regarding.name: tree.note for tree in stage.events("Preempted")}
            assert messages["a"] == target.message
            assert (
                messages["new"]
                == f"2 pods yield to default/pod/new (default/b, default/a); {DETAIL}"
            )

    play(story)


def test_no_further_pod_is_evicted_while_the_victims_end_and_then_the_beneficiary_starts() -> None:
    async def story() -> None:
        stage = staged("a", "b")
        async with stage.scheduling(is_quarantining=False):
            await stage.pass_time(3)
            important(stage, "new")
            await stage.pass_time(10)
            assert (
                len([tree for tree in stage.events("Preempted") if tree.regarding.name != "new"])
                == 2
            )
            for name in "ab":
                await stage.delete(name, grace_seconds=0)
            await stage.pass_time(5)
            assert stage.node_of("new") == "n-0"
            assert len(stage.events("Preempted")) == 3
            assert stage.differences() == ()

    play(story)


def test_single_victims_for_different_beneficiaries_go_at_the_same_time() -> None:
    async def story() -> None:
        stage = staged("a", "b")
        result, listen = writes(stage)
        async with stage.scheduling():
            await stage.pass_time(3)
            listen()
            important(stage, "x", template="one")
            important(stage, "y", template="one")
            await stage.pass_time(3)
            asked = [item.split()[0] for item in result if "eviction" in item]
            assert asked == ["rehearse", "rehearse", "create", "create"]

    play(story)


def test_where_a_disruption_budget_refuses_no_pod_is_evicted_and_the_victim_is_spared_for_a_while() -> (
    None
):
    async def story() -> None:
        stage = staged("a", "b")
        recorder = Recorder()

        def protect(verb: str, target: Target) -> None:
            if target.subresource == "eviction" and target.name == "b":
                raise failures.Protected(
                    "Cannot evict pod as it would violate the pod's disruption budget."
                )

        stage.api.before = protect
        async with stage.scheduling(decide=recorder):
            await stage.pass_time(3)
            important(stage, "new")
            await stage.pass_time(3)
            assert not any(stage.the_pod(name).metadata.deletion_timestamp for name in "ab")
            assert stage.events("Preempted") == []
            assert recorder.spared[-1] == {stage.the_pod("b").metadata.uid}
            assert stage.the_pod("new").status.nominated_node_name == ""
            assert conditions(stage, "new")[nominator.NODE_KEPT].status == "False"
            stage.api.before = None
            await stage.pass_time(evictor.FIRST_SPARE + 2)
            assert all(stage.the_pod(name).metadata.deletion_timestamp for name in "ab")

    play(story)


def test_no_pod_is_evicted_for_a_deleted_pod() -> None:
    async def story() -> None:
        stage = staged("a", "b")
        async with stage.scheduling():
            await stage.pass_time(3)

            def vanish(verb: str, target: Target) -> None:
                if verb == "patch" and target.name == "new" and stage.the_pod("new") is not None:
                    stage.api.shelf.delete(registry.POD, ("default", "new"), grace_seconds=0)

            stage.api.before = vanish
            important(stage, "new")
            await stage.pass_time(5)
            assert not any(stage.the_pod(name).metadata.deletion_timestamp for name in "ab")

    play(story)


def test_a_server_that_does_not_answer_evictions_does_not_stop_the_scheduler() -> None:
    async def story() -> None:
        stage = staged("a", gpus=2)

        def silent(verb: str, target: Target) -> None:
            if target.subresource == "eviction":
                raise failures.Unavailable("failed calling webhook")

        stage.api.before = silent
        async with stage.scheduling():
            await stage.pass_time(3)
            important(stage, "new")
            await stage.pass_time(40)
            stage.pod("small", templates=("one",))
            await stage.pass_time(5)
            assert stage.node_of("small") == "n-0"
            assert not stage.the_pod("a").metadata.deletion_timestamp

    play(story)


def test_after_a_kill_between_two_evictions_a_new_leader_evicts_the_rest_and_no_other_pod() -> None:
    async def story() -> None:
        stage = staged("a", "b", "c", gpus=3)
        rehearsed: set[str] = set()
        died: list[str] = []

        def die(verb: str, target: Target) -> None:
            if verb == "rehearse":
                rehearsed.add(target.name)
            if verb == "create" and target.subresource == "eviction":
                died.append(target.name)
                raise failures.Fenced("dead")

        def dead(verb: str, target: Target) -> None:
            if died:
                raise failures.Fenced("dead")

        async with stage.scheduling():
            await stage.pass_time(3)
            stage.api.before, stage.api.after = dead, die
            stage.template("two", count=2)
            important(stage, "new", template="two")
            await stage.pass_time(3)
        assert len(rehearsed) == 2  # the third pod stays
        assert len(died) == 1
        assert stage.the_pod("new").status.nominated_node_name == "n-0"
        stage.api.before = stage.api.after = None
        async with stage.scheduling():
            await stage.pass_time(10)
            going = {
                name for name in ("a", "b", "c") if stage.the_pod(name).metadata.deletion_timestamp
            }
            assert going == rehearsed

    play(story)


def test_a_plan_that_time_changes_is_computed_again_at_its_wake_up_time() -> None:
    async def story() -> None:
        stage = staged("a", "b")
        recorder = Recorder()
        async with stage.scheduling(decide=recorder):
            await stage.pass_time(3)
            important(stage, "new", annotations={workload_annotations.MAY_EVICT_AFTER: "20s"})
            await stage.pass_time(19)
            assert not any(stage.the_pod(name).metadata.deletion_timestamp for name in "ab")
            before = len(recorder.asked)

            await stage.pass_time(2)  # nothing happens but this
            assert len(recorder.asked) > before
            assert all(stage.the_pod(name).metadata.deletion_timestamp for name in "ab")

            quiet = len(recorder.asked)
            await stage.pass_time(60)
            assert len(recorder.asked) == quiet  # and otherwise only after news

    play(story)
