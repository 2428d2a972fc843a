"""What the machine knows about a cluster: nodes, the pods on them, and judgements of installers and validations.

Plain data, read at one time. A gang is given by the pods that go together: all of it, or those on one node where the
rest can do without them. Never decides.
"""

from __future__ import annotations

import datetime
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Final, NamedTuple

from dovetail.upgrade.adapters import adapter

Versions = Mapping[str, str]  # by part
_NO_VERSIONS: Final[Versions] = MappingProxyType({})


class Pool(NamedTuple):
    """Devices of a node, as a driver publishes them."""

    driver: str
    name: str


class Xid(NamedTuple):
    """A critical error that a GPU reported."""

    code: int
    at: datetime.datetime | None


class NodeView(NamedTuple):
    """One node."""

    name: str
    fence: str = ""  # the upgrade whose taint or cordon stands on it
    marks: frozenset[str] = (
        frozenset()
    )  # upgrades of which a taint, or the note of a cordon, is left
    needs_cordon: bool = False  # behind a taint its own GPU stack would not start again
    rules: frozenset[str] = frozenset()  # upgrades of which a device taint rule stands for it
    covered: frozenset[str] = frozenset()  # upgrades whose rules stand for all of its pools
    pools: tuple[Pool, ...] = ()
    is_unavailable: bool = False  # not ready, or cordoned by others
    is_selected: bool = True  # by the spec's selector, and the upgrade concerns it
    unit: str = ""  # nodes of one unit go together; empty: alone
    versions: Versions = _NO_VERSIONS  # what it has, as far as is known
    xids: tuple[Xid, ...] = ()


class PodView(NamedTuple):
    """A pod that has to leave its node before something is installed there."""

    uid: str
    namespace: str
    name: str
    node: str
    gang: str  # namespace/name
    priority: int = 0
    together: frozenset[str] = frozenset()  # uids that go with it, its own among them
    is_ending: bool = False
    obstacle: str = ""  # why a drain does not evict it
    refusal: str = ""  # why a disruption budget does not let it go with the rest of its gang
    checkpoint: datetime.datetime | None = None  # the last; None: it reports none
    signal: str = ""  # the time at which it was asked for a checkpoint

    @property
    def is_lone(self) -> bool:
        """Whether no other pod goes with it."""
        return len(self.together) <= 1


class Facts(NamedTuple):
    """The cluster."""

    nodes: Mapping[str, NodeView]
    pods: Mapping[str, PodView] = {}  # by uid
    active: str = ""  # another upgrade that is under way, or goes first
    has_rules: bool = True  # whether the server has device taint rules


class Passed(NamedTuple):
    """It is done, or valid."""


class Ongoing(NamedTuple):
    """Not yet."""

    reason: str
    writes: tuple[adapter.Write, ...] = ()


class Rejected(NamedTuple):
    """It failed."""

    reason: str


class Manual(NamedTuple):
    """A person has to do something."""

    steps: tuple[str, ...]
    reason: str


Judgement = Passed | Ongoing | Rejected | Manual


class Readiness(NamedTuple):
    """What an installer says about a node before it begins."""

    adapter: str  # empty: none brings the node there
    is_current: bool = False  # it has the versions already
    blocker: str = ""
    forward_only: str = ""  # why there is no way back; empty: there is one
    previous: Versions = _NO_VERSIONS  # what it has, spelled as the installer takes it


class Judges(NamedTuple):
    """Whom the machine asks about one node. The same facts give the same answers."""

    readiness: Callable[[str, Versions], Readiness]
    installing: Callable[[str, Versions, int], Judgement]  # the seconds it has been at it
    validity: Callable[[str, Versions], Judgement]
