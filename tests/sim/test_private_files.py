"""State is its owner's: directories only it may write to, files only it may read, no link followed."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from dovetail import errors
from dovetail.boot import embedded_setup
from dovetail.devcluster import certificates, dev_cluster, kube_flags, processes
from dovetail.files import private_files, state_directory
from tests.cli import running


def mode(path: Path) -> int:
    """Who may do what with it."""
    return stat.S_IMODE(path.stat().st_mode)


@pytest.fixture(autouse=True)
def _generous() -> object:
    """The umask of a user who shares everything with the group."""
    before = os.umask(0o002)
    yield
    os.umask(before)


SETUP = embedded_setup.Setup(name="tiny")


def test_a_directory_is_made_for_the_owner_alone_and_so_are_those_above(tmp_path: Path) -> None:
    state = tmp_path / "above" / "state"
    private_files.make_directory(state)
    embedded_setup.write(state, SETUP)
    assert [mode(state.parent), mode(state)] == [0o700, 0o700]
    assert {file.name: mode(file) for file in state.iterdir()} == {"setup.json": 0o600}


@pytest.mark.parametrize("bits", [0o770, 0o707, 0o777, 0o1777])
def test_a_directory_others_may_write_to_is_refused_and_left_alone(
    tmp_path: Path, bits: int
) -> None:
    state = tmp_path / "state"
    state.mkdir()
    state.chmod(bits)
    done = running.inside(state, "up", "--empty")
    assert (done.code, done.out) == (1, "")
    assert f"{state}: others may write to it (mode {bits:04o}); run chmod go-w on it" in done.err
    assert list(state.iterdir()) == []
    assert mode(state) == bits


def test_a_directory_others_may_only_read_will_do(tmp_path: Path) -> None:
    state = tmp_path / "state"
    state.mkdir()
    state.chmod(0o755)
    private_files.make_directory(state)
    embedded_setup.write(state, SETUP)
    assert mode(state / "setup.json") == 0o600


def test_a_directory_of_another_user_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    state = tmp_path / "state"
    state.mkdir(mode=0o700)
    owner = os.geteuid()
    monkeypatch.setattr(os, "geteuid", lambda: owner + 1)
    done = running.inside(state, "up", "--empty")
    assert (done.code, done.out) == (1, "")
    assert (
        f"belongs to another user (uid {owner}); name a directory of your own with --state"
        in done.err
    )
    assert list(state.iterdir()) == []


@pytest.mark.parametrize("name", ["setup.json.new", "setup.json"])
def test_a_link_where_state_is_written_is_replaced_not_followed(tmp_path: Path, name: str) -> None:
    state, victim = tmp_path / "state", tmp_path / "victim"
    private_files.make_directory(state)
    victim.write_bytes(b"theirs")
    (state / name).symlink_to(victim)
    embedded_setup.write(state, SETUP)
    assert victim.read_bytes() == b"theirs"
    assert not (state / "setup.json").is_symlink()
    assert [file.name for file in state.iterdir()] == ["setup.json"]


def test_a_link_in_place_of_the_lock_counts_as_no_process(tmp_path: Path) -> None:
    state, victim = tmp_path / "state", tmp_path / "victim"
    private_files.make_directory(state)
    victim.write_text(str(os.getpid()))
    (state / "lock").symlink_to(victim)
    assert state_directory.running_pid(state) is None


def test_a_write_that_fails_leaves_what_was_there(tmp_path: Path) -> None:
    file = tmp_path / "file"
    private_files.replace(file, b"old")
    with pytest.raises(TypeError):
        private_files.replace(file, "no bytes")  # type: ignore[arg-type]
    assert file.read_bytes() == b"old"
    assert [one.name for one in tmp_path.iterdir()] == ["file"]


def test_secrets_of_a_control_plane_are_the_owners_alone(tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.write_bytes(b"untouched")
    pki = tmp_path / "pki"
    authority = certificates.Authority(pki)
    pair = authority.client("admin", ["system:masters"])
    assert mode(pki) == 0o700
    assert [mode(authority.pair.key), mode(pair.key)] == [0o600, 0o600]
    kubeconfig, tokens, roster = (
        tmp_path / name for name in ("kubeconfig", "tokens", "roster.json")
    )
    for file in (kubeconfig, tokens, roster):
        file.symlink_to(victim)
    kube_flags.write_kubeconfig(
        kubeconfig, port=1, ca=authority.pair.certificate, user="a", token="secret"
    )
    kube_flags.write_tokens(tokens, [])
    processes.ProcessRecords(roster)._write({})
    assert [mode(file) for file in (kubeconfig, tokens, roster)] == [0o600] * 3
    assert victim.read_bytes() == b"untouched"


def test_a_cluster_is_not_started_in_a_directory_others_may_write_to(tmp_path: Path) -> None:
    place = tmp_path / "dev"
    place.mkdir()
    place.chmod(0o777)
    with pytest.raises(errors.StateError, match=r"others may write to it .* with --dir"):
        dev_cluster.up(place, dev_cluster.sized_fleet(1), version="none", say=lambda _: None)
    assert list(place.iterdir()) == []
    made = tmp_path / "made"
    dev_cluster._claim(made)
    assert [mode(made), mode(made / dev_cluster.STATE)] == [0o700, 0o600]
