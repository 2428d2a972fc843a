"""Workload of Kueue: which queue a job waits in, and whether Kueue has admitted it.

Given wire data of any version of kueue.x-k8s.io, holds what is common to them. Never decides about admission.
"""

import msgspec

from dovetail.kubetypes import meta


class PodSet(
    msgspec.Struct, frozen=True, gc=False, kw_only=True, rename="camel", omit_defaults=True
):
    """Equal pods of a workload."""

    name: str = ""
    count: meta.Int32 = 0


class WorkloadSpec(
    msgspec.Struct, frozen=True, gc=False, kw_only=True, rename="camel", omit_defaults=True
):
    """What waits, and where."""

    queue_name: str = ""
    active: bool | None = None
    priority: meta.Int32 | None = None
    priority_class_name: str = ""
    pod_sets: tuple[PodSet, ...] = ()


class Admission(
    msgspec.Struct, frozen=True, gc=False, kw_only=True, rename="camel", omit_defaults=True
):
    """The cluster queue that the workload is charged to."""

    cluster_queue: str = ""


class WorkloadStatus(
    msgspec.Struct, frozen=True, gc=False, kw_only=True, rename="camel", omit_defaults=True
):
    """How far the admission has come."""

    conditions: tuple[meta.Condition, ...] = ()
    admission: Admission | None = None


class Workload(
    msgspec.Struct, frozen=True, gc=False, kw_only=True, rename="camel", omit_defaults=True
):
    """A job as Kueue sees it, namespaced."""

    api_version: str = ""
    kind: str = ""
    metadata: meta.ObjectMeta = meta.ObjectMeta()
    spec: WorkloadSpec = WorkloadSpec()
    status: WorkloadStatus = WorkloadStatus()
