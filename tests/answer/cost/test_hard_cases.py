"""The cases in which OpenCost bills a GPU at nothing, or several times over; each with the bill that is right."""

from __future__ import annotations

import pytest

from dovetail.model.accounting import records
from dovetail.model.accounting.records import Form
from tests.answer.cost import accounts

ALICE = accounts.owner("alice", "job-0", queue="q")
BOB = accounts.owner("bob", "job-0", queue="q")
SEVENTH = 142857  # of one GPU, in millionths: 1g.10gb


def test_a_slice_of_a_gpu_in_mixed_mig_mode_costs_its_silicon_not_nothing() -> None:
    """Asked for as nvidia.com/mig-1g.10gb, a resource that no query for nvidia.com/gpu sees."""
    recorded = records.Records(
        assets=(accounts.gpu("g0"),),
        allocations=(
            accounts.held("g0", ALICE, 0, 10, micro=SEVENTH, form=Form.MIG, profile="1g.10gb"),
        ),
    )
    costs = accounts.costs(accounts.table(recorded, accounts.flat(7), hours=(0, 10)))
    assert costs == {"alice": 10.00, "__idle__": 60.00}


def test_seven_slices_in_single_mig_mode_cost_one_gpu_not_seven() -> None:
    """Each is counted as a whole nvidia.com/gpu by its node."""
    owners = [accounts.owner(f"team-{number}", "job-0") for number in range(7)]
    recorded = records.Records(
        assets=(accounts.gpu("g0"),),
        allocations=tuple(
            accounts.held("g0", owner, 0, 10, micro=SEVENTH, form=Form.MIG, profile="1g.10gb")
            for owner in owners
        ),
    )
    answer = accounts.table(recorded, accounts.flat(7), hours=(0, 10))
    costs = accounts.costs(answer)
    assert answer.total.cost.total == 70.00
    assert {costs[owner.namespace] for owner in owners} == {10.00}


@pytest.mark.parametrize("resource", ["nvidia.com/gpu.shared", "nvidia.com/gpu"])
def test_a_time_slicing_replica_costs_its_part_however_the_resource_is_called(
    resource: str,
) -> None:
    """Renamed, its pod would cost nothing; not renamed, each of the four replicas a whole GPU."""
    asset = f"n1/{resource}"
    recorded = records.Records(
        assets=(accounts.gpu(asset, count=2),),
        allocations=(
            accounts.held(asset, ALICE, 0, 10, micro=250_000, form=Form.REPLICA),
            accounts.held(asset, BOB, 0, 10, micro=500_000, form=Form.REPLICA),
        ),
    )
    costs = accounts.costs(accounts.table(recorded, accounts.flat(4), hours=(0, 10)))
    assert costs == {"alice": 10.00, "bob": 20.00, "__idle__": 50.00}


def test_a_resource_claim_costs_its_device_although_no_container_requests_a_gpu() -> None:
    recorded = records.Records(
        assets=(accounts.gpu("GPU-1"),),
        allocations=(accounts.held("GPU-1", ALICE, 0, 5, claim="train-gpu"),),
    )
    answer = accounts.table(recorded, accounts.flat(2), "claim", hours=(0, 10))
    assert accounts.costs(answer) == {"train-gpu": 10.00, "__idle__": 10.00}


def test_an_extended_resource_backed_by_dra_costs_the_device_that_serves_it() -> None:
    """The node's capacity has no GPU: the price is that of the published device."""
    recorded = records.Records(
        assets=(accounts.gpu("gpu.nvidia.com/n1/gpu-0", pool="on-prem"),),
        allocations=(
            accounts.held("gpu.nvidia.com/n1/gpu-0", ALICE, 0, 10, claim="job-0-extended"),
        ),
    )
    known = accounts.prices("currency: EUR\nprices: [{pool: on-prem, perHour: 1.5}]")
    assert accounts.costs(accounts.table(recorded, known, hours=(0, 10))) == {"alice": 15.00}


def test_a_quarter_of_a_gpu_by_cores_or_memory_is_billed_as_a_quarter() -> None:
    recorded = records.Records(
        assets=(accounts.gpu("g0"),),
        allocations=(accounts.held("g0", ALICE, 0, 10, micro=250_000, form=Form.SHARE),),
    )
    costs = accounts.costs(accounts.table(recorded, accounts.flat(4), hours=(0, 10)))
    assert costs == {"alice": 10.00, "__idle__": 30.00}


