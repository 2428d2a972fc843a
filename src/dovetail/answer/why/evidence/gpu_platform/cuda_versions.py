"""Which CUDA an image needs and which CUDA a node's driver offers, as far as the pod and labels say.

Given a container of a pod spec and a node. An image's CUDA stands in its environment or its tag; the driver's in the
labels of gpu-feature-discovery. Both may be unknown. Never reads an image.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final, NamedTuple

from dovetail.answer.why.evidence.sources import fields, quoting
from dovetail.answer.why.evidence.sources.fields import Tree
from dovetail.gpus import host_properties, image_tags
from dovetail.gpus.host_properties import Version

_REQUIRED: Final = re.compile(r"cuda\s*>=\s*(?P<major>\d{1,3})\.(?P<minor>\d{1,3})")
_VERSION: Final = re.compile(r"(?P<major>\d{1,3})\.(?P<minor>\d{1,3})(?:\.\d+)*")


class Needed(NamedTuple):
    """The CUDA an image needs and where that stands."""

    version: Version
    source: str


class Offered(NamedTuple):
    """What the labels of a node say about its driver."""

    cuda: Version | None
    driver: str


def needed(container: Tree) -> Needed | None:
    """The CUDA of a container of a pod spec; None where nothing says it."""
    environment = {
        fields.text_at(each, "name"): fields.text_at(each, "value")
        for each in fields.trees_at(container, "env")
    }
    if match := _REQUIRED.search(environment.get("NVIDIA_REQUIRE_CUDA", "")[:4_096]):
        return Needed(_pair(match), "NVIDIA_REQUIRE_CUDA")
    if match := _VERSION.match(environment.get("CUDA_VERSION", "")[:64]):
        return Needed(_pair(match), "CUDA_VERSION")
    stated = image_tags.stated_cuda(fields.text_at(container, "image"))
    return Needed(stated, "its tag") if stated is not None else None


def offered(labels: Mapping[str, str]) -> Offered:
    """What a node's labels say, fit to be quoted."""
    labelled = host_properties.of_labels(labels)
    return Offered(labelled.cuda, quoting.words(labelled.driver, 40))


def compared(need: Needed | None, have: Offered) -> str:
    """Both in a few words, for the end of a sentence; empty where neither is known."""
    parts = []
    if need is not None:
        parts.append(f"the image needs CUDA {_text(need.version)} ({need.source})")
    if have.cuda is not None:
        driver = f"driver {have.driver}" if have.driver else "the driver"
        parts.append(f"{driver} offers {_text(have.cuda)}")
    elif have.driver:
        parts.append(f"the node's driver is {have.driver}")
    return ", ".join(parts)


def is_newer_than_driver(need: Needed | None, have: Offered) -> bool:
    """Whether the image is of a newer CUDA than the driver offers."""
    return need is not None and have.cuda is not None and need.version > have.cuda


def _pair(match: re.Match[str]) -> Version:
    return int(match["major"]), int(match["minor"])


def _text(version: Version) -> str:
    return f"{version[0]}.{version[1]}"
