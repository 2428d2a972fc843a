"""The embedded cluster as one process: `python -m dovetail.boot.embedded_cluster DIRECTORY`.

An API server in memory with its journal, workload controllers, the live scheduler, hollow kubelets and the recorder of
history; the last three are ordinary clients of the first. The server and its controllers have a thread and an event
loop of their own, so that a long decision delays no request, and so has the recorder. Begins with the fleet that
`setup.json` describes, or goes on from the journal. Writes a kubeconfig when requests are answered. Ends on SIGTERM or
SIGINT. Never listens beyond loopback.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import logging
import sys
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec

from dovetail import errors
from dovetail.boot import (
    background_loop,
    clocks,
    embedded_setup,
    hollow_nodes,
    logs,
    scheduler,
)
from dovetail.boot.observing import history_process
from dovetail.files import private_files, state_directory
from dovetail.hollow import publish_nodes
from dovetail.kube.auth import client_config
from dovetail.kubetypes import codec
from dovetail.model import configuration, policy
from dovetail.sim import workload_store
from dovetail.sim.fleet import fleet_objects, sample_workload
from dovetail.sim.rest import local_kubeconfig, loopback_certificate, rest_server
from dovetail.sim.server import api_server, journal, watchers
from dovetail.sim.server.object_store import Change
from dovetail.snapshot import saved_objects, snapshot_kinds

LOG = logging.getLogger("dovetail.embedded")
SHORTEST_WAKE_SECONDS: Final = 0.01
LONGEST_WAKE_SECONDS: Final = 3600.0

PROGRESS_NODES: Final = 100  # between two reports of a fleet that is being published
QUEUE_STATUS_SECONDS: Final = 0.1  # the one API server has little else to do
# Controllers are in the same process: what they have not made after a second needs a reason.
TRANSIENT_SECONDS: Final = 1.0
# One user waits for the whole answer, and requests are answered meanwhile: reasons are worked out at once.
BUDGET: Final = policy.Budget(pods=policy.LIVE_PODS)

# Of every kind that a snapshot may hold: its own, and those of owners, whatever their version.
_PLURALS: Final = {(kind.group, kind.name): kind.plural for kind in snapshot_kinds.KINDS}

Tree = dict[str, Any]


class Server(NamedTuple):
    """A running API server: how to reach it, and its objects, which only its own event loop may touch."""

    connection: client_config.Connection
    api: api_server.SimApi


class State(NamedTuple):
    """What a directory holds: the objects on a server, their journal, and what they began with."""

    api: api_server.SimApi
    journal: journal.Journal
    setup: embedded_setup.Setup
    is_new: bool  # nothing was stored yet, apart from the objects of a snapshot


def main(arguments: Sequence[str] | None = None) -> int:
    """Returns 0 after a signal, 1 when something failed."""
    parser = argparse.ArgumentParser(prog="dovetail.boot.embedded_cluster")
    parser.add_argument("directory", type=Path)
    parser.add_argument("--log-level", default="info", choices=configuration.LOG_LEVELS)
    options = parser.parse_args(arguments)
    logs.set_up("text", options.log_level)
    try:
        asyncio.run(run(options.directory))
    except errors.DovetailError as error:
        print(f"dovetail embedded cluster: {error}", file=sys.stderr)
        return 1
    return 0


async def run(directory: Path) -> None:
    """Runs the cluster of the directory until a signal ends it."""
    private_files.make_directory(directory)
    async with (
        background_loop.BackgroundLoop("api-server") as loop,
        _entered_on(loop, serving(directory)) as server,
        background_loop.BackgroundLoop("history") as beside,
        _recording(beside, server.connection, directory / state_directory.HISTORY),
    ):
        LOG.info("embedded.serving", extra={"server": server.connection.server})
        await run_clients(server.connection)


@contextlib.asynccontextmanager
async def _recording(
    loop: background_loop.BackgroundLoop, connection: client_config.Connection, file: Path
) -> AsyncIterator[None]:
    """Records what happens to GPUs, on a loop of its own. The cluster goes on without it if that fails."""
    settings = history_process.Settings(str(file))
    recorder = history_process.HistoryProcess(connection, settings)
    task = asyncio.create_task(loop.run(recorder.run()))
    task.add_done_callback(_log_end_of_history)
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def _log_end_of_history(task: asyncio.Task[None]) -> None:
    if not task.cancelled() and (error := task.exception()) is not None:
        LOG.error("embedded.history.ended", extra={"why": str(error)})


@contextlib.asynccontextmanager
async def serving(directory: Path) -> AsyncIterator[Server]:
    """Serves the state of the directory while the block lasts."""
    with opened(directory) as state:
        wake_ups = _WakeUps(workload_store.WorkloadStore(state.api))
        token = local_kubeconfig.new_token()
        certificate = loopback_certificate.kept_in(directory, clocks.SystemClock().now())
        async with rest_server.serve(
            state.api,
            token=token,
            certificate=certificate,
            journal=state.journal,
            settle=wake_ups.settle,
        ) as address:
            if state.is_new:
                progress = _ProgressFile(directory / state_directory.PROGRESS)
                await begin(state.api, state.setup, report=progress.write)
                progress.remove()
                state.journal.mark_complete()
            kubeconfig = directory / state_directory.KUBECONFIG
            local_kubeconfig.write(
                kubeconfig, server=address, token=token, certificate=certificate.certificate
            )
            try:
                yield Server(client_config.load(str(kubeconfig)), state.api)
            finally:
                wake_ups.stop()
                kubeconfig.unlink(missing_ok=True)


@contextlib.contextmanager
def opened(directory: Path) -> Iterator[State]:
    """The objects of the directory in memory, and the journal of their changes, until the block ends.

    Raises StateError, with the files as they were, if they cannot be trusted.
    """
    setup = embedded_setup.read(directory)
    kept = journal.Journal(directory)
    restored = kept.open()
    with contextlib.closing(kept):
        is_new = kept.clear_incomplete()
        if is_new:
            restored = api_server.Restored(restored.revision, [])
        if is_new and setup.snapshot:
            restored = of_snapshot(Path(setup.snapshot))
        api = api_server.SimApi(
            clocks.SystemClock(),
            collects_all_kinds=True,
            is_complete=True,
            restored=restored,
            on_change=kept.note,
        )
        if is_new and setup.snapshot:
            _note_all(api, kept)
        yield State(api, kept, setup, is_new=is_new)


async def begin(
    api: api_server.SimApi,
    setup: embedded_setup.Setup,
    *,
    report: Callable[[publish_nodes.Progress], None] = lambda _: None,
) -> None:
    """Puts the fleet and the sample workload into an empty cluster."""
    if setup.fleet is not None:
        publisher = publish_nodes.Publisher(api, api.clock)
        await publisher.publish(fleet_objects.objects_of(setup.fleet), say=report)
    if setup.has_sample_workload:
        for tree in sample_workload.objects_of_sample():
            api.put(tree)


class _ProgressFile:
    """Says to the command that waits for the cluster how many nodes it has, every hundred nodes."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def write(self, progress: publish_nodes.Progress) -> None:
        """Replaces the text, at some numbers."""
        if progress.nodes % PROGRESS_NODES == 0:
            text = f"{progress.nodes} of {progress.nodes_wanted} nodes"
            private_files.replace(self._path, text.encode())

    def remove(self) -> None:
        """The cluster is complete."""
        self._path.unlink(missing_ok=True)


