"""What a queue's resource names stand for: counted resources, or a part of the one GPU ledger.

Given a name such as cpu, nvidia.com/gpu or gpu/product.NVIDIA-H100-80GB-HBM3; answers what it measures. GPUs are
counted in GPUs, with decimals: a slice or a share of a board is a part of one. Never reads a cluster, never sums up.
"""

from __future__ import annotations

import functools
import re
from enum import StrEnum
from typing import Final, NamedTuple

from dovetail.model import quotas

GPU: Final = "gpu"
GPU_SPELLINGS: Final = frozenset({GPU, "nvidia.com/gpu"})
PARTS: Final = ("product", "architecture", "mig")  # what may follow `gpu/`
EXPECTED: Final = (
    "expected cpu, memory, an extended resource such as example.com/nic, gpu, gpu/product.<product>, "
    "gpu/architecture.<architecture>, gpu/mig.<profile> or <class>.deviceclass.resource.k8s.io/devices"
)

_NAME: Final = re.compile(r"[a-zA-Z0-9](?:[-a-zA-Z0-9_.]*[a-zA-Z0-9])?(?:/[a-zA-Z0-9](?:[-a-zA-Z0-9_.]*[a-zA-Z0-9])?)?")
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
    subject: str = ""  # the resource, the device class, or the `slug` of a product, architecture or profile

    @property
    def is_silicon(self) -> bool:
        """Whether it is a part of the GPU ledger."""
        return self.measure is not Measure.AMOUNT


@functools.lru_cache(maxsize=1024)
def read(name: str) -> Resource | None:
    """What a name stands for; None if nobody can say. Spellings of one thing give one answer."""
    if name in GPU_SPELLINGS:
        return Resource(Measure.GPUS)
    if len(name) > _MAX_NAME or not _NAME.fullmatch(name):
        return None
    if name.endswith(quotas.DEVICES_SUFFIX):
        return Resource(Measure.DEVICE_CLASS, name.removesuffix(quotas.DEVICES_SUFFIX))
    head, slash, tail = name.partition("/")
    if head == GPU and slash:
        part, _, subject = tail.partition(".")
        return Resource(Measure(part), slug(subject)) if part in PARTS and subject else None
    return Resource(Measure.AMOUNT, name)


def slug(text: str) -> str:
    """A product, architecture or profile as resource names write it: `NVIDIA H100 80GB HBM3`, `1g.10gb+me`."""
    return _FOREIGN.sub("-", text.replace("+", ".")).strip("-").lower()
