"""Device plugins on fake hardware, called as the kubelet calls them; and NVIDIA's own one as an oracle.

Given hardware and a plugin's options, starts it without a kubelet. Returns what it lists, prefers and allocates for
each resource, and the CDI file it wrote. Never judges an answer.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import msgspec
import yaml

from tests.nvidia import kubelet_messages, programs

SOCKETS: Final = "/var/lib/kubelet/device-plugins"  # fixed in the plugin
CDI_FILES: Final = "/run/cdi"  # the same
HEALTHY: Final = "Healthy"

Tree = dict[str, Any]


class ListedDevice(msgspec.Struct, frozen=True, kw_only=True):
    """One device of ListAndWatch."""

    id: str
    health: str
    numa_nodes: tuple[int, ...] = ()


class Allocation(msgspec.Struct, frozen=True, kw_only=True):
    """What one container gets."""

    environment: dict[str, str]
    devices: tuple[str, ...]
    mounts: tuple[tuple[str, str], ...]
    annotations: dict[str, str]
    cdi_devices: tuple[str, ...]


class PluginNode:
    """One running device plugin. Resources go by the part after `nvidia.com/`: gpu, mig-1g.10gb, gpu.shared."""

    def __init__(
        self, home: Path, command: Sequence[str], *, prefix: str, resources: Sequence[str]
    ) -> None:
        """Sockets are `home`/device-plugins/`prefix`<resource>.sock; `resources` are those to wait for."""
        self._home = home
        self._prefix = prefix
        self._running = programs.Running(command, log=home / "plugin.log")
        self._sockets = {resource: self._connected(resource) for resource in resources}

    def resources(self) -> list[str]:
        """All resources it serves."""
        paths = (self._home / "device-plugins").glob(f"{self._prefix}*.sock")
        return sorted(path.stem.removeprefix(self._prefix) for path in paths)

    def devices(self, resource: str = "gpu") -> list[ListedDevice]:
        """What it lists now, by id."""
        stream = self._stream(resource)
        listed = next(stream)
        stream.cancel()
        return sorted(_listed(listed), key=lambda device: device.id)

    def preferred(
        self,
        available: Sequence[str],
        size: int,
        *,
        must_include: Sequence[str] = (),
        resource: str = "gpu",
    ) -> list[str]:
        """Which of the available devices it would choose."""
        container = _message("ContainerPreferredAllocationRequest")(
            available_deviceIDs=available,
            must_include_deviceIDs=must_include,
            allocation_size=size,
        )
        answer = self._sockets[resource].call(
            "GetPreferredAllocation",
            _message("PreferredAllocationRequest")(container_requests=[container]),
            "PreferredAllocationResponse",
        )
        return list(answer.container_responses[0].deviceIDs)

    def allocate(self, device_ids: Sequence[str], *, resource: str = "gpu") -> Allocation:
        """What a container with these devices gets. Raises grpc.RpcError where the plugin refuses."""
        container = _message("ContainerAllocateRequest")(devices_ids=device_ids)
        answer = self._sockets[resource].call(
            "Allocate",
            _message("AllocateRequest")(container_requests=[container]),
            "AllocateResponse",
        )
        return _allocation(answer.container_responses[0])

    def cdi_spec(self) -> Tree | None:
        """The CDI file of all devices; None where the plugin wrote none."""
        paths = list((self._home / "cdi").glob("k8s.device-plugin.nvidia.com-gpu.*"))
        if not paths:
            return None
        (path,) = paths
        tree: Tree = yaml.safe_load(path.read_text(encoding="utf-8"))  # JSON is YAML too
        return tree

    def log(self) -> str:
        """All the plugin wrote."""
        return self._running.full_log()

    def stop(self) -> None:
        """Ends the plugin."""
        for socket in self._sockets.values():
            socket.close()
        self._running.stop()
        shutil.rmtree(self._home, ignore_errors=True)

    def _connected(self, resource: str) -> kubelet_messages.Socket:
        path = self._home / "device-plugins" / f"{self._prefix}{resource}.sock"
        self._running.wait_until(path.exists, f"the socket of nvidia.com/{resource}")
        return kubelet_messages.Socket(path, kubelet_messages.DEVICE_PLUGIN, "DevicePlugin")

    def _stream(self, resource: str) -> Any:
        return self._sockets[resource].stream(
            "ListAndWatch", _message("Empty")(), "ListAndWatchResponse"
        )


class DevicePluginOracle(PluginNode):
    """NVIDIA's own plugin, without a kubelet."""

    def __init__(
        self,
        hardware: Any,
        *,
        resources: Sequence[str] = ("gpu",),
        mig_strategy: str = "none",
        device_list_strategy: str = "cdi-cri",
        config: Tree | None = None,
    ) -> None:
        """`config` is the plugin's configuration file, such as time slicing."""
        programs.require_mounts()
        home = Path(tempfile.mkdtemp(prefix="nvdp-"))
        words: list[str | Path] = [
            programs.program("nvidia-device-plugin"),
            "--kubelet-socket=",
            f"--mig-strategy={mig_strategy}",
            f"--device-list-strategy={device_list_strategy}",
            f"--driver-root={hardware.driver_root}",
            f"--container-driver-root={hardware.driver_root}",
            f"--nvidia-cdi-hook-path={programs.HOOK}",
        ]
        if config is not None:
            path = home / "config.yaml"
            path.write_text(yaml.safe_dump({"version": "v1", **config}), encoding="utf-8")
            words.append(f"--config-file={path}")
        command = programs.wrapped(
            words,
            mounts=[*programs.hardware_mounts(hardware), *_own_folders(home)],
            environment=programs.hardware_environment(hardware),
        )
        super().__init__(home, command, prefix="nvidia-", resources=resources)


def _own_folders(home: Path) -> list[tuple[str | Path, str]]:
    """The fixed folders of the plugin, which nothing else on the machine sees."""
    for name in ("device-plugins", "cdi"):
        (home / name).mkdir()
    return [
        ("tmpfs", "/var/lib"),
        (home / "device-plugins", SOCKETS),
        ("tmpfs", "/run"),
        (home / "cdi", CDI_FILES),
    ]


def _message(name: str) -> type[Any]:
    return kubelet_messages.message_class(kubelet_messages.DEVICE_PLUGIN, name)


def _listed(answer: Any) -> list[ListedDevice]:
    return [
        ListedDevice(
            id=device.ID,
            health=device.health,
            numa_nodes=tuple(node.ID for node in device.topology.nodes),
        )
        for device in answer.devices
    ]


def _allocation(answer: Any) -> Allocation:
    return Allocation(
        environment=dict(answer.envs),
        devices=tuple(device.host_path for device in answer.devices),
        mounts=tuple((mount.host_path, mount.container_path) for mount in answer.mounts),
        annotations=dict(answer.annotations),
        cdi_devices=tuple(device.name for device in answer.cdi_devices),
    )
