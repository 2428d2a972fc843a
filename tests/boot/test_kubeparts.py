"""The programs of Kubernetes come from the pins, or from a directory the user names."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from dovetail.devcluster import kube_binaries
from tests.support import cluster


def assets(
    directory: Path, *, leave_out: tuple[str, ...] = (), reported: str = "Kubernetes v1.37.9"
) -> Path:
    directory.mkdir()
    for name in kube_binaries.PROGRAMS:
        if name not in leave_out:
            (directory / name).write_text(f"#!/bin/sh\necho {reported}\n")
            (directory / name).chmod(0o755)
    return directory


def taken(directory: Path, version: str = "1.37") -> kube_binaries.Parts:
    return kube_binaries.binaries(version, environ={kube_binaries.ASSETS_VARIABLE: str(directory)})


@pytest.mark.parametrize("version", kube_binaries.VERSIONS)
def test_a_pin_names_a_patch_version_of_its_minor_version(version: str) -> None:
    assert kube_binaries.pinned(version).startswith(f"v{version}.")
    assert (
        f"gitVersion={kube_binaries.pinned(version)} "
        in kube_binaries.recipe(version).link_flags + " "
    )


def test_an_unknown_version_lists_the_known_ones() -> None:
    with pytest.raises(
        kube_binaries.PartsMissing, match=r"no pins for Kubernetes 1\.20; known: 1\.37, 1\.36"
    ):
        kube_binaries.binaries("1.20", environ={})


def test_a_given_directory_is_taken_as_it_is(tmp_path: Path) -> None:
    path = assets(tmp_path / "assets")
    parts = taken(path)
    assert (parts.version, parts.minor) == ("v1.37.9", "1.37")
    assert parts.apiserver == path / "kube-apiserver"
    assert {
        parts.etcd,
        parts.apiserver,
        parts.controller_manager,
        parts.scheduler,
        parts.kubectl,
    } == set(path.iterdir())


def test_what_a_given_directory_lacks_is_named(tmp_path: Path) -> None:
    path = assets(tmp_path / "assets", leave_out=("kube-controller-manager", "kube-scheduler"))
    with pytest.raises(
        kube_binaries.PartsMissing, match="lacks kube-controller-manager, kube-scheduler;"
    ):
        taken(path)
    with pytest.raises(kube_binaries.PartsMissing, match="lacks etcd, kube-apiserver, "):
        taken(tmp_path / "nowhere")


def test_a_given_directory_of_another_version_is_refused(tmp_path: Path) -> None:
    with pytest.raises(
        kube_binaries.PartsMissing, match=r"Kubernetes 1\.36 was requested, but .* holds v1\.37\.9"
    ):
        taken(assets(tmp_path / "assets"), "1.36")


def test_a_given_program_that_is_no_apiserver_is_refused(tmp_path: Path) -> None:
    with pytest.raises(kube_binaries.PartsMissing, match="ended with 0 and said: something else"):
        taken(assets(tmp_path / "silent", reported="something else"))
    path = assets(tmp_path / "broken")
    (path / "kube-apiserver").write_text("neither a script nor a program")
    with pytest.raises(kube_binaries.PartsMissing, match="cannot be run"):
        taken(path)


def test_without_go_the_way_out_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(kube_binaries.PartsMissing, match="install Go, or set KUBEBUILDER_ASSETS"):
        kube_binaries.binaries(environ={})


@pytest.mark.slow
@pytest.mark.parametrize("version", cluster.EACH_VERSION)
def test_the_programs_are_of_the_version_that_was_asked_for(version: str) -> None:
    parts = cluster.parts(version)
    for program in (parts.apiserver, parts.controller_manager, parts.scheduler):
        messages = subprocess.run(
            [program, "--version"], capture_output=True, text=True, check=True
        )
        assert messages.stdout == f"Kubernetes {parts.version}\n"
    messages = subprocess.run([parts.etcd, "--version"], capture_output=True, text=True, check=True)
    assert messages.stdout.startswith("etcd Version: 3.")