def of_snapshot(directory: Path) -> api_server.Restored:
    """The objects of a snapshot as a server kept them, with their uids and versions."""
    saved = saved_objects.read(directory)
    stored = [_as_stored(each) for each in saved.objects.all() if _is_loaded(each)]
    return api_server.Restored(saved.objects.revision, stored, origin=str(directory))


def _is_loaded(saved: codec.Stored) -> bool:
    """Whether the cluster in memory starts with the object."""
    struct = saved.struct
    kinds = [(kind.group, kind.name) for kind in snapshot_kinds.NOT_LOADED]
    return (struct.api_version.rpartition("/")[0], struct.kind) not in kinds


def _as_stored(saved: codec.Stored) -> api_server.StoredObject:
    metadata = saved.struct.metadata
    group = saved.struct.api_version.rpartition("/")[0]
    plural = _PLURALS[group, saved.struct.kind]
    key = (metadata.namespace, metadata.name)
    return api_server.StoredObject((group, plural), key, saved.document)


def _note_all(api: api_server.SimApi, kept: journal.Journal) -> None:
    """Makes objects durable that were put back from elsewhere: no change reported them to the journal."""
    for _, table in api.shelf.tables():
        for record in table.all():
            change = Change(api.shelf.revision, watchers.ADDED, table.kind, record, None)
            kept.note(change)
    kept.commit()


