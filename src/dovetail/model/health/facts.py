"""What a doctor has seen of a cluster, and what it says about it. Data only.

A part that could not be read is None, and `unread` says why: what was not seen is never called healthy.
"""

from __future__ import annotations

import datetime
from collections.abc import Mapping
from enum import StrEnum
from typing import NamedTuple

import msgspec

from dovetail.model import claims as claiming
from dovetail.model import classes, leases, nodes, pods, queues, quotas, slices

Version = tuple[int, int]


class Severity(StrEnum):
    """How bad it is: an error breaks scheduling now, a warning may, a note is worth knowing."""

    ERROR = "error"
    WARNING = "warning"
    NOTE = "note"


class Finding(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """One thing to know: what, where, and the command that comes next."""

    severity: Severity
    check: str
    what: str
    where: str = ""
    next: str = ""


class Right(NamedTuple):
    """Something one may or may not do. A namespace is named where the right is needed in one only."""

    verb: str
    group: str
    resource: str  # or resource/subresource
    namespace: str = ""
    name: str = ""

    def __str__(self) -> str:
        place = f" in {self.namespace}" if self.namespace else ""
        group = f".{self.group}" if self.group else ""
        return f"{self.verb} {self.resource}{group}{place}"


class Rights(NamedTuple):
    """Whose rights were asked for, which are needed, and which are not there."""

    subject: str
    needed: tuple[Right, ...]
    missing: tuple[Right, ...]


class Matches(NamedTuple):
    """What a class's selectors do with the devices there are."""

    devices: int
    matching: int
    problem: str = ""  # why a selector cannot be used at all


class Ours(NamedTuple):
    """What is known about our own scheduler, from its configuration or the defaults."""

    names: tuple[str, ...] = ("dovetail",)
    lease_namespace: str = "kube-system"
    lease_name: str = "dovetail-scheduler"
    node_labels: Mapping[str, str] = {}
    node_taint: str = ""
    device_rules: tuple[str, ...] = ()

    @property
    def is_bounded(self) -> bool:
        """Whether some nodes or devices are ours and others not."""
        return bool(self.node_labels or self.node_taint or self.device_rules)


class Facts(msgspec.Struct, frozen=True, kw_only=True):
    """Everything seen at one moment."""

    now: datetime.datetime
    ours: Ours = Ours()
    server_version: str = ""
    server_number: Version | None = None
    served: dict[str, frozenset[str]] | None = None  # plurals by group and version
    clock_ahead_seconds: float | None = None  # ours before the server's
    rights: Rights | None = None
    kubelets: dict[str, str] | None = None  # version by node
    nodes: tuple[nodes.Node, ...] | None = None
    slices: tuple[slices.ResourceSlice, ...] | None = None
    classes: tuple[classes.DeviceClass, ...] | None = None
    matches: dict[str, Matches] = {}  # by class
    claims: tuple[claiming.ResourceClaim, ...] | None = None
    templates: tuple[claiming.ResourceClaimTemplate, ...] | None = None
    pods: tuple[pods.Pod, ...] | None = None
    leases: tuple[leases.Lease, ...] | None = None
    quotas: tuple[quotas.ResourceQuota, ...] | None = None
    queues: tuple[queues.Queue, ...] | None = None
    unread: dict[str, str] = {}


def age_seconds(moment: str | None, now: datetime.datetime) -> float | None:
    """How long ago a time as Kubernetes writes it was; None if nobody can tell."""
    try:
        then = datetime.datetime.fromisoformat(moment or "")
    except ValueError:
        return None
    return (now - (then if then.tzinfo else then.replace(tzinfo=datetime.UTC))).total_seconds()


def some(names: list[str], most: int = 3) -> str:
    """A few names and how many more there are."""
    shown = ", ".join(names[:most])
    return shown if len(names) <= most else f"{shown} and {len(names) - most} more"


def counted(number: int, thing: str) -> str:
    """`1 node`, `3 nodes`."""
    return f"{number} {thing}" if number == 1 else f"{number} {thing}s"
