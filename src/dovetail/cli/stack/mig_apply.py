"""`dovetail stack mig --apply`: hands a plan of MIG geometry to the lifecycle process.

Given the cluster that was read and the plan. Writes the configurations into the MIG manager's ConfigMap first, then
creates the StackUpgrade: a process that ends between both has only added configurations that no node uses. Exit code 0:
started, or nothing to do; 1: refused, and the output says what was written.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

import click

from dovetail.answer.partitioning.partition_answer import PartitionPlan
from dovetail.ask import api_session, cluster_view
from dovetail.ask.lifecycle import geometry_upgrade, mig_config_map
from dovetail.cli import output
from dovetail.cli.cluster import cluster_option
from dovetail.cli.stack import stack_options
from dovetail.cli.stack.upgrades import start_upgrade
from dovetail.kubetypes import registry
from dovetail.ports import failures
from dovetail.tables import text
from dovetail.tables.stack import partition_table

if TYPE_CHECKING:
    from dovetail.kube.http import transport

REFUSED: Final = 1


class Order(NamedTuple):
    """What the options say."""

    config_map: str
    namespace: str
    policy_file: str | None
    name: str | None
    is_dry_run: bool
    form: str


def apply(seen: cluster_view.View, plan: PartitionPlan, order: Order) -> None:
    """Shows the plan and starts it."""
    if order.config_map == mig_config_map.OPERATORS_OWN:
        raise output.BadInput(
            f"--config-map {order.config_map}: the GPU Operator writes it again; give another name"
        )
    with stack_options.bad_input():
        upgrade = geometry_upgrade.name_of(order.name, seen)
        spec = geometry_upgrade.spec_of(plan, order.policy_file)
    is_text = order.form in ("table", "wide")
    if is_text:
        output.write_lines(partition_table.lines(plan, is_wide=order.form == "wide"))
        cluster_option.say_cluster(seen.name)
    if not plan.proposals:
        _refuse(geometry_upgrade.unmet(plan))
        output.say("nothing to apply: every pod that waits for GPUs starts without a change")
        cluster_option.next_step("why")
        return

    if registry.STACK_UPGRADE in seen.unserved:
        raise output.BadInput(start_upgrade.UNSERVED)
    pointer = mig_config_map.pointer(seen)
    _refuse(
        geometry_upgrade.obstacle(seen, pointer, name=order.config_map, namespace=order.namespace)
    )
    extended = _extended(seen, plan, order)
    unread = geometry_upgrade.unread(pointer, extended)
    if not pointer.name:
        _refuse(unread)  # one that we created would be believed the next time
    if not order.is_dry_run:
        _write(extended)
    if is_text:
        output.write_lines([extended.sentence(is_dry_run=order.is_dry_run)])
    _refuse(unread)
    tree = start_upgrade.tree_of(upgrade, spec)
    if not order.is_dry_run:
        tree = start_upgrade.create(tree)
    if not is_text:
        output.write_object(tree, order.form)
        return
    verb = "would start" if order.is_dry_run else "started"
    output.write_lines(
        [f"{verb} stackupgrade/{upgrade}: {text.counted(len(plan.proposals), 'node')}"]
    )
    again = "stack mig --apply" if order.is_dry_run else f"stack upgrade status {upgrade}"
    cluster_option.next_step(again)


def _extended(
    seen: cluster_view.View, plan: PartitionPlan, order: Order
) -> mig_config_map.Extended:
    """The ConfigMap as it is to be. One that is new has to have what labels name."""
    from dovetail.kube import client

    wanted = geometry_upgrade.configurations(plan)

    async def read(over: transport.Transport) -> mig_config_map.Extended:
        return await mig_config_map.extended(
            client.KubeApi(over), wanted, name=order.config_map, namespace=order.namespace
        )

    with stack_options.bad_input():
        extended = api_session.run(cluster_option.chosen(), read)
    missing = mig_config_map.unknown_labels(seen, extended.configurations)
    if extended.is_new and missing:
        config, node = next(iter(sorted(missing.items())))
        _refuse(
            geometry_upgrade.Obstacle(
                f"node {node} uses configuration {config}, which a new configmap {extended.name} would"
                " not have",
                f"create it in {extended.namespace} with a copy of the file that the MIG manager reads",
            )
        )
    for config, node in sorted(missing.items()):
        output.say(
            f"warning: node {node} uses configuration {config}, which {extended.name} does not have:"
            " no way back to it"
        )
    return extended


def _write(extended: mig_config_map.Extended) -> None:
    from dovetail.kube import client

    async def write(over: transport.Transport) -> None:
        await mig_config_map.write(client.KubeApi(over), extended)

    place = f"configmap {extended.namespace}/{extended.name}"
    try:
        api_session.run(cluster_option.chosen(), write)
    except (failures.Conflict, failures.AlreadyThere):
        raise output.BadInput(
            f"{place}: another writer was first, and nothing was written; give the command again"
        ) from None
    except failures.Missing:
        raise output.BadInput(
            f"{place}: no namespace {extended.namespace}; --operator-namespace names the operator's"
        ) from None


def _refuse(obstacle: geometry_upgrade.Obstacle | None) -> None:
    if obstacle is None:
        return
    output.say(f"nothing was started: {obstacle.why}")
    output.say(f"next: {obstacle.next_step}")
    raise click.exceptions.Exit(REFUSED)
