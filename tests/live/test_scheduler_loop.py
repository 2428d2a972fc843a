"""The live loop, in memory and simulated time: every kind of claim, every failure between two writes."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from dovetail.kubetypes import registry
from dovetail.model import policy
from dovetail.ports import failures
from dovetail.ports.api import Target
from tests.live.live_scheduler import Stage, play


def test_pods_from_a_template_get_a_gpu_each() -> None:
    async def story() -> None:
        stage = Stage(nodes=2, gpus=2)
        stage.template("one")
        for number in range(4):
            stage.pod(f"p{number}", templates=("one",))
        async with stage.scheduling():
            await stage.pass_time()
            assert len(set(stage.devices())) == 4
            assert all(stage.node_of(f"p{number}") for number in range(4))
            assert len(stage.events("Scheduled")) == 4
            assert stage.differences() == ()

    play(story)


def test_a_shared_claim_is_allocated_once_and_both_users_follow_it() -> None:
    async def story() -> None:
        stage = Stage()
        stage.claim("shared")
        stage.pod("a", named=("shared",))
        stage.pod("b", named=("shared",))
        async with stage.scheduling():
            await stage.pass_time()
            assert stage.node_of("a") == stage.node_of("b") != ""
            assert len(stage.claims()[0].status.reserved_for) == 2
            assert len(stage.devices()) == 1

    play(story)


def test_two_claims_are_both_written_before_the_binding() -> None:
    async def story() -> None:
        stage = Stage(nodes=1, gpus=2)
        stage.template("one")
        stage.pod("a", templates=("one", "one"))
        order: list[str] = []
        stage.api.after = lambda verb, target: order.append(
            f"{verb} {target.kind.plural}/{target.subresource}"
        )
        async with stage.scheduling():
            await stage.pass_time()
        writes = [name for name in order if "claims" in name or "binding" in name]
        assert writes == [
            "patch resourceclaims/",
            "patch resourceclaims/status",
            "patch resourceclaims/",
            "patch resourceclaims/status",
            "create pods/binding",
        ]

    play(story)


def test_extended_resources_get_a_claim_of_their_own_and_the_pod_says_so() -> None:
    async def story() -> None:
        stage = Stage(nodes=1, gpus=4)
        stage.pod("classic", resources={"limits": {"nvidia.com/gpu": "3"}})
        async with stage.scheduling():
            await stage.pass_time()
        pod = stage.the_pod("classic")
        status = pod.status.extended_resource_claim_status
        assert pod.spec.node_name
        assert status is not None
        assert [claim.metadata.name for claim in stage.claims()] == [status.resource_claim_name]
        assert [request_mapping.request_name for request_mapping in status.request_mappings] == [
            "container-0-request-0"
        ]
        assert len(stage.devices()) == 3

    play(story)


def test_a_pod_without_room_says_so_once_and_starts_when_room_comes() -> None:
    async def story() -> None:
        stage = Stage(nodes=1, gpus=1)
        stage.template("one")
        stage.pod("first", templates=("one",))
        async with stage.scheduling(is_quarantining=False):
            await stage.pass_time()
            stage.pod("second", templates=("one",))
            await stage.pass_time(10)
            condition = next(
                item
                for item in stage.the_pod("second").status.conditions
                if item.type == "PodScheduled"
            )
            assert (condition.status, condition.reason) == ("False", "Unschedulable")
            assert "gpu" in condition.message
            assert len(stage.events("FailedScheduling")) == 1
            await stage.delete("first", grace_seconds=0)
            await stage.pass_time(5)
            assert stage.node_of("second")
            assert stage.differences() == ()

    play(story)


def test_devices_of_a_pod_removed_by_force_rest_until_the_node_lets_go() -> None:
    async def story() -> None:
        stage = Stage(nodes=1, gpus=1)
        stage.template("one")
        stage.pod("first", templates=("one",), terminationGracePeriodSeconds=20)
        async with stage.scheduling(quarantine_slack_seconds=5.0):
            await stage.pass_time()
            await stage.delete("first", grace_seconds=0)
            stage.pod("second", templates=("one",))
            await stage.pass_time(20)
            assert stage.devices() == []
            assert stage.node_of("second") == ""
            await stage.pass_time(10)
            assert stage.node_of("second")

    play(story)


FAILURES = {
    "conflict": lambda: failures.Conflict("conflict"),
    "throttled": lambda: failures.Throttled("slow down", retry_after=1.0),
    "unavailable": lambda: failures.Unavailable("500"),
}


def of_every_kind() -> Stage:
    """Three pods that fill two nodes: with claims of its own, with a shared one, with that and extended resources."""
    stage = Stage(nodes=2, gpus=2)
    stage.template("one")
    stage.claim("shared")
    stage.pod("a", templates=("one", "one"))
    stage.pod("b", named=("shared",))
    stage.pod("c", named=("shared",), resources={"limits": {"nvidia.com/gpu": "1"}})
    return stage


@pytest.mark.parametrize(
    ("moment", "what"),
    [
        ("before", "conflict"),
        ("before", "throttled"),
        ("before", "unavailable"),
        ("after", "unavailable"),
    ],
)
@pytest.mark.parametrize("place", range(12))
def test_a_failure_at_any_write_loses_nothing(moment: str, what: str, place: int) -> None:
    """The n-th request fails, not carried out or carried out without an answer; in the end all is as it should be."""

    async def story() -> None:
        stage = of_every_kind()
        count = itertools.count()

        def fail(verb: str, target: Target) -> None:
            if (
                verb != "get"
                and target.kind in (registry.CLAIM, registry.POD)
                and next(count) == place
            ):
                raise FAILURES[what]()

        setattr(stage.api, moment, fail)
        async with stage.scheduling():
            await stage.pass_time(30)
            assert all(stage.node_of(name) for name in "abc")
            assert len(set(stage.devices())) == len(stage.devices()) == 4
            assert stage.differences() == ()

    play(story)


@pytest.mark.parametrize("place", range(14))
def test_a_scheduler_that_dies_between_any_two_writes_leaves_its_work_to_the_next(
    place: int,
) -> None:
    async def story() -> None:
        stage = of_every_kind()
        count = itertools.count()

        def die(verb: str, target: Target) -> None:
            if (
                verb != "get"
                and target.kind in (registry.CLAIM, registry.POD)
                and next(count) >= place
            ):
                raise failures.Fenced("dead")

        stage.api.after = die
        async with stage.scheduling():
            await stage.pass_time(3)
        stage.api.after = None
        async with stage.scheduling():
            await stage.pass_time(30)
            assert all(stage.node_of(name) for name in "abc")
            assert len(set(stage.devices())) == len(stage.devices()) == 4
            assert (
                sum(claim.metadata.name.startswith("c-extended") for claim in stage.claims()) == 1
            )
            assert stage.differences() == ()

    play(story)


def test_a_pod_deleted_while_its_claim_is_written_frees_nothing_too_early() -> None:
    """The write is on its way when the pod goes: no other pod may get the device before the server has answered."""

    async def story() -> None:
        stage = Stage(nodes=1, gpus=1)
        stage.template("one")
        stage.pod("first", templates=("one",))
        stage.pod("second", templates=("one",))
        seen: list[list[tuple[str, str]]] = []
        gone: list[str] = []

        def vanish(verb: str, target: Target) -> None:
            if target.subresource == "status" and target.kind is registry.CLAIM and not gone:
                gone.append(target.name)
                stage.api.shelf.delete(
                    registry.POD, ("default", target.name.partition("-t0")[0]), grace_seconds=0
                )
            seen.append(stage.devices())

        stage.api.before = vanish
        stage.api.after = lambda verb, target: seen.append(stage.devices())
        async with stage.scheduling():
            await stage.pass_time(30)
            assert gone
            assert all(len(held) == len(set(held)) for held in seen)
            left = "second" if gone[0].startswith("first") else "first"
            assert stage.node_of(left)

    play(story)


def test_claims_held_where_a_pod_cannot_start_are_given_back() -> None:
    """Half of a pod's claims were written, then the other half no longer fits on that node: it starts elsewhere."""

    async def story() -> None:
        stage = Stage(nodes=2, gpus=2)
        stage.template("one")
        stage.pod("a", templates=("one", "one"))
        written: list[str] = []

        def die(verb: str, target: Target) -> None:
            if target.subresource == "status" and target.kind is registry.CLAIM:
                written.append(target.name)
                raise failures.Fenced("dead")

        stage.api.after = die
        async with stage.scheduling():
            await stage.pass_time(1)
        stage.api.after = None
        held = stage.devices()
        assert len(held) == 1
        stage.claim("rival")
        stage.take("rival", held[0])
        async with stage.scheduling():
            await stage.pass_time(20)
            assert stage.node_of("a")
            assert stage.node_of("a") != held[0][0]
            assert len(set(stage.devices())) == len(stage.devices())

    play(story)


