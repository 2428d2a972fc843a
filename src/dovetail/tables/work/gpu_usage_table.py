"""The rows of `dovetail top`: who holds GPUs and who waits for them, as cells and as JSON. Never prints."""

from __future__ import annotations

from typing import Any, Final

from dovetail.tables.work import gpu_holdings

NO_METRICS: Final = "n/a"


def headers(section: str) -> tuple[str, ...]:
    """The headers of the rows by queue, namespace and so on."""
    capacity = "fair share" if section == gpu_holdings.QUEUE else "gpus"
    return (section, capacity, "allocated", "free", "used", "waiting", "pods")


def cells(row: gpu_holdings.UsageRow) -> tuple[str, ...]:
    """One row."""
    return (
        row.name or "(none)",
        gpus(row.capacity),
        gpus(row.allocated),
        gpus(row.free),
        NO_METRICS if row.used is None else gpus(row.used),
        gpus(row.waiting),
        str(row.pods),
    )


def total(usage: gpu_holdings.Usage) -> str:
    """All of it in one sentence."""
    allocated = sum(each.gpus for each in usage.holdings if not each.is_waiting)
    waiting = sum(each.gpus for each in usage.holdings if each.is_waiting)
    return f"{gpus(allocated)} of {gpus(usage.total)} GPUs allocated, {gpus(waiting)} waited for"


def gpus(amount: float | None) -> str:
    """GPUs as people count them: 6.5, not 6500m."""
    return "" if amount is None else f"{amount:.3f}".rstrip("0").rstrip(".")


def tree(row: gpu_holdings.UsageRow) -> dict[str, Any]:
    """One row as JSON has it."""
    return {
        "by": row.by,
        "name": row.name,
        "capacity": row.capacity,
        "allocated": row.allocated,
        "free": row.free,
        "used": row.used,
        "waiting": row.waiting,
        "pods": row.pods,
        "waitingPods": row.waiting_pods,
    }
