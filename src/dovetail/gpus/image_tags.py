"""The CUDA that the name of an image states: `cuda:13.0.2-base`, `2.11.0-cuda12.8-cudnn9`, `v0.29.0-cu129`.

Given the name of an image. Never reads the image, never knows what a month or a release contains.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

MOST_CHARACTERS: Final = 512  # of a name; OCI allows 255 and a tag of 128

_VERSION: Final = re.compile(r"(?P<major>\d{1,3})\.(?P<minor>\d{1,3})(?:\.\d+)*")
_IN_TAG: Final = re.compile(r"cuda[-_]?(?P<major>\d{1,3})\.(?P<minor>\d{1,3})")
_SHORT_IN_TAG: Final = re.compile(r"(?:^|[-_.+])cu(?P<major>1[0-9])(?P<minor>\d)(?:$|[-_.+])")
_CUDA_IMAGE: Final = re.compile(r"(?:^|/)cuda$")


class Reference(NamedTuple):
    """The name of an image in its parts. A registry's host stays with the repository."""

    repository: str
    tag: str


def reference(image: str) -> Reference:
    """Repository and tag; the tag is empty where only a digest, or nothing, is given."""
    name, colon, tag = image[:MOST_CHARACTERS].partition("@")[0].rpartition(":")
    if not colon or "/" in tag:  # the colon is that of a port
        return Reference(image[:MOST_CHARACTERS].partition("@")[0], "")
    return Reference(name, tag)


def stated_cuda(image: str) -> tuple[int, int] | None:
    """Major and minor version that the tag states; None where it states none."""
    repository, tag = reference(image)
    if not repository or not tag:
        return None
    match = _IN_TAG.search(tag) or _SHORT_IN_TAG.search(tag)
    if match is None and _CUDA_IMAGE.search(repository):
        match = _VERSION.match(tag)
    return (int(match["major"]), int(match["minor"])) if match else None
