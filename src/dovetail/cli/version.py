"""`dovetail version`: which release this is."""

import importlib.metadata

import click


@click.command()
def command() -> None:
    """Show the version."""
    click.echo(f"dovetail {importlib.metadata.version('dovetail')}")
