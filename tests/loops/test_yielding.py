"""Evictions and nominations in the live loop, in memory: a plan is played, and what is written is looked at."""

from __future__ import annotations

import datetime
from collections.abc import Callable, Collection, Mapping
from typing import Any

from dovetail.loops import evicting, nominating
from dovetail.model import gangs, kinds, plan
from dovetail.model import policy as policies
from dovetail.ports import failures
from dovetail.ports.api import Target
from dovetail.schedule import cycle
from dovetail.world.world import World
from tests.loops.stage import Stage, play

DETAIL = "queue b is due 2 GPUs and has 1; queue a has 3 of 2"


class Script:
    """Decides as told: for as long as the beneficiary waits and the victims are there, they yield."""

    def __init__(self, stage: Stage, *, victims: tuple[str, ...], gains: str = "new", **eviction: Any) -> None:
        self.stage = stage
        self.victims = victims
        self.gains = gains
        self.more = eviction
        self.spared: list[frozenset[str]] = []
        self.asked: list[Collection[str] | None] = []
        self.wake_at: datetime.datetime | None = None

    def __call__(
        self,
        world: World,
        policy: policies.Policy,
        now: plan.Instant,
        budget: policies.Budget,
        *,
        among: Collection[str] | None,
        spared: Collection[str],
        toward: Mapping[str, str],
        aside: Collection[gangs.GangKey],
    ) -> plan.Plan:
        self.spared.append(frozenset(spared))
        self.asked.append(among)
        made = cycle.decide(
            world, policies.Policy(scheduler_names=("dovetail",), steps=STEPS), now, budget, among=among
        )
        gaining = next((pod for pod in world.pods.values() if pod.metadata.name == self.gains), None)
        waits = gaining is not None and not gaining.spec.node_name and gaining.metadata.uid not in world.assumed
        started = {one.pod.uid for one in made.placements}
        if gaining is None or not waits or gaining.metadata.uid in started:
            return made
        there = [pod for name in self.victims for pod in world.pods.values() if pod.metadata.name == name]
        new = plan.GangRef("default", f"pod/{self.gains}")
        kept = plan.Nomination(pod=plan.pod_ref(gaining), node=there[0].spec.node_name if there else "n-0", gang=new)
        gone = [pod for pod in there if pod.metadata.deletion_timestamp is None]
        free = [pod for pod in gone if pod.metadata.uid not in spared]
        if len(free) < len(gone):
            return made
        evictions = tuple(
            plan.Eviction(
                pod=plan.pod_ref(pod),
                gang=_gang(world, pod.metadata.uid),
                rule=plan.Rule.RECLAIMED,
                beneficiary=new,
                detail=DETAIL,
                **self.more,
            )
            for pod in free
        )
        return plan.Plan(
            placements=made.placements,
            refusals=made.refusals,
            nominations=(kept,),
            evictions=evictions,
            wake_at=self.wake_at,
        )


STEPS = (policies.Step.ALLOCATE,)


def _gang(world: World, uid: str) -> plan.GangRef:
    found = world.gangs.of(uid)
    assert found is not None
    return plan.GangRef(*found.gang)


def staged(*victims: str, gpus: int = 2) -> Stage:
    """A full node, and a queue, so that everybody is decided about as a whole."""
    stage = Stage(nodes=1, gpus=gpus)
    stage.queue("everybody")
    stage.template("one")
    stage.template("all", count=gpus)
    for name in victims:
        stage.pod(name, templates=("one",), terminationGracePeriodSeconds=20)
    return stage


def conditions(stage: Stage, name: str) -> dict[str, Any]:
    return {one.type: one for one in stage.the_pod(name).status.conditions}


def writes(stage: Stage) -> tuple[list[str], Callable[[], None]]:
    found: list[str] = []

    def note(verb: str, target: Target) -> None:
        if target.kind is not kinds.EVENT:
            found.append(f"{verb} {target.name}/{target.subresource}")

    def listen() -> None:
        stage.api.after = note

    return found, listen


