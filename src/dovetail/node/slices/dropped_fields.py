"""Which fields of a slice an API server did not store, named by the feature gate that would make it store them.

Given what was sent and what was stored, returns names. Never decides what to do about it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from dovetail.kubetypes.resource import slices
from dovetail.node.slices.layout import SliceContent

COUNTERS: Final = "DRAPartitionableDevices"


def between(content: SliceContent, spec: slices.ResourceSliceSpec) -> list[str]:
    """Feature gates of kube-apiserver that are off, or "unknown"."""
    pairs = list(zip(content.devices, spec.devices, strict=False))
    gates = {
        COUNTERS: _has_fewer_counters(content, spec, pairs),
        "DRADeviceTaints": any(len(sent.taints) > len(kept.taints) for sent, kept in pairs),
        "DRAConsumableCapacity": any(_lost_sharing(sent, kept) for sent, kept in pairs),
    }
    dropped = [gate for gate, is_dropped in gates.items() if is_dropped]
    return dropped or ["unknown"]


def _has_fewer_counters(
    content: SliceContent,
    spec: slices.ResourceSliceSpec,
    pairs: Sequence[tuple[slices.Device, slices.Device]],
) -> bool:
    if len(spec.shared_counters) < len(content.shared_counters):
        return True
    return any(len(kept.consumes_counters) < len(sent.consumes_counters) for sent, kept in pairs)


def _lost_sharing(sent: slices.Device, kept: slices.Device) -> bool:
    return bool(sent.allow_multiple_allocations) and not kept.allow_multiple_allocations
