"""Decides which pods a drain would end, leave alone or refuse to end, equal to kubectl drain of Kubernetes 1.37.

Given a pod, the options of the drain, the DaemonSets that exist and the time. The filters apply in kubectl's order;
the first that keeps a pod decides, else the last word counts, so that a warning can be lost to a later filter. Claims,
volume claims, host paths and finalizers are not looked at: kubectl does not either. Never ends a pod.
"""

from __future__ import annotations

import datetime
import enum
from collections.abc import Callable, Collection, Mapping
from typing import Final, NamedTuple

import msgspec

from dovetail import timestamps
from dovetail.answer.drain import pod_details
from dovetail.kubetypes import meta
from dovetail.kubetypes.core import pods

MIRROR: Final = "kubernetes.io/config.mirror"  # core/v1: annotation of static pods
OWN_GRACE: Final = -1  # each pod's own grace period

# kubectl's own words: people look for them.
DAEMON_SET_FATAL: Final = "DaemonSet-managed Pods (use --ignore-daemonsets to ignore)"
DAEMON_SET_WARNING: Final = "ignoring DaemonSet-managed Pods"
LOCAL_STORAGE_FATAL: Final = "Pods with local storage (use --delete-emptydir-data to override)"
LOCAL_STORAGE_WARNING: Final = "deleting Pods with local storage"
UNMANAGED_FATAL: Final = "Pods that declare no controller (use --force to override)"
UNMANAGED_WARNING: Final = "deleting Pods that declare no controller"


class Options(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The options of kubectl drain that decide about pods."""

    force: bool = False
    ignore_daemon_sets: bool = False
    delete_empty_dir_data: bool = False
    disable_eviction: bool = False
    grace_period_seconds: int = OWN_GRACE
    skip_deleted_seconds: int = 0  # --skip-wait-for-delete-timeout


class Outcome(enum.Enum):
    """What a filter says."""

    OKAY = "okay"
    SKIP = "skip"
    WARNING = "warning"
    ERROR = "error"


class Filter(enum.Enum):
    """The filters, in the order in which they apply."""

    DELETED = "Ending"
    DAEMON_SET = "DaemonSet"
    MIRROR = "StaticPod"
    LOCAL_STORAGE = "LocalStorage"
    UNMANAGED = "NoController"


BOUND_TO_NODE: Final = frozenset({Filter.DAEMON_SET, Filter.MIRROR})
# Ours, of a driver's upgrade: no kernel module is unloaded under a pod that a drain leaves.
HOLDS_GPUS: Final = "Pods that hold GPUs and that a drain leaves on their node"


class Verdict(NamedTuple):
    """Whether the drain ends the pod, and what it says about it."""

    leaves: bool
    outcome: Outcome
    message: str = ""
    by: Filter | None = None  # the filter that kept the pod


_LEAVES: Final = Verdict(True, Outcome.OKAY)


class DaemonSets(NamedTuple):
    """The DaemonSets of a cluster by namespace and name; None where they were not read: all are taken to exist."""

    names: Collection[tuple[str, str]] | None

    def has(self, namespace: str, name: str) -> bool:
        """Whether such a DaemonSet exists, as far as is known."""
        return self.names is None or (namespace, name) in self.names


class DrainFilters:
    """The filters of one drain."""

    def __init__(self, options: Options, daemon_sets: DaemonSets, now: datetime.datetime) -> None:
        self._options = options
        self._daemon_sets = daemon_sets
        self._now = now

    def verdict(self, pod: pods.Pod, details: pod_details.PodDetails) -> Verdict:
        """What happens to a pod."""
        filters: tuple[tuple[Filter, Verdict], ...] = (
            (Filter.DELETED, self._deleted(pod)),
            (Filter.DAEMON_SET, self._daemon_set(pod)),
            (Filter.MIRROR, _mirror(pod)),
            (Filter.LOCAL_STORAGE, self._local_storage(pod, details)),
            (Filter.UNMANAGED, self._unmanaged(pod)),
        )
        verdict = _LEAVES
        for name, verdict in filters:
            if not verdict.leaves:
                return verdict._replace(by=name)
        return verdict

    def _deleted(self, pod: pods.Pod) -> Verdict:
        """A pod that has been ending for long is not waited for, where the option says so."""
        most = self._options.skip_deleted_seconds
        since = timestamps.parse_or_none(pod.metadata.deletion_timestamp)
        if most > 0 and since is not None and int((self._now - since).total_seconds()) > most:
            return Verdict(False, Outcome.SKIP)
        return _LEAVES

    def _daemon_set(self, pod: pods.Pod) -> Verdict:
        controller = controller_of(pod)
        if controller is None or not is_daemon_set(controller) or _is_finished(pod):
            return _LEAVES
        if not self._daemon_sets.has(pod.metadata.namespace, controller.name):
            gone = f'daemonsets.apps "{controller.name}" not found'
            if self._options.force:
                return Verdict(True, Outcome.WARNING, gone)
            return Verdict(False, Outcome.ERROR, gone)
        if not self._options.ignore_daemon_sets:
            return Verdict(False, Outcome.ERROR, DAEMON_SET_FATAL)
        return Verdict(False, Outcome.WARNING, DAEMON_SET_WARNING)

    def _local_storage(self, pod: pods.Pod, details: pod_details.PodDetails) -> Verdict:
        if not details.has_local_storage or _is_finished(pod):
            return _LEAVES
        if not self._options.delete_empty_dir_data:
            return Verdict(False, Outcome.ERROR, LOCAL_STORAGE_FATAL)
        return Verdict(True, Outcome.WARNING, LOCAL_STORAGE_WARNING)

    def _unmanaged(self, pod: pods.Pod) -> Verdict:
        if _is_finished(pod) or controller_of(pod) is not None:
            return _LEAVES
        if self._options.force:
            return Verdict(True, Outcome.WARNING, UNMANAGED_WARNING)
        return Verdict(False, Outcome.ERROR, UNMANAGED_FATAL)


def in_order(
    present: Collection[pods.Pod], selects: Callable[[Mapping[str, str]], bool] | None = None
) -> list[pods.Pod]:
    """The selected pods in the order in which an API server lists them, which is the order of a drain."""
    chosen = [pod for pod in present if selects is None or selects(pod.metadata.labels)]
    return sorted(chosen, key=_storage_key)


def controller_of(pod: pods.Pod) -> meta.OwnerReference | None:
    """The owner that controls the pod."""
    owners = pod.metadata.owner_references
    return next((owner for owner in owners if owner.controller), None)


def is_daemon_set(owner: meta.OwnerReference) -> bool:
    """Whether an owner is a DaemonSet of Kubernetes itself."""
    return owner.kind == "DaemonSet" and owner.api_version == "apps/v1"


def _storage_key(pod: pods.Pod) -> str:
    """The end of the pod's key in etcd. A dash sorts before the slash: namespace a-b comes before a."""
    return f"{pod.metadata.namespace}/{pod.metadata.name}"


def _mirror(pod: pods.Pod) -> Verdict:
    """Static pods cannot be ended through an API server."""
    return Verdict(False, Outcome.SKIP) if MIRROR in pod.metadata.annotations else _LEAVES


def _is_finished(pod: pods.Pod) -> bool:
    return pod.status.phase in pods.TERMINAL_PHASES
