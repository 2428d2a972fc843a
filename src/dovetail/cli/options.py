"""Options several commands share."""

from collections.abc import Callable
from typing import Any, TypeVar

import click

from dovetail.boot import local

F = TypeVar("F", bound=Callable[..., Any])


def state(command: F) -> F:
    """--state DIR."""
    return click.option(
        "--state",
        metavar="DIR",
        help=f"Directory of the cluster. [default: ${local.STATE_VARIABLE} or the user's state directory]",
    )(command)


def opened(state: str | None) -> local.Local:
    """The cluster the options mean."""
    return local.Local(local.state_directory(state))
