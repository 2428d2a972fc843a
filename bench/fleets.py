"""The devices benchmarks run on: GPUs of ten products, each with its own uuid, PCI address and node."""

from __future__ import annotations

from typing import Any

import msgspec

from dovetail.kubetypes.resource import slices
from dovetail.quantity import quantity
from dovetail.sim.fleet import machines

DRIVER = "gpu.nvidia.com"
PRODUCTS = (
    ("NVIDIA A30", "Ampere", "8.0.0", 24),
    ("NVIDIA A100-SXM4-40GB", "Ampere", "8.0.0", 40),
    ("NVIDIA A100-SXM4-80GB", "Ampere", "8.0.0", 80),
    ("NVIDIA H100 80GB HBM3", "Hopper", "9.0.0", 80),
    ("NVIDIA H100 NVL", "Hopper", "9.0.0", 94),
    ("NVIDIA H200", "Hopper", "9.0.0", 141),
    ("NVIDIA B200", "Blackwell", "10.0.0", 180),
    ("NVIDIA GB200", "Blackwell", "10.0.0", 186),
    ("NVIDIA L4", "Ada Lovelace", "8.9.0", 24),
    ("NVIDIA L40S", "Ada Lovelace", "8.9.0", 48),
)


def device(number: int) -> dict[str, Any]:
    """One GPU as a ResourceSlice shows it. Devices of a product differ in what is unique to each."""
    product, architecture, capability, memory = PRODUCTS[number % len(PRODUCTS)]
    return {
        "name": f"gpu-{number % 64}",
        "attributes": {
            "type": {"string": "gpu"},
            "uuid": {"string": f"GPU-{machines.derived_uuid('bench', number)}"},
            "productName": {"string": product},
            "brand": {"string": "Nvidia"},
            "architecture": {"string": architecture},
            "cudaComputeCapability": {"version": capability},
            "driverVersion": {"version": "580.126.20"},
            "cudaDriverVersion": {"version": "13.0.0"},
            "index": {"int": number % 8},
            "resource.kubernetes.io/pciBusID": {
                "string": f"{number >> 16:04x}:{number >> 8 & 255:02x}:{number & 31:02x}.0"
            },
            "resource.kubernetes.io/pcieRoot": {"string": f"pci{number:04x}:00"},
        },
        "capacity": {"memory": {"value": f"{memory}Gi"}},
    }


def slice_list(count: int, devices_each: int) -> bytes:
    """A ResourceSliceList as an API server sends it."""
    items = [
        {
            "apiVersion": "resource.k8s.io/v1",
            "kind": "ResourceSlice",
            "metadata": {
                "name": f"node-{number}-gpu-nvidia-com-{number:05x}",
                "uid": machines.derived_uuid("slice", number),
                "resourceVersion": str(1000 + number),
                "generation": 1,
                "creationTimestamp": "2026-01-01T00:00:00Z",
            },
            "spec": {
                "driver": DRIVER,
                "nodeName": f"node-{number}",
                "pool": {"name": f"node-{number}", "generation": 1, "resourceSliceCount": 1},
                "devices": [
                    {**device(number * devices_each + i), "name": f"gpu-{i}"}
                    for i in range(devices_each)
                ],
            },
        }
        for number in range(count)
    ]
    listed = {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceSliceList",
        "metadata": {},
        "items": items,
    }
    return msgspec.json.encode(listed)


def structs(count: int) -> list[slices.Device]:
    """The same devices, decoded."""
    found = [device(number) for number in range(count)]
    return msgspec.convert(found, list[slices.Device], dec_hook=quantity.decode_hook)
