"""A week with MIG re-partitions, shares, node loss, restarts and a change of prices, against a ledger kept by hand.

The history and the prices are those of `examples/cost`. The ledger is plain arithmetic on hours, shares and prices,
written out entry by entry; nothing of it comes from the program.
"""

from __future__ import annotations

from fractions import Fraction as F
from pathlib import Path

import pytest

from dovetail.answer.cost import cost_table, price_file, record_document
from tests.answer.cost import accounts

EXAMPLES = Path(__file__).parents[3] / "examples" / "cost"
WEEK = (0, 168)

# The H100 price fell from 3.00 to 2.40 on Thursday at 12:30, which is hour 84.5 of the week.
HIGH, LOW = F(3), F(24, 10)
A100 = F(12, 10)
T4 = F(28, 10) / 4 / 2  # an instance of four, half off: 0.35

# GPU-0, Monday and Tuesday: train has all of it; 80 % busy on Monday, 50 % on Tuesday.
TRAIN_USED = 24 * HIGH * F(8, 10) + 24 * HIGH * F(5, 10)  # 57.60 + 36.00
TRAIN_IDLE = 24 * HIGH * F(2, 10) + 24 * HIGH * F(5, 10)  # 14.40 + 36.00
# Wednesday 00:00 to 00:10: it is partitioned, no work has it.
REPARTITION = F(10, 60) * HIGH  # 0.50
# Wednesday 00:10 to Friday 00:00: 4g (571429) and 3g (500000) are 1071429 millionths together, scaled to one GPU.
NOTEBOOK, LLM_0 = F(571429, 1071429), F(500000, 1071429)
MIG_COST = (F(845, 10) - 48 - F(10, 60)) * HIGH + (96 - F(845, 10)) * LOW  # 109.00 + 27.60
# Friday 00:00 to Sunday's end: llm-1 has a seventh from Friday 06:00 on; it is recorded twice and counts once.
LLM_1 = F(142857, 1000000) * (168 - 102) * LOW
FREE_0 = 6 * LOW + F(857143, 1000000) * (168 - 102) * LOW
FRAGMENTED = F(4, 10) * 24 * LOW  # Saturday; part of what is free
# GPU-1: three replicas from Monday 12:00 to Sunday 12:00, a third each in millionths.
REPLICA_TIME = (F(845, 10) - 12) * HIGH + (156 - F(845, 10)) * LOW  # 217.50 + 171.60
REPLICA = F(333333, 1000000) * REPLICA_TIME
FREE_1 = 12 * HIGH + 12 * LOW + F(1, 1000000) * REPLICA_TIME
# GPU-2: lost on Tuesday at 18:20 (hour 42 1/3), back on Thursday at 06:00 (hour 78).
SWEEP = (F(42) + F(1, 3) - 6) * A100 + F(1, 4) * 48 * A100  # 43.60 + 14.40
FREE_2 = 6 * A100 + F(1, 2) * A100 + F(3, 4) * 48 * A100 + (168 - F(1265, 10)) * A100
# n3: four T4; cam-0 has two from Tuesday to Saturday's end, cam-1 one from Wednesday; cam-0 is 10 % busy.
CAM_0, CAM_1 = 2 * 120 * T4, 96 * T4  # 84.00, 33.60
FREE_3 = 4 * 168 * T4 - CAM_0 - CAM_1

RESEARCH = TRAIN_USED + TRAIN_IDLE + NOTEBOOK * MIG_COST + REPLICA
SERVING = LLM_0 * MIG_COST + LLM_1 + 2 * REPLICA
IDLE = REPARTITION + FREE_0 + FREE_1 + FREE_2 + FREE_3

# What the GPUs cost, whichever pod held them.
GPU_0 = F(845, 10) * HIGH + F(835, 10) * LOW  # 253.50 + 200.40
GPU_1 = GPU_0
GPU_2 = (42 + F(1, 3)) * A100 + (168 - 78) * A100  # 50.80 + 108.00
N3 = 4 * 168 * T4  # 235.20


def answer(aggregate: str, step: str = "") -> cost_table.CostTable:
    recorded = record_document.read((EXAMPLES / "week.json").read_bytes(), "week.json")
    known = price_file.read((EXAMPLES / "prices.yaml").read_text(), "prices.yaml")
    return accounts.table(recorded, known, aggregate, hours=WEEK, step=step)


def is_to_the_cent(printed: float, by_hand: F) -> bool:
    return abs(F(round(printed * 100), 100) - by_hand) < F(1, 100)


def test_the_hand_written_ledger_closes() -> None:
    assets = GPU_0 + GPU_1 + GPU_2 + N3
    assert assets == F("1301.80")
    assert assets == RESEARCH + SERVING + SWEEP + CAM_0 + CAM_1 + IDLE


def test_namespaces_cost_what_the_ledger_says() -> None:
    week = answer("namespace")
    by_hand = {
        "research": RESEARCH,
        "serving": SERVING,
        "batch": SWEEP,
        "edge": CAM_0 + CAM_1,
        "__idle__": IDLE,
    }
    printed = accounts.costs(week)
    assert printed.keys() == by_hand.keys()
    for name, amount in by_hand.items():
        assert is_to_the_cent(printed[name], amount), (name, printed[name], float(amount))
    assert week.total.cost.total == 1301.80
    assert week.asset_cost == "1301.800000000"
    assert round(sum(printed.values()), 2) == 1301.80


