"""What the commands of `dovetail stack` share: files of rows, and reading the cluster.

Given options. Never writes to a cluster.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import click

from dovetail import errors
from dovetail.answer.stack.compatibility_rows import Rows
from dovetail.answer.stack.stack_inventory import Inventory
from dovetail.ask import cluster_view
from dovetail.ask.lifecycle import stack_asked
from dovetail.cli import output
from dovetail.cli.cluster import cluster_option

F = TypeVar("F", bound=Callable[..., Any])


def with_rows(command: F) -> F:
    """The options that name files of rows, passed as `files` and `releases`."""
    for add in (
        click.option(
            "--releases",
            multiple=True,
            metavar="FILE",
            help="Driver releases as NVIDIA publishes them (releases.json).",
        ),
        click.option(
            "--rows",
            "files",
            multiple=True,
            metavar="FILE",
            help="Your own compatibility rows; they decide over those that are shipped.",
        ),
    ):
        command = add(command)
    return command


def rows(files: tuple[str, ...], releases: tuple[str, ...]) -> Rows:
    """The rows. Wrong files are reported before any request."""
    with bad_input():
        return stack_asked.rows(files, releases)


def inventory(known: Rows) -> tuple[cluster_view.View, Inventory]:
    """What was read of the chosen cluster or snapshot, and its stack."""
    seen = cluster_option.view(stack_asked.reads())
    version = "" if seen.is_snapshot else stack_asked.server_version(cluster_option.chosen())
    with bad_input():
        return seen, stack_asked.inventory(seen, known, version=version)


@contextlib.contextmanager
def bad_input() -> Iterator[None]:
    """Input that cannot be used ends the command with exit code 2."""
    try:
        yield
    except errors.InputError as error:
        raise output.BadInput(str(error)) from None
