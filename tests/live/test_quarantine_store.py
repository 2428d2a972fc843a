"""Quarantined devices in the live loop: the queue that pays for them, for how long, and the events about them."""

from __future__ import annotations

from typing import Any

from dovetail.kubetypes import registry
from dovetail.kubetypes.custom import intents
from dovetail.ports import failures
from dovetail.ports.api import Target
from tests.live.live_scheduler import Stage, play
from tests.live.test_promise_reasons import pending_message, runs

ENDLESS = 2**63 - 1
OF_A = {"dovetail.dev/queue": "a"}
OF_B = {"dovetail.dev/queue": "b"}


def staged(*, nodes: int = 2, gpus: int = 4) -> Stage:
    """Eight GPUs; queue a may have one of them, queue b is sure of the rest."""
    stage = Stage(nodes=nodes, gpus=gpus)
    stage.template("one")
    stage.queue("a", resources={"gpu": {"quota": "1", "limit": "1"}})
    stage.queue("b", resources={"gpu": {"quota": "7"}})
    return stage


async def removed_by_force(stage: Stage, name: str) -> None:
    """A pod of queue a with an endless grace period runs, and is removed without it."""
    stage.pod(name, templates=("one",), labels=OF_A, terminationGracePeriodSeconds=ENDLESS)
    await stage.pass_time(3)
    if stage.node_of(name):
        runs(stage, name)
        await stage.pass_time(1)
    await stage.api.delete(Target(registry.POD, "default", name), uid="", grace_seconds=0)
    await stage.pass_time(3)


def quarantines(stage: Stage) -> list[intents.Quarantine]:
    return [
        intent.spec.quarantine for intent in stage.intents() if intent.spec.quarantine is not None
    ]


def test_a_queue_pays_for_devices_it_leaves_in_doubt_so_its_limit_holds() -> None:
    """Eight times over; without the charge all eight GPUs were out of use."""

    async def story() -> None:
        stage = staged()
        async with stage.scheduling() as made:
            for number in range(8):
                await removed_by_force(stage, f"e{number}")
            held = [
                one for name, one in made.world.held.items() if name in made.world.uncertain_holds
            ]
            assert sum(len(item.devices.results) for item in held) == 1
            for number in range(7):
                stage.pod(f"b{number}", templates=("one",), labels=OF_B, job=f"job-{number}")
            await stage.pass_time(5)
            assert all(stage.node_of(f"b{number}") for number in range(7))

    play(story)


def test_devices_in_doubt_come_back_after_the_time_that_is_set_and_are_named_until_then() -> None:
    async def story() -> None:
        stage = staged(nodes=1, gpus=1)
        async with stage.scheduling():
            await removed_by_force(stage, "evil")
            stage.pod("again", templates=("one",), labels=OF_A, job="job")
            stage.pod("honest", templates=("one",), labels=OF_B, job="other")
            await stage.pass_time(5)
            for name in ("again", "honest"):
                assert "1 device quarantined until " in pending_message(stage, name)
                assert "because pod default/evil was removed by force" in pending_message(
                    stage, name
                )
            assert "its limit" in pending_message(stage, "again")
            await stage.pass_time(300)
            assert stage.node_of("honest") or stage.node_of("again")
            assert quarantines(stage) == []

    play(story)


def test_a_new_leader_goes_on_with_the_quarantine() -> None:
    async def story() -> None:
        stage = staged(nodes=1, gpus=1)
        async with stage.scheduling():
            await removed_by_force(stage, "evil")
            (kept,) = quarantines(stage)
            assert (kept.pod, kept.queue, kept.node, len(kept.devices)) == ("evil", "a", "n-0", 1)
        async with stage.scheduling() as made:
            stage.pod("honest", templates=("one",), labels=OF_B, job="job")
            await stage.pass_time(60)
            assert stage.node_of("honest") == ""
            assert [
                uncertain_hold.queue for uncertain_hold in made.world.uncertain_holds.values()
            ] == ["a"]
            await stage.pass_time(260)
            assert stage.node_of("honest")
            assert quarantines(stage) == []

    play(story)


def test_a_server_that_refuses_intents_delays_no_pod() -> None:
    """The note is lost, and with it the quarantine should the leader change; nothing waits for it."""

    async def story() -> None:
        stage = staged(nodes=1, gpus=2)

        def before(verb: str, target: Any) -> None:
            if target.kind is registry.INTENT and verb == "create":
                raise failures.Unavailable("no answer")

        async with stage.scheduling():
            stage.api.before = before
            await removed_by_force(stage, "evil")
            stage.pod("honest", templates=("one",), labels=OF_B, job="job")
            await stage.pass_time(3)
            assert stage.node_of("honest")
            await stage.pass_time(60)
            assert quarantines(stage) == []
        assert stage.ended is None

    play(story)
