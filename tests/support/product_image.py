"""The product's image for tests: built from the Containerfile on first use, read as an archive, given to a node.

Where the machine cannot build it, tests skip, or fail under REQUIRE_REAL=1.
"""

from __future__ import annotations

import functools
import tarfile
from pathlib import Path
from typing import Any, Final

import msgspec
import pytest

from dovetail.devcluster import go_build
from tests.support import gpu_node, real
from tools.image import build

NAME: Final = build.NAME


class Image(msgspec.Struct, frozen=True):
    """What an archive says and holds. Paths begin without a slash."""

    configuration: dict[str, Any]
    paths: frozenset[str]
    layer_bytes: tuple[int, ...]
    archive: Path

    @property
    def size_bytes(self) -> int:
        """What it takes on a disk."""
        return sum(self.layer_bytes)


def archive() -> Path:
    """The archive of the image of this checkout."""
    if problem := build.refusal():
        real.missing(problem)
    try:
        return build.archive()
    except go_build.BuildFailed as failed:
        pytest.fail(str(failed), pytrace=False)


@functools.cache
def image() -> Image:
    """The image of this checkout."""
    file = archive()
    with tarfile.open(file) as outer:
        manifest = _manifest(outer)
        configuration = msgspec.json.decode(_content(outer, manifest["Config"]))
        members: list[tarfile.TarInfo] = []
        sizes: list[int] = []
        for at in range(len(manifest["Layers"])):
            with _layer(outer, at) as layer:
                inside = layer.getmembers()
            members += inside
            sizes.append(sum(member.size for member in inside))
    paths = frozenset(member.name.removeprefix("./") for member in members)
    return Image(configuration, paths, tuple(sizes), file)


def give_to(node: gpu_node.GpuNode) -> None:
    """Gives the image to the node's containerd, as a registry would."""
    node.node.import_image(archive())


def _layer(outer: tarfile.TarFile, at: int) -> tarfile.TarFile:
    layer = outer.extractfile(_manifest(outer)["Layers"][at])
    assert layer is not None
    return tarfile.open(fileobj=layer)


def _manifest(outer: tarfile.TarFile) -> dict[str, Any]:
    (manifest,) = msgspec.json.decode(_content(outer, "manifest.json"))
    return dict(manifest)


def _content(outer: tarfile.TarFile, name: str) -> bytes:
    file = outer.extractfile(name)
    assert file is not None, name
    return file.read()
