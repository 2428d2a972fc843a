"""Takes a snapshot of a live cluster: lists every kind at one resource version and passes the documents on unchanged.

Given a connection. Reads nodes, slices, classes, taint rules, volumes, claims, templates, pods, the objects that own
pods, namespaces, and what explains why pods wait: events, quotas, priorities; secrets never. If the server no longer
has the version of the first list, a kind is read at its current version.
"""

from __future__ import annotations

import datetime
import re
from pathlib import Path
from typing import Final

from dovetail import timestamps
from dovetail.kube import client, discovery
from dovetail.kube.auth import client_config
from dovetail.kube.http import paths, status_errors, transport
from dovetail.kube.watching import decode
from dovetail.kubetypes import registry
from dovetail.ports import failures
from dovetail.snapshot import snapshot_files, snapshot_format, snapshot_kinds

PAGE_ITEMS: Final = 500  # as client-go; bounds what is in memory at once

FORBIDDEN: Final = 403
NOT_SERVED: Final = "the server did not serve them"
MAY_NOT_BE_READ: Final = "reading them was forbidden"
# Most clusters have few of those.
OFTEN_ABSENT: Final = (*snapshot_kinds.OWNERS, *snapshot_kinds.NOT_LOADED)
_CONTEXT: Final = re.compile(r'context "(?P<name>.*)"$')


async def save(
    directory: Path,
    connection: client_config.Connection,
    *,
    say: snapshot_files.Say,
    is_forced: bool = False,
    redacts: bool = False,
    page_items: int = PAGE_ITEMS,
    cluster: str = "",
) -> snapshot_format.Manifest:
    """Saves all objects of the kinds that a snapshot has. The cluster is named as given, or after its context."""
    with snapshot_files.Draft(directory, is_forced=is_forced, redacts=redacts, say=say) as draft:
        taken_at = timestamps.to_text(datetime.datetime.now(datetime.UTC))
        async with transport.Transport(connection) as over:
            server = await discovery.version(over)
            versions, not_saved = await _listed(_Source(over, draft, page_items), say)
        facts = snapshot_format.Facts(
            taken_at=taken_at,
            cluster=cluster or _name_of(connection),
            server_version=server.git_version,
            resource_versions=versions,
            not_saved=not_saved,
        )
        return draft.finish(facts)


async def _listed(
    source: _Source, say: snapshot_files.Say
) -> tuple[dict[str, str], tuple[snapshot_format.NotSaved, ...]]:
    """Reads every kind into the draft; returns the version of each list, by kind, and what could not be listed."""
    versions: dict[str, str] = {}
    not_saved: list[snapshot_format.NotSaved] = []
    for kind in snapshot_kinds.KINDS:
        served = await discovery.newest(source.over, kind, kind.older_versions)
        if served is None:
            not_saved.append(snapshot_format.NotSaved(kind=kind.unique_name, why=NOT_SERVED))
            if kind not in OFTEN_ABSENT:
                say(f"{kind.plural}: this server does not serve them")
            continue
        version = next(iter(versions.values()), "")
        try:
            listed_at = await source.handed_over(kind, served=served, version=version)
            versions[kind.unique_name] = listed_at
        except failures.Refused as refused:
            if refused.status != FORBIDDEN or kind in snapshot_kinds.NEEDED:
                raise
            not_saved.append(snapshot_format.NotSaved(kind=kind.unique_name, why=MAY_NOT_BE_READ))
            say(f"{kind.plural}: left out, reading them is forbidden: {refused}")
    return versions, tuple(not_saved)


class _Source:
    """A server, read page by page into a draft."""

    def __init__(
        self, over: transport.Transport, draft: snapshot_files.Draft, page_items: int
    ) -> None:
        self.over = over
        self._draft = draft
        self._page_items = page_items

    async def handed_over(self, kind: registry.Kind, *, served: registry.Kind, version: str) -> str:
        """Reads all objects of a kind at the version if the server still has it, else at its current version."""
        try:
            return await self._pages(
                kind, served, params=_as_of(version) | {"limit": str(self._page_items)}
            )
        except (failures.Expired, failures.Refused) as failure:
            if isinstance(failure, failures.Refused) and not version:
                raise
        self._draft.restart_kind(kind)
        return await self._pages(kind, served, params={})  # in one piece: pages can expire again

    async def _pages(
        self, kind: registry.Kind, served: registry.Kind, *, params: dict[str, str]
    ) -> str:
        doing = f"list {kind.plural}"
        page_params = params
        while True:
            answer = await self.over.request(
                "GET", paths.collection(served), params=page_params, timeout=client.LIST_SECONDS
            )
            if not answer.is_success:
                raise status_errors.failure_of(
                    answer.status, answer.body, headers=answer.headers, doing=doing
                )
            page = decode.page(answer.body, doing=doing)
            for item in page.items or ():
                self._draft.put(kind, bytes(item))
            if not page.metadata.continue_:
                return page.metadata.resource_version
            # The continue token implies the version; a server refuses both together.
            page_params = {"limit": str(self._page_items), "continue": page.metadata.continue_}


def _as_of(version: str) -> dict[str, str]:
    return {"resourceVersion": version, "resourceVersionMatch": "Exact"} if version else {}


def _name_of(connection: client_config.Connection) -> str:
    """The name of the context; the path of its file is local to a machine and left out."""
    context = _CONTEXT.search(connection.origin)
    return context["name"] if context else connection.origin
