"""Commands in runbooks are commands: every `dovetail ...` line names one that exists, with options that it has."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from dovetail.cli import main

PAGES = Path(__file__).resolve().parents[2] / "docs" / "runbooks"


def commands() -> Iterator[tuple[str, str]]:
    for page in sorted(PAGES.glob("*.md")):
        for line in page.read_text(encoding="utf-8").splitlines():
            if line.startswith("    dovetail "):
                yield page.stem, line.strip()


@pytest.mark.parametrize("line", sorted({line for _, line in commands()}))
def test_a_command_of_a_runbook_is_one_that_dovetail_takes(line: str) -> None:
    _, *words = shlex.split(line)
    command: click.Command = main.cli
    context = click.Context(command, info_name="dovetail")
    while isinstance(command, click.Group):
        name, command_found, words = command.resolve_command(context, words)
        assert command_found is not None
        command = command_found
        context = click.Context(command, info_name=name, parent=context)
    command.parse_args(context, words)
