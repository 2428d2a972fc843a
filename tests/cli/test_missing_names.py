"""Names that do not exist: what is said about them, where they are, and what was probably meant."""

from __future__ import annotations

from pathlib import Path

import pytest

from dovetail.tables import missing_names
from tests.cli import running

PODS = [("a", "train-0"), ("a", "train-1"), ("b", "eval")]
WORK = """
apiVersion: v1
kind: Pod
metadata: {name: trainer, namespace: default}
spec: {containers: [{name: main, image: work}]}
"""


@pytest.mark.parametrize(
    ("name", "namespace", "ending"),
    [
        ("train-2", "a", "not found in namespace a; did you mean train-1 or train-0?"),
        ("eval", "a", "not found in namespace a; namespace b has it: -n b"),
        ("evil", "a", "not found in namespace a; did you mean eval in namespace b?"),
        ("evil", None, "not found; did you mean eval?"),
        ("zzz", "a", "not found in namespace a"),
    ],
)
def test_the_nearest_name_is_offered(name: str, namespace: str | None, ending: str) -> None:
    assert missing_names.sentence("pods", name, namespace, PODS) == f'pods "{name}" {ending}'


@pytest.mark.parametrize(
    ("command", "code", "hint"),
    [
        (("get", "pods", "trainr"), 1, "did you mean trainer?"),
        (("get", "pods", "trainer", "-n", "b"), 1, "namespace default has it: -n default"),
        (("get", "nodes", "h100-9"), 1, "did you mean h100-"),
        (("describe", "pod", "trainr"), 1, "did you mean trainer?"),
        (("describe", "node", "h100-9"), 1, "did you mean h100-"),
        (("delete", "pod", "trainr"), 1, "did you mean trainer?"),
        (("wait", "pod/trainr", "--for", "started"), 1, "did you mean trainer?"),
        (("logs", "trainr"), 1, "did you mean trainer?"),
        (("cancel", "trainr"), 1, "did you mean trainer?"),
        (("queue", "trainr"), 2, "did you mean trainer?"),
        (("when", "trainr"), 2, "did you mean trainer?"),
        (("capacity", "--like", "trainr"), 2, "did you mean trainer?"),
        (("what-if", "--end", "pod/trainr"), 2, "did you mean trainer?"),
        (("explain", "pod.spek"), 1, "did you mean spec?"),
    ],
)
def test_every_command_offers_the_nearest_name(
    state: Path, command: tuple[str, ...], code: int, hint: str
) -> None:
    assert running.inside(state, "apply", "-f", "-", stdin=WORK).code == 0
    done = running.inside(state, *command)
    assert (done.code, done.out) == (code, "")
    assert hint in done.err


def test_a_saved_cluster_offers_them_too(state: Path, tmp_path: Path) -> None:
    assert running.inside(state, "apply", "-f", "-", stdin=WORK).code == 0
    saved = str(tmp_path / "saved")
    assert running.inside(state, "snapshot", "save", saved).code == 0
    for verb in ("get", "describe"):
        done = running.inside(state, verb, "pod", "trainr", "--snapshot", saved)
        assert (done.code, done.out) == (1, "")
        assert "not found in namespace default; did you mean trainer?" in done.err


@pytest.mark.parametrize(
    "options",
    [
        ("--sort-by", "{{{"),
        ("-o", "custom-columns=X"),
        ("-o", "custom-columns=NAME:.a[[["),
        ("-o", "jsonpath={.a"),
    ],
)
def test_a_path_that_cannot_be_read_is_refused_before_anything_else(
    tmp_path: Path, options: tuple[str, ...]
) -> None:
    done = running.inside(tmp_path / "no-cluster", "get", "pods", *options)
    assert (done.code, done.out) == (2, "")
    assert done.err.startswith("error: ")
    assert "no cluster" not in done.err