def test_what_was_used_differs_from_what_was_allocated() -> None:
    held = accounts.held("g0", ALICE, 0, 10)
    recorded = records.Records(
        assets=(accounts.gpu("g0"),),
        allocations=(held,),
        usage=(accounts.busy(held, 0, 10, 0.03),),
    )
    row = accounts.rows(accounts.table(recorded, accounts.flat(10), hours=(0, 10)))["alice"]
    assert (row.cost.used, row.cost.idle, row.cost.total) == (3.00, 97.00, 100.00)


def test_a_negotiated_discount_counts_for_gpus() -> None:
    recorded = records.Records(
        assets=(accounts.gpu("g0"), accounts.gpu("g1", product=accounts.A100)),
        allocations=(accounts.held("g0", ALICE, 0, 10), accounts.held("g1", BOB, 0, 10)),
    )
    known = accounts.prices(
        "currency: USD\ndiscountPercent: 30\nprices:\n"
        "- {product: '*H100*', perHour: 3}\n- {product: '*A100*', perHour: 2, discountPercent: 0}\n"
    )
    costs = accounts.costs(accounts.table(recorded, known, hours=(0, 10)))
    assert costs == {"alice": 21.00, "bob": 20.00}


def test_queues_have_costs_and_waiting_work_has_gpu_hours_without_money() -> None:
    gang = [accounts.owner("carol", f"gang-{number}", queue="big") for number in range(4)]
    recorded = records.Records(
        assets=(accounts.gpu("g0"),),
        allocations=(accounts.held("g0", ALICE, 0, 10),),
        waiting=tuple(
            records.Waiting(owner, 2_000_000, accounts.at(4), accounts.at(10), "gang of 4")
            for owner in gang
        ),
    )
    rows = accounts.rows(accounts.table(recorded, accounts.flat(1), "queue", hours=(0, 10)))
    assert rows["q"].cost.total == 10.00
    assert rows["big"].cost.total == 0.00
    assert rows["big"].waiting_gpu_hours == 48.0


def test_two_slices_that_strand_each_other_cost_one_gpu_in_proportion() -> None:
    """4g.40gb takes 4 of 7 compute slices, 3g.40gb 4 of 8 memory slices: 1.07 GPUs together."""
    recorded = records.Records(
        assets=(accounts.gpu("g0"),),
        allocations=(
            accounts.held("g0", ALICE, 0, 15, micro=571429, form=Form.MIG, profile="4g.40gb"),
            accounts.held("g0", BOB, 0, 15, micro=500000, form=Form.MIG, profile="3g.40gb"),
        ),
    )
    costs = accounts.costs(accounts.table(recorded, accounts.flat(1), hours=(0, 15)))
    assert costs == {"alice": 8.00, "bob": 7.00}


def test_allocations_agree_with_the_price_of_the_machine() -> None:
    """Never more than the machine, however many hold parts of it."""
    owners = [accounts.owner(f"t{number}", "p-0") for number in range(20)]
    recorded = records.Records(
        assets=(accounts.gpu("n1/nvidia.com/gpu", count=8, itype="p5.48xlarge"),),
        allocations=tuple(
            accounts.held("n1/nvidia.com/gpu", owner, 0, 10, micro=700_000, form=Form.SHARE)
            for owner in owners
        ),
    )
    known = accounts.prices(
        "currency: USD\nprices: [{labels: {itype: p5.*}, perHour: 98.32, gpus: 8}]"
    )
    assert accounts.table(recorded, known, hours=(0, 10)).total.cost.total == 983.20


def test_a_gpu_without_a_price_is_named_and_never_free() -> None:
    recorded = records.Records(
        assets=(accounts.gpu("g0"), accounts.gpu("t0", product="Tesla T4", node="n2")),
        allocations=(accounts.held("g0", ALICE, 0, 10), accounts.held("t0", ALICE, 0, 10)),
    )
    known = accounts.prices("currency: USD\nprices: [{product: '*H100*', perHour: 2}]")
    answer = accounts.table(recorded, known, hours=(0, 10))
    row = accounts.rows(answer)["alice"]
    assert (row.cost.total, row.gpu_hours.total, row.unpriced_gpu_hours) == (20.00, 20.0, 10.0)
    assert row.partial == ("no price for Tesla T4",)
    (note,) = answer.notes
    assert note.code == "no-price"
    assert note.message == (
        "no price for Tesla T4 in prices.yaml: 10.00 GPU-hours of 1 GPU count no money"
    )


def test_an_allocation_outlives_its_lost_node_but_its_cost_does_not() -> None:
    recorded = records.Records(
        assets=(accounts.gpu("g0", 0, 4),), allocations=(accounts.held("g0", ALICE, 0, None),)
    )
    assert accounts.costs(accounts.table(recorded, accounts.flat(1))) == {"alice": 4.00}


