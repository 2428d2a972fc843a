"""Publishes a machine's GPUs as the NVIDIA DRA driver does: ResourceSlices and the chart's DeviceClasses.

Without MIG one list of whole GPUs, which several claims may use at once if the pool says so. With it the counters of
all GPUs first, then per GPU its candidates: on Hopper and later the whole GPU next to every partition, on Ampere
partitions only, because there MIG is switched before the driver starts. Names, attributes and capacities are the
driver's. Never allocates.
"""

import hashlib
from collections.abc import Iterator, Sequence
from typing import Any, Final

from dovetail import gpus
from dovetail.kubetypes import registry
from dovetail.kubetypes.resource import slices
from dovetail.model import node_pools
from dovetail.sim.fleet import fleet_spec, machines

GPU_DRIVER: Final = node_pools.GPU_DRIVER
COMPUTE_DOMAIN_DRIVER: Final = "compute-domain.nvidia.com"
MIB: Final = 1024**2
_INDEX_DIGITS: Final = 5  # hexadecimal, by the resourceslice controller of Kubernetes 1.37

# Capacity of a device on the left, counter of a set on the right, as the driver names them.
_ENGINES: Final = {
    "multiprocessors": ("multiprocessors", "multiprocessors"),
    "copy_engines": ("copyEngines", "copy-engines"),
    "decoders": ("decoders", "decoders"),
    "encoders": ("encoders", "encoders"),
    "jpeg_engines": ("jpegEngines", "jpeg-engines"),
    "ofa_engines": ("ofaEngines", "ofa-engines"),
}

Tree = dict[str, Any]


def slices_of(machine: machines.Machine, fleet: fleet_spec.Fleet) -> list[Tree]:
    """The slices of one node: its GPUs, and IMEX channels where it is part of an NVLink clique."""
    if machine.pool.mig:
        parts = _partitioned(machine, fleet)
    else:
        whole = [_whole_gpu(board, machine, fleet) for board in machine.boards]
        parts = [{"devices": part} for part in _chunks(_sorted(whole), slices.MAX_DEVICES)]
    published = _pool(machine.name, GPU_DRIVER, parts)
    if machine.clique:
        published += _pool(machine.name, COMPUTE_DOMAIN_DRIVER, [{"devices": _imex_devices()}])
    return published


def device_classes() -> list[Tree]:
    """The classes the driver's chart installs."""
    kinds = {"gpu.nvidia.com": "gpu", "mig.nvidia.com": "mig", "vfio.gpu.nvidia.com": "vfio"}
    classes = [_class(name, _type_test(GPU_DRIVER, kind)) for name, kind in kinds.items()]
    classes[0]["spec"]["extendedResourceName"] = "nvidia.com/gpu"
    domain = COMPUTE_DOMAIN_DRIVER
    channel = f"{_type_test(domain, 'channel')} && device.attributes['{domain}'].id == 0"
    return [
        *classes,
        _class("compute-domain-daemon.nvidia.com", _type_test(domain, "daemon")),
        _class("compute-domain-default-channel.nvidia.com", channel),
    ]


def _type_test(driver: str, kind: str) -> str:
    return f"device.driver == '{driver}' && device.attributes['{driver}'].type == '{kind}'"


def _class(name: str, expression: str) -> Tree:
    return {
        "apiVersion": registry.RESOURCE_V1,
        "kind": "DeviceClass",
        "metadata": {"name": name},
        "spec": {"selectors": [{"cel": {"expression": expression}}]},
    }


def _pool(node: str, driver: str, parts: Sequence[Tree]) -> list[Tree]:
    """One complete pool, named after its node, over as many slices as there are parts."""
    pool = {"name": node, "generation": 1, "resourceSliceCount": len(parts)}
    return [
        {
            "apiVersion": registry.RESOURCE_V1,
            "kind": "ResourceSlice",
            "metadata": _slice_name(node, driver, index),
            "spec": {"driver": driver, "nodeName": node, "pool": pool, **part},
        }
        for index, part in enumerate(parts)
    ]


