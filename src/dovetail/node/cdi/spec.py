"""A CDI specification as structs, and its text: the devices a container may ask for and what each adds to it.

Structs with the names of the Container Device Interface; only the fields the agent writes. `text` writes the lowest
version of the specification that has all fields used, so that older runtimes can read it. Never touches a file.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec
import yaml

_HOST_PATH_SINCE: Final = "0.5.0"  # hostPath of a device node
_GROUPS_SINCE: Final = "0.7.0"  # additionalGids


class DeviceNode(
    msgspec.Struct, frozen=True, gc=False, kw_only=True, rename="camel", omit_defaults=True
):
    """A device file in the container."""

    path: str
    host_path: str = ""
    type: str = ""  # c; where it is empty the runtime looks at the node of the host
    major: int = 0
    minor: int = 0
    file_mode: int | None = None
    permissions: str = ""
    gid: int | None = None


class Mount(
    msgspec.Struct, frozen=True, gc=False, kw_only=True, rename="camel", omit_defaults=True
):
    """A file or folder of the host in the container."""

    host_path: str
    container_path: str
    options: tuple[str, ...] = ()


class Hook(msgspec.Struct, frozen=True, gc=False, kw_only=True, rename="camel", omit_defaults=True):
    """A program the runtime calls."""

    hook_name: str
    path: str
    args: tuple[str, ...] = ()
    env: tuple[str, ...] = ()


class Edits(
    msgspec.Struct, frozen=True, gc=False, kw_only=True, rename="camel", omit_defaults=True
):
    """What changes in a container."""

    env: tuple[str, ...] = ()
    device_nodes: tuple[DeviceNode, ...] = ()
    mounts: tuple[Mount, ...] = ()
    hooks: tuple[Hook, ...] = ()
    additional_gids: tuple[int, ...] = ()

    def __add__(self, other: Edits) -> Edits:
        return Edits(
            env=_unique(self.env + other.env),
            device_nodes=_unique(self.device_nodes + other.device_nodes),
            mounts=_unique(self.mounts + other.mounts),
            hooks=_unique(self.hooks + other.hooks),
            additional_gids=_unique(self.additional_gids + other.additional_gids),
        )


class Device(msgspec.Struct, frozen=True, gc=False, kw_only=True, rename="camel"):
    """A device by name."""

    name: str
    container_edits: Edits


class Spec(msgspec.Struct, frozen=True, gc=False, kw_only=True, rename="camel"):
    """One file: devices of one kind, and edits for a container that uses any of them."""

    cdi_version: str
    kind: str
    devices: tuple[Device, ...]
    container_edits: Edits = Edits()


def spec_of(kind: str, devices: tuple[Device, ...], common: Edits) -> Spec:
    """A specification in the lowest version that can express it."""
    everything = [common, *(device.container_edits for device in devices)]
    has_groups = any(edits.additional_gids for edits in everything)
    version = _GROUPS_SINCE if has_groups else _HOST_PATH_SINCE
    return Spec(cdi_version=version, kind=kind, devices=devices, container_edits=common)


def text(spec: Spec) -> bytes:
    """The YAML of the file."""
    tree: Any = msgspec.json.decode(msgspec.json.encode(spec))
    return yaml.dump(tree, Dumper=yaml.CSafeDumper, sort_keys=False, encoding="utf-8")


def parse(content: bytes) -> Spec:
    """A specification that `text` wrote. Raises ValueError for anything else."""
    try:
        tree = yaml.load(content, Loader=yaml.CSafeLoader)
        return msgspec.convert(tree, type=Spec)
    except (yaml.YAMLError, msgspec.ValidationError, RecursionError) as error:
        raise ValueError(f"not a CDI specification: {error}") from None


def _unique(entries: tuple[Any, ...]) -> tuple[Any, ...]:
    return tuple(entry for index, entry in enumerate(entries) if entry not in entries[:index])