def test_the_beneficiary_is_nominated_before_anybody_is_asked_to_end() -> None:
    async def story() -> None:
        stage = staged("a", "b")
        found, listen = writes(stage)
        async with stage.scheduling(decide=Script(stage, victims=("a", "b"))):
            await stage.pass_time(3)
            assert stage.node_of("a") == stage.node_of("b") == "n-0"
            listen()
            stage.pod("new", templates=("all",))
            await stage.pass_time(3)
            assert stage.the_pod("new").status.nominated_node_name == "n-0"
            assert conditions(stage, "new")[nominating.KEPT].status == "True"
            steps = [one for one in found if "claims" not in one]
            nominated = steps.index("patch new/status")
            evicted = [at for at, one in enumerate(steps) if one.startswith("create") and "eviction" in one]
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
        async with stage.scheduling(decide=Script(stage, victims=("a", "b"))):
            await stage.pass_time(3)
            stage.pod("new", templates=("all",))
            await stage.pass_time(3)
            target = conditions(stage, "a")["DisruptionTarget"]
            assert (target.status, target.reason) == ("True", "PreemptionByScheduler")
            assert target.message == f"yields to default/pod/new (Reclaimed): {DETAIL}"
            told = {one.regarding.name: one.note for one in stage.events("Reclaimed")}
            assert told["a"] == target.message
            assert told["new"] == f"2 pods yield to default/pod/new (default/a, default/b); {DETAIL}"

    play(story)


def test_nobody_else_has_to_yield_while_the_victims_are_ending_and_then_the_beneficiary_starts() -> None:
    async def story() -> None:
        stage = staged("a", "b")
        async with stage.scheduling(decide=Script(stage, victims=("a", "b")), is_quarantining=False):
            await stage.pass_time(3)
            stage.pod("new", templates=("all",))
            await stage.pass_time(10)
            assert len([one for one in stage.events("Reclaimed") if one.regarding.name != "new"]) == 2
            for name in "ab":
                await stage.delete(name, grace_seconds=0)
            await stage.pass_time(5)
            assert stage.node_of("new") == "n-0"
            assert len(stage.events("Reclaimed")) == 3
            assert stage.differences() == ()

    play(story)


def test_single_victims_for_different_beneficiaries_go_at_the_same_time() -> None:
    async def story() -> None:
        stage = staged("a", "b")
        found, listen = writes(stage)
        scripts = (Script(stage, victims=("a",), gains="x"), Script(stage, victims=("b",), gains="y"))

        def both(*given: Any, **more: Any) -> plan.Plan:
            first, second = (script(*given, **more) for script in scripts)
            nominations = {one.pod.uid: one for one in (*first.nominations, *second.nominations)}
            return plan.Plan(
                placements=tuple(one for one in first.placements if one.pod.uid not in nominations),
                nominations=tuple(nominations.values()),
                evictions=(*first.evictions, *second.evictions),
            )

        async with stage.scheduling(decide=both):
            await stage.pass_time(3)
            listen()
            stage.pod("x", templates=("one",))
            stage.pod("y", templates=("one",))
            await stage.pass_time(3)
            asked = [one.split()[0] for one in found if "eviction" in one]
            assert asked == ["rehearse", "rehearse", "create", "create"]

    play(story)


