"""Gangs in the live loop, in memory: the intent first, all claims before any binding, all or none."""

from __future__ import annotations

import itertools

import pytest

from dovetail.kubetypes import meta, registry
from dovetail.kubetypes.custom import intents
from dovetail.kubetypes.workloads import owners
from dovetail.model import gangs, policy
from dovetail.model.workloads import owner_gangs
from dovetail.ports import failures
from dovetail.ports.api import Target
from tests.live.live_scheduler import Stage, play


def bound(stage: Stage, names: list[str]) -> int:
    return sum(
        bool((pod := stage.the_pod(name)) is not None and pod.spec.node_name) for name in names
    )


def test_a_gang_starts_with_its_intent_first_and_all_claims_before_any_binding() -> None:
    async def story() -> None:
        stage = Stage(nodes=2, gpus=2)
        stage.template("one")
        names = stage.gang("train", 4, templates=("one",))
        order: list[str] = []
        stage.api.after = lambda verb, target: order.append(
            f"{verb} {target.kind.plural}/{target.subresource}"
        )
        async with stage.scheduling():
            await stage.pass_time(5)
            assert bound(stage, names) == 4
            assert stage.differences() == ()
        writes = [
            name for name in order if "claims" in name or "binding" in name or "intents" in name
        ]
        assert writes[0] == "create intents/"
        assert writes[-5:] == ["create pods/binding"] * 4 + ["delete intents/"]
        assert writes.count("patch resourceclaims/status") == 4
        assert stage.intents() == []
        assert len(stage.events("Scheduled")) == 4

    play(story)


def test_an_intent_says_who_goes_where() -> None:
    async def story() -> None:
        stage = Stage(nodes=1, gpus=2)
        stage.template("one")
        names = stage.gang("train", 2, templates=("one",))
        seen: list[intents.Intent] = []

        def note(verb: str, target: Target) -> None:
            if target.subresource == "binding" and not seen:
                seen.extend(stage.intents())

        stage.api.before = note
        async with stage.scheduling():
            await stage.pass_time(5)
        (intent,) = seen
        assert intent.spec.gang == "gang/train"
        assert intent.metadata.name.startswith("gang-train-")
        assert sorted(member.pod for member in intent.spec.members) == names
        assert {member.node for member in intent.spec.members} == {"n-0"}
        assert all(len(member.claims) == 1 for member in intent.spec.members)
        assert intent.spec.deadline > "20"

    play(story)


def test_a_gang_without_room_for_all_holds_nothing() -> None:
    async def story() -> None:
        stage = Stage(nodes=2, gpus=2)
        stage.template("one")
        names = stage.gang("train", 5, templates=("one",))
        async with stage.scheduling():
            await stage.pass_time(10)
            assert bound(stage, names) == 0
            assert stage.devices() == []
            assert stage.intents() == []
            assert {tree.regarding.name for tree in stage.events("FailedScheduling")} == set(names)

    play(story)


def test_a_gang_larger_than_what_may_be_in_flight_still_starts() -> None:
    async def story() -> None:
        stage = Stage(nodes=4, gpus=8)
        stage.template("one")
        names = stage.gang("train", 32, templates=("one",))
        async with stage.scheduling(in_flight_pods=3):
            await stage.pass_time(5)
            assert bound(stage, names) == 32

    play(story)


def test_members_that_share_a_claim_wait_for_the_one_that_gives_it_its_devices() -> None:
    async def story() -> None:
        stage = Stage(nodes=1, gpus=2)
        stage.claim("shared")
        names = stage.gang("train", 3, named=("shared",))
        async with stage.scheduling():
            await stage.pass_time(5)
            assert bound(stage, names) == 3
            assert len(stage.devices()) == 1

    play(story)


