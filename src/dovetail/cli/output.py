"""Where output goes: data to stdout in the form asked for, talk to stderr, tiles as the terminal shows them.

Given rows or Kubernetes objects. Colour only on a terminal without NO_COLOR. Never decides what to show.
"""

import os
import re
import sys
from collections.abc import Sequence
from typing import Any, Final

import click
import msgspec

from dovetail.cli import picture

FORMATS: Final = ("table", "wide", "json", "yaml", "name")

_NUMBER_LIKE: Final = re.compile(r"[-+.]?[0-9][0-9_.,:eExXoOa-fA-F+-]*")


def write_lines(lines: Sequence[str]) -> None:
    """Data for people or pipes, one write for all of it."""
    text = "\n".join(lines)
    if not picture.can_show_tiles(sys.stdout):
        text = picture.ascii_only(text)
    elif sys.stdout.isatty() and not os.environ.get("NO_COLOR"):
        text = picture.coloured(text)
    click.echo(text)


def write_objects(trees: Sequence[dict[str, Any]], form: str) -> None:
    """Kubernetes objects as one List, in JSON or YAML."""
    listed = {"apiVersion": "v1", "kind": "List", "metadata": {"resourceVersion": ""}, "items": list(trees)}
    click.echo(_json(listed) if form == "json" else _yaml(listed), nl=False)


def write_documents(trees: Sequence[dict[str, Any]], form: str) -> None:
    """Kubernetes objects one after the other: documents of YAML, or lines of JSON that belong together as a List."""
    if form == "json":
        write_objects(trees, form)
        return
    click.echo("---\n".join(_yaml(tree) for tree in trees), nl=False)


def say(message: str) -> None:
    """Talk, never data."""
    click.echo(message if picture.can_show_tiles(sys.stderr) else picture.ascii_only(message), err=True)


def next_step(command: str) -> None:
    """The last line: what to try now."""
    say(f"next: dovetail {command}")


def _json(tree: Any) -> str:
    return msgspec.json.format(msgspec.json.encode(tree), indent=2).decode() + "\n"


def _yaml(tree: Any) -> str:
    import yaml

    class Dumper(yaml.CSafeDumper):
        """Quotes text that some YAML reader would take for a number."""

        def ignore_aliases(self, data: Any) -> bool:
            return True

    def text(dumper: Any, value: str) -> Any:
        style = '"' if _NUMBER_LIKE.fullmatch(value) else "|" if "\n" in value else None
        return dumper.represent_scalar("tag:yaml.org,2002:str", value, style=style)

    Dumper.add_representer(str, text)
    dumped: str = yaml.dump(tree, Dumper=Dumper, sort_keys=False, allow_unicode=True, width=10**6)
    return dumped
