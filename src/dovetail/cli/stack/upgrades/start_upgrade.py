"""`dovetail stack upgrade --to ...`: checks, plans and starts an upgrade.

Exit code 0: started, or would be; 1: the check or the plan refuses it, and nothing was touched; 2: wrong input.
"""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, Any, Final

import click

from dovetail.answer.stack import stack_check, target_versions
from dovetail.answer.stack.stack_check import Outcome
from dovetail.ask import api_session, what_if_asked
from dovetail.ask.lifecycle import drain_asked, rollout_asked, upgrade_asked
from dovetail.cli import output
from dovetail.cli.answers import asked_cluster
from dovetail.cli.cluster import cluster_option
from dovetail.cli.stack import stack_options
from dovetail.kubetypes import codec, label_selectors, registry
from dovetail.kubetypes.custom import stack_upgrades
from dovetail.ports import failures
from dovetail.tables.answers import rollout_table
from dovetail.tables.stack import check_table

if TYPE_CHECKING:
    from dovetail.kube.http import transport

REFUSED: Final = 1
UNSERVED: Final = (
    "the cluster does not serve stackupgrades.dovetail.dev; `dovetail install` adds it"
)


@click.command(name="start")
@click.option(
    "--to",
    "texts",
    multiple=True,
    required=True,
    metavar="PART=VERSION",
    help="What is rolled out, such as driver=595.91.07.",
)
@click.option("--name", metavar="NAME", help="Of the upgrade. [default: by what it brings]")
@click.option("--policy", "policy_file", metavar="FILE", help="Waves, drain, stop rules as YAML.")
@click.option(
    "--nodes", "labels", metavar="LABELS", default="", help="Only nodes with these labels."
)
@click.option("--allow-unknown", is_flag=True, help="Start although something cannot be told.")
@click.option("--dry-run", is_flag=True, help="Check and plan, and start nothing.")
@click.option(
    "-o",
    "--output",
    "form",
    type=click.Choice(("table", "json", "yaml")),
    default="table",
    show_default=True,
)
@stack_options.with_rows
@asked_cluster.configurable
@cluster_option.writable
def command(
    *,
    texts: tuple[str, ...],
    name: str | None,
    policy_file: str | None,
    labels: str,
    allow_unknown: bool,
    dry_run: bool,
    form: str,
    files: tuple[str, ...],
    releases: tuple[str, ...],
    file: str | None,
) -> None:
    """Check and plan an upgrade, show the plan in short, and start it.

    The lifecycle process carries it out: `dovetail stack upgrade status` shows how far it is.
    """
    known = stack_options.rows(files, releases)
    with stack_options.bad_input():
        to = rollout_asked.targets(texts)
        chosen_name = upgrade_asked.name_of(name, to)
        spec = upgrade_asked.spec_of(to, policy_file, labels)
        target = target_versions.parse(texts)
        target_versions.check_known(target, known)
    _check(known, target, allow_unknown=allow_unknown)
    seen, rules = asked_cluster.view(file, drain_asked.KINDS)
    tests = label_selectors.tests_of(spec.node_selector)
    with stack_options.bad_input():
        plan = rollout_asked.planned(
            seen,
            rules,
            to,
            upgrade_asked.rollout_policy_of(spec),
            selects=None
            if spec.node_selector is None
            else lambda labels: label_selectors.passes(tests, labels),
            horizon_seconds=what_if_asked.horizon_seconds(what_if_asked.DEFAULT_HORIZON),
            prices={},
        )
    if not plan.can_finish:
        output.write_lines(rollout_table.lines(plan))
        output.say("nothing was started: the plan cannot finish")
        raise click.exceptions.Exit(REFUSED)
    tree = tree_of(chosen_name, upgrade_asked.with_waves(spec, plan))
    if not dry_run:
        tree = create(tree)
    if form != "table":
        output.write_object(tree, form)
        return
    verb = "would start" if dry_run else "started"
    output.write_lines([rollout_table.sentence(plan), *rollout_table.comparison(plan)])
    output.write_lines([f"{verb} stackupgrade/{chosen_name}"])
    cluster_option.say_cluster(seen.name)
    words = [word for text in texts for word in ("--to", text)]
    words += ["--allow-unknown"] if allow_unknown else []
    for option, value in (("--policy", policy_file), ("--nodes", labels), ("--name", name)):
        words += [option, value] if value else []
    again = f"stack upgrade {shlex.join(words)}"
    if not dry_run:
        again = f"stack upgrade status {chosen_name}"
    cluster_option.next_step(again)


def _check(known: Any, target: Any, *, allow_unknown: bool) -> None:
    """Refuses what would break something, or what cannot be told."""
    seen, inventory = stack_options.inventory(known)
    with stack_options.bad_input():
        answer = stack_check.check(inventory, target, known, seen.now.date())
    if answer.outcome is Outcome.GO or (answer.outcome is Outcome.UNKNOWN and allow_unknown):
        return
    output.write_table(check_table.lines(answer, is_wide=False))
    advice = "; --allow-unknown starts it all the same" if answer.outcome is Outcome.UNKNOWN else ""
    output.say(f"nothing was started: the check says {answer.outcome.value}{advice}")
    raise click.exceptions.Exit(REFUSED)


def tree_of(name: str, spec: stack_upgrades.StackUpgradeSpec) -> dict[str, Any]:
    """The object."""
    return {
        "apiVersion": registry.STACK_UPGRADE.api_version,
        "kind": registry.STACK_UPGRADE.name,
        "metadata": {"name": name},
        "spec": codec.tree_of(spec),
    }


def create(tree: dict[str, Any]) -> dict[str, Any]:
    """Creates it, and returns what the server stored."""
    from dovetail.kube import client
    from dovetail.ports.api import Target

    async def created(over: transport.Transport) -> bytes:
        target = Target(registry.STACK_UPGRADE)
        return await client.KubeApi(over).create(target, codec.encode_tree(tree))

    name = tree["metadata"]["name"]
    try:
        return codec.parsed(api_session.run(cluster_option.chosen(), created))
    except failures.AlreadyThere:
        raise output.BadInput(
            f"stackupgrade/{name} exists already; --name gives another name"
        ) from None
    except failures.Missing:
        raise output.BadInput(UNSERVED) from None