def test_a_claim_that_cannot_be_had_ends_all_and_everything_is_given_back() -> None:
    """Another writer takes the second claim's device meanwhile; the gang then starts elsewhere, or waits."""

    async def story() -> None:
        stage = Stage(nodes=1, gpus=2)
        stage.template("one")
        names = stage.gang("train", 2, templates=("one",))
        stage.claim("rival")
        taken: list[str] = []

        def refuse(verb: str, target: Target) -> None:
            if verb == "patch" and target.subresource == "status" and target.kind is registry.CLAIM:
                taken.append(target.name)
                if len(taken) == 2:
                    raise failures.Refused("not this one")

        stage.api.before = refuse
        async with stage.scheduling():
            await stage.pass_time(0.25)
            assert len(taken) >= 2
            await stage.pass_time(10)
            assert bound(stage, names) == 2
            assert stage.intents() == []
            assert len(set(stage.devices())) == len(stage.devices()) == 2
            assert stage.differences() == ()

    play(story)


def test_a_gang_whose_binding_fails_for_good_is_taken_back() -> None:
    async def story() -> None:
        stage = Stage(nodes=1, gpus=3)
        stage.template("one")
        names = stage.gang("train", 3, templates=("one",))
        refused: list[str] = []

        def refuse(verb: str, target: Target) -> None:
            if target.subresource == "binding" and (not refused or refused[0] == target.name):
                refused.append(target.name)
                raise failures.Refused("not on my node")

        stage.api.before = refuse
        async with stage.scheduling():
            await stage.pass_time(3)
            going = [name for name in names if stage.the_pod(name).metadata.deletion_timestamp]
            assert sorted([*going, refused[0]]) == names
            (condition,) = [
                item
                for item in stage.the_pod(going[0]).status.conditions
                if item.type == "DisruptionTarget"
            ]
            assert "could not start as a whole" in condition.message
            assert len(stage.events("GangIncomplete")) == 2
            assert stage.intents() == []

    play(story)


def test_a_gang_that_has_its_minimum_without_the_one_that_failed_stays() -> None:
    async def story() -> None:
        stage = Stage(nodes=1, gpus=3)
        stage.template("one")
        names = stage.gang("train", 3, least=2, templates=("one",))
        refused: list[str] = []

        def refuse(verb: str, target: Target) -> None:
            if target.subresource == "binding" and len(refused) < 1:
                refused.append(target.name)
                raise failures.Refused("not on my node")

        stage.api.before = refuse
        async with stage.scheduling():
            await stage.pass_time(10)
            assert refused
            assert bound(stage, names) == 3
            assert stage.events("GangIncomplete") == []

    play(story)


@pytest.mark.parametrize("is_before", [True, False], ids=["before", "after"])
def test_a_gang_interrupted_at_any_write_is_completed_or_taken_back_by_the_next_leader(
    is_before: bool,
) -> None:
    """The process dies around one write after the other; a successor has all of the gang running within 30 s."""

    async def story(deadly: int) -> bool:
        stage = Stage(nodes=2, gpus=2)
        stage.template("one")
        names = stage.gang("train", 3, templates=("one",))
        count = itertools.count()
        died: list[str] = []

        def die(verb: str, target: Target) -> None:
            if died or (
                verb != "get" and target.kind is not registry.EVENT and next(count) == deadly
            ):
                died.append(f"{verb} {target}")
                raise failures.Fenced("dead")

        stage.api.before, stage.api.after = (die, None) if is_before else (None, die)
        async with stage.scheduling():
            await stage.pass_time(3)
        stage.api.before = stage.api.after = None
        async with stage.scheduling():
            await stage.pass_time(30)
            assert bound(stage, names) == 3, died
            assert stage.intents() == [], died
            assert len(set(stage.devices())) == len(stage.devices()) == 3, died
            assert stage.differences() == (), died
        return bool(died)

    async def all_of_them() -> None:
        deaths = 0
        while await story(deaths):
            deaths += 1
        assert deaths >= 1 + 6 + 3 + 1  # intent, two writes per claim, bindings, the intent's end

    play(all_of_them)


