"""Facts that `dovetail doctor` gathers about a cluster, and the findings it reports. Data only.

A fact that could not be read is None, and `unread` gives the reason: an unread part is never called healthy.
"""

from __future__ import annotations

import datetime
from collections.abc import Mapping
from enum import StrEnum
from typing import NamedTuple, TypeVar

import msgspec

from dovetail.kubetypes.core import leases, nodes, pods, resource_quotas
from dovetail.kubetypes.custom import queues
from dovetail.kubetypes.resource import claims as claiming
from dovetail.kubetypes.resource import device_classes, slices

T = TypeVar("T")
Version = tuple[int, int]


class Severity(StrEnum):
    """How bad it is: an error breaks scheduling now, a warning may, a note is worth knowing."""

    ERROR = "error"
    WARNING = "warning"
    NOTE = "note"


class Finding(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """What is wrong or worth knowing, where, and the next command to run."""

    severity: Severity
    check: str
    what: str
    where: str = ""
    next: str = ""


class Right(NamedTuple):
    """A verb on a resource. The namespace is set if the right is needed in that namespace only."""

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
    """Whose rights were reviewed, which ones the scheduler needs, and which are missing."""

    subject: str
    needed: tuple[Right, ...]
    missing: tuple[Right, ...]


class Matches(NamedTuple):
    """How many of the published devices a class selects."""

    devices: int
    matching: int
    problem: str = ""  # why a selector cannot be used at all


class Ours(NamedTuple):
    """Our scheduler's names, lease and ownership, from its configuration or the defaults."""

    names: tuple[str, ...] = ("dovetail",)
    lease_namespace: str = "kube-system"
    lease_name: str = "dovetail-scheduler"
    node_labels: Mapping[str, str] = {}
    node_taint: str = ""
    device_rules: tuple[str, ...] = ()

    @property
    def is_bounded(self) -> bool:
        """Whether the configuration limits the scheduler to some nodes or devices."""
        return bool(self.node_labels or self.node_taint or self.device_rules)


class Facts(msgspec.Struct, frozen=True, kw_only=True):
    """Everything read from a cluster at one point in time."""

    now: datetime.datetime
    ours: Ours = Ours()
    server_version: str = ""
    server_number: Version | None = None
    is_embedded: bool = False  # the cluster of `dovetail up`: its scheduler serves every pod
    served: dict[str, frozenset[str]] | None = None  # plurals by group and version
    clock_ahead_seconds: float | None = None  # this machine's clock minus the server's
    rights: Rights | None = None
    kubelets: dict[str, str] | None = None  # version by node
    nodes: tuple[nodes.Node, ...] | None = None
    slices: tuple[slices.ResourceSlice, ...] | None = None
    classes: tuple[device_classes.DeviceClass, ...] | None = None
    matches: dict[str, Matches] = {}  # by class
    claims: tuple[claiming.ResourceClaim, ...] | None = None
    templates: tuple[claiming.ResourceClaimTemplate, ...] | None = None
    pods: tuple[pods.Pod, ...] | None = None
    leases: tuple[leases.Lease, ...] | None = None
    quotas: tuple[resource_quotas.ResourceQuota, ...] | None = None
    queues: tuple[queues.Queue, ...] | None = None
    unread: dict[str, str] = {}


def listed(objects: tuple[T, ...] | None) -> tuple[T, ...]:
    """The objects of a kind; none if they could not be read."""
    return objects or ()


def age_seconds(timestamp: str | None, now: datetime.datetime) -> float | None:
    """The age of a Kubernetes timestamp; None if it is missing or unreadable."""
    try:
        then = datetime.datetime.fromisoformat(timestamp or "")
    except ValueError:
        return None
    if then.tzinfo is None:
        then = then.replace(tzinfo=datetime.UTC)
    return (now - then).total_seconds()


def some(names: list[str], most: int = 3) -> str:
    """A few names and how many more there are."""
    shown = ", ".join(names[:most])
    return shown if len(names) <= most else f"{shown} and {len(names) - most} more"


def counted(number: int, noun: str) -> str:
    """`1 node`, `3 nodes`."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
