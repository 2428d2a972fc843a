"""`dovetail version`: which release this is."""

import importlib.metadata

import click

from dovetail.cli import output


@click.command()
def command() -> None:
    """Show the version."""
    output.write_lines([f"dovetail {importlib.metadata.version('dovetail')}"])
