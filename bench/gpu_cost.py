"""How long the account of a week takes: `.venv/bin/python -m bench.gpu_cost`.

Builds the records of GPUs that change hands every twelve hours, and prints the processor seconds of the table by
namespace: for the whole week, by the day, by the hour, and with a sample every five minutes. Never asserts.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Final

from dovetail.answer.cost import cost_keys, cost_ledger, cost_table, cost_window, price_list
from dovetail.model.accounting import records

WEEK: Final = cost_window.Window(1_700_000_000_000, 1_700_000_000_000 + cost_window.WEEK)
HOLDERS: Final = 14  # of every GPU, eleven hours each
HELD: Final = 11 * cost_window.HOUR
PRICES: Final = price_list.PriceList(
    currency="USD",
    prices=(price_list.Price(match=price_list.Match(), nano_per_hour=3 * price_list.NANO),),
)


def main() -> None:
    """Prints one line per case."""
    for gpus, sample, step in (
        (1000, HELD, None),
        (1000, HELD, cost_window.DAY),
        (1000, HELD, cost_window.HOUR),
        (100, 5 * cost_window.MINUTE, None),
    ):
        recorded = history(gpus, sample)
        question = cost_ledger.Question(
            PRICES, cost_window.steps(WEEK, step), cost_keys.parse("namespace")
        )
        before = time.process_time()
        table = cost_table.cost(recorded, question, WEEK.end)
        seconds = time.process_time() - before
        print(
            f"{gpus} GPUs, {len(recorded.usage)} samples, {len(table.steps)} steps: {seconds:.1f} s"
        )


def history(gpus: int, sample: int) -> records.Records:
    """A week of so many GPUs, with a sample of every holder each so many milliseconds."""
    assets = [
        records.Asset(f"g{number}", f"n{number // 8}", "NVIDIA H100 80GB HBM3", WEEK.start)
        for number in range(gpus)
    ]
    allocations = [_held(number, turn) for number in range(gpus) for turn in range(HOLDERS)]
    usage = [each for allocation in allocations for each in _samples(allocation, sample)]
    return records.Records(assets=tuple(assets), allocations=tuple(allocations), usage=tuple(usage))


def _held(number: int, turn: int) -> records.Allocation:
    pod = f"p{number}-{turn}"
    owner = records.Owner(f"ns{(number + turn) % 20}", pod, pod, queue=f"q{turn % 5}")
    start = WEEK.start + turn * 12 * cost_window.HOUR
    return records.Allocation(
        pod,
        f"g{number}",
        f"n{number // 8}",
        records.MICRO_GPU,
        records.Form.WHOLE,
        owner,
        start,
        start + HELD,
    )


def _samples(allocation: records.Allocation, length: int) -> Iterator[records.Usage]:
    for start in range(allocation.start, allocation.start + HELD, length):
        yield records.Usage(
            allocation.asset,
            allocation.allocation,
            start,
            start + length,
            busy_micro=400_000,
            energy_millijoules=1_000_000,
        )


if __name__ == "__main__":
    main()
