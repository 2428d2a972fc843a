"""A process that writes to a journal as fast as it can and says what is durable, until it is killed.

`python -m tests.sim.journal_writer DIRECTORY SEED [BATCHES]`: prints one JSON line per committed batch. With a number
of batches it writes them again and again, each time in a process and a directory of its own, and ends itself without
any clean-up at one boundary after the other: 1 is before the first call of SQLite, 2 after it, and so on. It prints
the exit code of each of these processes, which are forked: starting Python for each would take far longer.
"""

from __future__ import annotations

import itertools
import os
import random
import sqlite3
import sys
from pathlib import Path
from typing import Any, NoReturn

import msgspec

from dovetail.kubetypes import registry
from dovetail.ports import failures
from dovetail.sim.server.api_server import SimApi
from dovetail.sim.server.journal import Journal

NAMES = 20
MAX_BATCH = 8
ENDED = 7  # the exit code of a process that ended itself


class EndingConnection(sqlite3.Connection):
    """Ends the process at one boundary of a call."""

    passed = 0
    boundary = 0

    def execute(self, *arguments: Any) -> sqlite3.Cursor:
        _pass_boundary()
        answer = super().execute(*arguments)
        _pass_boundary()
        return answer


def _pass_boundary() -> None:
    EndingConnection.passed += 1
    if EndingConnection.passed == EndingConnection.boundary:
        os._exit(ENDED)


def main(directory: str, seed: int, boundary: int = 0, batches: int = 1_000_000) -> None:
    EndingConnection.boundary = boundary
    kind = EndingConnection if boundary else sqlite3.Connection
    journal = Journal(Path(directory), connection=kind)
    restored = journal.open()
    api = SimApi(restored=restored, on_change=journal.note)
    randomness = random.Random(seed)
    for _ in range(batches):
        for _ in range(randomness.randint(1, MAX_BATCH)):
            change(api, randomness)
        journal.commit()
        acknowledged = {"revision": api.shelf.revision, "objects": state(api)}
        sys.stdout.buffer.write(msgspec.json.encode(acknowledged) + b"\n")
        sys.stdout.buffer.flush()


def change(api: SimApi, randomness: random.Random) -> None:
    """Creates, changes or deletes one object."""
    name = f"o{randomness.randrange(NAMES)}"
    match randomness.randrange(3):
        case 0:
            api.shelf.delete(registry.LEASE, ("default", name))
        case _:
            found = api.shelf.find(registry.LEASE, ("default", name))
            spec = {"holderIdentity": "h" * randomness.randrange(2_000)}
            try:
                if found is None:
                    tree = {
                        "apiVersion": "coordination.k8s.io/v1",
                        "kind": "Lease",
                        "metadata": {"name": name},
                        "spec": spec,
                    }
                    api.put(tree)
                else:
                    api.shelf.put(registry.LEASE, found.tree | {"spec": spec})
            except failures.ApiFailure as failure:
                raise SystemExit(f"refused: {failure}") from failure


def state(api: SimApi) -> dict[str, str]:
    """Every object's version, by table, namespace and name."""
    versions = {}
    for key, table in api.shelf.tables():
        for record in table.all():
            place = "/".join((*key, *record.key))
            versions[place] = record.metadata.resource_version
    return versions


def end_at_each_boundary(directory: Path, seed: int, batches: int) -> None:
    """Writers that end one call later each, in DIRECTORY/BOUNDARY, until one comes to the end of its batches."""
    for boundary in itertools.count(1):
        child = os.fork()
        if not child:
            _write_and_exit(directory, seed, boundary, batches)
        _, status = os.waitpid(child, 0)
        code = os.waitstatus_to_exitcode(status)
        print(code, flush=True)
        if code != ENDED:
            return


def _write_and_exit(directory: Path, seed: int, boundary: int, batches: int) -> NoReturn:
    """Never returns: what is above belongs to the parent."""
    try:
        with output_of(directory, boundary).open("wb") as sink:
            os.dup2(sink.fileno(), sys.stdout.fileno())
        main(str(directory / str(boundary)), seed, boundary, batches)
        os._exit(0)
    finally:
        os._exit(1)


def output_of(directory: Path, boundary: int) -> Path:
    """Where the writer that ends at the boundary prints."""
    return directory / f"{boundary}.lines"


if __name__ == "__main__":
    if len(sys.argv) > 3:
        end_at_each_boundary(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
    else:
        main(sys.argv[1], int(sys.argv[2]))