def test_the_exact_costs_are_the_ledger_to_a_billionth() -> None:
    for name, row in accounts.rows(answer("namespace")).items():
        by_hand = {"research": RESEARCH, "serving": SERVING, "batch": SWEEP}.get(name)
        if by_hand is not None:
            assert abs(F(row.exact_cost) - by_hand) < F(2, 10**9), name


def test_lines_are_what_the_ledger_says() -> None:
    rows = accounts.rows(answer("namespace"))
    research, edge, idle = rows["research"].cost, rows["edge"].cost, rows["__idle__"].cost
    assert (research.used, research.idle) == (93.60, 50.40)
    assert is_to_the_cent(research.used, TRAIN_USED)
    assert is_to_the_cent(research.idle, TRAIN_IDLE)
    assert is_to_the_cent(edge.used, CAM_0 / 10)
    assert is_to_the_cent(edge.idle, CAM_0 * 9 / 10)
    assert is_to_the_cent(edge.unmeasured, CAM_1)
    assert is_to_the_cent(idle.unusable, FRAGMENTED)
    assert is_to_the_cent(idle.unallocated, IDLE - FRAGMENTED)
    assert rows["research"].waiting_gpu_hours == 48.0
    assert answer("namespace").total.waiting_gpu_hours == 48.0


@pytest.mark.parametrize(
    ("aggregate", "by_hand"),
    [
        ("gpu", {"GPU-0": GPU_0, "GPU-1": GPU_1, "GPU-2": GPU_2, "n3/nvidia.com/gpu": N3}),
        ("node", {"n1": GPU_0 + GPU_1, "n2": GPU_2, "n3": N3}),
        (
            "product",
            {
                "NVIDIA H100 80GB HBM3": GPU_0 + GPU_1,
                "NVIDIA A100-SXM4-40GB": GPU_2,
                "Tesla T4": N3,
            },
        ),
        ("cluster", {"c1": GPU_0 + GPU_1 + GPU_2 + N3}),
    ],
)
def test_gpus_cost_their_price_whatever_they_are_grouped_by(
    aggregate: str, by_hand: dict[str, F]
) -> None:
    printed = {name: cost for name, cost in accounts.costs(answer(aggregate)).items() if cost}
    assert printed.keys() == by_hand.keys()
    for name, amount in by_hand.items():
        assert is_to_the_cent(printed[name], amount), name


def test_other_keys_divide_the_same_money() -> None:
    queue = accounts.costs(answer("queue"))
    assert is_to_the_cent(queue["research"], RESEARCH)
    assert is_to_the_cent(queue["__unallocated__"], CAM_0 + CAM_1)
    team = accounts.costs(answer("label:team"))
    assert is_to_the_cent(team["vision"], TRAIN_USED + TRAIN_IDLE + NOTEBOOK * MIG_COST)
    assert is_to_the_cent(team["search"], 2 * REPLICA)
    assert is_to_the_cent(team["chat"], LLM_0 * MIG_COST + LLM_1)
    kind = accounts.costs(answer("controllerKind,controller"))
    assert is_to_the_cent(kind["deployment/llm"], LLM_0 * MIG_COST + LLM_1)
    assert is_to_the_cent(kind["job/sweep"], SWEEP)
    claim = accounts.costs(answer("claim"))
    assert is_to_the_cent(claim["train-gpu"], TRAIN_USED + TRAIN_IDLE)
    for costs in (queue, team, kind, claim):
        assert round(sum(costs.values()), 2) == 1301.80


def test_every_hour_of_every_gpu_costs_its_price_in_printed_cents() -> None:
    week = answer("gpu,namespace", step="1h")
    assert len(week.steps) == 168
    for hour, step in enumerate(week.steps):
        h100 = {True: 300, False: 240}[hour < 84] if hour != 84 else 270
        expected = {"GPU-0": h100, "GPU-1": h100, "n3/nvidia.com/gpu": 140, "GPU-2": 120}
        if hour == 42:
            expected["GPU-2"] = 40  # lost after 20 minutes
        elif 42 < hour < 78:
            expected["GPU-2"] = 0
        for name, cents in expected.items():
            printed = [row.cost.total for row in step.rows if row.keys["gpu"] == name]
            assert round(sum(printed) * 100) == cents, (hour, name)


def test_days_sum_to_the_week() -> None:
    days = answer("namespace", step="1d")
    assert len(days.steps) == 7
    assert round(sum(day.total.cost.total for day in days.steps), 2) == 1301.80
    assert days.total.cost.total == 1301.80
    tuesday = {row.name: row for row in days.steps[1].rows}
    # GPU-0 for train (half busy), a third of GPU-1 for eval.
    assert is_to_the_cent(tuesday["research"].cost.total, 24 * HIGH + F(333333, 10**6) * 24 * HIGH)
    assert tuesday["research"].cost.used == 36.00


def test_the_gap_marks_the_rows_it_touches_and_no_others() -> None:
    days = answer("namespace", step="1d")
    for number, day in enumerate(days.steps):
        partial = {row.name for row in day.rows if row.partial}
        assert partial == ({"__idle__"} if number == 6 else set())
    (note,) = [note for note in days.notes if note.code == "api-gap"]
    assert note.message == (
        "n3 was not watched from 2026-11-08T03:00:00Z to 2026-11-08T03:20:00Z: "
        "the recorder restarted"
    )


def test_energy_and_carbon_stand_beside_the_money() -> None:
    research = accounts.rows(answer("namespace"))["research"]
    assert research.energy_kwh == 20.0  # 72 MJ
    assert research.co2e_kg == 7.6  # 380 g/kWh
    assert accounts.rows(answer("namespace"))["edge"].energy_kwh is None
