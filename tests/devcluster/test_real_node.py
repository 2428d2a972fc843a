"""What a real node is made of, as far as it shows without running one."""

from __future__ import annotations

import io
import itertools
import os
import re
import subprocess
import tarfile
import tomllib
from pathlib import Path

import msgspec
import pytest

from dovetail import errors
from dovetail.devcluster import free_ports, kube_binaries, processes
from dovetail.devcluster.real_node import (
    cgroups,
    container_image,
    machine,
    node_agent_rights,
    node_config,
    node_layout,
    node_programs,
    node_record,
)
from tools.nvidia import build as nvidia

MODULES = Path(__file__).resolve().parents[2] / "tools"
SOCKET_PATH_BYTES = 107  # of sockaddr_un, without the final zero
LONGEST_HOME = node_layout.HOMES / f"{node_layout.HOME_PREFIX}abcdef"
LAYOUT = node_layout.NodeLayout(name="gpu-0", home=LONGEST_HOME)
PROGRAMS = node_programs.Programs(
    kubelet=Path("/b/kubelet"),
    containerd=Path("/b/containerd"),
    ctr=Path("/b/ctr"),
    container=Path("/b/container"),
    runc=Path("/usr/sbin/runc"),
    cni=Path("/usr/lib/cni"),
)


def pins(module: Path) -> dict[str, str]:
    text = (module / "go.mod").read_text(encoding="utf-8")
    return dict(re.findall(r"^\t(\S+) (v\S+)(?: // indirect)?$", text, re.MULTILINE))


def test_the_kubelet_is_built_of_the_modules_that_the_control_plane_is_built_of() -> None:
    of_the_plane = pins(MODULES / "kube" / f"v{node_programs.VERSION}")
    of_the_kubelet = pins(MODULES / "node" / "kubelet")
    common = of_the_plane.keys() & of_the_kubelet.keys()
    assert len(common) > 50
    # Another version of one module would compile all that imports it a second time.
    assert {name for name in common if of_the_plane[name] != of_the_kubelet[name]} == set()


def test_the_kubelet_reports_the_version_of_the_control_plane() -> None:
    version = kube_binaries.pinned(node_programs.VERSION)
    (kubelet,) = [r for r in node_programs.recipes() if r.programs == (node_programs.KUBELET,)]
    assert kubelet.title == f"kubelet {version}"
    assert kubelet.link_flags == kube_binaries.recipe(node_programs.VERSION).link_flags


def test_the_toolkit_is_the_one_that_nvidias_programs_are_tested_with() -> None:
    assert node_programs.toolkit() == nvidia.recipe(nvidia.TOOLKIT)


def test_the_agent_gets_the_rights_of_the_chart_under_a_name_of_its_own() -> None:
    trees = node_agent_rights.chart_objects()
    assert [tree["kind"] for tree in trees] == list(node_agent_rights.KINDS)
    assert {tree["metadata"]["name"] for tree in trees} & {"dovetail-node-agent"} == set()
    assert [tree for tree in trees if "labels" in tree["metadata"]] == []


def test_every_source_of_the_programs_is_there() -> None:
    sources = [source for recipe in node_programs.recipes() for source in recipe.sources]
    assert [source for source in sources if not source.is_file()] == []


def test_the_same_program_gives_the_same_image() -> None:
    assert container_image.archive(b"program") == container_image.archive(b"program")
    assert container_image.archive(b"program") != container_image.archive(b"another")


def test_an_image_holds_the_program_and_pauses_without_arguments() -> None:
    with tarfile.open(fileobj=io.BytesIO(container_image.archive(b"program"))) as image:
        files = {entry.name: image.extractfile(entry) for entry in image}
        contents = {name: file.read() for name, file in files.items() if file is not None}
    (manifest,) = msgspec.json.decode(contents["manifest.json"])
    assert manifest["RepoTags"] == [container_image.NAME]
    configuration = msgspec.json.decode(contents[manifest["Config"]])
    assert configuration["config"]["Entrypoint"] == [container_image.ENTRY_POINT]
    assert configuration["config"]["Cmd"] == ["pause"]

    (layer,) = manifest["Layers"]
    with tarfile.open(fileobj=io.BytesIO(contents[layer])) as files_of_layer:
        (program,) = files_of_layer.getmembers()
    assert (f"/{program.name}", program.mode, program.size) == (
        container_image.ENTRY_POINT,
        0o755,
        len(b"program"),
    )


def test_the_sockets_of_the_longest_named_plugins_fit_into_the_kernels_limit() -> None:
    registration = f"compute-domain.nvidia.com-{'0' * len('uid')}-reg.sock"
    sockets = [
        LAYOUT.kubelet_root / "plugins_registry" / registration,
        LAYOUT.kubelet_root / "plugins" / "compute-domain.nvidia.com" / "dra.sock",
        LAYOUT.kubelet_root / "device-plugins" / "nvidia-gpu.sock",
        LAYOUT.kubelet_root / "pod-resources" / "kubelet.sock",
        LAYOUT.containerd_socket.with_name("containerd.sock.ttrpc"),
    ]
    assert [path for path in sockets if len(os.fsencode(path)) > SOCKET_PATH_BYTES] == []


