"""Turns the faults of GPUs into taints of their devices and into the kubelet's health states. Pure.

Keys are those of NVIDIA's driver where it has one (xid, gpu-lost, unmonitored), else in our own domain. A fault of a
GPU concerns the whole GPU and every partition of it: a reset takes all of them.
"""

from __future__ import annotations

import datetime
from collections.abc import Iterator
from typing import Final

from dovetail import timestamps
from dovetail.kubetypes import node_selectors
from dovetail.node.health import gpu_health, policy_table
from dovetail.node.health.gpu_health import Fault, GpuHealth
from dovetail.node.health.policy_table import HealthPolicy, Rule
from dovetail.node.kubelet.claim_service import HealthState

NVIDIA_DOMAIN: Final = "gpu.nvidia.com"
OUR_DOMAIN: Final = "dovetail.dev"
MAX_TAINTS: Final = 16  # per device, resource.k8s.io/v1
MAX_MESSAGE: Final = 1024  # characters, DRAResourceHealth

_NVIDIA_KEYS: Final = frozenset({policy_table.LOST, policy_table.UNMONITORED})


def taints(health: GpuHealth, policy: HealthPolicy) -> tuple[node_selectors.DeviceTaint, ...]:
    """Of every device of this GPU, the worst first. One taint for all Xids, with the code of the worst."""
    chosen: dict[str, node_selectors.DeviceTaint] = {}
    for fault, rule in gpu_health.worst_first(health, policy):
        if rule.effect is None:
            continue
        key, value = _key_and_value(fault)
        if (
            key not in chosen
        ):  # a taint is identified by key and effect; the worst fault speaks for the key
            chosen[key] = node_selectors.DeviceTaint(
                key=key, value=value, effect=rule.effect.value, time_added=_time(fault.since)
            )
    return tuple(chosen.values())[:MAX_TAINTS]


def state(health: GpuHealth, policy: HealthPolicy) -> tuple[HealthState, str]:
    """What the kubelet shows at the pods that use the GPU, with advice."""
    message = "; ".join(sentences(health, policy))[:MAX_MESSAGE]
    if health.fault(policy_table.UNMONITORED) and gpu_health.is_fit(health, policy):
        return HealthState.UNKNOWN, message
    if gpu_health.is_fit(health, policy):
        return HealthState.HEALTHY, message
    return HealthState.UNHEALTHY, message


def sentences(health: GpuHealth, policy: HealthPolicy) -> Iterator[str]:
    """For people: what is wrong with the GPU and what to do about it, worst first."""
    for fault, rule in gpu_health.worst_first(health, policy):
        yield f"gpu-{health.minor}: {described(fault, rule)}"


def described(fault: Fault, rule: Rule) -> str:
    """`xid 48, seen 2 times: drain the GPU and reset it`."""
    words = fault.name.replace("-", " ", 1) if _is_xid(fault) else fault.name
    detail = f" ({fault.detail})" if fault.detail and not _is_xid(fault) else ""
    times = f", seen {fault.count} times" if fault.count > 1 else ""
    return f"{words}{detail}{times}: {rule.advice.value}"


def _key_and_value(fault: Fault) -> tuple[str, str]:
    if _is_xid(fault):
        return f"{NVIDIA_DOMAIN}/xid", fault.detail
    domain = NVIDIA_DOMAIN if fault.name in _NVIDIA_KEYS else OUR_DOMAIN
    return f"{domain}/{fault.name}", ""


def _is_xid(fault: Fault) -> bool:
    return fault.name.startswith("xid-")


def _time(seconds: float) -> str:
    return timestamps.to_text(datetime.datetime.fromtimestamp(seconds, datetime.UTC))
