"""`dovetail stack`: the group. Without a command it shows the inventory."""

from __future__ import annotations

from typing import Final

import click

from dovetail.cli import lazy

INVENTORY: Final = "inventory"
# A new command is one line here and one module beside this.
COMMANDS: Final = {
    INVENTORY: (
        "dovetail.cli.stack.inventory_command:command",
        "Show what every node and workload runs. [default]",
    ),
    "check": (
        "dovetail.cli.stack.check_command:command",
        "Say what an upgrade would break, before it starts.",
    ),
    "plan": (
        "dovetail.cli.stack.plan_command:command",
        "Plan a roll-out in waves: who moves, who waits, what it costs.",
    ),
    "parts": (
        "dovetail.cli.stack.parts_command:command",
        "Say which parts run on which nodes, and what is missing.",
    ),
    "mig": (
        "dovetail.cli.stack.mig_command:command",
        "Say which GPUs to partition how, from the work that waits.",
    ),
    "drain": (
        "dovetail.cli.stack.drain:command",
        "Say what a drain of a node would evict, skip and refuse.",
    ),
    "upgrade": (
        "dovetail.cli.stack.upgrades.upgrade_group:group",
        "Carry out an upgrade; show, pause, resume and abort it.",
    ),
    "heal": (
        "dovetail.cli.stack.heal_command:command",
        "Say what the healer would do about faults of GPUs, and why.",
    ),
}


class StackGroup(lazy.LazyGroup):
    """The commands; options without a command are those of the inventory."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Puts the inventory's name before what names no command."""
        is_help = bool(args) and args[0] in ctx.help_option_names
        is_command = bool(args) and not args[0].startswith("-")
        if not is_help and not is_command:
            args = [INVENTORY, *args]
        return super().parse_args(ctx, args)


@click.group(cls=StackGroup, name="stack", places=dict(COMMANDS), hints={})
def group() -> None:
    """Show the GPU stack from Kubernetes to CUDA, check an upgrade of it, and plan its roll-out.

    \b
    dovetail stack                                   what runs, and what is not known
    dovetail stack check --to driver=595.91.07       what that driver would break
    dovetail stack plan --to driver=595.91.07        in which waves, and what they do to the work
    dovetail stack parts                             which parts run where, and what is missing
    dovetail stack mig                               which GPUs to partition how, for what waits
    dovetail stack drain gpu-01                      which pods a drain would evict, skip and refuse
    dovetail stack upgrade --to driver=595.91.07     carry it out
    dovetail stack heal                              which faults call for which remedy
    """
