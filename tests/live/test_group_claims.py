"""Claims of a PodGroup in the live loop, in memory: one for all its pods, reserved for the group, released by us."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from dovetail.kubetypes import registry
from dovetail.kubetypes.resource import claims
from dovetail.ports import failures
from dovetail.ports.api import Target
from tests.live.live_scheduler import Stage, play

ENTRY = {"name": "t0", "resourceClaimTemplateName": "two"}  # as Stage.pod names what it uses


def group(
    stage: Stage, *, least: int | None = 2, entry: dict[str, str] = ENTRY, name: str = "pg"
) -> None:
    stage.group(name, least=least, claims=[entry])


def pod(stage: Stage, name: str, *, of: str = "pg", **spec: Any) -> None:
    stage.pod(name, schedulingGroup={"podGroupName": of}, **({"templates": ("two",)} | spec))


def claim(stage: Stage) -> claims.ResourceClaim:
    (result,) = stage.claims()
    return result


def users(stage: Stage) -> list[tuple[str, str, str]]:
    return [(item.api_group, item.resource, item.name) for item in claim(stage).status.reserved_for]


def running(stage: Stage, *names: str) -> list[bool]:
    return [stage.the_pod(name) is not None and bool(stage.node_of(name)) for name in names]


GROUP = ("scheduling.k8s.io", "podgroups", "pg")
LOST = {"dovetail.dev/when-evicted": "restart"}


@pytest.mark.parametrize("least", [2, None])
def test_all_pods_share_one_claim_that_is_reserved_for_the_group(least: int | None) -> None:
    async def story() -> None:
        stage = Stage(nodes=2, gpus=2)
        stage.template("two", count=2)
        group(stage, least=least)
        pod(stage, "a")
        pod(stage, "b")
        async with stage.scheduling():
            await stage.pass_time(3)
            assert running(stage, "a", "b") == [True, True]
            assert stage.node_of("a") == stage.node_of("b")
            assert users(stage) == [GROUP]
            assert (
                claim(stage).status.reserved_for[0].uid
                == stage.api.all(registry.POD_GROUP)[0].metadata.uid
            )
            assert len(stage.devices()) == 2
            assert stage.differences() == ()

    play(story)


def test_an_entry_that_is_not_the_groups_is_the_pods_own() -> None:
    async def story() -> None:
        stage = Stage(nodes=1, gpus=2)
        stage.template("one")
        stage.template("two", count=2)
        group(stage)
        pod(stage, "a", templates=("one",))
        pod(stage, "b", templates=("one",))
        async with stage.scheduling():
            await stage.pass_time(3)
            assert running(stage, "a", "b") == [True, True]
        reserved = sorted(
            item.name for result in stage.claims() for item in result.status.reserved_for
        )
        assert reserved == ["a", "b"]

    play(story)


def test_the_devices_stay_until_the_last_pod_has_left_and_are_free_then() -> None:
    async def story() -> None:
        stage = Stage(nodes=1, gpus=2)
        stage.template("two", count=2)
        group(stage)
        pod(stage, "a")
        pod(stage, "b")
        async with stage.scheduling(is_quarantining=False):
            await stage.pass_time(3)
            stage.pod("other", templates=("two",))
            await stage.delete("a", grace_seconds=0)
            await stage.pass_time(3)
            assert running(stage, "other") == [False]
            await stage.delete("b", grace_seconds=0)
            await stage.pass_time(3)
            assert running(stage, "other") == [True]
            assert stage.differences() == ()

    play(story)


def test_replacement_pods_get_devices_again() -> None:
    async def story() -> None:
        stage = Stage(nodes=2, gpus=2)
        stage.template("two", count=2)
        group(stage, least=1)
        pod(stage, "a")
        async with stage.scheduling(is_quarantining=False):
            await stage.pass_time(3)
            first = stage.node_of("a")
            await stage.delete("a", grace_seconds=0)
            stage.pod("wall", nodeSelector={"kubernetes.io/hostname": first}, templates=("two",))
            await stage.pass_time(3)
            assert running(stage, "wall") == [True]
            pod(stage, "b")
            await stage.pass_time(3)
            assert running(stage, "b") == [True]
            assert stage.node_of("b") != first
        assert (
            len(
                [
                    item
                    for item in stage.claims()
                    if item.status.reserved_for[0].resource == "podgroups"
                ]
            )
            == 1
        )

    play(story)


def test_a_named_claim_of_a_group_is_reserved_for_the_group() -> None:
    async def story() -> None:
        stage = Stage(nodes=1, gpus=2)
        stage.claim("mine")
        group(stage, entry={"name": "c0", "resourceClaimName": "mine"})
        pod(stage, "a", templates=(), named=("mine",))
        pod(stage, "b", templates=(), named=("mine",))
        async with stage.scheduling():
            await stage.pass_time(3)
            assert running(stage, "a", "b") == [True, True]
            assert users(stage) == [GROUP]
            stage.pod("guest", named=("mine",))  # not of the group: reserved for itself
            await stage.pass_time(3)
            assert users(stage) == [GROUP, ("", "pods", "guest")]
            for name in ("a", "b"):
                await stage.delete(name, grace_seconds=0)
            await stage.pass_time(5)
            assert len(stage.devices()) == 1  # the guest still has it

    play(story)


def test_a_gang_that_cannot_be_bound_gives_the_claim_back_once() -> None:
    async def story() -> None:
        stage = Stage(nodes=1, gpus=2)
        stage.template("two", count=2)
        group(stage)
        pod(stage, "a")
        pod(stage, "b")
        refused: list[str] = []

        def refuse(verb: str, target: Target) -> None:
            if target.subresource == "binding" and len(refused) < 2:
                refused.append(target.name)
                raise failures.Refused("no", status=422, reason="Invalid")

        stage.api.before = refuse
        async with stage.scheduling():
            await stage.pass_time(1)
            assert sorted(refused) == ["a", "b"]
            await stage.pass_time(20)
            assert running(stage, "a", "b") == [True, True]
            assert users(stage) == [GROUP]
            assert stage.differences() == ()

    play(story)


def test_what_a_predecessor_reserved_for_a_group_that_waits_is_given_back() -> None:
    async def story() -> None:
        stage = Stage(nodes=2, gpus=2)
        stage.template("two", count=2)
        group(stage)
        pod(stage, "a")
        stage.api.settle()
        uid = stage.api.all(registry.POD_GROUP)[0].metadata.uid
        name = claim(stage).metadata.name
        stage.take(name, ("n-0", "gpu-0"), uid=uid)
        tree = stage.api.tree(registry.CLAIM, name, namespace="default")
        tree["status"]["reservedFor"] = [
            {"apiGroup": GROUP[0], "resource": GROUP[1], "name": "pg", "uid": uid}
        ]
        stage.api.shelf.put(registry.CLAIM, tree)
        async with stage.scheduling():
            await stage.pass_time(3)
            assert stage.devices() == []
            assert running(stage, "a") == [False]
            pod(stage, "b")
            await stage.pass_time(3)
            assert running(stage, "a", "b") == [True, True]

    play(story)


def test_claims_of_groups_of_another_scheduler_are_left_alone() -> None:
    async def story() -> None:
        stage = Stage(nodes=1, gpus=2)
        stage.template("two", count=2)
        group(stage)
        pod(stage, "a", schedulerName="another-scheduler")
        stage.api.settle()
        uid = stage.api.all(registry.POD_GROUP)[0].metadata.uid
        name = claim(stage).metadata.name
        stage.take(name, ("n-0", "gpu-0"), uid=uid)
        tree = stage.api.tree(registry.CLAIM, name, namespace="default")
        tree["status"]["reservedFor"] = [
            {"apiGroup": GROUP[0], "resource": GROUP[1], "name": "pg", "uid": uid}
        ]
        stage.api.shelf.put(registry.CLAIM, tree)
        async with stage.scheduling():
            await stage.pass_time(5)
            assert len(stage.devices()) == 1

    play(story)


def test_a_group_may_have_more_pods_than_a_claim_may_have_users() -> None:
    async def story() -> None:
        count = claims.MAX_RESERVED_FOR + 10
        stage = Stage(nodes=3, gpus=2)
        stage.claim("mine")
        group(stage, least=count, entry={"name": "c0", "resourceClaimName": "mine"})
        for number in range(count):
            pod(
                stage,
                f"p{number}",
                templates=(),
                named=("mine",),
                resources={"requests": {"cpu": "1m"}},
            )
        names = [f"p{number}" for number in range(count)]
        for node in stage.api.all(registry.NODE):
            tree = stage.api.tree(registry.NODE, node.metadata.name)
            tree["status"]["allocatable"]["pods"] = "1000"
            stage.api.shelf.put(registry.NODE, tree)
        async with stage.scheduling():
            await stage.pass_time(5)
            assert all(running(stage, *names))
            assert users(stage) == [GROUP]

    play(story)


def test_an_evicted_group_leaves_its_devices_to_its_beneficiary() -> None:
    """Also where its pods are recreated at once: they wait, and do not take the claim up again."""

    async def story() -> None:
        stage = Stage(nodes=1, gpus=2)
        stage.queue("rich", resources={"gpu": {"quota": "0"}})
        stage.queue("poor", resources={"gpu": {"quota": "2"}})
        stage.template("two", count=2)
        group(stage)
        rich, poor = {"dovetail.dev/queue": "rich"}, {"dovetail.dev/queue": "poor"}
        for name in ("a", "b"):
            pod(stage, name, labels=rich, annotations=LOST, terminationGracePeriodSeconds=1)
        async with stage.scheduling(is_quarantining=False):
            await stage.pass_time(3)
            assert running(stage, "a", "b") == [True, True]
            stage.pod("due", templates=("two",), labels=poor)
            await stage.pass_time(3)
            leaving = [
                name for name in ("a", "b") if stage.the_pod(name).metadata.deletion_timestamp
            ]
            assert leaving == ["a", "b"]
            for name in ("c", "d"):
                pod(stage, name, labels=rich, annotations=LOST)
            await stage.pass_time(2)
            assert running(stage, "c", "d") == [False, False]
            for name in leaving:
                await stage.delete(name, grace_seconds=0)
            await stage.pass_time(5)
            assert running(stage, "due", "c", "d") == [True, False, False]
            assert (
                len(stage.events("Reclaimed")) == 3
            )  # once for each, and once for whom they yield to
            assert stage.differences() == ()

    play(story)


@pytest.mark.parametrize("is_before", [True, False], ids=["before", "after"])
def test_a_group_interrupted_at_any_write_is_completed_or_taken_back_by_the_next_leader(
    is_before: bool,
) -> None:
    async def story(deadly: int) -> bool:
        stage = Stage(nodes=2, gpus=2)
        stage.template("two", count=2)
        group(stage, least=3)
        names = ("a", "b", "c")
        for name in names:
            pod(stage, name)
        count = itertools.count()
        died: list[str] = []

        def die(verb: str, target: Target) -> None:
            if died or (
                verb != "get" and target.kind is not registry.EVENT and next(count) == deadly
            ):
                died.append(f"{verb} {target}")
                raise failures.Fenced("dead")

        stage.api.settle()
        stage.api.before, stage.api.after = (die, None) if is_before else (None, die)
        async with stage.scheduling():
            await stage.pass_time(3)
        stage.api.before = stage.api.after = None
        async with stage.scheduling():
            await stage.pass_time(30)
            assert all(running(stage, *names)), died
            assert users(stage) == [GROUP], died
            assert stage.intents() == [], died
            assert len(set(stage.devices())) == 2, died
            assert stage.differences() == (), died
        return bool(died)

    async def all_of_them() -> None:
        deaths = 0
        while await story(deaths):
            deaths += 1
        assert (
            deaths >= 1 + 2 + 3 + 1
        )  # intent, two writes of the claim, bindings, the intent's end

    play(all_of_them)


@pytest.mark.parametrize(
    "is_kept", [True, False], ids=["for an empty group too", "for the guest alone"]
)
def test_no_pod_is_evicted_for_devices_that_a_group_keeps(is_kept: bool) -> None:
    """Nothing says that a group without pods is ours: its reservation stays, and so would the devices."""

    async def story() -> None:
        stage = Stage(nodes=1, gpus=1)
        stage.template("one")
        stage.claim("mine")
        group(stage, entry={"name": "c0", "resourceClaimName": "mine"})
        stage.pod("guest", named=("mine",), annotations=LOST)
        async with stage.scheduling(is_quarantining=False):
            await stage.pass_time(2)
            if is_kept:
                uid = stage.api.all(registry.POD_GROUP)[0].metadata.uid
                tree = stage.api.tree(registry.CLAIM, "mine", namespace="default")
                entry = {"apiGroup": GROUP[0], "resource": GROUP[1], "name": "pg", "uid": uid}
                tree["status"]["reservedFor"].append(entry)
                stage.api.shelf.put(registry.CLAIM, tree)
            stage.pod("urgent", templates=("one",), priority=50)
            await stage.pass_time(4)
            assert (stage.the_pod("guest").metadata.deletion_timestamp is None) == is_kept

    play(story)