def test_containerd_writes_only_below_the_home_and_finds_cdi_specs_there() -> None:
    tree = tomllib.loads(
        node_config.containerd_configuration(LAYOUT, PROGRAMS, snapshotter="overlayfs")
    )
    plugins = tree["plugins"]
    written = [tree["root"], tree["state"], tree["grpc"]["address"]]
    written.append(plugins["io.containerd.internal.v1.opt"]["path"])
    assert [path for path in written if not path.startswith(f"{LONGEST_HOME}/")] == []
    runtime = plugins["io.containerd.cri.v1.runtime"]
    assert runtime["cdi_spec_dirs"] == [str(LAYOUT.cdi)]


def test_the_kubelet_listens_on_loopback_and_leaves_the_machine_as_it_is() -> None:
    ports = node_config.Ports(server=12_001, health=12_002)
    configuration = node_config.kubelet_configuration(LAYOUT, ports)
    assert (configuration["address"], configuration["healthzBindAddress"]) == (
        "127.0.0.1",
        "127.0.0.1",
    )
    assert configuration["makeIPTablesUtilChains"] is False
    assert configuration["authentication"]["anonymous"] == {"enabled": False}
    assert configuration["cgroupRoot"] == f"/{LAYOUT.cgroup}"


def test_nodes_with_different_ports_have_different_networks_for_their_pods() -> None:
    numbers = (free_ports.RANGE[0], free_ports.RANGE[1], free_ports.RANGE[-1])
    networks = [node_config.pod_network(node_config.Ports(number, 1)) for number in numbers]
    assert not any(a.overlaps(b) for a, b in itertools.combinations(networks, 2))
    assert all(network.subnet_of(node_config.POD_NETWORKS) for network in networks)


def test_a_boot_keeps_the_disk_and_clears_the_memory(tmp_path: Path) -> None:
    layout = node_layout.NodeLayout(name="gpu-0", home=tmp_path)
    machine.prepare(layout)
    first_boot = layout.boot_id.read_text()
    (layout.kubelet_root / "checkpoint").touch()
    (layout.cdi / "spec.json").touch()

    machine.prepare(layout)
    assert layout.boot_id.read_text() != first_boot
    assert (layout.kubelet_root / "checkpoint").exists()
    assert list(layout.cdi.iterdir()) == []


def test_every_setting_that_a_machine_covers_exists_in_this_kernel() -> None:
    settings = [Path("/proc/sys") / setting for setting in machine.SETTINGS]
    assert [setting for setting in settings if not setting.exists()] == []


def test_a_node_is_recorded_before_it_is_made_and_only_once(tmp_path: Path) -> None:
    homes = tmp_path / "homes"
    homes.mkdir()
    directory = tmp_path / "cluster"
    layout = node_record.create(directory, "gpu-0", homes=homes)
    assert layout.home.parent == homes
    with pytest.raises(errors.StateError, match="a node gpu-0 is already in"):
        node_record.create(directory, "gpu-0", homes=homes)

    # As if the starter had been killed between the record and the home.
    layout.home.rmdir()
    assert node_record.remove_all(directory) == ["gpu-0"]
    assert node_record.remove_all(directory) == []


def test_what_a_killed_process_left_is_removed_and_what_others_use_is_not(tmp_path: Path) -> None:
    ended = subprocess.Popen(["true"])
    killed = processes.recorded("starter", ended.pid, log=tmp_path)
    ended.wait()
    ours = node_record.create(tmp_path / "a", "gpu-0", is_tethered=True, homes=tmp_path)
    outliving = node_record.create(tmp_path / "b", "gpu-0", homes=tmp_path)
    orphan = node_record.create(tmp_path / "c", "gpu-0", is_tethered=True, homes=tmp_path)
    (orphan.home / node_record.STARTER).write_bytes(msgspec.json.encode(killed))

    assert node_record.remove_orphans(homes=tmp_path) == [orphan.home]
    assert (ours.home.exists(), outliving.home.exists(), orphan.home.exists()) == (
        True,
        True,
        False,
    )
    assert node_record.remove_orphans(homes=tmp_path) == []


def test_an_unreadable_record_is_not_taken_for_a_removed_node(tmp_path: Path) -> None:
    (tmp_path / f"gpu-0{node_record.SUFFIX}").write_text("{")
    with pytest.raises(errors.StateError, match=r"gpu-0\.node\.json cannot be read"):
        node_record.remove_all(tmp_path)


def test_the_hierarchies_of_cgroups_are_found() -> None:
    assert cgroups.hierarchies() != []
    assert [place for place in cgroups.hierarchies() if not place.is_dir()] == []