def test_an_allocation_of_a_gpu_that_no_record_describes_is_named() -> None:
    recorded = records.Records(allocations=(accounts.held("gone", ALICE, 0, 3),))
    answer = accounts.table(recorded, accounts.flat(1))
    assert answer.steps[0].rows == ()
    (note,) = answer.notes
    assert note.code == "unknown-gpu"
    assert "no record describes GPU gone: 3.00 allocated GPU-hours" in note.message


def test_samples_that_are_missing_leave_allocated_time_unmeasured_and_marked() -> None:
    held = accounts.held("g0", ALICE, 0, 10)
    recorded = records.Records(
        assets=(accounts.gpu("g0"),),
        allocations=(held,),
        usage=(accounts.busy(held, 0, 6, 0.5),),
        gaps=(
            records.Gap(
                records.GapSource.METRICS, accounts.at(6), accounts.at(10), "exporter down"
            ),
        ),
    )
    answer = accounts.table(recorded, accounts.flat(1), hours=(0, 10))
    row = accounts.rows(answer)["alice"]
    assert (row.cost.used, row.cost.idle, row.cost.unmeasured) == (3.00, 3.00, 4.00)
    (reason,) = row.partial
    assert reason.startswith("no samples of any GPU from 2026-11-02T06:00:00Z")
    assert reason.endswith(": exporter down")


def test_a_gap_of_samples_does_not_mark_what_was_measured_all_the_same() -> None:
    first, second = accounts.held("g0", ALICE, 0, 10), accounts.held("g1", BOB, 0, 10)
    recorded = records.Records(
        assets=(accounts.gpu("g0"), accounts.gpu("g1")),
        allocations=(first, second),
        usage=(accounts.busy(first, 0, 10, 0.5),),
        gaps=(records.Gap(records.GapSource.METRICS, accounts.at(0), accounts.at(10)),),
    )
    rows = accounts.rows(accounts.table(recorded, accounts.flat(1), hours=(0, 10)))
    assert rows["alice"].partial == ()
    assert len(rows["bob"].partial) == 1


def test_what_a_gpu_did_its_only_holder_did_and_of_several_nothing_is_said() -> None:
    whole = records.Usage("g0", "", accounts.at(0), accounts.at(10), busy_micro=400_000)
    first = accounts.held("g0", ALICE, 0, 10, micro=500_000, form=Form.REPLICA)
    second = accounts.held("g0", BOB, 5, 10, micro=500_000, form=Form.REPLICA)
    recorded = records.Records(
        assets=(accounts.gpu("g0"),), allocations=(first, second), usage=(whole,)
    )
    rows = accounts.rows(accounts.table(recorded, accounts.flat(2), hours=(0, 10)))
    alice, bob = rows["alice"].cost, rows["bob"].cost
    assert (alice.used, alice.idle, alice.unmeasured) == (2.00, 3.00, 5.00)
    assert (bob.used, bob.idle, bob.unmeasured) == (0.00, 0.00, 5.00)


def test_energy_of_a_gpu_is_divided_by_shares() -> None:
    whole = records.Usage(
        "g0", "", accounts.at(0), accounts.at(10), energy_millijoules=3_600_000_000
    )
    recorded = records.Records(
        assets=(accounts.gpu("g0"),),
        allocations=(accounts.held("g0", ALICE, 0, 5, micro=250_000, form=Form.SHARE),),
        usage=(whole,),
    )
    known = accounts.prices("currency: USD\nprices: [{perHour: 1}]\ncarbon: [{gramsPerKwh: 400}]")
    rows = accounts.rows(accounts.table(recorded, known, hours=(0, 10)))
    assert (rows["alice"].energy_kwh, rows["alice"].co2e_kg) == (0.125, 0.05)
    assert (rows["__idle__"].energy_kwh, rows["__idle__"].co2e_kg) == (0.875, 0.35)


def test_a_holder_that_is_measured_itself_keeps_its_energy() -> None:
    held = accounts.held("g0", ALICE, 0, 10, micro=500_000, form=Form.MIG)
    whole = records.Usage(
        "g0", "", accounts.at(0), accounts.at(10), energy_millijoules=7_200_000_000
    )
    recorded = records.Records(
        assets=(accounts.gpu("g0"),),
        allocations=(held, accounts.held("g0", BOB, 0, 10, micro=250_000, form=Form.MIG)),
        usage=(whole, accounts.busy(held, 0, 10, 0.9, kilojoules=3600)),
    )
    rows = accounts.rows(accounts.table(recorded, accounts.flat(1), hours=(0, 10)))
    kwh = {name: row.energy_kwh for name, row in rows.items()}
    assert kwh == {"alice": 1.0, "bob": 0.5, "__idle__": 0.5}
