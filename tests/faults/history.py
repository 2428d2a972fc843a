"""Records every revision of a run from the store itself, not from the server whose watches the scheduler reads.

etcd's own line of history is followed from its first revision over etcd's JSON gateway. The API server is started so
that it stores JSON and never compacts, hence nothing can be missed: what a broken connection left out is still there
to be read. `signatures` says who wrote, from the API server's audit log. Uses nothing of the package under test.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import time
from collections.abc import AsyncIterator, Iterable
from typing import Any, Final

import aiohttp

from tests.faults.records import History, Revision, Tree

PREFIX: Final = "/registry/"
END_MARK: Final = "/registry/zz-end-of-the-run"
KINDS: Final = {  # etcd's folder -> plural
    "resourceclaims": "resourceclaims",
    "resourceslices": "resourceslices",
    "devicetaintrules": "devicetaintrules",
    "pods": "pods",
    "persistentvolumeclaims": "persistentvolumeclaims",
    "persistentvolumes": "persistentvolumes",
    "minions": "nodes",
    "leases": "leases",
    "events": "events",
}
NODE_LEASES: Final = "kube-node-lease"
APISERVER_FLAGS: Final = ("--storage-media-type=application/json", "--etcd-compaction-interval=0")
RETRY_SECONDS: Final = 0.1


class Recorder:
    """Follows the store while a run goes on. `objects` is the cluster as last seen."""

    def __init__(self, etcd_port: int) -> None:
        self._url = f"http://127.0.0.1:{etcd_port}"
        self._next = 1
        self._revisions: list[Revision] = []
        self._gaps: list[str] = []
        self._ended = asyncio.Event()
        self._changed = asyncio.Condition()
        self._task: asyncio.Task[None] | None = None
        self.objects: dict[str, dict[str, Tree]] = {kind: {} for kind in KINDS.values()}

    async def __aenter__(self) -> Recorder:
        self._session = aiohttp.ClientSession(
            timeout=aiohttp.ClientTimeout(total=None), read_bufsize=1 << 20
        )
        self._task = asyncio.create_task(self._follow())
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._task is not None
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)
        await self._session.close()

    async def finish(self) -> History:
        """Everything up to now: writes a mark and reads until it comes back."""
        mark = {"key": _coded(END_MARK), "value": _coded("end")}
        async with self._session.post(f"{self._url}/v3/kv/put", json=mark) as answer:
            answer.raise_for_status()
        await self._ended.wait()
        return History(tuple(self._revisions), time.time(), tuple(self._gaps))

    async def change(self, seconds: float) -> None:
        """Returns when something has changed, or after so long."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds), self._changed:
                await self._changed.wait()

    async def _follow(self) -> None:
        while True:
            try:
                await self._watch()
            except (aiohttp.ClientError, OSError, json.JSONDecodeError):
                await asyncio.sleep(RETRY_SECONDS)  # etcd is being restarted

    async def _watch(self) -> None:
        request = {
            "create_request": {
                "key": _coded(PREFIX),
                "range_end": _coded(PREFIX[:-1] + "0"),
                "start_revision": str(self._next),
            }
        }
        async with self._session.post(f"{self._url}/v3/watch", json=request) as answer:
            answer.raise_for_status()
            async for line in _lines(answer.content.iter_any()):
                await self._read(json.loads(line))

    async def _read(self, message: Tree) -> None:
        result = message.get("result") or {}
        if int(result.get("compact_revision", 0)):
            self._gaps.append(
                f"revisions {self._next} to {result['compact_revision']} were compacted away"
            )
            self._next = int(result["compact_revision"])
        if message.get("error") or result.get("canceled"):
            raise aiohttp.ClientError(str(message)[:200])
        events = result.get("events") or ()
        for event in events:
            self._note(event)
        if events:
            async with self._changed:
                self._changed.notify_all()

    def _note(self, event: Tree) -> None:
        """One write. What comes twice, because a connection broke inside a batch, is noted once."""
        pair = event["kv"]
        number, path = int(pair["mod_revision"]), base64.b64decode(pair["key"]).decode()
        if number < self._next:
            return
        self._next = number + 1
        if path == END_MARK:
            self._ended.set()
            return
        folder, _, key = path.removeprefix(PREFIX).partition("/")
        kind = KINDS.get(folder)
        if kind is None or (kind == "leases" and key.startswith(NODE_LEASES)):
            return
        known = self.objects[kind]
        is_deleted = event.get("type") == "DELETE"
        tree = known.pop(key, {}) if is_deleted else json.loads(base64.b64decode(pair["value"]))
        if not is_deleted:
            tree["metadata"].pop(
                "managedFields", None
            )  # the largest part of an object, and no fact about it
            known[key] = tree
        self._revisions.append(Revision(number, time.time(), kind, key, tree, is_deleted))


async def _lines(chunks: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    parts: list[bytes] = []
    async for chunk in chunks:
        first, *rest = chunk.split(b"\n")
        parts.append(first)
        for following in rest:
            if line := b"".join(parts).strip():
                yield line
            parts = [following]


def _coded(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


def find(recorder: Recorder, kind: str, namespace: str) -> Iterable[Tree]:
    """The objects of a namespace as last seen."""
    return [tree for key, tree in recorder.objects[kind].items() if key.startswith(f"{namespace}/")]


def condition_of(pod: Tree, name: str) -> dict[str, Any]:
    """One condition of a pod, empty if it has none of that name."""
    listed = (pod.get("status") or {}).get("conditions") or ()
    return next((dict(item) for item in listed if item["type"] == name), {})
