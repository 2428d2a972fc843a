"""Options several commands share."""

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from dovetail.boot import local

if TYPE_CHECKING:
    from dovetail.sim import fleet as fleets

F = TypeVar("F", bound=Callable[..., Any])

_SNAPSHOT = "dovetail.snapshot"  # where the context keeps the directory named by --snapshot


def state(command: F) -> F:
    """--state DIR, or --snapshot DIR for a copy of a saved cluster that is forgotten afterwards."""
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
        help=f"Directory of the cluster. [default: ${local.STATE_VARIABLE} or the user's state directory]",
    )(command)


def opened(state: str | None) -> local.Local:
    """The cluster the options mean."""
    context = click.get_current_context(silent=True)
    directory = context.meta.get(_SNAPSHOT) if context is not None else None
    if directory is None or context is None:
        return local.Local(local.state_directory(state))
    if state is not None:
        raise click.UsageError("give --state or --snapshot, not both")
    return _copy(Path(directory), context)


def fleet(file: str) -> "fleets.Fleet":
    """The fleet a file describes. Raises InputError for what cannot be read."""
    from dovetail.boot import files
    from dovetail.sim import fleet as fleets

    return fleets.read(files.text(file), file=file)


def snapshot() -> Path | None:
    """The saved cluster that --snapshot names, if it was given."""
    context = click.get_current_context(silent=True)
    named = context.meta.get(_SNAPSHOT) if context is not None else None
    return None if named is None else Path(named)


def _remember(context: click.Context, parameter: click.Parameter, value: str | None) -> None:
    context.meta[_SNAPSHOT] = value


def _copy(directory: Path, context: click.Context) -> local.Local:
    """The snapshot as the cluster of a directory that goes when the command ends."""
    from dovetail.boot import snapshot  # most commands read none

    passing = tempfile.TemporaryDirectory(prefix="dovetail-")
    context.call_on_close(passing.cleanup)
    place = local.Local(Path(passing.name))
    snapshot.load(directory, place, fresh=True)
    return place