def _slice_name(node: str, driver: str, index: int) -> Tree:
    """The index comes first, so that the slices of a pool sort by name as they were published."""
    prefix = f"{index:0{_INDEX_DIGITS}x}-{driver}-{node}-"
    return {"name": prefix + _suffix(node, driver, index), "generateName": prefix}


def _suffix(*parts: str | int) -> str:
    """Five characters as the API server appends them to a generated name, but always the same ones."""
    alphabet = "bcdfghjklmnpqrstvwxz2456789"  # apimachinery's safe letters and digits
    number = int.from_bytes(hashlib.sha256("/".join(map(str, parts)).encode()).digest()[:8], "big")
    letters = []
    for _ in range(5):
        number, letter = divmod(number, len(alphabet))
        letters.append(alphabet[letter])
    return "".join(letters)


def _imex_devices() -> list[Tree]:
    return [
        {"name": f"{kind}-0", "attributes": {"type": {"string": kind}, "id": {"int": 0}}}
        for kind in ("channel", "daemon")
    ]


def _partitioned(machine: machines.Machine, fleet: fleet_spec.Fleet) -> list[Tree]:
    sets = [_counter_set(board, machine.gpu) for board in machine.boards]
    parts: list[Tree] = [
        {"sharedCounters": part} for part in _chunks(sets, slices.MAX_COUNTER_SETS)
    ]
    for board in machine.boards:
        parts.append({"devices": _sorted(_candidates(board, machine, fleet))})
    return parts


def _candidates(
    board: machines.Board, machine: machines.Machine, fleet: fleet_spec.Fleet
) -> Iterator[Tree]:
    gpu = machine.gpu
    if gpu.architecture.value != "Ampere":
        yield {
            **_whole_gpu(board, machine, fleet),
            "capacity": {"memory": {"value": _largest_memory(gpu)}, **_maxima(gpu)},
            "consumesCounters": [{"counterSet": _set_name(board), "counters": _full_counters(gpu)}],
        }
    for profile, place in gpus.placements(gpu):
        yield _partition(board, machine, fleet, profile=profile, place=place)


def _whole_gpu(board: machines.Board, machine: machines.Machine, fleet: fleet_spec.Fleet) -> Tree:
    memory: Tree = {"value": _memory(machine.gpu)}
    is_shared: Tree = {}
    if machine.pool.shares is not None:  # a claim that requests no memory takes all of it
        steps = {"min": "1Mi", "step": "1Mi"}
        memory["requestPolicy"] = {"default": memory["value"], "validRange": steps}
        is_shared = {"allowMultipleAllocations": True}
    return {
        "name": f"gpu-{board.minor}",
        "attributes": {
            "type": {"string": "gpu"},
            "uuid": {"string": board.uuid},
            **_shared_attributes(board, machine, fleet),
        },
        "capacity": {"memory": memory},
        **is_shared,
    }


def _partition(
    board: machines.Board,
    machine: machines.Machine,
    fleet: fleet_spec.Fleet,
    *,
    profile: gpus.Profile,
    place: gpus.Placement,
) -> Tree:
    """A MIG instance that could be made. It has no uuid until it exists."""
    assert profile.gi_profile_id is not None
    assert profile.memory_bytes is not None
    plain = profile.name.value.lower().replace(".", "").replace("+", "-")
    memory = _mebibytes(profile.memory_bytes.value)
    amounts = {
        **_engine_amounts(profile),
        "memory": memory,
        **{f"memory-slice-{index}": "1" for index in range(place.start, place.start + place.size)},
    }
    return {
        "name": f"gpu-{board.minor}-mig-{plain}-{profile.gi_profile_id.value}-{place.start}",
        "attributes": {
            "type": {"string": "mig"},
            "parentUUID": {"string": board.uuid},
            "profile": {"string": profile.name.value},
            **_shared_attributes(board, machine, fleet),
        },
        "capacity": {"memory": {"value": memory}, **_engine_capacities(_engine_amounts(profile))},
        "consumesCounters": [{"counterSet": _set_name(board), "counters": _valued(amounts)}],
    }


