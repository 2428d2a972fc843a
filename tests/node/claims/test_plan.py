"""Plans as pure functions: the same facts give the same steps, and no facts give silicon away twice."""

from __future__ import annotations

from typing import Any

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from dovetail.kubetypes import codec
from dovetail.kubetypes.resource import claims
from dovetail.node.claims import checkpoint, instructions, plan_prepare
from dovetail.node.claims.instructions import LiveGpu
from dovetail.node.claims.plan_prepare import MigPolicy, Plan, Refused, Settings
from dovetail.node.claims.plan_prepare import plan_prepare as plan
from dovetail.node.claims.plan_undo import plan_undo
from dovetail.node.inventory import ComputeMode, Inventory, TimeSlice
from tests.node import build
from tests.node.claims.node import claim_tree, mps, share, time_slicing

EMPTY = checkpoint.Checkpoint(boot_id="boot-1")
NAMES = [
    "gpu-0",
    "gpu-1",
    *(f"gpu-0-mig-1g10gb-19-{start}" for start in range(7)),
    *(f"gpu-0-mig-2g20gb-14-{start}" for start in (0, 2, 4)),
    "gpu-0-mig-3g40gb-9-0",
    "gpu-0-mig-3g40gb-9-4",
    "gpu-0-mig-4g40gb-5-0",
    "gpu-0-mig-7g80gb-0-0",
]


def claim(uid: str, *devices: Any, **options: Any) -> claims.ResourceClaim:
    tree = claim_tree(f"claim-{uid}", *devices, **options)
    tree["metadata"]["uid"] = uid
    return codec.decode_struct(claims.ResourceClaim, msgspec.json.encode(tree))


def live_of(inventory: Inventory) -> dict[int, LiveGpu]:
    return {
        gpu.minor: LiveGpu(gpu.minor, gpu.uuid, gpu.is_mig_enabled, gpu.mig_devices)
        for gpu in inventory.gpus
    }


def planned(
    wanted: claims.ResourceClaim,
    *,
    inventory: Inventory | None = None,
    known: checkpoint.Checkpoint = EMPTY,
    **settings: Any,
) -> Plan | Refused:
    machine = inventory or build.machine(gpus=2)
    rules = Settings(pool="node-a", **settings)
    return plan(wanted, settings=rules, inventory=machine, live=live_of(machine), known=known)


def steps(outcome: Plan | Refused) -> tuple[instructions.Instruction, ...]:
    assert isinstance(outcome, Plan), outcome
    return outcome.steps


def test_a_partition_is_made_after_mig_mode_is_on() -> None:
    gpu = build.machine(gpus=2).gpus[0]
    assert steps(planned(claim("u", "gpu-0-mig-3g40gb-9-4"))) == (
        instructions.EnableMig(0, gpu.uuid),
        instructions.CreateInstance(0, 0, 9, 4),
    )


def test_a_whole_gpu_without_config_needs_no_step() -> None:
    assert steps(planned(claim("u", "gpu-0"))) == ()


def test_time_slices_are_set_in_default_compute_mode() -> None:
    assert steps(planned(claim("u", "gpu-0", configs=[time_slicing("Short")]))) == (
        instructions.SetComputeMode(0, ComputeMode.DEFAULT),
        instructions.SetTimeSlice(0, TimeSlice.SHORT),
    )


def test_several_users_of_mps_need_volta() -> None:
    pascal = build.machine(gpus=1, cuda_compute_capability="6.0")
    outcome = planned(claim("u", "gpu-0", configs=[mps(multiUser=True)]), inventory=pascal)
    assert isinstance(outcome, Refused)
    assert "it needs 7.0 or later" in outcome.reason


def test_a_fixed_number_of_shares_is_not_exceeded() -> None:
    known = EMPTY
    for uid in ("a", "b"):
        outcome = planned(claim(uid, share("gpu-0", shares="1")), known=known, share_count=2)
        assert isinstance(outcome, Plan)
        known = known.with_claim(outcome.claim)
    outcome = planned(claim("c", share("gpu-0", shares="1")), known=known, share_count=2)
    assert isinstance(outcome, Refused)
    assert "would take 3 of shares, the device has 2" in outcome.reason


def test_a_capacity_may_be_named_with_the_drivers_domain() -> None:
    big = share("gpu-0")
    big["consumedCapacity"] = {"gpu.nvidia.com/memory": "200Gi"}
    assert isinstance(planned(claim("u", big)), Refused)


def test_a_config_of_a_request_covers_its_alternatives() -> None:
    result = {"device": "gpu-0", "request": "r0/large"}
    outcome = planned(claim("u", result, configs=[time_slicing("Long", requests=["r0"])]))
    assert instructions.SetTimeSlice(0, TimeSlice.LONG) in steps(outcome)


@given(names=st.lists(st.lists(st.sampled_from(NAMES), min_size=1, max_size=2), max_size=12))
def test_planned_claims_never_overlap_and_undoing_them_restores_the_modes(
    names: list[list[str]],
) -> None:
    inventory = build.machine(gpus=2)
    known = EMPTY
    for number, devices in enumerate(names):
        outcome = planned(claim(f"u{number}", *devices), inventory=inventory, known=known)
        if isinstance(outcome, Plan):
            known = known.with_claim(outcome.claim)
    slices = [
        (held.gpu_uuid, place)
        for record in known.claims.values()
        for held in record.devices
        for place in range(held.first_slice, held.first_slice + (held.slice_count or 8))
    ]
    assert len(slices) == len(set(slices))

    enabled = known.with_mig_enabled(inventory.gpus[0].uuid, is_ours=True)
    live = {gpu.gpu_uuid: gpu for gpu in live_of(inventory).values()}
    undone: list[instructions.Instruction] = []
    while enabled.claims:
        uid, record = next(iter(enabled.claims.items()))
        undone += plan_undo(record, live=live, known=enabled)
        enabled = enabled.without_claim(uid)
    switches = [step for step in undone if isinstance(step, instructions.DisableMig)]
    has_partitions = any(
        held.slice_count for record in known.claims.values() for held in record.devices
    )
    assert len(switches) == int(has_partitions), "MIG mode goes off once, with the last partition"


@given(name=st.text(max_size=40) | st.from_regex(r"gpu-[0-9]{1,9}(-mig-.{1,8}-[0-9]{1,9}){0,2}"))
def test_any_name_is_refused_or_understood(name: str) -> None:
    outcome = planned(claim("u", name))
    assert isinstance(outcome, Plan | Refused)


def test_static_devices_are_never_destroyed() -> None:
    inventory = build.machine(gpus=1)
    gpu = build.with_mig_device(inventory.gpus[0], "3g.40gb", 0)
    inventory = msgspec.structs.replace(inventory, gpus=(gpu,))
    outcome = planned(claim("u", "gpu-0-mig-3g40gb-9-0"), inventory=inventory, mig=MigPolicy.STATIC)
    assert isinstance(outcome, Plan)
    live = {gpu.uuid: live_of(inventory)[0]}
    known = EMPTY.with_claim(outcome.claim)
    assert plan_undo(outcome.claim, live=live, known=known) == ()


def test_settings_have_the_words_of_the_command_line() -> None:
    assert [policy.value for policy in plan_prepare.MigPolicy] == ["dynamic", "static", "off"]
