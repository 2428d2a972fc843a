"""`dovetail stack upgrade`: the group. Without a command it starts an upgrade."""

from __future__ import annotations

from typing import Final

import click

from dovetail.cli import lazy

START: Final = "start"
_CONTROL: Final = "dovetail.cli.stack.upgrades.control_upgrade"
COMMANDS: Final = {
    START: (
        "dovetail.cli.stack.upgrades.start_upgrade:command",
        "Check, plan and start an upgrade. [default]",
    ),
    "status": (f"{_CONTROL}:status", "Show how far upgrades are, and why nodes wait."),
    "pause": (f"{_CONTROL}:pause", "Let no further node begin."),
    "resume": (f"{_CONTROL}:resume", "Go on with a paused upgrade."),
    "abort": (f"{_CONTROL}:abort", "End an upgrade; nodes being installed finish."),
}


class UpgradeGroup(lazy.LazyGroup):
    """The commands; options without a command are those of the start."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Puts the start's name before what names no command."""
        is_help = bool(args) and args[0] in ctx.help_option_names
        if args and args[0].startswith("-") and not is_help:
            args = [START, *args]
        return super().parse_args(ctx, args)


@click.group(cls=UpgradeGroup, name="upgrade", places=dict(COMMANDS), hints={})
def group() -> None:
    """Carry out an upgrade of the GPU stack: fence, drain gang by gang, apply, validate, unfence.

    \b
    dovetail stack upgrade --to driver=595.91.07 --dry-run   what would be started
    dovetail stack upgrade --to driver=595.91.07             start it
    dovetail stack upgrade status                            how far upgrades are
    dovetail stack upgrade pause NAME                        and resume, abort
    """
