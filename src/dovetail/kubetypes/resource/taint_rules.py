"""DeviceTaintRule of resource.k8s.io/v1: taints an administrator puts on devices from outside their driver.

Given wire data, holds it frozen. Never decides which devices a rule reaches.
"""

import msgspec

from dovetail.kubetypes import meta, node_selectors

MAX_CONDITIONS = 8  # DeviceTaintRuleStatusMaxConditions, resource.k8s.io/v1


class DeviceTaintSelector(
    msgspec.Struct, frozen=True, gc=False, kw_only=True, rename="camel", omit_defaults=True
):
    """Which devices are tainted. An empty selector means all, an absent one none."""

    driver: str | None = None
    pool: str | None = None
    device: str | None = None


class DeviceTaintRuleSpec(
    msgspec.Struct, frozen=True, gc=False, kw_only=True, rename="camel", omit_defaults=True
):
    """The taint and the devices it goes to."""

    device_selector: DeviceTaintSelector | None = None
    taint: node_selectors.DeviceTaint = node_selectors.DeviceTaint()


class DeviceTaintRuleStatus(
    msgspec.Struct, frozen=True, gc=False, kw_only=True, rename="camel", omit_defaults=True
):
    """How far an eviction caused by the rule has come."""

    conditions: tuple[meta.Condition, ...] = ()


class DeviceTaintRule(
    msgspec.Struct, frozen=True, gc=False, kw_only=True, rename="camel", omit_defaults=True
):
    """One taint for many devices, cluster-scoped."""

    api_version: str = ""
    kind: str = ""
    metadata: meta.ObjectMeta = meta.ObjectMeta()
    spec: DeviceTaintRuleSpec = DeviceTaintRuleSpec()
    status: DeviceTaintRuleStatus = DeviceTaintRuleStatus()