def _shared_attributes(
    board: machines.Board, machine: machines.Machine, fleet: fleet_spec.Fleet
) -> Tree:
    gpu = machine.gpu
    return {
        "productName": {"string": gpu.product.value},
        "brand": {"string": "Nvidia"},
        "architecture": {"string": gpu.architecture.value},
        "cudaComputeCapability": {"version": _semantic(gpu.compute_capability.value)},
        "driverVersion": {"version": _semantic(fleet.driver_version)},
        "cudaDriverVersion": {"version": _semantic(fleet.cuda_version)},
        "addressingMode": {"string": "ATS" if gpu.form_factor.value == "superchip" else "HMM"},
        "resource.kubernetes.io/pciBusID": {"string": board.pci_bus_id},
        "resource.kubernetes.io/pcieRoot": {"string": board.pcie_root},
        "resource.kubernetes.io/numaNode": {"int": board.numa_node},
    }


def _counter_set(board: machines.Board, gpu: gpus.Gpu) -> Tree:
    return {"name": _set_name(board), "counters": _full_counters(gpu)}


def _set_name(board: machines.Board) -> str:
    return f"gpu-{board.minor}-counter-set"


def _full_counters(gpu: gpus.Gpu) -> Tree:
    """The largest amount any profile takes, and one of each memory slice."""
    assert gpu.mig is not None
    amounts = {name: str(max(_figures(gpu, field))) for field, (_, name) in _ENGINES.items()}
    amounts["memory"] = _largest_memory(gpu)
    return _valued(
        amounts | {f"memory-slice-{index}": "1" for index in range(gpu.mig.memory_slices)}
    )


def _largest_memory(gpu: gpus.Gpu) -> str:
    """What the largest profile has, which is less than NVML's total of the whole GPU."""
    return _mebibytes(max(p.memory_bytes.value for p in gpus.profiles(gpu) if p.memory_bytes))


def _maxima(gpu: gpus.Gpu) -> Tree:
    return {
        capacity: {"value": str(max(_figures(gpu, field)))}
        for field, (capacity, _) in _ENGINES.items()
    }


def _figures(gpu: gpus.Gpu, field: str) -> list[int]:
    return [getattr(profile.engines, field).value for profile in gpus.profiles(gpu)]


def _engine_amounts(profile: gpus.Profile) -> dict[str, str]:
    return {
        name: str(getattr(profile.engines, field).value) for field, (_, name) in _ENGINES.items()
    }


def _engine_capacities(amounts: dict[str, str]) -> Tree:
    return {capacity: {"value": amounts[counter]} for capacity, counter in _ENGINES.values()}


def _valued(amounts: dict[str, str]) -> Tree:
    return {name: {"value": amount} for name, amount in amounts.items()}


def _memory(gpu: gpus.Gpu) -> str:
    assert gpu.memory_bytes is not None, "an unchecked fleet"
    return _mebibytes(gpu.memory_bytes.value)


def _mebibytes(number: int) -> str:
    """As Kubernetes writes it: the largest binary unit that divides."""
    mebibytes = number // MIB
    return f"{mebibytes // 1024}Gi" if mebibytes % 1024 == 0 else f"{mebibytes}Mi"


def _semantic(version: str) -> str:
    """Three numbers without leading zeros: 580.95.05 becomes 580.95.5."""
    numbers = [*fleet_spec.version_numbers(version), 0, 0][:3]
    return ".".join(map(str, numbers))


def _sorted(devices: Iterator[Tree] | list[Tree]) -> list[Tree]:
    return sorted(
        devices, key=lambda device: str(device["name"])
    )  # the driver's order: by name, as text


def _chunks(items: Sequence[Tree], size: int) -> Iterator[Sequence[Tree]]:
    for start in range(0, len(items), size):
        yield items[start : start + size]
