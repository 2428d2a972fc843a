"""`dovetail stack check`: what an upgrade would break, per pool, node and image, before it starts."""

from __future__ import annotations

import click
import msgspec

from dovetail.answer.stack import stack_check, target_versions
from dovetail.answer.stack.stack_check import Outcome
from dovetail.cli import output
from dovetail.cli.cluster import cluster_option
from dovetail.cli.stack import stack_options
from dovetail.tables.stack import check_page, check_table

FORMS = ("table", "wide", "json", "yaml", "html")
REFUSED = 1


@click.command(name="check")
@click.option(
    "--to",
    "targets",
    multiple=True,
    metavar="PART=VERSION,...",
    help="Versions to reach: driver, kubernetes, operator, toolkit, containerd. [default: as it is]",
)
@click.option(
    "--allow-unknown",
    is_flag=True,
    help="Exit 0 although something cannot be told; it is shown all the same.",
)
@click.option(
    "-o", "--output", "form", type=click.Choice(FORMS), default="table", show_default=True
)
@stack_options.with_rows
@cluster_option.readable
@click.pass_context
def command(
    context: click.Context,
    *,
    targets: tuple[str, ...],
    allow_unknown: bool,
    form: str,
    files: tuple[str, ...],
    releases: tuple[str, ...],
) -> None:
    """Say whether every image still runs, and every part still fits, after an upgrade of the stack.

    Images run natively, by minor compatibility, with their forward-compatibility package, not, or it cannot be told;
    the row that decided is named. Exit code 0: go; 1: something would not work, or cannot be told; 2: wrong input.
    Nothing is changed.

    \b
    dovetail stack check                                       does it fit as it is?
    dovetail stack check --to driver=595.91.07
    dovetail stack check --to kubernetes=1.36,containerd=2.2.1 -o html > check.html
    dovetail stack check --to driver=580 --snapshot saved/
    """
    known = stack_options.rows(files, releases)
    with stack_options.bad_input():
        target = target_versions.parse(targets)
        target_versions.check_known(target, known)
    seen, inventory = stack_options.inventory(known)
    with stack_options.bad_input():
        answer = stack_check.check(inventory, target, known, seen.now.date())
    _write(answer, form, seen.name)
    is_accepted = answer.outcome is Outcome.UNKNOWN and allow_unknown
    if answer.outcome is not Outcome.GO and not is_accepted:
        context.exit(REFUSED)


def _write(answer: stack_check.StackCheck, form: str, cluster: str) -> None:
    match form:
        case "json" | "yaml":
            output.write_object(msgspec.json.decode(msgspec.json.encode(answer)), form)
        case "html":
            output.write_text(check_page.page(answer, cluster))
        case _:
            output.write_table(check_table.lines(answer, is_wide=form == "wide"))
            cluster_option.say_cluster(cluster)
            if form == "table":
                words = ",".join(f"{part}={version}" for part, version in answer.target.items())
                target = f" --to {words}" if words else ""
                cluster_option.next_step(f"stack check{target} -o wide")
