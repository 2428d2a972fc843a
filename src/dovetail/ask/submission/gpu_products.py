"""The GPU types of a cluster, and which of them a user means: `h100`, `a100-80gb`, `NVIDIA-H100-80GB-HBM3`.

Read from what drivers publish (productName and architecture of devices) and from the product labels of nodes whose GPUs
a device plugin counts; no list of types is kept here. Given the objects of a cluster. Never prints.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Final

import msgspec

from dovetail import errors
from dovetail.kubetypes import object_set
from dovetail.kubetypes.resource import slices
from dovetail.model import node_pools
from dovetail.tables import text
from dovetail.tables.gpus import gpu_tiles, plugin_gpus

MAKER: Final = "nvidia"
_WORD: Final = re.compile(r"[a-z0-9.]+")


class GpuType(msgspec.Struct, frozen=True, kw_only=True):
    """One product, how its GPUs are offered, and how many of them are free.

    `sample` is one of the whole GPUs that a driver publishes; None where a device plugin counts them.
    """

    product: str  # as the driver or the label writes it
    architecture: str = ""
    driver: str = ""  # empty: a device plugin counts them
    label: str = ""  # of nodes, by which a device plugin's GPUs are selected
    sample: slices.Device | None = None
    partition: slices.Device | None = None  # one of its MIG partitions
    total: int = 0
    free: int = 0
    most_free: int = 0  # on one node
    most_on_node: int = 0
    profiles: tuple[str, ...] = ()  # of the MIG partitions on offer
    is_shareable: bool = False

    @property
    def is_published(self) -> bool:
        """Whether a DRA driver publishes these GPUs."""
        return bool(self.driver)

    @property
    def word(self) -> str:
        """What to type for it."""
        return "-".join(_words(self.product))

    @property
    def counts(self) -> str:
        """How many there are and are free, for people."""
        return f"{self.free} of {self.total} free"


def types_of(objects: object_set.ObjectSet) -> tuple[GpuType, ...]:
    """Every type of the cluster, most GPUs first. Needs nodes, slices, claims, and pods for device plugins."""
    by_identity: dict[tuple[str, str], GpuType] = {}
    samples = _samples(objects)
    resources = plugin_gpus.used_in(objects)
    for node in gpu_tiles.nodes_with_gpus(objects):
        driver = node_pools.GPU_DRIVER if node.pools else ""
        label, value = ("", "") if driver else _label(node)
        by_product: dict[str, list[gpu_tiles.Gpu]] = {}
        for gpu in node.gpus:
            by_product.setdefault(gpu.product if driver else value, []).append(gpu)
        for product, gpus in by_product.items():
            free = sum(gpu.state == gpu_tiles.FREE and gpu.has_whole for gpu in gpus)
            before = by_identity.get((driver, product))
            if before is None:
                before = GpuType(product=product, driver=driver, label=label)
            sample = samples[product] if driver else _Sample()
            if not driver:
                sample.profiles |= _counted_profiles(node, resources.get(node.name, {}))
            profiles = sample.profiles | set(before.profiles)
            by_identity[driver, product] = msgspec.structs.replace(
                before,
                architecture=sample.architecture,
                sample=sample.whole,
                partition=sample.partition,
                total=before.total + len(gpus),
                free=before.free + free,
                most_free=max(before.most_free, free),
                most_on_node=max(before.most_on_node, len(gpus)),
                profiles=tuple(sorted(profiles, key=text.natural)),
                is_shareable=before.is_shareable or any(gpu.is_shareable for gpu in gpus),
            )
    return tuple(sorted(by_identity.values(), key=lambda each: (-each.total, each.product)))


def matching(
    typed: str, types: Sequence[GpuType], *, has_counts: bool = True
) -> tuple[GpuType, ...]:
    """The types that a user's word means. Raises InputError with the types there are, and what is free of them."""
    matches = tuple(each for each in types if _is_meant(typed, each))
    if matches:
        return matches
    raise errors.InputError(f'no GPU type "{typed}" in this cluster; {_listed(types, has_counts)}')


def _listed(types: Sequence[GpuType], has_counts: bool) -> str:
    if not types:
        return "it has no GPUs"
    rows = []
    for each in types:
        counts = [each.counts] if has_counts else []
        rows.append([each.word, *counts, text.product(each.product)])
    return "\n".join(["these are:", *(f"  {line}" for line in text.aligned(rows))])


def selector_of(types: Iterable[GpuType]) -> str:
    """The device selector that chooses these products among what one driver publishes."""
    products = [each.product for each in types]
    driver = next(each.driver for each in types)
    attribute = f'device.attributes["{driver}"].productName'
    if len(products) == 1:
        return f"{attribute} == {_quoted(products[0])}"
    return f"{attribute} in [{', '.join(map(_quoted, products))}]"


class _Sample(msgspec.Struct):
    """What devices of one product have in common."""

    architecture: str = ""
    whole: slices.Device | None = None
    partition: slices.Device | None = None
    profiles: set[str] = msgspec.field(default_factory=set)


def _samples(objects: object_set.ObjectSet) -> dict[str, _Sample]:
    """By product, one of its whole GPUs and the profiles of its partitions."""
    samples: dict[str, _Sample] = {}
    for item in gpu_tiles.items(objects):
        if item.driver != node_pools.GPU_DRIVER:
            continue
        sample = samples.setdefault(item.word("productName"), _Sample())
        sample.architecture = sample.architecture or item.word("architecture")
        match item.word("type"):
            case "gpu":
                sample.whole = sample.whole or item.device
            case "mig":
                sample.partition = sample.partition or item.device
                sample.profiles.add(item.word("profile"))
    return samples


def _label(node: gpu_tiles.NodeGpus) -> tuple[str, str]:
    """The label that names the product, with its value: a node selector needs both."""
    labels = (node_pools.PRODUCT, *node_pools.ACCELERATOR_LABELS)
    pairs = ((label, node.label(label)) for label in labels)
    return next((pair for pair in pairs if pair[1]), ("", node.products))


def _counted_profiles(node: gpu_tiles.NodeGpus, used: dict[str, int]) -> set[str]:
    resources = plugin_gpus.resources_of(node.node, used)
    return {each.profile for each in resources if each.profile}


def _is_meant(typed: str, gpu_type: GpuType) -> bool:
    """Whether every word typed is a word of the product, or all of them together are some in a row.

    So `a100-80gb` means "A100-SXM4-80GB", `rtx4090` means "RTX 4090", and `h10` is not "H100".
    """
    words, typed_words = _words(gpu_type.product), _words(typed)
    if not typed_words:
        return False
    if typed.strip().lower() == gpu_type.architecture.lower():
        return True
    if set(typed_words) <= set(words):
        return True
    joined = "".join(typed_words)
    return any(
        joined == "".join(words[first:last])
        for first in range(len(words))
        for last in range(first + 1, len(words) + 1)
    )


def _words(name: str) -> list[str]:
    """The words of a product name in lower case, without the maker."""
    words = _WORD.findall(name.lower())
    return words[1:] if words[:1] == [MAKER] else words


def _quoted(value: str) -> str:
    """A CEL string."""
    escaped = value.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'
