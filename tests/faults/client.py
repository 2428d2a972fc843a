"""A client of a few lines that the campaign plays administrator, user and kubelet with, straight to the server.

Repeats what failed for a passing reason until it is done: what the campaign wants to happen, happens.
"""

from __future__ import annotations

import json
import ssl
from pathlib import Path
from typing import Any, Final

import aiohttp

from tests.support.waiting import comes_true_within

Tree = dict[str, Any]
GIVE_UP_SECONDS: Final = 60.0
PAUSE_SECONDS: Final = 0.5
MERGE: Final = "application/merge-patch+json"


class Refused(Exception):
    """The server will say the same again."""


class Client:
    """One user's connections."""

    def __init__(self, url: str, *, ca: Path, token: str) -> None:
        self._url = url
        self._headers = {"Authorization": f"Bearer {token}"}
        self._trust = ssl.create_default_context(cafile=str(ca))

    async def __aenter__(self) -> Client:
        connector = aiohttp.TCPConnector(ssl=self._trust, limit=16)
        timeout = aiohttp.ClientTimeout(total=15)
        self._session = aiohttp.ClientSession(
            connector=connector, timeout=timeout, headers=self._headers
        )
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._session.close()

    async def create(self, path: str, tree: Tree) -> None:
        """Makes an object; one that is there already was made by an earlier try."""
        await self._done("POST", path, tree, accepted=(409,))

    async def patch(self, path: str, tree: Tree) -> bool:
        """Merges into an object; False if it is not there, or another one by now."""
        return await self._done("PATCH", path, tree, accepted=(404, 409))

    async def delete(self, path: str, *, grace: int | None = None, uid: str = "") -> bool:
        """Deletes, only that very object where a uid is given; False if it is not there."""
        options: Tree = {"apiVersion": "v1", "kind": "DeleteOptions"}
        if grace is not None:
            options["gracePeriodSeconds"] = grace
        if uid:
            options["preconditions"] = {"uid": uid}
        return await self._done("DELETE", path, options, accepted=(404, 409))

    async def get(self, path: str) -> Tree:
        """What is there."""
        async with self._session.get(self._url + path) as answer:
            answer.raise_for_status()
            tree: Tree = await answer.json()
            return tree

    async def _done(self, method: str, path: str, tree: Tree, *, accepted: tuple[int, ...]) -> bool:
        kind = MERGE if method == "PATCH" else "application/json"
        failures: list[str] = []
        statuses: list[int] = []

        async def is_answered() -> bool:
            try:
                async with self._session.request(
                    method, self._url + path, data=json.dumps(tree), headers={"Content-Type": kind}
                ) as answer:
                    if answer.status < 300 or answer.status in accepted:
                        statuses.append(answer.status)
                        return True
                    failures.append(await answer.text())
                    if 400 <= answer.status < 500 and answer.status != 429:
                        raise Refused(f"{method} {path}: {failures[-1]}")
            except (aiohttp.ClientError, OSError, TimeoutError) as error:
                failures.append(str(error) or type(error).__name__)
            return False

        if not await comes_true_within(is_answered, seconds=GIVE_UP_SECONDS, pause=PAUSE_SECONDS):
            raise Refused(
                f"{method} {path}: still fails after {len(failures)} tries: {failures[-1]}"
            )
        return statuses[-1] < 300
