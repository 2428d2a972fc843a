"""`dovetail sim mig`: MIG slices that come and go, and how many requests a placement rule serves."""

from __future__ import annotations

import click
import msgspec

from dovetail.cli import output
from dovetail.study.partitions import slice_arrivals, slice_policies, slice_run


class SliceReport(msgspec.Struct, frozen=True):
    """What was run, and what part of the requests was served, in percent."""

    board: str
    gpus: int
    mix: str
    load: float
    policy: str
    moves: int
    seed: int
    requests: int
    accepted_slices_pct: float
    accepted_pct: dict[str, float]
    moves_per_100_served: float | None
    moves_per_refusal: float | None


@click.command(name="mig")
@click.option("--mix", default="uniform", show_default=True, help="Profiles that are asked for.")
@click.option("--gpus", type=click.IntRange(1, 10_000), default=100, show_default=True)
@click.option("--load", type=click.FloatRange(0.01, 10), default=1.0, show_default=True)
@click.option("--policy", default="lex", show_default=True)
@click.option(
    "--moves",
    type=click.IntRange(0, 16),
    default=0,
    show_default=True,
    help="Slices that may move for one request without room.",
)
@click.option("--seed", type=int, default=1, show_default=True, help="Chooses the requests.")
@click.option("--board", default="H100-SXM5-80GB", show_default=True)
@click.option("-o", "--output", "form", type=click.Choice(("table", "json")), default="table")
def command(
    *,
    mix: str,
    gpus: int,
    load: float,
    policy: str,
    moves: int,
    seed: int,
    board: str,
    form: str,
) -> None:
    """Serve requests for MIG slices that arrive, run and leave; one that finds no place is gone.

    \b
    dovetail sim mig --mix small --policy lex --moves 1 -o json
    """
    setting = slice_run.SliceSetting(
        board=board,
        gpus=gpus,
        mix=slice_arrivals.named(mix),
        load=load,
        policy=slice_policies.named(policy),
        moves=moves,
        seed=seed,
    )
    report = msgspec.convert(
        msgspec.structs.asdict(setting) | msgspec.structs.asdict(slice_run.run(setting)),
        SliceReport,
    )
    if form == "json":
        output.write_json(report)
    else:
        output.write_lines(_table(report))


def _table(report: SliceReport) -> list[str]:
    moves = ""
    if report.moves:
        moves = f"; {report.moves_per_100_served} moves per 100 served"
    lines = [
        f"{report.gpus} {report.board}, {report.mix} mix, load {report.load:g}, "
        f"policy {report.policy}, moves per request {report.moves}, seed {report.seed}",
        f"{report.requests} requests; {report.accepted_slices_pct} % of the slices served{moves}",
        "",
        "PROFILE      SERVED %",
    ]
    lines += [f"{name:<12} {percent:>8.2f}" for name, percent in report.accepted_pct.items()]
    return lines
