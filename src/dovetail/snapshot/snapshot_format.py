"""The format of a snapshot: its version, its kinds, its manifest. Never reads or writes a file."""

from __future__ import annotations

from typing import Final

import msgspec

from dovetail.kubetypes import meta, registry
from dovetail.snapshot import snapshot_kinds

FORMAT: Final = "dovetail-snapshot"
# 1 had no objects that own pods: gangs that only these describe were lost. 2 had no events, quotas, limit ranges,
# priority classes, disruption budgets, intents and workloads of Kueue.
VERSION: Final = 3
READ_VERSIONS: Final = (1, 2, VERSION)
MANIFEST: Final = "manifest.json"
KINDS: Final = snapshot_kinds.KINDS


class File(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """One file of a snapshot: all objects of a kind."""

    name: str
    kind: str
    count: int
    size_bytes: int
    sha256: str
    resource_version: str = ""


class NotSaved(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A kind that could not be listed: its file is empty, whatever the cluster had."""

    kind: str
    why: str


class Manifest(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What a snapshot holds and where it comes from. Written last: without it there is no snapshot."""

    format: str = FORMAT
    version: int = VERSION
    taken_at: meta.Time
    cluster: str = ""
    server_version: str = ""
    redacted: bool = False
    dovetail_version: str
    left_out: int = 0  # objects that could not be read
    files: tuple[File, ...]
    not_saved: tuple[NotSaved, ...] = ()


class Facts(msgspec.Struct, frozen=True, kw_only=True):
    """Facts that only the caller knows. Versions are those of the lists, by kind."""

    taken_at: meta.Time
    cluster: str = ""
    server_version: str = ""
    resource_versions: dict[str, str] = {}
    not_saved: tuple[NotSaved, ...] = ()


def file_of(kind: registry.Kind) -> str:
    """The name of the file that holds a kind."""
    group = kind.api_version.rpartition("/")[0]
    return f"{kind.plural}.{group}.json" if kind.shares_name else f"{kind.plural}.json"
