"""Queue of dovetail.dev/v1alpha1: a share of the cluster's capacity, who may use it, and the numbers decided with."""

from __future__ import annotations

from typing import Final

import msgspec

from dovetail.kubetypes import meta
from dovetail.quantity import quantity

UNLIMITED: Final = quantity.parse("1E")  # a quota or limit of so much, or more, is none at all


class Share(
    msgspec.Struct, frozen=True, gc=False, kw_only=True, rename="camel", omit_defaults=True
):
    """What a queue is due of one resource. Without a quota nothing is sure; without a limit all that is free."""

    quota: quantity.Quantity | None = None
    limit: quantity.Quantity | None = None
    weight: meta.Int32 = 1


class IdlePolicy(
    msgspec.Struct, frozen=True, gc=False, kw_only=True, rename="camel", omit_defaults=True
):
    """What happens to work whose devices stay nearly unused: warned, then preemptible, then taken under pressure."""

    threshold_percent: meta.Int32 = 5
    window_seconds: meta.Int64 = 1800  # below the threshold for so long: a warning
    grace_seconds: meta.Int64 = 600  # after the warning, before it becomes preemptible


class QueueSpec(
    msgspec.Struct, frozen=True, gc=False, kw_only=True, rename="camel", omit_defaults=True
):
    """The share of a queue and the namespaces that may use it. Resources it does not name are not limited."""

    parent: str = ""
    priority: meta.Int32 = 0
    resources: dict[str, Share] = {}
    namespace_selector: meta.LabelSelector | None = None  # None: no namespace; empty: every one
    aliases: tuple[str, ...] = ()  # names other schedulers' labels use, with or without a namespace
    min_runtime_seconds: meta.Int64 | None = None  # before work of the queue may be evicted
    preempt_min_runtime_seconds: meta.Int64 | None = None  # instead of it, within the queue
    reclaim_min_runtime_seconds: meta.Int64 | None = None  # instead of it, for other queues
    max_runtime_seconds: meta.Int64 | None = None
    idle: IdlePolicy | None = None
    power_cap_watts: meta.Int64 | None = None  # of the boards its work holds, by their rated power


class ShareStatus(
    msgspec.Struct, frozen=True, gc=False, kw_only=True, rename="camel", omit_defaults=True
):
    """The numbers one resource was decided with, as quantities."""

    charged: str = ""
    charged_non_preemptible: str = ""
    requested: str = ""  # charged and waiting together
    fair_share: str = ""
    allocatable: str = ""


class QueueStatus(
    msgspec.Struct, frozen=True, gc=False, kw_only=True, rename="camel", omit_defaults=True
):
    """What the scheduler says about a queue."""

    observed_generation: meta.Int64 = 0
    conditions: tuple[meta.Condition, ...] = ()
    resources: dict[str, ShareStatus] = {}
    dominant_share: str = ""
    usage: dict[str, str] = {}  # decayed use, in unit-seconds by resource, as of usage_time
    usage_time: str = ""
    usage_counted: dict[
        str, str
    ] = {}  # what shares are lowered by: follows usage in steps, so that they keep still
    running: meta.Int64 = 0
    pending: meta.Int64 = 0


class Queue(
    msgspec.Struct, frozen=True, gc=False, kw_only=True, rename="camel", omit_defaults=True
):
    """A share of the cluster, cluster-scoped."""

    api_version: str = ""
    kind: str = ""
    metadata: meta.ObjectMeta = meta.ObjectMeta()
    spec: QueueSpec = QueueSpec()
    status: QueueStatus = QueueStatus()
