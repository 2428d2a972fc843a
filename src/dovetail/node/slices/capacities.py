"""The capacities and counters of a GPU and its partitions, and how several claims may share one device.

Given facts and settings, returns quantities as NVIDIA's driver writes them. Never limits memory at run time: a share is
an account, not a wall.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from dovetail.kubetypes.resource import capacity, slices
from dovetail.node.inventory import Gpu, MigProfile, Placement
from dovetail.node.slices.options import OWN_DOMAIN, ShareMode, Shares
from dovetail.quantity import quantity
from dovetail.quantity.quantity_text import Format

Amounts = dict[str, int]
Capacities = dict[str, capacity.DeviceCapacity]
Counters = dict[str, slices.Counter]

MEBIBYTE: Final = 1 << 20
SHARE: Final = f"{OWN_DOMAIN}/share"

_SHARE_PARTS: Final = 100

# Capacities are camel case, the counters of the same amounts kebab case.
_COUNTER_NAMES: Final = {
    "multiprocessors": "multiprocessors",
    "copyEngines": "copy-engines",
    "decoders": "decoders",
    "encoders": "encoders",
    "jpegEngines": "jpeg-engines",
    "ofaEngines": "ofa-engines",
    "memory": "memory",
}


def of_profile(profile: MigProfile) -> Amounts:
    """What a device of this profile has."""
    return {
        "multiprocessors": profile.multiprocessors,
        "copyEngines": profile.copy_engines,
        "decoders": profile.decoders,
        "encoders": profile.encoders,
        "jpegEngines": profile.jpeg_engines,
        "ofaEngines": profile.ofa_engines,
        "memory": profile.memory_bytes,
    }


def largest(gpu: Gpu) -> Amounts:
    """Of every capacity the most that any profile has: what the GPU offers to partitions altogether."""
    amounts: Amounts = {}
    for profile in gpu.mig_profiles:
        for name, amount in of_profile(profile).items():
            amounts[name] = max(amount, amounts.get(name, 0))
    return amounts


def of_whole_gpu(gpu: Gpu) -> Amounts:
    """Its memory; nothing where the driver reports none."""
    return {"memory": gpu.memory_bytes} if gpu.memory_bytes else {}


def memory_slices(placement: Placement) -> Amounts:
    """One of each memory slice a MIG device sits on, as a device that exists states it."""
    slots = range(placement.start, placement.start + placement.size)
    return {f"memorySlice{slot}": 1 for slot in slots}


def all_memory_slices(gpu: Gpu) -> Placement:
    """The whole memory, as long as the largest placement."""
    sizes = [place.size for profile in gpu.mig_profiles for place in profile.placements]
    return Placement(start=0, size=max(sizes, default=0))


def counters(amounts: Mapping[str, int], placement: Placement) -> Counters:
    """The counters of these amounts and memory slices."""
    named = {_COUNTER_NAMES[name]: amount for name, amount in amounts.items()}
    slots = range(placement.start, placement.start + placement.size)
    slices_taken = {f"memory-slice-{slot}": 1 for slot in slots}
    return {name: slices.Counter(value=_binary(n)) for name, n in (named | slices_taken).items()}


def capacities(amounts: Mapping[str, int]) -> Capacities:
    """Without a policy: the device is held as a whole."""
    return {name: capacity.DeviceCapacity(value=_binary(n)) for name, n in amounts.items()}


def shared(whole: Capacities, shares: Shares) -> Capacities:
    """The same capacities with a policy for requests of a part of the memory."""
    if (memory := whole.get("memory")) is None:
        return whole
    # Limits must be multiples of the step, so memory is rounded down to whole mebibytes.
    total = _binary(memory.value.value() // MEBIBYTE * MEBIBYTE)
    nothing = quantity.parse("0")
    if shares.mode is ShareMode.MEMORY:
        default, lowest = total, quantity.parse("1Mi")
    else:
        default, lowest = nothing, nothing
    policy = _policy(default, lowest=lowest, highest=total, step=quantity.parse("1Mi"))
    parts: Capacities = {"memory": capacity.DeviceCapacity(value=total, request_policy=policy)}
    if shares.mode is ShareMode.COUNTED:
        parts["shares"] = _counted(shares.count)
    return whole | parts


def share_of_gpu() -> Capacities:
    """The whole GPU as 100 parts; ours, beside NVIDIA's `memory`.

    Whole numbers, because a Kubernetes without the gate DRAFractionalCapacityRange rounds fractions up.
    """
    whole = quantity.Quantity.from_int(_SHARE_PARTS)
    step = quantity.Quantity.from_int(1)
    policy = _policy(whole, lowest=step, highest=whole, step=step)
    return {SHARE: capacity.DeviceCapacity(value=whole, request_policy=policy)}


def _counted(count: int) -> capacity.DeviceCapacity:
    total = quantity.Quantity.from_int(count)
    single = quantity.Quantity.from_int(1)
    policy = _policy(single, lowest=single, highest=total, step=single)
    return capacity.DeviceCapacity(value=total, request_policy=policy)


def _policy(
    default: quantity.Quantity,
    *,
    lowest: quantity.Quantity,
    highest: quantity.Quantity,
    step: quantity.Quantity,
) -> capacity.CapacityRequestPolicy:
    valid = capacity.CapacityRequestPolicyRange(min=lowest, max=highest, step=step)
    return capacity.CapacityRequestPolicy(default=default, valid_range=valid)


def _binary(number: int) -> quantity.Quantity:
    return quantity.Quantity.from_int(number, Format.BINARY_SI)
