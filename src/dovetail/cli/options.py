"""Options several commands share."""

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from dovetail.sim.local import state_dir

if TYPE_CHECKING:
    from dovetail.sim.fleet import fleet_spec

F = TypeVar("F", bound=Callable[..., Any])

_SNAPSHOT = "dovetail.snapshot"  # where the context keeps the directory named by --snapshot


def state(command: F) -> F:
    """--state DIR, or --snapshot DIR for a temporary copy of a saved cluster."""
    return own_state(
        click.option(
            "--snapshot",
            metavar="DIR",
            expose_value=False,
            callback=_remember,
            help="Work on a copy of a saved cluster instead; nothing is kept.",
        )(command)
    )


def own_state(command: F) -> F:
    """--state DIR alone."""
    return click.option(
        "--state",
        metavar="DIR",
        help=f"Directory of the cluster. [default: ${state_dir.STATE_VARIABLE} or the user's state directory]",
    )(command)


def opened(state: str | None) -> state_dir.Local:
    """The cluster that the options select."""
    context = click.get_current_context(silent=True)
    directory = context.meta.get(_SNAPSHOT) if context is not None else None
    if directory is None or context is None:
        return state_dir.Local(state_dir.state_directory(state))
    if state is not None:
        raise click.UsageError("give --state or --snapshot, not both")
    return _copy(Path(directory), context)


def fleet(file: str) -> "fleet_spec.Fleet":
    """The fleet of a file. Raises InputError if it cannot be read."""
    from dovetail.files import bounded_files
    from dovetail.sim.fleet import fleet_spec

    return fleet_spec.read(bounded_files.text(file), file=file)


def snapshot() -> Path | None:
    """The saved cluster that --snapshot names, if it was given."""
    context = click.get_current_context(silent=True)
    directory_name = context.meta.get(_SNAPSHOT) if context is not None else None
    return None if directory_name is None else Path(directory_name)


def _remember(context: click.Context, parameter: click.Parameter, value: str | None) -> None:
    context.meta[_SNAPSHOT] = value


def _copy(directory: Path, context: click.Context) -> state_dir.Local:
    """The snapshot, loaded into a directory that is removed when the command ends."""
    from dovetail.cli import snapshot  # most commands read none

    passing = tempfile.TemporaryDirectory(prefix="dovetail-")
    context.call_on_close(passing.cleanup)
    place = state_dir.Local(Path(passing.name))
    snapshot.load_into(directory, place, fresh=True)
    return place
