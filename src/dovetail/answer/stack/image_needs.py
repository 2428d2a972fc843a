"""Which CUDA a container's image needs, how that is known, and what it declares about its host.

Given a pod and the document of one of its containers, and rows about images. The sources in order of trust: the pod's
annotation, the environment in the pod, the image's tag, rows by repository and month. What only the image itself says
is unknown: images are never read.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

import msgspec

from dovetail.answer.stack.compatibility_rows import CUDA, IMAGE, Relation, Rows
from dovetail.answer.stack.stack_facts import Fact, fact, unknown
from dovetail.gpus import image_requirements, image_tags
from dovetail.model import workload_annotations
from dovetail.quantity import dotted_versions

_CUDA_AT_LEAST: Final = re.compile(r"(?:^|[ ,])cuda>=(?P<version>\d[\d.]*)")
_CUDA_REPOSITORY: Final = re.compile(r"(?:^|/)nvidia/cuda$")
_TAG_NUMBERS: Final = re.compile(r"(?P<version>\d+\.\d+)")
MOST_CHARACTERS: Final = 16_384  # of the variables that are read


class ImageNeed(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What an image needs of a node, as far as it is known without reading the image."""

    image: str
    cuda: Fact
    requirements: tuple[str, ...] = ()  # of NVIDIA_REQUIRE_*, as the toolkit evaluates them
    compatibility_package: Fact = unknown("only the image says whether it carries cuda-compat")


def of_container(
    image: str,
    *,
    annotations: Mapping[str, str],
    environment: Mapping[str, str],
    rows: Rows,
) -> ImageNeed:
    """What one container needs."""
    bounded = {name: value[:MOST_CHARACTERS] for name, value in environment.items()}
    requirements = image_requirements.requirements_of(bounded)
    return ImageNeed(
        image=image,
        cuda=_cuda(image, annotations, bounded, rows),
        requirements=requirements,
        compatibility_package=_package(image, requirements),
    )


def _cuda(
    image: str, annotations: Mapping[str, str], environment: Mapping[str, str], rows: Rows
) -> Fact:
    annotation = annotations.get(workload_annotations.CUDA, "")
    if annotation:
        if dotted_versions.is_version(annotation):
            return fact(annotation, f"annotation {workload_annotations.CUDA}")
        return unknown(f"annotation {workload_annotations.CUDA} is {annotation[:40]!r}: no version")
    version = environment.get(image_requirements.CUDA_VERSION, "")
    if dotted_versions.is_version(version):
        return fact(version, f"environment {image_requirements.CUDA_VERSION}")
    required = environment.get(image_requirements.REQUIRE_CUDA, "")
    if match := _CUDA_AT_LEAST.search(required):
        return fact(match["version"].rstrip("."), f"environment {image_requirements.REQUIRE_CUDA}")
    stated = image_tags.stated_cuda(image)
    if stated is not None:
        return fact(f"{stated[0]}.{stated[1]}", "tag of the image")
    return _by_rows(image, rows)


def _by_rows(image: str, rows: Rows) -> Fact:
    repository, tag = image_tags.reference(image)
    month = _TAG_NUMBERS.match(tag)
    path = "/".join(repository.split("/")[-2:])
    if month is not None and dotted_versions.is_version(month["version"]):
        entry = rows.decides(
            Relation.CONTAINS, IMAGE, month["version"], other=CUDA, name=path.lower()
        )
        if entry is not None:
            return fact(entry.row.range.partition(" ")[2], f"row `{entry.row}`")
    return unknown("neither the pod nor the image's tag states it")


def _package(image: str, requirements: tuple[str, ...]) -> Fact:
    """Whether the image carries a forward-compatibility package: those that list driver branches do."""
    if any("driver" in text for text in requirements):
        return fact("yes", f"{image_requirements.REQUIRE_CUDA} lists driver branches")
    if _CUDA_REPOSITORY.search(image_tags.reference(image).repository):
        return fact("yes", "public CUDA base image")
    return unknown("only the image says whether it carries cuda-compat")