class _WakeUps:
    """Runs the controllers after changes, and again when time alone gives them something to do."""

    def __init__(self, store: workload_store.WorkloadStore) -> None:
        self._store = store
        self._timer: asyncio.TimerHandle | None = None

    def settle(self) -> None:
        """Runs the controllers now."""
        is_idle = self._store.settle()
        self.stop()
        if not is_idle:
            self._timer = asyncio.get_running_loop().call_later(0, self.settle)
            return
        due = self._store.next_wake_up
        if due is None:
            return
        seconds = (due - clocks.SystemClock().now()).total_seconds()
        wait = min(LONGEST_WAKE_SECONDS, max(SHORTEST_WAKE_SECONDS, seconds))
        self._timer = asyncio.get_running_loop().call_later(wait, self.settle)

    def stop(self) -> None:
        """Forgets the next wake-up."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


async def run_clients(connection: client_config.Connection) -> None:
    """Runs the scheduler and the kubelets until the first ends, which a signal makes it do."""
    process = scheduler.Process(connection, scheduler_configuration())
    # There is no other scheduler here: every pod is ours, whichever scheduler it names.
    everyone = msgspec.structs.replace(process.settings.policy, scheduler_names=())
    process.settings = process.settings._replace(
        policy=everyone, budget=BUDGET, transient_seconds=TRANSIENT_SECONDS
    )
    process.queue_status_seconds = QUEUE_STATUS_SECONDS
    kubelets = hollow_nodes.run(
        connection, hollow_nodes.Settings(plays_all=True), print_line=_log_violation
    )
    tasks = [asyncio.create_task(process.run()), asyncio.create_task(kubelets)]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:  # also when this task is cancelled: waiting for tasks does not pass that on to them
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    for task in done:
        task.result()


def scheduler_configuration() -> configuration.SchedulerConfiguration:
    """The scheduler's settings: alone, and with its metrics on any free port."""
    return configuration.SchedulerConfiguration(
        leader_election=configuration.LeaderElection(enabled=False),
        serving=configuration.Serving(port=0),
        # Nothing runs on hollow nodes, so a pod that was removed by force leaves nothing behind.
        quarantine=configuration.Quarantine(enabled=False),
        kai_shares=configuration.KaiShares(enabled=True),
    )


def _log_violation(message: Tree) -> None:
    if "violation" in message:
        LOG.warning("embedded.violation", extra=message["violation"])


@contextlib.asynccontextmanager
async def _entered_on(
    loop: background_loop.BackgroundLoop,
    context: contextlib.AbstractAsyncContextManager[Server],
) -> AsyncIterator[Server]:
    """Enters and leaves a context on another loop."""
    server = await loop.run(context.__aenter__())
    try:
        yield server
    finally:
        await loop.run(context.__aexit__(None, None, None))


if __name__ == "__main__":
    sys.exit(main())
