"""`dovetail sim`: replays a recorded workload through a placement policy and reports what was allocated."""

from __future__ import annotations

import time

import click
import msgspec

from dovetail import errors
from dovetail.cli import output
from dovetail.cli.answers import sim_compare_command, sim_mig_command
from dovetail.study import policy_names

COLLECTION = "openb"
PHILLY = "philly"
SHOWN_PERCENTS = (20, 40, 60, 80, 90, 95, 100, 110, 120, 130)


class SimReport(msgspec.Struct, frozen=True):
    """What a run allocated. `fragmented_pct`: idle GPU that the mix cannot use, in percent of all GPUs at the end."""

    trace: str
    seed: int
    order: str  # of arrivals and nodes: published, or drawn by us from the seed
    policy: str
    mix: str
    allocation_pct: dict[str, float]
    first_failure_pct: float | None
    fragmented_pct: float | None
    arrivals: int
    failed_pods: int
    seconds: float


@click.group()
def group() -> None:
    """Replay recorded workloads through placement policies, and compare what they allocate."""


group.add_command(sim_mig_command.command)
group.add_command(sim_compare_command.compare)
group.add_command(sim_compare_command.report)


@group.command(name="run")
@click.option("--trace", metavar="openb:TRACE|philly[:PART]", help="Which recorded workload.")
@click.option("--jobs", "jobs_file", metavar="FILE.csv", help="A list of jobs, instead of a trace.")
@click.option("--generate", metavar="SETTINGS", help="Draw jobs, as days=7,load=0.9.")
@click.option("--history", metavar="STORE", help="Jobs as a recorded history holds them.")
@click.option("--days", type=click.IntRange(1), help="Only so many days of philly.")
@click.option("--fleet", "fleet_file", metavar="FILE.yaml", help="The nodes that run the jobs.")
@click.option("--study", metavar="FILE.yaml", help="Queues, checkpoints and failures of the jobs.")
@click.option("--rows", metavar="FILE.csv|FILE.parquet", help="Where to write a line for each job.")
@click.option(
    "--seed", type=int, default=42, show_default=True, help="Chooses the order of arrivals."
)
@click.option(
    "--policy",
    default="dovetail",
    show_default=True,
    help=f"{', '.join(policy_names.NAMES)}; of jobs see the reference.",
)
@click.option(
    "--mix",
    type=click.Choice(("known", "learned")),
    default="known",
    show_default=True,
    help="What fgd, pwr and dovetail expect: the pods of the trace, or what has arrived so far.",
)
@click.option(
    "--traces",
    "directory",
    metavar="DIR",
    help="Folder of the traces. [default: $DOVETAIL_TRACES, else shared/traces beside the checkout]",
)
@click.option("-o", "--output", "form", type=click.Choice(("table", "json")), default="table")
def run(
    *,
    trace: str | None,
    jobs_file: str | None,
    generate: str | None,
    history: str | None,
    days: int | None,
    fleet_file: str | None,
    study: str | None,
    rows: str | None,
    seed: int,
    policy: str,
    mix: str,
    directory: str | None,
    form: str,
) -> None:
    """Place the pods of a trace one by one until they ask for 130 % of all GPUs, or run a list of jobs.

    \b
    dovetail sim run --trace openb:default --seed 42 --policy fgd -o json
    dovetail sim run --jobs jobs.csv --fleet fleet.yaml --policy kueue -o json
    dovetail sim run --trace philly:0.6 --policy pooled
    dovetail sim run --generate days=3,load=1.1 --fleet fleet.yaml --policy kai
    """
    if trace is None and jobs_file is None and generate is None and history is None:
        raise errors.InputError(
            "expected --trace openb:TRACE, --trace philly, "
            "or --jobs FILE.csv, --generate SETTINGS or --history STORE with --fleet FILE.yaml"
        )
    if trace is not None and (jobs_file or generate or history):
        raise errors.InputError("--jobs needs --fleet FILE.yaml, and no --trace")
    collection, _, name = (trace or "").partition(":")
    if trace is None or collection == PHILLY:
        from dovetail.cli.answers import sim_input, sim_jobs

        source = sim_input.Source(
            trace, jobs_file, generate, fleet_file, study, directory, days, history
        )
        sim_jobs.run(source, seed=seed, policy=policy, form=form, rows=rows)
        return
    if collection != COLLECTION or not name:
        raise errors.InputError(
            f'--trace "{trace}": expected openb:TRACE, such as openb:default, or philly'
        )
    policy = policy_names.named(policy)
    report = _report(name, seed=seed, policy=policy, mix=mix, directory=directory)
    if form == "json":
        output.write_json(report)
    else:
        output.write_lines(_table(report))


def _report(trace: str, *, seed: int, policy: str, mix: str, directory: str | None) -> SimReport:
    try:
        from dovetail.study import openb_files, placement_run  # numpy is an extra
    except ModuleNotFoundError as error:
        if error.name != "numpy":
            raise
        raise errors.InputError(
            "sim run needs numpy; install it with: pip install 'dovetail[study]'"
        ) from error

    work = openb_files.read(openb_files.folder(directory), trace=trace, seed=seed)
    began = time.perf_counter()
    result = placement_run.run(
        work, policy=policy, is_mix_known=mix == "known", progress=_show_progress
    )
    seconds = time.perf_counter() - began
    output.clear_progress(output.PROGRESS_WIDTH)
    return SimReport(
        trace=f"{COLLECTION}:{trace}",
        seed=seed,
        order="published" if work.has_published_order else "own",
        policy=policy,
        mix=mix if policy in policy_names.WITH_MIX else "unused",
        allocation_pct=result.allocation_pct,
        first_failure_pct=result.first_failure_pct,
        fragmented_pct=next(reversed(result.fragmentation_pct.values()), None),
        arrivals=result.arrivals,
        failed_pods=result.failed_pods,
        seconds=round(seconds, 2),
    )


def _show_progress(done: int, total: int) -> None:
    output.progress(f"{done} of {total} pods")


def _table(report: SimReport) -> list[str]:
    first_failure = "none" if report.first_failure_pct is None else f"{report.first_failure_pct} %"
    lines = [
        f"{report.trace}, seed {report.seed}, policy {report.policy}, mix {report.mix}, {report.order} order",
        f"{report.arrivals} pods arrived, {report.failed_pods} found no room; first at {first_failure} of demand",
        f"idle GPU that the mix cannot use at the end: {report.fragmented_pct} % of all",
        "",
        "ARRIVED %   ALLOCATED %",
    ]
    for percent in SHOWN_PERCENTS:
        allocated = report.allocation_pct.get(str(percent))
        if allocated is not None:
            lines.append(f"{percent:>9}   {allocated:>11.2f}")
    return lines
