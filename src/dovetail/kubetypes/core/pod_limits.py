"""PriorityClass of scheduling.k8s.io/v1 and LimitRange of core v1: what an API server adds to pods, or refuses.

Given wire data, holds it frozen. Never applies a default or a limit: an API server does.
"""

import msgspec

from dovetail.kubetypes import meta
from dovetail.quantity import quantity


class PriorityClass(
    msgspec.Struct, frozen=True, gc=False, kw_only=True, rename="camel", omit_defaults=True
):
    """A name for a priority, cluster-scoped."""

    api_version: str = ""
    kind: str = ""
    metadata: meta.ObjectMeta = meta.ObjectMeta()
    value: meta.Int32 = 0
    global_default: bool = False
    preemption_policy: str | None = None


class LimitRangeItem(
    msgspec.Struct, frozen=True, gc=False, kw_only=True, rename="camel", omit_defaults=True
):
    """The limits of containers, pods or volume claims."""

    type: str = ""
    max: dict[str, quantity.Quantity] = {}
    min: dict[str, quantity.Quantity] = {}
    default: dict[str, quantity.Quantity] = {}
    default_request: dict[str, quantity.Quantity] = {}
    max_limit_request_ratio: dict[str, quantity.Quantity] = {}


class LimitRangeSpec(
    msgspec.Struct, frozen=True, gc=False, kw_only=True, rename="camel", omit_defaults=True
):
    """All limits of a namespace."""

    limits: tuple[LimitRangeItem, ...] = ()


class LimitRange(
    msgspec.Struct, frozen=True, gc=False, kw_only=True, rename="camel", omit_defaults=True
):
    """What single pods of a namespace may ask for, and what they get if they do not ask."""

    api_version: str = ""
    kind: str = ""
    metadata: meta.ObjectMeta = meta.ObjectMeta()
    spec: LimitRangeSpec = LimitRangeSpec()
