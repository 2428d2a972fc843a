"""Writes a container image that holds one static program, as the archive format of `docker save`.

Given the program and the image's name, returns the archive's bytes; the same input gives the same bytes. Never asks a
registry: containerd imports the archive.
"""

from __future__ import annotations

import hashlib
import io
import tarfile
from typing import Final

import msgspec

NAME: Final = "localhost/dovetail-container:dev"  # no registry serves it: pods must not pull it
ENTRY_POINT: Final = "/container"
# The same for every build, so that the image's digest changes with its program alone.
_CREATED: Final = "1970-01-01T00:00:00Z"


def archive(program: bytes, *, name: str = NAME) -> bytes:
    """The archive of an image with this program as its entry point. Without arguments it is a pause container."""
    layer = _tar({ENTRY_POINT.lstrip("/"): (program, 0o755)})
    layer_digest = hashlib.sha256(layer).hexdigest()
    configuration = msgspec.json.encode(
        {
            "architecture": _architecture(program),
            "os": "linux",
            "created": _CREATED,
            "config": {"Entrypoint": [ENTRY_POINT], "Cmd": ["pause"], "WorkingDir": "/"},
            "rootfs": {"type": "layers", "diff_ids": [f"sha256:{layer_digest}"]},
            "history": [{"created": _CREATED}],
        }
    )
    configuration_file = f"{hashlib.sha256(configuration).hexdigest()}.json"
    layer_file = f"{layer_digest}/layer.tar"
    manifest = msgspec.json.encode(
        [{"Config": configuration_file, "RepoTags": [name], "Layers": [layer_file]}]
    )
    return _tar(
        {
            configuration_file: (configuration, 0o644),
            layer_file: (layer, 0o644),
            "manifest.json": (manifest, 0o644),
        }
    )


def _tar(files: dict[str, tuple[bytes, int]]) -> bytes:
    """A tar file; times and owners are zero."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.USTAR_FORMAT) as tar:
        for path, (content, mode) in files.items():
            entry = tarfile.TarInfo(path)
            entry.size = len(content)
            entry.mode = mode
            tar.addfile(entry, io.BytesIO(content))
    return buffer.getvalue()


def _architecture(program: bytes) -> str:
    """What the program was built for, in Go's words, from the machine field of its ELF header."""
    machine = int.from_bytes(program[18:20], "little")
    return {62: "amd64", 183: "arm64"}.get(machine, "amd64")
