"""History: how fast samples are stored, how large a month of a large cluster is, how fast a month is added up.

`python -m bench history [--gpus N] [--days N] [--postgres URL]`. A month is made hour by hour as it would be: samples
of each minute at the end, and roll-ups of what is older. Those are inserted as such, because storing 432 million
minutes first would take hours and leave the same rows.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

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
    parser.add_argument("--postgres", default="", help="measure on this database instead of a file")
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as directory:
        place = options.postgres or str(Path(directory) / "history.sqlite")
        with stores.open_store(place, create=True) as store:
            numbers = measured(store, options.gpus, options.days)
    for name, value in numbers.items():
        print(f"{name:<32} {value}")
    kind = "history-postgres" if options.postgres else "history"
    file = Path(__file__).resolve().parent / "results" / f"{kind}.json"
    file.write_bytes(msgspec.json.format(msgspec.json.encode(numbers)) + b"\n")
    return 0


def measured(store: stores.Store, gpus: int, days: int) -> dict[str, Any]:
    """Fills the store with a month and asks it."""
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

    compacting = time.perf_counter()
    store.compact(end)
    compact_seconds = time.perf_counter() - compacting
    asking = time.perf_counter()
    totals = store.totals(START, end)
    totals_seconds = time.perf_counter() - asking
    asking = time.perf_counter()
    of_one = store.records(START, end, namespaces=("team-7",), has_usage=False)
    records_seconds = time.perf_counter() - asking
    summary = store.summary()
    samples = sum(map(len, batches))
    assert sum(total.allocated_micro_ms for total in totals) == gpus * MICRO_GPU * days * DAY
    return {
        "gpus": gpus,
        "days": days,
        "samples per CPU second": round(samples / ingest),
        "samples per second": round(samples / ingest_wall),
        "allocations per CPU second": round(summary.rows["allocations"] / allocation_seconds),
        "allocations": summary.rows["allocations"],
        "usage rows": summary.rows["usage"],
        "size in MB": round(summary.size_bytes / 1e6),
        "bytes per usage row, all in": round(summary.size_bytes / max(summary.rows["usage"], 1)),
        "first compaction, seconds": round(compact_seconds, 1),
        "month by namespace, seconds": round(totals_seconds, 3),
        "groups": len(totals),
        "records of one namespace, seconds": round(records_seconds, 3),
        "allocations of one namespace": len(of_one.allocations),
    }


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
