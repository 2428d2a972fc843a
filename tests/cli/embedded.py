"""An embedded cluster in a thread of the test process, with the sample fleet; reset before every test that uses it.

The same server, scheduler and kubelets as in the process of `dovetail up`, so commands work on it as on that one, but
it starts once for all tests and can be put back to its beginning in milliseconds.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar

from dovetail.boot import embedded_cluster, embedded_setup
from dovetail.files import private_files
from dovetail.kubetypes import codec, registry
from dovetail.ports import api as apis
from dovetail.sim.fleet import fleet_spec
from dovetail.sim.server import api_server

LAST_TURNS = 100
T = TypeVar("T")
Tree = dict[str, Any]


class Embedded:
    """A running cluster."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._loop = asyncio.new_event_loop()
        self._ready = threading.Event()
        self._stop: asyncio.Event | None = None
        self._api: api_server.SimApi | None = None
        self._baseline: dict[tuple[Any, Any], bytes] = {}
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="embedded", daemon=True)

    def start(self) -> None:
        """Returns when commands can use it."""
        self._thread.start()
        self._ready.wait()
        if self._failure is not None:
            raise self._failure
        self._baseline = self.call(self._documents)

    @property
    def is_running(self) -> bool:
        """Whether its thread lives."""
        return self._thread.is_alive()

    @property
    def failure(self) -> BaseException | None:
        """What ended it."""
        return self._failure

    def stop(self) -> None:
        """Ends it."""
        if self._stop is not None:
            self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join()

    def call(self, work: Callable[[api_server.SimApi], T]) -> T:
        """Does something with the server's objects, in its own thread."""

        async def there() -> T:
            assert self._api is not None
            return work(self._api)

        return asyncio.run_coroutine_threadsafe(there(), self._loop).result(60)

    def put(self, tree: Tree, *, namespace: str = "default") -> None:
        """Creates an object with its status, as its controller would."""
        self.call(lambda api: api.put(tree, namespace=namespace))

    def set_status(self, kind: registry.Kind, name: str, status: Tree, *, namespace: str) -> None:
        """Replaces the status of an object."""

        def write(api: api_server.SimApi) -> None:
            target = apis.Target(kind, namespace, name)
            tree = api.found(target).tree | {"status": status}
            api.write(target._replace(subresource="status"), tree)

        self.call(write)

    def reset(self) -> None:
        """Puts every object back to what it was at the beginning, and removes all others."""
        self.call(self._put_back)

    def _put_back(self, api: api_server.SimApi) -> None:
        self._remove_new(api)
        trees = [
            (kind, key, codec.parsed(document)) for (kind, key), document in self._baseline.items()
        ]
        # What owns others comes first, because it gets a new uid where it has to be created again.
        trees.sort(key=lambda entry: bool(entry[2]["metadata"].get("ownerReferences")))
        uids: dict[str, str] = {}
        for kind, key, before in trees:
            record = api.shelf.find(kind, key)
            if record is None:
                created = api.put(_as_new(before, uids), namespace=key[0])
                uids[before["metadata"]["uid"]] = created.metadata.uid
            elif _wanted(record.tree) != _wanted(before):
                api.shelf.put(kind, _restored(record.tree, before))

    def _remove_new(self, api: api_server.SimApi) -> None:
        while True:
            revision = api.shelf.revision
            for _, table in list(api.shelf.tables()):
                for record in table.all():
                    before = self._baseline.get((table.kind, record.key))
                    if before is None:
                        tree = record.tree
                        tree["metadata"].pop("finalizers", None)
                        if tree["kind"] == "Namespace":
                            tree.pop("spec", None)
                        api.shelf.put(table.kind, tree)
                        api.shelf.delete(table.kind, record.key, grace_seconds=0)
            api.settle()
            if api.shelf.revision == revision:
                return

    def _documents(self, api: api_server.SimApi) -> dict[tuple[Any, Any], bytes]:
        return {
            (table.kind, record.key): record.document
            for _, table in api.shelf.tables()
            for record in table.all()
        }

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            self._loop.run_until_complete(self._serve())
        except BaseException as error:
            self._failure = error
        finally:
            self._ready.set()
            self._loop.close()

    async def _serve(self) -> None:
        self._stop = asyncio.Event()
        async with embedded_cluster.serving(self.directory) as server:
            self._api = server.api
            clients = asyncio.create_task(embedded_cluster.run_clients(server.connection))
            self._ready.set()
            stopping = asyncio.create_task(self._stop.wait())
            await asyncio.wait([clients, stopping], return_when=asyncio.FIRST_COMPLETED)
            clients.cancel()
            await asyncio.gather(clients, return_exceptions=True)
        for _ in range(LAST_TURNS):  # closed connections are let go of in turns of the loop
            await asyncio.sleep(0)


def _as_new(tree: Tree, uids: Mapping[str, str]) -> Tree:
    """The object as its creator would send it, with the uids that its owners have now."""
    stamped = ("uid", "resourceVersion", "creationTimestamp", "generation", "managedFields")
    metadata = {name: value for name, value in tree["metadata"].items() if name not in stamped}
    if "ownerReferences" in metadata:
        metadata["ownerReferences"] = [
            owner | {"uid": uids.get(owner["uid"], owner["uid"])}
            for owner in metadata["ownerReferences"]
        ]
    return tree | {"metadata": metadata}


def _wanted(tree: Tree) -> Tree:
    """The part of an object that its owner writes; kubelets and controllers write the rest all the time."""
    metadata = tree["metadata"]
    kept = {name: metadata.get(name) or {} for name in ("labels", "annotations")}
    body = {name: value for name, value in tree.items() if name not in ("metadata", "status")}
    return body | kept


def _restored(tree: Tree, before: Tree) -> Tree:
    metadata = {
        name: value
        for name, value in tree["metadata"].items()
        if name not in ("labels", "annotations")
    }
    earlier = {
        name: value
        for name, value in before["metadata"].items()
        if name in ("labels", "annotations")
    }
    status = {"status": tree["status"]} if "status" in tree else {}
    body = {name: value for name, value in before.items() if name != "status"}
    return body | {"metadata": metadata | earlier} | status


@contextlib.contextmanager
def running(directory: Path, fleet: fleet_spec.Fleet | None = None) -> Iterator[Embedded]:
    """A cluster of the fleet, by default the sample, with nothing on it."""
    shown = fleet or fleet_spec.sample()
    private_files.make_directory(directory)
    embedded_setup.write(directory, embedded_setup.Setup(name=shown.name, fleet=shown))
    cluster = Embedded(directory)
    cluster.start()
    try:
        yield cluster
    finally:
        cluster.stop()