def test_a_device_allocated_twice_is_noticed_and_our_unbound_claim_is_released() -> None:
    async def story() -> None:
        stage = Stage(nodes=1, gpus=2)
        stage.template("one")
        stage.pod("ours", templates=("one",))
        stage.claim("theirs")
        rivals: list[Any] = []

        def rival(verb: str, target: Target) -> None:
            if target.subresource == "status" and target.kind is registry.CLAIM and not rivals:
                device = stage.devices()[0]
                rivals.append(device)
                stage.take("theirs", device, same=True)

        stage.api.after = rival
        async with stage.scheduling():
            await stage.pass_time(15)
            assert rivals
            assert stage.node_of("ours")
            assert len(set(stage.devices())) == len(stage.devices()) == 2

    play(story)


def test_fields_a_server_drops_are_reported_and_the_claim_is_released() -> None:
    async def story() -> None:
        stage = Stage(nodes=1, gpus=1)
        stage.template("one")
        stage.pod("a", templates=("one",))
        keep = stage.api.patch

        async def forgetful(
            target: Target, patch: bytes, *, brief: bool = False, adds: bool = False
        ) -> bytes:
            if target.subresource == "status" and target.kind is registry.CLAIM:
                patch = patch.replace(b'"nodeSelector"', b'"forgotten"')
            return await keep(target, patch, brief=brief)

        stage.api.patch = forgetful  # type: ignore[method-assign]
        async with stage.scheduling():
            await stage.pass_time(3)
            assert stage.node_of("a") == ""
            assert stage.devices() == []
            condition = next(
                item for item in stage.the_pod("a").status.conditions if item.type == "PodScheduled"
            )
            assert condition.reason == "SchedulerError"
            assert "nodeSelector" in condition.message

    play(story)


