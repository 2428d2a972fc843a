"""What the machine asks the loop to write. Every instruction may be repeated: what is done already stays as it is.

Plain data. Never sends anything.
"""

from __future__ import annotations

from typing import NamedTuple

from dovetail.upgrade.adapters import adapter
from dovetail.upgrade.machine.cluster_facts import Pool


class Protect(NamedTuple):
    """Keeps the upgrade's object from disappearing while nodes are fenced for it."""


class Release(NamedTuple):
    """Lets the upgrade's object go."""


class Fence(NamedTuple):
    """Taints a node, or cordons it, and taints the devices of these pools."""

    node: str
    pools: tuple[Pool, ...]
    is_cordon: bool = False


class Unfence(NamedTuple):
    """Takes our own taint or cordon and rules off a node; those of others stay."""

    node: str


class Signal(NamedTuple):
    """Asks a pod for a checkpoint."""

    uid: str
    at: str  # RFC 3339


class Evict(NamedTuple):
    """Evicts a pod by the eviction API."""

    uid: str
    grace_seconds: int | None


class Install(NamedTuple):
    """A write of the installer."""

    node: str
    write: adapter.Write


Instruction = Protect | Release | Fence | Unfence | Signal | Evict | Install