def test_a_half_bound_gang_whose_other_node_is_gone_is_taken_back_by_the_next_leader() -> None:
    async def story() -> None:
        stage = Stage(nodes=2, gpus=2)
        stage.template("two", count=2)
        names = stage.gang("train", 2, templates=("two",))
        died: list[str] = []

        def die(verb: str, target: Target) -> None:
            if target.subresource == "binding":
                died.append(target.name)
                raise failures.Fenced("dead")

        def dead(verb: str, target: Target) -> None:
            if died:
                raise failures.Fenced("dead")

        stage.api.before, stage.api.after = dead, die
        async with stage.scheduling():
            await stage.pass_time(3)
        assert bound(stage, names) == 1
        assert len(stage.intents()) == 1
        stage.api.before = stage.api.after = None
        (left,) = [
            member.node for member in stage.intents()[0].spec.members if member.pod != died[0]
        ]
        stage.api.shelf.delete(registry.NODE, ("", left))
        async with stage.scheduling():
            await stage.pass_time(10)
            assert stage.the_pod(died[0]).metadata.deletion_timestamp
            assert stage.intents() == []
            (other,) = [name for name in names if name != died[0]]
            assert stage.node_of(other) == ""

    play(story)


def test_on_a_server_without_intents_gangs_start_all_the_same() -> None:
    async def story() -> None:
        stage = Stage(nodes=1, gpus=2)
        stage.template("one")
        names = stage.gang("train", 2, templates=("one",))

        def unknown(verb: str, target: Target) -> None:
            if target.kind is registry.INTENT:
                raise failures.Missing(
                    "the server could not find the requested resource", status=404
                )

        stage.api.before = unknown
        async with stage.scheduling():
            await stage.pass_time(5)
            assert bound(stage, names) == 2

    play(story)


# News of owners


@pytest.mark.parametrize(
    ("asks", "starts"), [({"dovetail.dev/gang-min": "all"}, 0), ({}, 1)], ids=["gang", "loose"]
)
def test_a_pod_that_is_seen_before_its_job_waits_for_it(asks: dict[str, str], starts: int) -> None:
    """Two pods and room for one: together or not is for the Job to say, and it has not been seen."""

    async def story() -> None:
        stage = Stage(nodes=1, gpus=1)
        stage.template("one")
        names = ["train-0", "train-1"]
        async with stage.scheduling(owner_seconds=5.0) as scheduler:
            for name in names:
                stage.pod(name, templates=("one",), job="train")
            await stage.pass_time(4)
            assert bound(stage, names) == 0
            job = owners.Job(
                metadata=meta.ObjectMeta(
                    namespace="default", name="train", uid="train", annotations=asks
                ),
                spec=owners.JobSpec(parallelism=2, completions=2),
            )
            scheduler.picture.changed(gangs.KIND, owner_gangs.gang_of(job))
            await stage.pass_time(0.5)
            assert bound(stage, names) == starts
            await stage.pass_time(10)
            assert bound(stage, names) == starts

    play(story)


def test_a_pod_whose_job_is_never_seen_starts_after_a_while() -> None:
    async def story() -> None:
        stage = Stage(nodes=1, gpus=1)
        stage.template("one")
        async with stage.scheduling(owner_seconds=5.0):
            stage.pod("orphan", templates=("one",), job="train")
            await stage.pass_time(4)
            assert bound(stage, ["orphan"]) == 0
            await stage.pass_time(2)
            assert bound(stage, ["orphan"]) == 1

    play(story)


def test_a_gang_larger_than_a_turn_is_carried_on_and_keeps_no_other_work_waiting() -> None:
    async def story() -> None:
        stage = Stage(nodes=4, gpus=4)
        stage.template("one")
        names = stage.gang("sweep", 12, least=1, templates=("one",))
        async with stage.scheduling(budget=policy.Budget(pods=5, steps=2000)):
            await stage.pass_time(1)
            stage.pod("other", templates=("one",))
            await stage.pass_time(10)
            assert bound(stage, names) == 12
            assert stage.node_of("other")
            assert stage.differences() == ()

    play(story)


def test_many_that_never_fit_do_not_keep_the_last_in_line_waiting() -> None:
    async def story() -> None:
        stage = Stage(nodes=2, gpus=1)
        stage.queue("a")
        for number in range(30):
            stage.template(f"large{number}", count=2 + number)
            stage.pod(f"large{number}", templates=(f"large{number}",), priority=10)
        stage.template("one")
        stage.pod("small", templates=("one",))
        async with stage.scheduling(budget=policy.Budget(steps=300)):
            await stage.pass_time(60)
            assert stage.node_of("small")
            assert all(stage.the_pod(f"large{number}").status.conditions for number in range(30))
            assert stage.differences() == ()

    play(story)