def test_where_a_disruption_budget_says_no_nobody_yields_and_the_pod_is_spared_for_a_while() -> None:
    async def story() -> None:
        stage = staged("a", "b")
        script = Script(stage, victims=("a", "b"))

        def protect(verb: str, target: Target) -> None:
            if target.subresource == "eviction" and target.name == "b":
                raise failures.Protected("Cannot evict pod as it would violate the pod's disruption budget.")

        stage.api.before = protect
        async with stage.scheduling(decide=script):
            await stage.pass_time(3)
            stage.pod("new", templates=("all",))
            await stage.pass_time(3)
            assert not any(stage.the_pod(name).metadata.deletion_timestamp for name in "ab")
            assert stage.events("Reclaimed") == []
            assert script.spared[-1] == {stage.the_pod("b").metadata.uid}
            assert stage.the_pod("new").status.nominated_node_name == ""
            assert conditions(stage, "new")[nominating.KEPT].status == "False"
            stage.api.before = None
            await stage.pass_time(evicting.FIRST_SPARE + 2)
            assert all(stage.the_pod(name).metadata.deletion_timestamp for name in "ab")

    play(story)


def test_nobody_yields_for_a_pod_that_is_gone() -> None:
    async def story() -> None:
        stage = staged("a", "b")
        async with stage.scheduling(decide=Script(stage, victims=("a", "b"))):
            await stage.pass_time(3)

            def vanish(verb: str, target: Target) -> None:
                if verb == "patch" and target.name == "new" and stage.the_pod("new") is not None:
                    stage.api.shelf.delete(kinds.POD, ("default", "new"), grace_seconds=0)

            stage.api.before = vanish
            stage.pod("new", templates=("all",))
            await stage.pass_time(5)
            assert not any(stage.the_pod(name).metadata.deletion_timestamp for name in "ab")

    play(story)


def test_a_server_that_does_not_answer_evictions_does_not_stop_the_scheduler() -> None:
    async def story() -> None:
        stage = staged("a", gpus=2)
        script = Script(stage, victims=("a",))

        def silent(verb: str, target: Target) -> None:
            if target.subresource == "eviction":
                raise failures.Unavailable("failed calling webhook")

        stage.api.before = silent
        async with stage.scheduling(decide=script):
            await stage.pass_time(3)
            stage.pod("new", templates=("all",))
            await stage.pass_time(40)
            stage.pod("small", templates=("one",))
            await stage.pass_time(5)
            assert stage.node_of("small") == "n-0"
            assert not stage.the_pod("a").metadata.deletion_timestamp

    play(story)


def test_killed_between_two_evictions_a_successor_takes_the_rest_and_nobody_else() -> None:
    async def story() -> None:
        stage = staged("a", "b", "other", gpus=3)
        died: list[str] = []

        def die(verb: str, target: Target) -> None:
            if verb == "create" and target.subresource == "eviction":
                died.append(target.name)
                raise failures.Fenced("dead")

        def dead(verb: str, target: Target) -> None:
            if died:
                raise failures.Fenced("dead")

        async with stage.scheduling(decide=Script(stage, victims=("a", "b"))):
            await stage.pass_time(3)
            stage.api.before, stage.api.after = dead, die
            stage.template("two", count=2)
            stage.pod("new", templates=("two",))
            await stage.pass_time(3)
        assert len(died) == 1
        assert stage.the_pod("new").status.nominated_node_name == "n-0"
        stage.api.before = stage.api.after = None
        async with stage.scheduling(decide=Script(stage, victims=("a", "b"))):
            await stage.pass_time(10)
            going = [name for name in ("a", "b", "other") if stage.the_pod(name).metadata.deletion_timestamp]
            assert going == ["a", "b"]

    play(story)


def test_a_plan_that_time_changes_is_asked_for_again_at_its_hour() -> None:
    async def story() -> None:
        stage = staged("a", "b")
        script = Script(stage, victims=())
        async with stage.scheduling(decide=script):
            await stage.pass_time(3)
            script.wake_at = stage.clock.now() + datetime.timedelta(seconds=20)
            stage.pod("new", templates=("all",))
            await stage.pass_time(10)
            before = len(script.asked)
            await stage.pass_time(15)
            assert len(script.asked) > before
            script.wake_at = None
            await stage.pass_time(10)
            quiet = len(script.asked)
            await stage.pass_time(60)
            assert len(script.asked) == quiet  # and otherwise only after news

    play(story)
