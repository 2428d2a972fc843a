"""The placement benchmark on the openb trace: GPU allocation of every policy, and whether it equals the published one.

`python -m bench openb [--seeds 42-44] [--policies fgd,dovetail] [--only default,cpu250] [--mix learned]`.
Every finished run is added to bench/results/openb.json, which keeps runs of other policies and seeds. Simulated: no GPU
and no scheduler process takes part.
"""

from __future__ import annotations

import argparse
import csv
import datetime
import gzip
import math
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import msgspec

from bench import result_rows
from dovetail import errors
from dovetail.study import openb_files, placement_run, policy_names, workload

RESULTS = Path(__file__).resolve().parent / "results" / "openb.json"
PUBLISHED = {
    "random": "01-Random",
    "dot-product": "02-DotProd",
    "gpu-clustering": "03-GpuClustering",
    "gpu-packing": "04-GpuPacking",
    "best-fit": "05-BestFit",
    "fgd": "06-FGD",
}
NOT_DETERMINISTIC = ("random",)  # the published runs do not say how they drew
PUBLISHED_ALLOCATION = "fgd_expected_alloc_pct.csv.gz"


class Run(msgspec.Struct):
    """One finished run. `equals_published`: all 131 columns of the published row to two decimals."""

    trace: str
    seed: int
    policy: str
    mix: str
    at_100: float
    at_130: float
    first_failure: float | None
    fragmented: float
    failed_pods: int
    cpu_seconds: float
    equals_published: bool | None
    date: str


def main(arguments: Sequence[str]) -> int:
    """Runs what was asked for, stores each result at once, prints means by trace."""
    parser = argparse.ArgumentParser(prog="python -m bench openb")
    parser.add_argument("--seeds", default="42-51", help="a seed or a range")
    parser.add_argument("--policies", default="fgd,dovetail")
    parser.add_argument("--only", default="", help="traces; all published ones if left out")
    parser.add_argument("--mix", default="known", choices=("known", "learned"))
    parser.add_argument("--traces", help="folder of the traces")
    options = parser.parse_args(arguments)
    try:
        _measure(options)
    except errors.InputError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    show(stored())
    return 0


def _measure(options: argparse.Namespace) -> None:
    folder = openb_files.folder(options.traces)
    first, _, last = options.seeds.partition("-")
    names = options.only.split(",") if options.only else _published_traces(folder)
    policies = [policy_names.named(name) for name in options.policies.split(",")]
    published = _published_allocation(folder)
    runs = stored()
    for seed in range(int(first), int(last or first) + 1):
        for name in names:
            work = openb_files.read(folder, trace=name, seed=seed)
            for policy in policies:
                done = _run(work, policy=policy, mix=options.mix, published=published)
                runs = [run for run in runs if _key(run) != _key(done)] + [done]
                _store(runs)
                print(f"{name:<12} {seed} {policy:<14} {done.at_100:6.2f} {done.at_130:6.2f}"
                      f" {done.cpu_seconds:5.1f} s {done.equals_published}", file=sys.stderr, flush=True)  # fmt: skip


def stored() -> list[Run]:
    """Runs of earlier calls."""
    if not RESULTS.exists():
        return []
    return msgspec.convert(msgspec.json.decode(RESULTS.read_bytes())["runs"], list[Run])


def show(runs: Sequence[Run]) -> None:
    """Means over seeds by trace and policy, and over the traces that all seeds of a policy cover."""
    for policy, mix in sorted({(run.policy, run.mix) for run in runs}):
        of_policy = [run for run in runs if (run.policy, run.mix) == (policy, mix)]
        compared = [run for run in of_policy if run.equals_published is not None]
        equal = sum(1 for run in compared if run.equals_published)
        print(f"\n{policy}, mix {mix}: {len(of_policy)} runs", end="")
        print(f", {equal} of {len(compared)} equal to the published rows" if compared else "")
        print("trace         seeds    @100    @130  first failure  fragmented")
        by_trace = []
        for trace in dict.fromkeys(run.trace for run in of_policy):
            of_trace = [run for run in of_policy if run.trace == trace]
            means = _means(of_trace)
            by_trace.append(means)
            _print_row(trace, len(of_trace), means)
        columns = [math.fsum(column) / len(by_trace) for column in zip(*by_trace, strict=True)]
        _print_row("mean", len(by_trace), columns)


def _print_row(name: str, count: int, means: Sequence[float]) -> None:
    at_100, at_130, first_failure, fragmented = means
    print(
        f"{name:<12} {count:6} {at_100:7.2f} {at_130:7.2f} {first_failure:14.1f} {fragmented:11.2f}"
    )


def _means(runs: Sequence[Run]) -> tuple[float, float, float, float]:
    failures = [run.first_failure for run in runs if run.first_failure is not None]
    return (
        math.fsum(run.at_100 for run in runs) / len(runs),
        math.fsum(run.at_130 for run in runs) / len(runs),
        math.fsum(failures) / len(failures) if failures else math.nan,
        math.fsum(run.fragmented for run in runs) / len(runs),
    )


def _run(
    work: workload.Workload,
    *,
    policy: str,
    mix: str,
    published: dict[tuple[str, str, int], dict[str, str]],
) -> Run:
    began = time.process_time()
    result = placement_run.run(work, policy=policy, is_mix_known=mix == "known")
    seconds = time.process_time() - began
    expected = published.get((work.name, PUBLISHED.get(policy, ""), work.seed))
    equals = None
    if expected is not None and mix == "known" and policy not in NOT_DETERMINISTIC:
        columns = {key: float(text) for key, text in expected.items() if key.isdigit() and text}
        equals = columns == result.allocation_pct
    return Run(
        trace=work.name,
        seed=work.seed,
        policy=policy,
        mix=mix,
        at_100=result.allocation_pct["100"],
        at_130=result.allocation_pct["130"],
        first_failure=result.first_failure_pct,
        fragmented=result.fragmentation_pct["130"],
        failed_pods=result.failed_pods,
        cpu_seconds=round(seconds, 2),
        equals_published=equals,
        date=datetime.datetime.now(datetime.UTC).date().isoformat(),
    )


def _published_traces(folder: Path) -> list[str]:
    return list(dict.fromkeys(trace for trace, _ in openb_files.published_runs(folder)))


def _published_allocation(folder: Path) -> dict[tuple[str, str, int], dict[str, str]]:
    path = folder / PUBLISHED_ALLOCATION
    if not path.is_file():
        return {}
    with gzip.open(path, "rt", encoding="utf-8") as text:
        rows = list(csv.DictReader(text))
    return {(row["workload"], row["sc_policy"], int(row["seed"])): row for row in rows}


def _key(run: Run) -> tuple[str, int, str, str]:
    return run.trace, run.seed, run.policy, run.mix


def _store(runs: list[Run]) -> None:
    head = {
        "benchmark": "openb",
        "protocol": "FGD (ATC'23): 1213 nodes, 6212 GPUs, arrivals up to 130 % of capacity, no departures",
        "machine": "2 cores, shared; simulated, no GPU takes part",
    }
    ordered = sorted(runs, key=_key)
    result_rows.write(RESULTS, head, "runs", ordered)
