"""The fields of a Pod that matter to a drain and that scheduling does not read: volumes, environment, privileges.

Given the document of a stored pod. Never judges what the fields mean.
"""

from __future__ import annotations

import msgspec

from dovetail.kubetypes import codec


class Present(msgspec.Struct, frozen=True, gc=False):
    """An object of which only the presence counts."""


class HostPath(msgspec.Struct, frozen=True, gc=False):
    """A directory or file of the node."""

    path: str = ""


class Volume(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    """A volume that lives on the node, if it is of these kinds."""

    name: str = ""
    empty_dir: Present | None = None
    host_path: HostPath | None = None


class EnvVar(msgspec.Struct, frozen=True, gc=False):
    """A variable with a literal value; one that is filled in from elsewhere has none."""

    name: str = ""
    value: str = ""


class SecurityContext(msgspec.Struct, frozen=True, gc=False):
    """The privileges of a container."""

    privileged: bool | None = None


class Container(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    """What a container sees and may do."""

    name: str = ""
    env: tuple[EnvVar, ...] = ()
    security_context: SecurityContext | None = None


class Spec(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    """What of the spec matters."""

    volumes: tuple[Volume, ...] = ()
    containers: tuple[Container, ...] = ()
    init_containers: tuple[Container, ...] = ()


class PodDetails(msgspec.Struct, frozen=True, gc=False):
    """The pod, as far as it matters."""

    spec: Spec = Spec()

    @property
    def has_local_storage(self) -> bool:
        """Whether a volume goes with the pod: an emptyDir of any medium, as kubectl judges it."""
        return any(volume.empty_dir is not None for volume in self.spec.volumes)

    @property
    def host_paths(self) -> tuple[str, ...]:
        """The paths of the node that the pod mounts."""
        volumes = self.spec.volumes
        return tuple(volume.host_path.path for volume in volumes if volume.host_path is not None)

    @property
    def all_containers(self) -> tuple[Container, ...]:
        """Init containers and containers."""
        return (*self.spec.init_containers, *self.spec.containers)


def of(stored: codec.Stored) -> PodDetails:
    """The details of a stored pod. Raises DecodeError where the document is not such a pod."""
    return codec.decode_struct(PodDetails, stored.document)
