"""`dovetail doctor` on saved clusters: tables and JSON, exit codes, text of others."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from tests.cli import running

TORN = """
apiVersion: resource.k8s.io/v1
kind: ResourceSlice
metadata: {name: torn}
spec:
  driver: fabric.example.com
  allNodes: true
  pool: {name: fabric, generation: 1, resourceSliceCount: 2}
  devices: [{name: port-0}]
"""


@pytest.fixture
def saved(state: Path, tmp_path: Path) -> Path:
    """The sample fleet, saved."""
    assert running.inside(state, "snapshot", "save", str(tmp_path / "saved")).code == 0
    return tmp_path / "saved"


def test_a_sound_cluster_ends_with_0_and_what_could_not_be_seen_is_said(
    saved: Path, empty: Path
) -> None:
    run = running.inside(empty, "doctor", "--snapshot", str(saved))
    assert run.code == 0
    assert not [line for line in run.lines if line.startswith("error")]
    assert "not checked: rights (a snapshot does not hold it)" in run.err
    assert run.err.splitlines()[-1].startswith("0 errors, 0 warnings, ")


def test_a_broken_one_ends_with_1_and_says_what_comes_next(
    state: Path, tmp_path: Path, empty: Path
) -> None:
    assert running.inside(state, "apply", "-f", "-", stdin=TORN).code == 0
    assert running.inside(state, "snapshot", "save", str(tmp_path / "torn")).code == 0
    run = running.inside(empty, "doctor", "--snapshot", str(tmp_path / "torn"))
    assert run.code == 1
    assert run.lines[:3] == [
        "error    slices: shows 1 of 2 slices of generation 1: its devices are not used",
        "         where: pool fabric of fabric.example.com",
        "         next: kubectl get resourceslices --field-selector spec.driver=fabric.example.com",
    ]
    messages = running.inside(empty, "doctor", "--snapshot", str(tmp_path / "torn"), "-o", "json")
    assert messages.code == 1
    assert (
        msgspec.json.decode(messages.out)["findings"][0]["where"]
        == "pool fabric of fabric.example.com"
    )


def test_the_configuration_says_what_is_ours(saved: Path, empty: Path, tmp_path: Path) -> None:
    file = tmp_path / "s.yaml"
    file.write_text(
        "apiVersion: dovetail.dev/v1alpha1\nkind: SchedulerConfiguration\nownership: {nodeLabels: {team: ml}}\n"
    )
    run = running.inside(empty, "doctor", "--snapshot", str(saved), "--config", str(file))
    assert run.code == 1
    assert "no node carries the labels of our nodes (team=ml)" in run.out


@pytest.mark.parametrize(
    "arguments",
    [("--snapshot", "x", "--context", "y"), ("--service-account", "nobody"), ("-o", "xml")],
)
def test_wrong_usage_ends_with_2(empty: Path, arguments: tuple[str, ...], tmp_path: Path) -> None:
    kubeconfig = tmp_path / "config"
    kubeconfig.write_text(
        "apiVersion: v1\nkind: Config\ncurrent-context: a\ncontexts: [{name: a, context: {cluster: a, user: a}}]\n"
        "clusters: [{name: a, cluster: {server: 'http://127.0.0.1:9'}}]\nusers: [{name: a, user: {}}]\n"
    )
    given = (
        arguments if "--snapshot" in arguments else (*arguments, "--kubeconfig", str(kubeconfig))
    )
    assert running.inside(empty, "doctor", *given).code == 2
