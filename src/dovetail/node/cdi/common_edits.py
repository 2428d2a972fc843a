"""What every container with a GPU gets, whichever GPU it is: control nodes, driver libraries and programs, hooks.

Given the driver root and version, returns the edits with paths as the host sees them. The list follows what NVIDIA's
container toolkit injects for compute; where the toolkit itself is installed, `toolkit` asks it instead. Reads the file
system, never changes it.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from dovetail.node.cdi import elf_soname, spec
from dovetail.node.cdi.driver_root import DriverRoot, needed_groups

NO_DEVICES: Final = (
    "NVIDIA_VISIBLE_DEVICES=void"  # keeps older toolkits from adding GPUs of their own
)

_CONTROL_NODES: Final = (
    "/dev/nvidia-modeset",
    "/dev/nvidia-uvm-tools",
    "/dev/nvidia-uvm",
    "/dev/nvidiactl",
)
_PROGRAMS: Final = (
    "nvidia-smi",
    "nvidia-debugdump",
    "nvidia-persistenced",
    "nvidia-cuda-mps-control",
    "nvidia-cuda-mps-server",
    "nvidia-imex",
    "nvidia-imex-ctl",
)
_SOCKETS: Final = ("nvidia-persistenced/socket", "nvidia-fabricmanager/socket")
_SOCKET_FOLDERS: Final = ("run", "var/run")
_FIRMWARE: Final = ("gsp*.bin", "ucodes*.bin")
_READ_ONLY: Final = ("ro", "nosuid", "nodev", "rbind", "rprivate")
_SOCKET_OPTIONS: Final = ("nosuid", "nodev", "rbind", "rprivate", "noexec")
_CREATE_CONTAINER: Final = "createContainer"  # when the runtime calls the hooks
# Links that programs expect although no library's SONAME asks for them.
_EXTRA_LINKS: Final = {
    "libcuda.so": ("libcuda.so.1", "libcuda.so"),
    "libnvidia-opticalflow.so": ("libnvidia-opticalflow.so.1", "libnvidia-opticalflow.so"),
}


def common_edits(root: DriverRoot, *, driver_version: str, hook_path: str) -> spec.Edits:
    """The edits for this driver. Raises FileNotFoundError if the root has no driver of that version."""
    folders = root.library_folders(driver_version)
    if not folders:
        raise FileNotFoundError(f"{root.seen}: no libraries of driver {driver_version} below it")
    libraries = [path for folder in folders for path in _libraries(root, folder, driver_version)]
    nodes = [root.device_node(path) for path in _CONTROL_NODES]
    present = tuple(node for node in nodes if node is not None)
    folder_names = [root.in_container(folder) for folder in folders]
    return spec.Edits(
        env=(NO_DEVICES, f"NVIDIA_CTK_LIBCUDA_DIR={':'.join(folder_names)}"),
        device_nodes=present,
        mounts=_mounts(root, libraries, driver_version),
        hooks=_hooks(root, libraries, driver_version=driver_version, hook_path=hook_path),
        additional_gids=needed_groups(present),
    )


def _libraries(root: DriverRoot, folder: Path, version: str) -> tuple[Path, ...]:
    found = [
        *root.matches(folder, f"*.so.{version}"),
        *root.matches(folder / "vdpau", f"*.so.{version}"),
        *root.matches(folder, "libnvidia-nvvm70.so.*"),
        *root.matches(folder, "libnvidia-egl-*.so.*.*"),
    ]
    return tuple(dict.fromkeys(found))


def _mounts(root: DriverRoot, libraries: list[Path], version: str) -> tuple[spec.Mount, ...]:
    programs = [root.program(name) for name in _PROGRAMS]
    firmware = [
        path
        for pattern in _FIRMWARE
        for path in root.files(f"lib/firmware/nvidia/{version}/{pattern}")
    ]
    read_only = [*libraries, *firmware, *(path for path in programs if path is not None)]
    mounts = [_mount(root, path, _READ_ONLY) for path in read_only]
    for name in _SOCKETS:
        candidates = [root.seen / folder / name for folder in _SOCKET_FOLDERS]
        socket = next((path for path in candidates if path.exists()), None)
        if socket is not None:
            mounts.append(_mount(root, socket, _SOCKET_OPTIONS))
    return tuple(mounts)


def _mount(root: DriverRoot, path: Path, options: tuple[str, ...]) -> spec.Mount:
    return spec.Mount(
        host_path=root.on_host(path), container_path=root.in_container(path), options=options
    )


def _hooks(
    root: DriverRoot, libraries: list[Path], *, driver_version: str, hook_path: str
) -> tuple[spec.Hook, ...]:
    links = [link for library in libraries for link in _links(root, library)]
    folders = [root.in_container(library.parent) for library in libraries]
    link_options = [option for link in dict.fromkeys(links) for option in ("--link", link)]
    folder_options = [option for name in dict.fromkeys(folders) for option in ("--folder", name)]
    graphics_links = [link for library in libraries for link in _graphics_links(root, library)]
    graphics_options = [option for link in graphics_links for option in ("--link", link)]
    calls = [
        ("create-symlinks", *graphics_options),
        ("create-symlinks", *link_options),
        ("enable-cuda-compat", f"--host-driver-version={driver_version}"),
        ("update-ldcache", *folder_options),
        ("disable-device-node-modification",),
        ("update-application-profile",),
    ]
    return tuple(hook(hook_path, *call) for call in calls if call != ("create-symlinks",))


def hook(hook_path: str, *arguments: str) -> spec.Hook:
    """A call of NVIDIA's hook program; as a part of nvidia-ctk it is the subcommand `hook`."""
    name = Path(hook_path).name
    prefix = (name, "hook") if name == "nvidia-ctk" else (name,)
    return spec.Hook(
        hook_name=_CREATE_CONTAINER,
        path=hook_path,
        args=(*prefix, *arguments),
        env=("NVIDIA_CTK_DEBUG=false",),
    )


def _graphics_links(root: DriverRoot, library: Path) -> list[str]:
    """Where graphics loaders look for parts of the driver."""
    folder = root.in_container(library.parent)
    stem = library.name.partition(".so")[0]
    if stem == "libnvidia-allocator":
        return [f"../libnvidia-allocator.so.1::{folder}/gbm/nvidia-drm_gbm.so"]
    if stem == "libnvidia-vulkan-producer":
        return [f"{library.name}::{folder}/{stem}.so"]
    return []


def _links(root: DriverRoot, library: Path) -> list[str]:
    """The links of a library as target::link: its SONAME, and the name without a version, where the host has them."""
    folder = root.in_container(library.parent)
    stem = library.name.partition(".so")[0] + ".so"
    links: list[str] = []
    if stem in _EXTRA_LINKS:
        target, link = _EXTRA_LINKS[stem]
        links.append(f"{target}::{folder}/{link}")
    if stem == "libGLX_nvidia.so":
        links.append(f"{library.name}::{folder}/libGLX_indirect.so.0")
    name = elf_soname.soname(library)
    if name and name != library.name and (library.parent / name).is_symlink():
        links.append(f"{library.name}::{folder}/{name}")
    target = name or library.name
    if stem != target and (library.parent / stem).is_symlink():
        links.append(f"{target}::{folder}/{stem}")
    return links
