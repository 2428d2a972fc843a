"""`dovetail down`: ends the process of the embedded cluster."""

import click

from dovetail.cli import output
from dovetail.files import state_directory


@click.command()
@click.option("--purge", is_flag=True, help="Remove its state too.")
@click.option(
    "--state",
    metavar="DIR",
    help=f"Directory of the cluster. [default: ${state_directory.STATE_VARIABLE} or the user's state directory]",
)
def command(*, purge: bool, state: str | None) -> None:
    """End the embedded cluster. Its state is kept, and the next `dovetail up` goes on from it."""
    from dovetail.cli.cluster import embedded_start

    directory = state_directory.state_directory(state)
    if purge:
        was_there = embedded_start.purge(directory)
        output.say(
            f"removed the cluster in {directory}" if was_there else f"no cluster in {directory}"
        )
    elif embedded_start.stop(directory):
        output.say(f"ended the cluster in {directory}; its state is kept")
    elif state_directory.has_state(directory):
        output.say(f"the cluster in {directory} is not running; its state is kept")
    else:
        output.say(f"no cluster in {directory}")
    output.next_step("up")
