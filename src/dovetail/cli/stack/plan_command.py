"""`dovetail stack plan`: a roll-out over the nodes in waves, and what it does to the work that runs.

Reads the options, asks `answer/rollout`, and prints. Exit code 0: the roll-out can finish, 1: it cannot, and the plan
says why, 2: the question cannot be answered. Never changes the cluster.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import click
import msgspec

from dovetail import errors
from dovetail.answer.drain import drain_filters
from dovetail.answer.rollout import rollout_policy
from dovetail.ask import what_if_asked
from dovetail.ask.lifecycle import drain_asked, rollout_asked
from dovetail.cli import output
from dovetail.cli.answers import asked_cluster, what_if
from dovetail.cli.cluster import cluster_option
from dovetail.tables import label_option
from dovetail.tables.answers import rollout_picture, rollout_table

FORMS = ("table", "wide", "json", "yaml", "svg", "html")
CANNOT_FINISH = 1


@click.command(name="plan")
@click.option(
    "--to",
    "texts",
    multiple=True,
    required=True,
    metavar="PART=VERSION",
    help=f"What is rolled out: {', '.join(rollout_asked.PARTS)}.",
)
@click.option(
    "--nodes", "labels", metavar="LABELS", default="", help="Only nodes with these labels."
)
@click.option(
    "--together",
    type=click.Choice(rollout_policy.TOGETHER),
    default="node",
    show_default=True,
    help="Nodes that are out of service together.",
)
@click.option(
    "--parallel", type=click.IntRange(min=1), metavar="N", help="Nodes of a wave at most."
)
@click.option(
    "--max-unavailable",
    default="10%",
    show_default=True,
    metavar="N|P%",
    help="Nodes of the cluster that may be unavailable at once.",
)
@click.option(
    "--canary",
    type=click.IntRange(min=0),
    default=1,
    show_default=True,
    metavar="N",
    help="Nodes of the first wave; 0 for none.",
)
@click.option("--watch-canary", metavar="DURATION", help="Wait so long after the canary.")
@click.option(
    "--window",
    "windows",
    multiple=True,
    metavar="WINDOW",
    help="When nodes may be out of service, in UTC: Sat,Sun 22:00-06:00.",
)
@click.option("--start", metavar="TIME", help="Not before this time, RFC 3339. [default: now]")
@click.option(
    "--node-minutes",
    metavar="P50[/P90]",
    help=f"Minutes that one node takes. [default: {rollout_asked.DEFAULT_NODE_MINUTES}]",
)
@click.option(
    "--durations", "recorded", metavar="FILE", help="JSON list of recorded nodes: node, seconds."
)
@click.option(
    "--order",
    type=click.Choice(rollout_policy.ORDERS),
    default="least-lost",
    show_default=True,
    help="Which nodes go first.",
)
@click.option(
    "--patience",
    metavar="DURATION",
    help="Take up to so much longer, where work on a node ends by itself. [default: none]",
)
@click.option(
    "--checkpoint", metavar="DURATION", help="Evicted work loses at most so much. [default: all]"
)
@click.option(
    "--restart",
    default="5m",
    show_default=True,
    metavar="DURATION",
    help="Until restarted work computes again.",
)
@click.option("--force", is_flag=True, help="Also evict pods without a controller.")
@click.option("--keep-emptydir", is_flag=True, help="Pods with emptyDir volumes block a node.")
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
    help="How long after the last wave starts are worked out.",
)
@click.option(
    "-o", "--output", "form", type=click.Choice(FORMS), default="table", show_default=True
)
@asked_cluster.configurable
@cluster_option.readable
def command(
    *,
    texts: tuple[str, ...],
    labels: str,
    together: str,
    parallel: int | None,
    max_unavailable: str,
    canary: int,
    watch_canary: str | None,
    windows: tuple[str, ...],
    start: str | None,
    node_minutes: str | None,
    recorded: str | None,
    order: str,
    patience: str | None,
    checkpoint: str | None,
    restart: str,
    force: bool,
    keep_emptydir: bool,
    prices: tuple[str, ...],
    horizon: str,
    form: str,
    file: str | None,
) -> None:
    """Plan a roll-out in waves: who moves where, who waits until when, who never fits, and what is lost.

    Every wave is worked out by the scheduler's own engine, in the order that loses least and in the order by name. The
    cluster is only read.
    """
    with _usage_errors():
        to = rollout_asked.targets(texts)
        drain = drain_filters.Options(
            force=force, ignore_daemon_sets=True, delete_empty_dir_data=not keep_emptydir
        )
        policy_ = rollout_policy.Policy(
            durations=rollout_asked.node_durations(node_minutes, recorded),
            together=together,
            parallel=parallel,
            max_unavailable=max_unavailable,
            canary=canary,
            canary_seconds=rollout_asked.seconds("--watch-canary", watch_canary) or 0,
            windows=tuple(map(rollout_policy.window, windows)),
            order=order,
            patience_seconds=rollout_asked.seconds("--patience", patience) or 0,
            checkpoint_seconds=rollout_asked.seconds("--checkpoint", checkpoint),
            restart_seconds=rollout_asked.seconds("--restart", restart) or 0,
            only_gpu_pods=rollout_asked.GPU_PARTS.issuperset(to),
            drain=drain,
        )
        selects = label_option.selector(labels)
        horizon_seconds = what_if_asked.horizon_seconds(horizon)
        priced = what_if.prices_of(prices)
        rollout_policy.unavailable_nodes(max_unavailable, 1)  # wrong text, before any request
    seen, rules = asked_cluster.view(file, drain_asked.KINDS)
    with _usage_errors():
        plan = rollout_asked.planned(
            seen,
            rules,
            to,
            policy_,
            selects=selects if labels.strip() else None,
            start=start,
            horizon_seconds=horizon_seconds,
            prices=priced,
        )
    if form in ("svg", "html"):
        picture = rollout_picture.page(plan) if form == "html" else rollout_picture.svg(plan)
        output.write_lines(picture.splitlines())
    elif form in ("json", "yaml"):
        output.write_object(msgspec.json.decode(msgspec.json.encode(plan)), form)
    else:
        output.write_lines(rollout_table.lines(plan, is_wide=form == "wide"))
        cluster_option.say_cluster(seen.name)
        first = plan.waves[0].nodes[0]
        cluster_option.next_step(f"stack drain {first} --ignore-daemonsets")
    if not plan.can_finish:
        raise click.exceptions.Exit(CANNOT_FINISH)


@contextmanager
def _usage_errors() -> Iterator[None]:
    """What was asked for cannot be: exit code 2, and nothing is shown as an answer."""
    try:
        yield
    except errors.InputError as error:
        raise output.BadInput(str(error).replace("-l ", "--nodes ", 1)) from None
