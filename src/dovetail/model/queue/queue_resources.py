"""What the resource names of a queue stand for: counted resources, or a part of the one GPU ledger.

Given a name such as cpu, nvidia.com/gpu or gpu/product.NVIDIA-H100-80GB-HBM3; returns what it measures. GPUs are
counted in GPUs, with decimals: a slice or a share of a board is a part of one. Never reads a cluster, never sums up.
"""

from __future__ import annotations

import re
from enum import StrEnum
from typing import Final, NamedTuple

from dovetail import cache
from dovetail.kubetypes.core import resource_quotas

GPU: Final = "gpu"
GPU_SPELLINGS: Final = frozenset({GPU, "nvidia.com/gpu"})
PARTS: Final = ("product", "architecture", "mig")  # what may follow `gpu/`
EXPECTED: Final = (
    "expected cpu, memory, an extended resource such as example.com/nic, gpu, gpu/product.<product>, "
    "gpu/architecture.<architecture>, gpu/mig.<profile> or <class>.deviceclass.resource.k8s.io/devices"
)

_NAME: Final = re.compile(
    r"[a-zA-Z0-9](?:[-a-zA-Z0-9_.]*[a-zA-Z0-9])?(?:/[a-zA-Z0-9](?:[-a-zA-Z0-9_.]*[a-zA-Z0-9])?)?"
)
_MAX_NAME: Final = 253
_FOREIGN: Final = re.compile(r"[^A-Za-z0-9_.]+")


class Measure(StrEnum):
    """What a resource name counts."""

    AMOUNT = "amount"  # cpu, memory or an extended resource, as nodes count them
    GPUS = "gpus"  # all silicon
    PRODUCT = "product"  # silicon of one product
    ARCHITECTURE = "architecture"  # silicon of one architecture
    PROFILE = "mig"  # silicon held by MIG devices of one profile
    DEVICE_CLASS = "class"  # silicon held through one device class


class Resource(NamedTuple):
    """A resource name, read."""

    measure: Measure
    subject: str = ""  # resource, device class, or `slug` of a product, architecture or profile

    @property
    def is_silicon(self) -> bool:
        """Whether it is a part of the GPU ledger."""
        return self.measure is not Measure.AMOUNT


@cache.remembered(1024)
def read(name: str) -> Resource | None:
    """What a name stands for; None if it is not a resource name. All spellings of a resource give equal results."""
    if name in GPU_SPELLINGS:
        return Resource(Measure.GPUS)
    if len(name) > _MAX_NAME or not _NAME.fullmatch(name):
        return None
    if name.endswith(resource_quotas.DEVICES_SUFFIX):
        return Resource(Measure.DEVICE_CLASS, name.removesuffix(resource_quotas.DEVICES_SUFFIX))
    if name.startswith(f"{GPU}/"):
        return _part_of_gpus(name.removeprefix(f"{GPU}/"))
    return Resource(Measure.AMOUNT, name)


def _part_of_gpus(text: str) -> Resource | None:
    """`product.<product>`, `architecture.<architecture>` or `mig.<profile>`."""
    part, _, subject = text.partition(".")
    if part not in PARTS or not subject:
        return None
    return Resource(Measure(part), slug(subject))


def slug(text: str) -> str:
    """A product, architecture or profile as resource names write it: `NVIDIA H100 80GB HBM3`, `1g.10gb+me`."""
    return _FOREIGN.sub("-", text.replace("+", ".")).strip("-").lower()
