"""What the process of the embedded cluster does with files at its start, as commands that start no process.

`build-fleet FILE`, `load-snapshot DIR` and `open-state` do what that process does after `up --fleet`, after `snapshot
load` and at any later start, in the state directory, and end as commands of the program do. They check that a refused
state is left as it was. `load-kubeconfig FILE` reads one as far as commands do before they ask a server.
"""

from __future__ import annotations

import asyncio
import datetime
import shutil
from pathlib import Path
from typing import Final

import click

from dovetail import errors
from dovetail.boot import embedded_cluster, embedded_setup
from dovetail.cli import lazy
from dovetail.cli.cluster import fleet_option
from dovetail.files import private_files, state_directory
from dovetail.kube.auth import client_config, credentials
from dovetail.kube.http import tls
from dovetail.sim import workload_store
from dovetail.snapshot import saved_objects, snapshot_files, snapshot_format

PLACES: Final = {
    name: (f"{__name__}:{name.replace('-', '_')}", "")
    for name in ("build-fleet", "open-state", "load-snapshot", "load-kubeconfig")
}
SETTLING_TURNS: Final = 20

group: Final = lazy.LazyGroup("steps", places=PLACES, hints={})


@click.command()
@click.argument("file")
def build_fleet(file: str) -> None:
    """A new cluster of the fleet that the file describes."""
    fleet = fleet_option.fleet(file)
    directory = _emptied()
    embedded_setup.write(directory, embedded_setup.Setup(name=fleet.name, fleet=fleet))
    with embedded_cluster.opened(directory) as state:
        asyncio.run(embedded_cluster.begin(state.api, state.setup))
        _settle(state)


@click.command()
@click.argument("saved", type=click.Path(path_type=Path))
def load_snapshot(saved: Path) -> None:
    """A new cluster of the objects in a snapshot, opened once more as after an end."""
    name = saved_objects.read(saved).objects.cluster
    directory = _emptied()
    embedded_setup.write(directory, embedded_setup.Setup(name=name, snapshot=str(saved.resolve())))
    for _ in range(2):
        with embedded_cluster.opened(directory) as state:
            _settle(state)


@click.command()
@click.argument("copy", type=click.Path(path_type=Path))
def open_state(copy: Path) -> None:
    """The cluster of the state directory, twice; then a snapshot of what it holds."""
    directory = state_directory.state_directory(None)
    before = _contents(directory)
    try:
        with embedded_cluster.opened(directory) as state:
            _settle(state)
    except errors.StateError:
        after = _contents(directory)
        names = sorted(before.keys() | after.keys())
        changed = [name for name in names if before.get(name) != after.get(name)]
        assert not changed, f"a refused state was changed: {', '.join(changed)}"
        raise
    with embedded_cluster.opened(directory) as state:
        documents = {
            kind: [record.document for record in state.api.shelf.all(kind)]
            for kind in snapshot_format.KINDS
        }
    facts = snapshot_format.Facts(taken_at=datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC))
    snapshot_files.write(copy, documents, facts, is_forced=True)


@click.command()
@click.argument("file")
def load_kubeconfig(file: str) -> None:
    """A kubeconfig."""
    read_kubeconfig(Path(file))


def read_kubeconfig(file: Path) -> None:
    """As far as commands come before they ask the server."""
    connection = client_config.load(str(file))
    if connection.server.startswith("https://"):
        tls.context(connection, credentials.Identity())


def _settle(state: embedded_cluster.State) -> None:
    """Lets the controllers act as after the start, and keeps what they did."""
    store = workload_store.WorkloadStore(state.api)
    for _ in range(SETTLING_TURNS):
        if store.settle():
            break
    state.journal.commit()


def _emptied() -> Path:
    directory = state_directory.state_directory(None)
    shutil.rmtree(directory, ignore_errors=True)
    private_files.make_directory(directory)
    return directory


def _contents(directory: Path) -> dict[str, bytes]:
    """Every file but the lock, which names the last process, and what SQLite leaves without meaning: an empty log."""
    journal = state_directory.JOURNAL
    contents = {file.name: file.read_bytes() for file in directory.iterdir()}
    if not contents.get(f"{journal}-wal"):
        contents.pop(f"{journal}-wal", None)
        contents.pop(f"{journal}-shm", None)
    contents.pop(state_directory.LOCK, None)
    return contents
