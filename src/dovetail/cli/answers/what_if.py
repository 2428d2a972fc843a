"""`dovetail what-if`: what changes of nodes, queues, devices or work would do, beside the cluster as it is.

Reads the options in the order they were given, asks `answer/what_if`, and prints. A change that cannot be made ends
the command with exit code 2 and no answer. Never changes the cluster.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from fractions import Fraction
from typing import Any, Final

import click
import msgspec

from dovetail import errors
from dovetail.answer.what_if import changes
from dovetail.ask import replicas, what_if_asked
from dovetail.cli import output
from dovetail.cli.answers import asked_cluster
from dovetail.cli.cluster import cluster_option
from dovetail.cli.objects import manifest_files
from dovetail.tables.answers import what_if_table

FORMS: Final = ("table", "wide", "json", "yaml")
FILE: Final = "files"
USAGE: Final = 2
_ORDER: Final = "dovetail.what-if.order"


class OrderedCommand(click.Command):
    """Remembers in which order the options of changes were given: each applies to what those before it left."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        values, _, order = self.make_parser(ctx).parse_args(args=list(args))
        position: dict[str, int] = {}
        given: list[tuple[str, str]] = []
        for parameter in order:
            name = parameter.name or ""
            if name in what_if_asked.VERBS or name == FILE:
                index = position.get(name, 0)
                position[name] = index + 1
                given.append((name, values[name][index]))
        ctx.meta[_ORDER] = given
        return super().parse_args(ctx, args)


@click.command(name="what-if", cls=OrderedCommand)
@click.option("--add", multiple=True, metavar="NODES", help="More nodes: 2xh100, 2xnode/gpu-3.")
@click.option(
    "--remove", multiple=True, metavar="NODES", help="Nodes that go: node/a, 3xh100, rack/r1."
)
@click.option("--cordon", multiple=True, metavar="NODES", help="Nodes that take no new pods.")
@click.option("--uncordon", multiple=True, metavar="NODES", help="Nodes that take pods again.")
@click.option("--drain", multiple=True, metavar="NODES", help="Nodes that also lose their pods.")
@click.option(
    "--set",
    multiple=True,
    metavar="FIELD=VALUE",
    help="queue/x.quota=8 (or limit, weight, priority), job/ns/x.priority=100, "
    "node/a.mig=3g.40gb,4g.40gb, node/a.sharing=time-slicing:4.",
)
@click.option("--end", multiple=True, metavar="WORK", help="Work that is over: job/ns/x, pod/x.")
@click.option(
    "-f", "--filename", FILE, multiple=True, metavar="FILE", help="Work that does not exist yet."
)
@click.option(
    "--price",
    "prices",
    multiple=True,
    metavar="TYPE=PRICE|FILE",
    help="What a GPU costs an hour: h100=2.5, or a YAML file of such lines.",
)
@click.option(
    "--horizon",
    default=what_if_asked.DEFAULT_HORIZON,
    show_default=True,
    help="How far ahead starts are worked out.",
)
@click.option("-n", "--namespace", metavar="NAME", help="Of work without a namespace.")
@click.option(
    "-o", "--output", "form", type=click.Choice(FORMS), default="table", show_default=True
)
@asked_cluster.configurable
@cluster_option.readable
@click.pass_context
def command(
    context: click.Context,
    /,
    *,
    prices: tuple[str, ...],
    horizon: str,
    namespace: str | None,
    form: str,
    file: str | None,
    **_: Any,
) -> None:
    """Say what changes would do: who starts, waits, yields or moves, and how that differs from today.

    Changes apply in the order given. Both sides are worked out by the scheduler's own engine; the cluster is only read.
    """
    given: list[tuple[str, str]] = context.meta[_ORDER]
    if not given:
        raise click.UsageError(
            "give at least one change: --add, --remove, --cordon, --uncordon, --drain, --set, --end or -f"
        )
    with _usage_errors():
        horizon_seconds = what_if_asked.horizon_seconds(horizon)
        priced = prices_of(prices)
        place = namespace or cluster_option.default_namespace()
        # Texts and files first: a mistake there is reported before any request.
        texts = {
            entry: changes.read(*entry, namespace=place) for entry in given if entry[0] != FILE
        }
        loaded = {
            name: manifest_files.load(
                [name], namespace=namespace, default_namespace=place, did="answered"
            )
            for verb, name in given
            if verb == FILE
        }
    seen, rules = asked_cluster.view(file, what_if_asked.work_kinds() if loaded else ())
    with _usage_errors():
        new = what_if_asked.stated_work(loaded, seen)
        stated = [new[name] if verb == FILE else texts[verb, name] for verb, name in given]
        answer = what_if_asked.what_if(
            replicas.replica_of(seen, rules),
            stated,
            horizon_seconds=horizon_seconds,
            prices=priced,
        )
    if form in ("json", "yaml"):
        output.write_object(msgspec.json.decode(msgspec.json.encode(answer)), form)
        return
    output.write_lines(what_if_table.lines(answer, is_wide=form == "wide"))
    cluster_option.say_cluster(seen.name)
    cluster_option.next_step("queue --pending" if answer.before.waiting_jobs else "capacity")


@contextlib.contextmanager
def _usage_errors() -> Iterator[None]:
    """What was asked for cannot be: exit code 2, and nothing is shown as an answer."""
    try:
        yield
    except errors.InputError as error:
        output.say(f"error: {error}")
        raise click.exceptions.Exit(USAGE) from None
    except click.exceptions.Exit as leaving:  # of a file with problems, which were said
        raise click.exceptions.Exit(USAGE if leaving.exit_code else 0) from None


def prices_of(given: Sequence[str]) -> dict[str, Fraction]:
    """What a GPU-hour costs by type, of the option --price."""
    prices: dict[str, Fraction] = {}
    for text in given:
        name, is_pair, price = text.partition("=")
        if is_pair:
            prices[name.strip()] = what_if_asked.price(text, price)
            continue
        prices |= what_if_asked.prices_of_file(text)
    return prices
