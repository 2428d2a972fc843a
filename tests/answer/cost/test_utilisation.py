"""How busy GPUs were: only what was measured is busy or idle."""

from __future__ import annotations

from dovetail.answer.cost import cost_keys, cost_ledger, cost_window, gpu_utilisation
from dovetail.model.accounting import records
from tests.answer.cost import accounts

WINDOW = cost_window.Window(accounts.at(0), accounts.at(4))
OWNER = accounts.owner("train", "a-0", queue="research")
RECORDED = records.Records(
    assets=(accounts.gpu("GPU-0"), accounts.gpu("GPU-1")),
    allocations=(
        records.Allocation(
            "a", "GPU-0", "n1", records.MICRO_GPU, records.Form.WHOLE, OWNER, accounts.at(1)
        ),
    ),
    usage=(
        records.Usage("GPU-0", "a", accounts.at(1), accounts.at(3), busy_micro=250_000, samples=2),
    ),
)


def answer(keys: str, recorded: records.Records = RECORDED) -> gpu_utilisation.Utilisation:
    steps = cost_window.steps(WINDOW, accounts.HOUR)
    question = gpu_utilisation.question(steps, cost_keys.parse(keys))
    account = cost_ledger.ledger(recorded, question, accounts.at(4))
    return gpu_utilisation.utilisation(
        account, question.keys, first=accounts.at(0), now=accounts.at(4)
    )


def test_what_is_measured_is_busy_or_idle_and_the_rest_is_neither() -> None:
    result = answer("product")
    assert result.is_measured
    total = result.total
    assert (total.allocated, total.unallocated) == (3.0, 5.0)
    assert (total.busy, total.idle, total.unmeasured) == (0.5, 1.5, 1.0)
    assert [step.total.busy for step in result.steps] == [None, 0.25, 0.25, None]
    assert result.notes == ()


def test_rows_of_queues_come_before_what_no_work_held() -> None:
    rows = answer("queue").rows
    assert [(row.name, row.allocated) for row in rows] == [("research", 3.0), ("__idle__", 0.0)]


def test_a_gap_makes_the_rows_that_it_touches_partial() -> None:
    gap = records.Gap(records.GapSource.API, accounts.at(2), accounts.at(3), "restarted")
    recorded = records.Records(
        assets=RECORDED.assets, allocations=RECORDED.allocations, gaps=(gap,)
    )
    result = answer("namespace", recorded)
    assert [bool(step.total.partial) for step in result.steps] == [False, False, True, False]
    assert [note.code for note in result.notes] == ["api-gap"]
    assert not result.is_measured
