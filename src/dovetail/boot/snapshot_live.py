"""Takes a snapshot of a live cluster: lists every kind as of one moment and hands the documents over as they are.

Given a connection. Reads nodes, slices, classes, taint rules, volumes, claims, templates, pods and namespaces; secrets
never. Where the server no longer knows the moment of the first list, a kind is read as it is now.
"""

from __future__ import annotations

import datetime
import re
from pathlib import Path
from typing import Final

from dovetail.boot import snapshot
from dovetail.kube import api, config, decode, discovery, failures_of, paths
from dovetail.kube import transport as transports
from dovetail.model import kinds, snapshots
from dovetail.ports import failures

OLDER_VERSIONS: Final = {kinds.TAINT_RULE.name: ("resource.k8s.io/v1beta2",)}  # the same fields, before 1.37
PAGE_ITEMS: Final = 500  # as client-go; bounds what is in memory at once

FORBIDDEN: Final = 403
# Without the others a snapshot still answers every question about devices.
NEEDED: Final = (kinds.NODE, kinds.SLICE, kinds.DEVICE_CLASS, kinds.TAINT_RULE, kinds.CLAIM, kinds.POD)
_CONTEXT: Final = re.compile(r'context "(?P<name>.*)"$')


async def save(
    directory: Path,
    connection: config.Connection,
    *,
    say: snapshot.Say,
    is_forced: bool = False,
    redacts: bool = False,
    page_items: int = PAGE_ITEMS,
) -> snapshots.Manifest:
    """A snapshot of everything the cluster has of the kinds a snapshot keeps."""
    with snapshot.Draft(directory, is_forced=is_forced, redacts=redacts, say=say) as draft:
        taken_at = datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        async with transports.Transport(connection) as over:
            server = await discovery.version(over)
            versions = await _listed(_Source(over, draft, page_items), say)
        facts = snapshots.Facts(
            taken_at=taken_at,
            cluster=_name_of(connection),
            server_version=server.git_version,
            resource_versions=versions,
        )
        return draft.finish(facts)


async def _listed(source: _Source, say: snapshot.Say) -> dict[str, str]:
    """Hands over every kind; the version each was read at, by kind."""
    versions: dict[str, str] = {}
    for kind in snapshots.KINDS:
        served = await discovery.newest(source.over, kind, OLDER_VERSIONS.get(kind.name, ()))
        if served is None:
            say(f"{kind.plural}: this server does not know them")
            continue
        moment = next(iter(versions.values()), "")
        try:
            versions[kind.name] = await source.handed_over(kind, served=served, moment=moment)
        except failures.Refused as refused:
            if refused.status != FORBIDDEN or kind in NEEDED:
                raise
            say(f"{kind.plural}: left out, they may not be read: {refused}")
    return versions


class _Source:
    """A server, read page by page into a draft."""

    def __init__(self, over: transports.Transport, draft: snapshot.Draft, page_items: int) -> None:
        self.over = over
        self._draft = draft
        self._page_items = page_items

    async def handed_over(self, kind: kinds.Kind, *, served: kinds.Kind, moment: str) -> str:
        """All objects of a kind, as of the moment if the server can, else as they are now."""
        try:
            return await self._pages(kind, served, params=_as_of(moment) | {"limit": str(self._page_items)})
        except (failures.Expired, failures.Refused) as failure:
            if isinstance(failure, failures.Refused) and not moment:
                raise
        self._draft.begin_again(kind)
        return await self._pages(kind, served, params={})  # in one piece: pages can expire again

    async def _pages(self, kind: kinds.Kind, served: kinds.Kind, *, params: dict[str, str]) -> str:
        doing = f"list {kind.plural}"
        asked = params
        while True:
            answer = await self.over.request("GET", paths.collection(served), params=asked, timeout=api.LIST_SECONDS)
            if not answer.is_success:
                raise failures_of.failure_of(answer.status, answer.body, headers=answer.headers, doing=doing)
            page = decode.page(answer.body, doing=doing)
            for item in page.items or ():
                self._draft.put(kind, bytes(item))
            if not page.metadata.continue_:
                return page.metadata.resource_version
            # The token knows the moment; a server refuses both together.
            asked = {"limit": str(self._page_items), "continue": page.metadata.continue_}


def _as_of(moment: str) -> dict[str, str]:
    return {"resourceVersion": moment, "resourceVersionMatch": "Exact"} if moment else {}


def _name_of(connection: config.Connection) -> str:
    """What people call the cluster: the context; its file belongs to one machine and is left out."""
    found = _CONTEXT.search(connection.origin)
    return found["name"] if found else connection.origin
