"""What a node offers to an image's requirements: CUDA, driver, compute capability and brand of its GPUs.

Given the node's labels of feature discovery and the attribute values that its devices publish. A value that is not
known, or not the same for all devices, is None: it then neither meets nor fails a requirement. Never guesses.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from dovetail.gpus import image_requirements
from dovetail.model import node_pools
from dovetail.quantity import dotted_versions

DRIVER: Final = "nvidia.com/cuda.driver-version"
RUNTIME: Final = "nvidia.com/cuda.runtime-version"
# The names before gpu-feature-discovery 0.15, which newer releases still write.
_OLD_DRIVER: Final = "nvidia.com/cuda.driver"
_OLD_RUNTIME: Final = "nvidia.com/cuda.runtime"
COMPUTE: Final = "nvidia.com/gpu.compute"

DRIVER_VERSION: Final = "driverVersion"
CUDA_DRIVER_VERSION: Final = "cudaDriverVersion"
COMPUTE_CAPABILITY: Final = "cudaComputeCapability"
BRAND: Final = "brand"
PRODUCT_NAME: Final = "productName"
ATTRIBUTES: Final = (
    DRIVER_VERSION,
    CUDA_DRIVER_VERSION,
    COMPUTE_CAPABILITY,
    BRAND,
    PRODUCT_NAME,
)

Version = tuple[int, int]

_VERSION: Final = re.compile(r"(?P<major>\d{1,3})\.(?P<minor>\d{1,3})(?:\.\d+)*")
_MOST_CHARACTERS: Final = 63  # of a label's value
_BRANDS: Final = (
    ("geforce rtx", "geforcertx"),
    ("geforce", "geforce"),
    ("titan", "titan"),
    ("quadro rtx", "quadrortx"),
    ("quadro", "quadro"),
    ("tesla", "tesla"),
    ("rtx", "nvidiartx"),
)
_DATA_CENTRE: Final = "nvidia"


class Labelled(NamedTuple):
    """What the labels of a node say about its driver."""

    cuda: Version | None
    driver: str


class Properties(NamedTuple):
    """What requirements are compared with; None is not known."""

    cuda: str | None = None
    driver: str | None = None
    arch: str | None = None
    brand: str | None = None

    def by_name(self) -> dict[str, str | None]:
        """As the evaluation of requirements takes them."""
        return {
            image_requirements.CUDA: self.cuda,
            image_requirements.DRIVER: self.driver,
            image_requirements.ARCH: self.arch,
            image_requirements.BRAND: self.brand,
        }


def of_node(labels: Mapping[str, str], values: Mapping[str, Sequence[str]]) -> Properties:
    """The properties of one node: what its devices publish first, then its labels."""
    labelled = of_labels(labels)
    return Properties(
        cuda=_cuda(labelled, values.get(CUDA_DRIVER_VERSION, ())),
        driver=_driver(labelled, values.get(DRIVER_VERSION, ())),
        arch=_compute(labels, values.get(COMPUTE_CAPABILITY, ())),
        brand=_brand(labels, values),
    )


def of_labels(labels: Mapping[str, str]) -> Labelled:
    """The driver and its CUDA as gpu-feature-discovery writes them."""
    major = labels.get(f"{RUNTIME}.major") or labels.get(f"{_OLD_RUNTIME}.major", "")
    minor = labels.get(f"{RUNTIME}.minor") or labels.get(f"{_OLD_RUNTIME}.minor", "")
    cuda = None
    if _is_number(major) and _is_number(minor):
        cuda = (int(major), int(minor))
    elif match := _VERSION.match(labels.get(f"{RUNTIME}.full", "")[:_MOST_CHARACTERS]):
        cuda = int(match["major"]), int(match["minor"])
    driver = labels.get(f"{DRIVER}.full", "")
    if not driver:
        parts = [labels.get(f"{_OLD_DRIVER}.{part}", "") for part in ("major", "minor", "rev")]
        driver = ".".join(filter(None, parts))
    return Labelled(cuda, driver)


def brand_of(product: str) -> str:
    """The brand by which requirements call a product; empty where there is no product."""
    name = product.lower().replace("-", " ").removeprefix("nvidia ")
    if not name:
        return ""
    brands = [brand for word, brand in _BRANDS if name.startswith(word)]
    return brands[0] if brands else _DATA_CENTRE


def driver_property(version: str) -> str | None:
    """A driver's version as requirements compare it: at most three numbers, without leading zeros."""
    if not dotted_versions.is_version(version):
        return None
    numbers = dotted_versions.parse(version)
    return ".".join(map(str, numbers[:3]))


def _cuda(labelled: Labelled, published: Sequence[str]) -> str | None:
    if len(published) > 1:
        return None
    if published and dotted_versions.is_version(published[0]):
        return dotted_versions.shortened(published[0], 2)
    return f"{labelled.cuda[0]}.{labelled.cuda[1]}" if labelled.cuda is not None else None


def _driver(labelled: Labelled, published: Sequence[str]) -> str | None:
    if len(published) > 1:
        return None
    return driver_property(published[0] if published else labelled.driver)


def _compute(labels: Mapping[str, str], published: Sequence[str]) -> str | None:
    if published:
        shortened = {".".join(version.split(".")[:2]) for version in published}
        return shortened.pop() if len(shortened) == 1 else None
    major, minor = labels.get(f"{COMPUTE}.major", ""), labels.get(f"{COMPUTE}.minor", "")
    return f"{major}.{minor}" if _is_number(major) and _is_number(minor) else None


def _brand(labels: Mapping[str, str], values: Mapping[str, Sequence[str]]) -> str | None:
    stated = values.get(BRAND, ())
    if stated:
        return stated[0].lower() if len(stated) == 1 else None
    products = values.get(PRODUCT_NAME, ()) or tuple(
        filter(None, [labels.get(node_pools.PRODUCT, "")])
    )
    brands = {brand_of(product) for product in products}
    return brands.pop() if len(brands) == 1 else None


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdecimal() and len(text) < 6