def test_a_claim_recreated_under_the_same_name_is_not_an_overlap() -> None:
    """The server refuses a patch with the uid of the one before; the pod starts with the new one."""

    async def story() -> None:
        stage = Stage(nodes=1, gpus=1)
        stage.claim("gpu")
        stage.pod("a", named=("gpu",))
        swapped: list[str] = []

        def swap(verb: str, target: Target) -> None:
            if verb == "patch" and target.kind is registry.CLAIM and not swapped:
                swapped.append(target.name)
                stage.api.shelf.delete(registry.CLAIM, ("default", "gpu"))
                stage.claim("gpu")

        stage.api.before = swap
        async with stage.scheduling():
            await stage.pass_time(5)
            assert swapped
            assert stage.node_of("a")
            assert stage.events("FailedScheduling") == []

    play(story)


def test_a_decision_cut_short_goes_on_in_the_next_batch_and_is_no_complaint() -> None:
    async def story() -> None:
        stage = Stage(nodes=12, gpus=1)
        stage.template("one")
        for number in range(3):
            stage.pod(
                f"p{number}",
                templates=("one",),
                nodeSelector={"kubernetes.io/hostname": f"n-{number:02d}"},
            )
        async with stage.scheduling(budget=policy.Budget(kind_steps=3)):
            await stage.pass_time(5)
            assert [stage.node_of(f"p{number}") for number in range(3)] == ["n-00", "n-01", "n-02"]
            assert stage.events("FailedScheduling") == []

    play(story)


def test_a_claim_is_never_taken_from_a_pod_that_was_bound_although_we_have_not_heard_of_it() -> (
    None
):
    async def story() -> None:
        stage = Stage(nodes=1, gpus=2)
        stage.template("one")
        stage.pod("ours", templates=("one",))
        stage.claim("theirs")

        def deafen(verb: str, target: Target) -> None:
            if target.subresource == "binding":
                stage.feeds["Pod"].hold()

        stage.api.before = deafen
        async with stage.scheduling():
            await stage.pass_time(3)
            assert stage.node_of("ours")
            stage.take("theirs", stage.devices()[0], same=True)
            await stage.pass_time(5)
            ours = next(claim for claim in stage.claims() if claim.metadata.name != "theirs")
            assert ours.status.allocation is not None
            stage.feeds["Pod"].release()
            await stage.pass_time(5)
            ours = next(claim for claim in stage.claims() if claim.metadata.name != "theirs")
            assert ours.status.allocation is not None

    play(story)


def test_a_pod_whose_claim_is_being_given_back_is_not_bound_meanwhile() -> None:
    """Its node is cordoned, so what it holds there is given back; then the node is open again while that is written."""

    async def story() -> None:
        stage = Stage(nodes=2, gpus=1)
        stage.claim("gpu")
        stage.pod("a", named=("gpu",))
        stage.take("gpu", ("n-0", "gpu-0"), same=True, uid=stage.the_pod("a").metadata.uid)
        node = stage.api.tree(registry.NODE, "n-0")
        stage.api.shelf.put(registry.NODE, node | {"spec": {"unschedulable": True}})
        released: list[str] = []

        def reopen(verb: str, target: Target) -> None:
            if verb == "patch" and target.kind is registry.CLAIM and not released:
                released.append(target.name)
                stage.api.shelf.put(
                    registry.NODE, stage.api.tree(registry.NODE, "n-0") | {"spec": {}}
                )
                raise failures.Unavailable("no answer")

        stage.api.before = reopen
        async with stage.scheduling():
            await stage.pass_time(20)
            assert released
            assert stage.node_of("a") == stage.devices()[0][0]
            assert stage.claims()[0].status.allocation is not None
            assert stage.differences() == ()

    play(story)
