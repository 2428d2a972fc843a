"""History: how fast samples are stored, how large a month of a large cluster is, how fast its cost is answered.

`python -m bench history [--gpus N] [--days N] [--file FILE | --postgres URL]`. A month is made hour by hour as it would
be: samples of each minute at the end, and roll-ups of what is older. Those are inserted as such, because storing 432
million minutes first would take hours and leave the same rows.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from dovetail.answer.cost import cost_keys, cost_ledger, cost_table, cost_window, price_file
from dovetail.answer.cost.cost_window import Window
from dovetail.ask import recorded_history
from dovetail.history import stores
from dovetail.model.accounting.records import (
    MICRO_GPU,
    Allocation,
    Asset,
    Form,
    Owner,
    Records,
    Usage,
)

MINUTE = 60_000
HOUR = 60 * MINUTE
DAY = 24 * HOUR
NAMESPACES = 50
JOB_HOURS = 8  # each GPU changes hands so often
START = 1_790_000_000_000 // DAY * DAY
FINE_HOURS = 2  # in minutes
MEDIUM_HOURS = 48  # in steps of five minutes


def main(arguments: Sequence[str]) -> int:
    """Measures, prints, and writes bench/results/history.json."""
    parser = argparse.ArgumentParser(prog="python -m bench history")
    parser.add_argument("--gpus", type=int, default=10_000)
    parser.add_argument("--days", type=int, default=30)
    parser.add_argument("--file", default="", help="keep the store here, or measure what is there")
    parser.add_argument("--postgres", default="", help="measure on this database instead of a file")
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as directory:
        place = options.postgres or options.file or str(Path(directory) / "history.sqlite")
        numbers: dict[str, Any] = {"gpus": options.gpus, "days": options.days}
        with stores.open_store(place, create=True) as store:
            if not store.summary().rows["assets"]:
                numbers |= filled(store, options.gpus, options.days)
            numbers |= compacted(store, options.days)
        numbers |= asked(place, options.gpus, options.days)
    for name, value in numbers.items():
        print(f"{name:<52} {value}")
    kind = "history-postgres" if options.postgres else "history"
    file = Path(__file__).resolve().parent / "results" / f"{kind}.json"
    file.write_bytes(msgspec.json.format(msgspec.json.encode(numbers)) + b"\n")
    return 0


def filled(store: stores.Store, gpus: int, days: int) -> dict[str, Any]:
    """Fills the store with a month."""
    end = START + days * DAY
    hours = days * 24
    store.append(Records(assets=tuple(_asset(gpu) for gpu in range(gpus))))
    began = time.process_time()
    for first in range(0, hours, JOB_HOURS):
        batch = [_job(gpu, first, min(first + JOB_HOURS, hours)) for gpu in range(gpus)]
        store.append(Records(allocations=tuple(batch)), watched_until=end)
    allocation_seconds = time.process_time() - began
    for hour in range(hours - MEDIUM_HOURS - FINE_HOURS):
        store.append(Records(usage=_usage(gpus, hour, HOUR)))
    for hour in range(max(hours - MEDIUM_HOURS - FINE_HOURS, 0), hours - FINE_HOURS):
        for place in range(12):
            store.append(Records(usage=_usage(gpus, hour, 5 * MINUTE, place)))

    batches = [
        _usage(gpus, hour, MINUTE, place)
        for hour in range(hours - FINE_HOURS, hours)
        for place in range(60)
    ]
    began, wall = time.process_time(), time.perf_counter()
    for usage in batches:
        store.append(Records(usage=usage))
    ingest, ingest_wall = time.process_time() - began, time.perf_counter() - wall
    samples = sum(map(len, batches))
    allocations = gpus * -(-hours // JOB_HOURS)
    return {
        "samples per CPU second": round(samples / ingest),
        "samples per second": round(samples / ingest_wall),
        "allocations per CPU second": round(allocations / allocation_seconds),
    }


def compacted(store: stores.Store, days: int) -> dict[str, Any]:
    """Has accounts stored and measurements rolled up, as far as they are not."""
    began, wall = time.process_time(), time.perf_counter()
    report = store.compact(START + days * DAY)
    seconds, wall_seconds = time.process_time() - began, time.perf_counter() - wall
    summary = store.summary()
    return {
        "hours accounted": report.accounted_hours,
        "compaction, CPU seconds": round(seconds, 1),
        "compaction, seconds": round(wall_seconds, 1),
        "allocations": summary.rows["allocations"],
        "usage rows": summary.rows["usage"],
        "size in MB": round(summary.size_bytes / 1e6),
        "bytes per usage row, all in": round(summary.size_bytes / max(summary.rows["usage"], 1)),
    }


def asked(place: str, gpus: int, days: int) -> dict[str, Any]:
    """Asks what the month cost, as `dovetail cost` and the dashboard do, each with a connection of its own."""
    end = START + days * DAY
    prices = price_file.read("currency: USD\nprices: [{perHour: 2.5}]\n", "prices")
    late = end - 23 * MINUTE  # so that the first and the last hour are not whole
    questions = {
        "month by namespace": (Window(START, end), "namespace", None),
        "month by namespace and queue, by day": (Window(START, end), "namespace,queue", DAY),
        "30 d until 23 minutes ago": (Window(late - (days - 1) * DAY, late), "namespace", None),
    }
    numbers: dict[str, Any] = {}
    for name, (window, aggregate, step) in questions.items():
        steps = cost_window.steps(window, step)
        question = cost_ledger.Question(prices, steps, cost_keys.parse(aggregate))
        began, wall = time.process_time(), time.perf_counter()
        account = recorded_history.account(place, question, end)
        table = cost_table.table(account.ledger, question, account.until)
        numbers[f"{name}, CPU seconds"] = round(time.process_time() - began, 2)
        numbers[f"{name}, seconds"] = round(time.perf_counter() - wall, 2)
        hours = gpus * (window.end - window.start) // HOUR
        assert table.total.cost.total == hours * 2.5, (table.total, hours)
    with stores.open_store(place) as store:
        began = time.perf_counter()
        of_one = store.records(START, end, namespaces=("team-7",), has_usage=False)
        numbers["records of one namespace, seconds"] = round(time.perf_counter() - began, 3)
        numbers["allocations of one namespace"] = len(of_one.allocations)
    return numbers


def _asset(gpu: int) -> Asset:
    return Asset(f"GPU-{gpu:08x}", f"node-{gpu // 8}", "NVIDIA H100 80GB HBM3", START)


def _name(gpu: int, hour: int) -> str:
    """As long as real ones: the uids of a claim and a pod, a request, a device."""
    job = hour // JOB_HOURS
    device = f"gpu.nvidia.com/node-{gpu // 8}/gpu-{gpu % 8}"
    return f"{gpu:08x}-1111-4222-8333-{job:012x}/gpu/{device}/{gpu:08x}-5555-4666-8777-{job:012x}"


def _job(gpu: int, first: int, last: int) -> Allocation:
    job = first // JOB_HOURS
    team = (gpu // 8 + job) % NAMESPACES
    owner = Owner(
        namespace=f"team-{team}",
        pod=f"train-{job}-{gpu}",
        pod_uid=f"{gpu:08x}-5555-4666-8777-{job:012x}",
        controller_kind="Job",
        controller=f"train-{job}-{gpu // 64}",
        queue=f"queue-{team % 10}",
        labels={"team": f"team-{team}", "job": f"train-{job}-{gpu // 64}"},
    )
    start, end = START + first * HOUR, START + last * HOUR
    return Allocation(
        _name(gpu, first),
        f"GPU-{gpu:08x}",
        f"node-{gpu // 8}",
        MICRO_GPU,
        Form.WHOLE,
        owner,
        start,
        end,
    )


def _usage(gpus: int, hour: int, step: int, place: int = 0) -> tuple[Usage, ...]:
    start = START + hour * HOUR + place * step
    return tuple(
        Usage(
            f"GPU-{gpu:08x}",
            _name(gpu, hour),
            start,
            start + step,
            (gpu * 7919 + hour * 104_729 + place) % MICRO_GPU,
            60 << 30,
            700 * step,
            step // MINUTE,
        )
        for gpu in range(gpus)
    )
