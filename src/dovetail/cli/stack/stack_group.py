"""`dovetail stack`: the group of commands about drivers, operators and nodes, imported one by one."""

import click

from dovetail.cli import lazy

COMMANDS = {
    "plan": (
        "dovetail.cli.stack.plan_command:command",
        "Plan a roll-out in waves: who moves, who waits, what it costs.",
    ),
    "drain": (
        "dovetail.cli.stack.drain:command",
        "Say what a drain of a node would evict, skip and refuse.",
    ),
}


@click.group(name="stack", cls=lazy.LazyGroup, places=COMMANDS, hints={})
def group() -> None:
    """Plan changes of the GPU stack: which nodes, in which order, and what they do to the work."""
