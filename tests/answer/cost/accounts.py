"""Records and questions of tests, in hours from the beginning of a Monday."""

from __future__ import annotations

from dovetail.answer.cost import (
    cost_keys,
    cost_ledger,
    cost_table,
    cost_window,
    price_file,
    price_list,
)
from dovetail.model.accounting import records
from dovetail.model.accounting.records import Form

MONDAY = cost_window.parse("2026-11-02T00:00:00Z,2026-11-09T00:00:00Z", 0).start
HOUR = records.MILLISECONDS_PER_HOUR
DAY = 24 * HOUR
H100 = "NVIDIA H100 80GB HBM3"
A100 = "NVIDIA A100-SXM4-40GB"


def at(hours: float) -> int:
    """So many hours after Monday began."""
    return MONDAY + round(hours * HOUR)


def ends_at(hours: float | None) -> int | None:
    return None if hours is None else at(hours)


def owner(namespace: str, pod: str, *, queue: str = "", **labels: str) -> records.Owner:
    return records.Owner(
        namespace, pod, f"{namespace}-{pod}", "Job", pod.rpartition("-")[0] or pod, queue, labels
    )


def gpu(
    name: str,
    start: float = 0,
    end: float | None = None,
    *,
    product: str = H100,
    node: str = "n1",
    count: int = 1,
    pool: str = "",
    is_spot: bool = False,
    **labels: str,
) -> records.Asset:
    return records.Asset(
        name,
        node,
        product,
        at(start),
        ends_at(end),
        count=count,
        pool=pool,
        is_spot=is_spot,
        labels=labels,
    )


def held(
    asset: str,
    holder: records.Owner,
    start: float,
    end: float | None = None,
    *,
    micro: int = records.MICRO_GPU,
    form: Form = Form.WHOLE,
    profile: str = "",
    claim: str = "",
    node: str = "n1",
) -> records.Allocation:
    return records.Allocation(
        f"{holder.pod_uid}/{asset}/{start}",
        asset,
        node,
        micro,
        form,
        holder,
        at(start),
        ends_at(end),
        profile=profile,
        claim=claim,
    )


def busy(
    allocation: records.Allocation,
    start: float,
    end: float,
    share: float,
    *,
    kilojoules: float | None = None,
) -> records.Usage:
    energy = None if kilojoules is None else round(kilojoules * 1_000_000)
    return records.Usage(
        allocation.asset,
        allocation.allocation,
        at(start),
        at(end),
        busy_micro=round(share * 1_000_000),
        energy_millijoules=energy,
    )


def prices(text: str) -> price_list.PriceList:
    return price_file.read(text, "prices.yaml")


def flat(per_hour: float) -> price_list.PriceList:
    return prices(f"currency: USD\nprices: [{{perHour: {per_hour}}}]\n")


def asked(
    known: price_list.PriceList,
    aggregate: str = "namespace",
    *,
    hours: tuple[float, float] = (0, 24),
    step: str = "",
) -> cost_ledger.Question:
    window = cost_window.Window(at(hours[0]), at(hours[1]))
    length = cost_window.parse_step(step, window) if step else None
    return cost_ledger.Question(
        known, cost_window.steps(window, length), cost_keys.parse(aggregate), "c1"
    )


def table(
    recorded: records.Records,
    known: price_list.PriceList,
    aggregate: str = "namespace",
    *,
    hours: tuple[float, float] = (0, 24),
    step: str = "",
) -> cost_table.CostTable:
    question = asked(known, aggregate, hours=hours, step=step)
    return cost_table.cost(recorded, question, question.window.end)


def rows(answer: cost_table.CostTable) -> dict[str, cost_table.CostRow]:
    """The rows of the only step, by name."""
    (step,) = answer.steps
    return {row.name: row for row in step.rows}


def costs(answer: cost_table.CostTable) -> dict[str, float]:
    """What each row of the only step cost."""
    return {name: row.cost.total for name, row in rows(answer).items()}
