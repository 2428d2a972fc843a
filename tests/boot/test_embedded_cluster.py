"""How an embedded cluster begins, and begins again after its process was killed on the way."""

from __future__ import annotations

import asyncio
import contextlib
from pathlib import Path

from dovetail.boot import embedded_cluster, embedded_setup
from dovetail.files import private_files, state_directory
from dovetail.kubetypes import registry
from dovetail.sim.fleet import fleet_spec
from dovetail.sim.server import api_server, journal
from tests.support import waiting

FLEET = fleet_spec.Fleet(
    name="pair",
    pools=(fleet_spec.Pool(name="n", count=2, gpu="H100-SXM5-80GB", gpus_per_node=1),),
)


def nodes_after_start(directory: Path) -> list[str]:
    """Serves the directory and returns the names of its nodes."""

    async def story() -> list[str]:
        async with embedded_cluster.serving(directory) as server:
            return [node.metadata.name for node in server.api.all(registry.NODE)]

    return asyncio.run(story())


def started_directory(directory: Path) -> Path:
    private_files.make_directory(directory)
    embedded_setup.write(directory, embedded_setup.Setup(name="pair", fleet=FLEET))
    return directory


def test_a_cluster_that_was_killed_while_it_began_begins_again_whole(tmp_path: Path) -> None:
    directory = started_directory(tmp_path / "state")
    kept = journal.Journal(directory)
    with contextlib.closing(kept):
        kept.open()
        api = api_server.SimApi(on_change=kept.note)
        api.put({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n-0"}})
        kept.commit()  # and no more: the process was killed here
    assert nodes_after_start(directory) == ["n-0", "n-1"]


def test_what_was_removed_from_a_complete_cluster_does_not_come_back(tmp_path: Path) -> None:
    directory = started_directory(tmp_path / "state")

    async def story() -> None:
        async with embedded_cluster.serving(directory) as server:
            for node in server.api.all(registry.NODE):
                server.api.shelf.delete(registry.NODE, ("", node.metadata.name))

    asyncio.run(story())
    assert nodes_after_start(directory) == []


def test_a_removal_that_is_cut_short_leaves_no_old_objects_under_a_new_setup(
    tmp_path: Path,
) -> None:
    directory = started_directory(tmp_path / "state")
    nodes_after_start(directory)
    for name in state_directory.FILES:
        (directory / name).unlink(missing_ok=True)
        if not state_directory.has_state(directory):
            assert not (directory / state_directory.JOURNAL).exists()


def test_clients_that_are_cancelled_leave_no_task_behind(tmp_path: Path) -> None:
    directory = started_directory(tmp_path / "state")

    async def story() -> set[str]:
        async with embedded_cluster.serving(directory) as server:
            before = asyncio.all_tasks()
            clients = asyncio.create_task(embedded_cluster.run_clients(server.connection))
            await waiting.until(
                lambda: len(asyncio.all_tasks() - before) > 5, "the clients' own tasks"
            )
            clients.cancel()
            await asyncio.gather(clients, return_exceptions=True)
            left = [task for task in asyncio.all_tasks() - before if not task.done()]
            names = [getattr(task.get_coro(), "__qualname__", "") for task in left]
            # The server answers requests that were under way; everything else is the clients'.
            return {name for name in names if not name.startswith("RequestHandler")}

    assert asyncio.run(story()) == set()
