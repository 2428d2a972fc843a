"""`dovetail tune`: searches settings of the scheduler's policy on jobs of one's own, and judges them on held-out ones.

Given what was named on the command line. Writes the page and the configuration to the files that were named; a
configuration only if it beats the default. Never changes a cluster.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import yaml

from dovetail import errors
from dovetail.cli import output
from dovetail.cli.answers import sim_input

if TYPE_CHECKING:
    from dovetail.study.tuning import policy_tuning, tuning_objective

COLUMNS = (
    "PART",
    "POLICY",
    "SCORE",
    "WAITING",
    "1 GPU WAITS",
    "BELOW QUOTA GPU-H",
    "USED %",
    "LOST GPU-H",
    "EVICTED",
    "NEVER STARTED",
)


@click.command(name="tune")
@sim_input.options
@click.option(
    "--budget", type=click.IntRange(2, 10_000), default=30, show_default=True, metavar="TRIALS",
    help="How many settings to try, the default among them.",
)  # fmt: skip
@click.option("--seed", type=int, default=42, show_default=True)
@click.option(
    "--objective",
    default="waiting=1,fairness=0.5",
    show_default=True,
    help="Weights of waiting, small, fairness, utilisation and lost.",
)
@click.option(
    "--holdout", type=click.FloatRange(0.05, 0.9), default=0.3, show_default=True, metavar="PART",
    help="Part of the time, the last, that judges and is never searched.",
)  # fmt: skip
@click.option("-o", "--output", "form", type=click.Choice(("table", "json")), default="table")
@click.option("--file", "page_file", metavar="FILE.html", help="Draw the trials on a page.")
@click.option("--write", "policy_file", metavar="FILE.yaml", help="Where to write what beat it.")
def command(
    *,
    budget: int,
    seed: int,
    objective: str,
    holdout: float,
    form: str,
    page_file: str | None,
    policy_file: str | None,
    **source: Any,
) -> None:
    """Search settings of the policy on your jobs, and judge them on jobs the search never saw.

    \b
    dovetail tune --jobs jobs.csv --fleet fleet.yaml --study study.yaml --file tuned.html
    dovetail tune --history history.sqlite --fleet fleet.yaml --study study.yaml --write policy.yaml
    dovetail tune --generate days=2,load=1 --fleet fleet.yaml --objective waiting=1,small=1
    """
    from dovetail.cli.answers import sim_progress
    from dovetail.study.tuning import policy_tuning, tuning_objective

    weights = tuning_objective.read(objective)
    given = sim_input.read(sim_input.Source(**source), seed=seed)
    request = policy_tuning.Request(weights, budget, holdout, seed)
    bar = sim_progress.Bar(["tune"])
    try:
        result = policy_tuning.tune(
            given, request, progress=lambda ended, total: bar.show(0, ended, total)
        )
    finally:
        bar.close()
    if form == "json":
        output.write_json(result)
    else:
        output.write_table(_table(result))
    if page_file is not None:
        from dovetail.study.report import tuning_page

        _write(page_file, tuning_page.page(result))
    if policy_file is not None:
        write_policy(policy_file, result)


def write_policy(file: str, result: policy_tuning.Tuning) -> None:
    """Writes what the scheduler needs, if it beats the default."""
    from dovetail.study.tuning import policy_settings

    if not result.beats_default:
        output.say(f"{file} is not written: {result.verdict}")
        return
    tree = policy_settings.tree(result.changes)
    _write(file, yaml.safe_dump(tree, sort_keys=False))
    output.next_step(f"dovetail scheduler --config {file}")


def _write(file: str, text: str) -> None:
    try:
        Path(file).write_text(text, encoding="utf-8")
    except OSError as error:
        raise errors.InputError(f"{file}: cannot be written: {error}") from None
    output.say(f"wrote {file}")


def _table(result: policy_tuning.Tuning) -> list[str]:
    from dovetail.study.tuning import policy_settings

    weights = ", ".join(f"{name} {weight:g}" for name, weight in result.objective.items())
    rows = [
        list(COLUMNS),
        _cells("searched", "default", 1.0, result.searched_default),
        _cells("searched", "chosen", result.searched_score, result.searched),
        _cells("held out", "default", 1.0, result.held_out_default),
        _cells("held out", "chosen", result.held_out_score, result.held_out),
    ]
    widths = [max(len(row[column]) for row in rows) for column in range(len(COLUMNS))]
    lines = [
        f"{result.study}: {result.searched_jobs} jobs searched, {result.held_out_jobs} held out, "
        f"{result.gpus} GPUs, seed {result.seed}",
        f"{len(result.trials)} settings tried; score: {weights}; 1 is the default, less is better",
        "",
    ]
    for row in rows:
        cells = [cell.ljust(width) for cell, width in zip(row[:2], widths[:2], strict=True)]
        cells += [cell.rjust(width) for cell, width in zip(row[2:], widths[2:], strict=True)]
        lines.append("   ".join(cells).rstrip())
    return [*lines, "", f"chosen: {policy_settings.said(result.changes)}", result.verdict]


def _cells(
    part: str, name: str, score: float | None, outcome: tuning_objective.Outcome
) -> list[str]:
    return [
        part,
        name,
        "none" if score is None else f"{score:.3f}",
        f"{outcome.waiting_mean_s:.0f}",
        f"{outcome.small_waiting_mean_s:.0f}",
        f"{outcome.below_quota_gpu_hours:.1f}",
        f"{outcome.utilisation_pct:.1f}",
        f"{outcome.lost_gpu_hours:.1f}",
        f"{outcome.evictions}",
        f"{outcome.never_started}",
    ]
