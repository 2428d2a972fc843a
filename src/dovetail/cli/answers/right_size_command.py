"""`dovetail right-size`: which smaller devices work could use, by what was measured of it, and how to change it.

Reads records, and a cluster where there is one; asks `answer/right_size`; prints. Without a cluster there are no
patches, and the command says so. Never changes the cluster.
"""

from __future__ import annotations

import shutil
from fractions import Fraction
from typing import TYPE_CHECKING, Final, NamedTuple

import click
import msgspec

from dovetail import errors
from dovetail.ask import right_size_asked
from dovetail.cli import output
from dovetail.cli.answers import asked_cluster
from dovetail.cli.cluster import cluster_option
from dovetail.tables.answers import right_size_text

if TYPE_CHECKING:
    from dovetail.answer.replica.replica import Replica

FORMS: Final = ("table", "wide", "json", "yaml")


@click.command(name="right-size")
@click.option(
    "--history",
    "--records",
    "history",
    metavar="FILE|URL",
    required=True,
    help="What was recorded of the work: a store of history, or records as JSON; - is stdin.",
)
@click.option(
    "--window",
    default=right_size_asked.DEFAULT_WINDOW,
    show_default=True,
    help="How far back to look.",
)
@click.option(
    "--prices", metavar="FILE", help="What a GPU costs an hour: YAML lines such as h100: 2.5."
)
@click.option("-n", "--namespace", metavar="NAME", help="Work of one namespace. [default: all]")
@click.option("--no-cluster", is_flag=True, help="Read records only: no patches, no what-if.")
@click.option(
    "-o", "--output", "form", type=click.Choice(FORMS), default="table", show_default=True
)
@asked_cluster.configurable
@cluster_option.readable
def command(
    *,
    history: str,
    window: str,
    prices: str | None,
    namespace: str | None,
    no_cluster: bool,
    form: str,
    file: str | None,
) -> None:
    """Say which device work should use: the cheapest that holds what was measured, with headroom.

    Work is judged by all its runs in the window. Every recommendation says why, why nothing smaller, how sure it is,
    what it saves, how to do it (-o wide shows commands), and what the scheduler's engine makes of it.
    """
    try:
        given = right_size_asked.recorded_work(history, window=window, namespace=namespace)
        priced = _prices(prices)
    except errors.InputError as error:
        raise output.BadInput(str(error)) from None
    seen = None if no_cluster else _cluster(file)
    replica = None if seen is None else seen.replica
    answer = right_size_asked.right_sizes(given, replica, prices=priced)
    if form in ("json", "yaml"):
        output.write_object(msgspec.json.decode(msgspec.json.encode(answer)), form)
        return
    output.write_table(right_size_text.table(answer))
    columns = shutil.get_terminal_size().columns
    output.write_lines(
        list(right_size_text.reasons(answer, is_wide=form == "wide", columns=columns))
    )
    output.write_lines(["", *right_size_text.closing(answer)])
    if seen is not None:
        cluster_option.say_cluster(seen.name)
    if form == "table" and any(each.patches for each in answer.work) and history != "-":
        cluster_option.next_step(f"right-size --history {history} -o wide")


class _Seen(NamedTuple):
    """The cluster that was read."""

    name: str
    replica: Replica


def _cluster(file: str | None) -> _Seen | None:
    """The cluster; None where the user named none and none can be read, which is said."""
    from dovetail.ask import replicas

    try:
        seen, rules = asked_cluster.view(file, right_size_asked.KINDS)
    except errors.DovetailError as error:
        if cluster_option.is_named():
            raise
        output.say(f"no cluster was read, so there are no patches: {error}")
        return None
    return _Seen(seen.name, replicas.replica_of(seen, rules))


def _prices(file: str | None) -> dict[str, Fraction]:
    from dovetail.ask import what_if_asked

    if file is None:
        return {}
    try:
        return what_if_asked.prices_of_file(file)
    except errors.InputError as error:
        raise errors.InputError(str(error).replace("--price ", "--prices ", 1)) from None
