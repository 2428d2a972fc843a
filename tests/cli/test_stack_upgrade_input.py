"""`dovetail stack upgrade` and `plan` on input that cannot be meant: what, where, what next, and nothing touched."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.answer.what_if import building
from tests.cli import running

START = ("stack", "upgrade", "--to", "driver=580.95.05", "--allow-unknown")
POLICIES = [
    ("waves: {canary: -1}", "waves.canary: -1: expected 0 or more"),
    ("waves: {canary: 1000}", "canary 1000: the roll-out has 26 nodes; give fewer"),
    ("waves: {maxUnavailable: 0}", 'max unavailable "0": no node could ever go; allow 1 or more'),
    ("waves: {maxUnavailable: 101%}", '"101%": expected a number of nodes'),
    ("stop: {failures: 0}", "stop.failures: 0: expected 1 or more"),
    ("drain: {timeoutSeconds: 0}", "drain.timeoutSeconds: 0: expected 1 or more"),
    ("adapter: nonsense", 'adapter "nonsense": expected one of node-agent, gpu-operator'),
    (
        "nodeSelector: {matchExpressions: [{key: pool, operator: Like}]}",
        'operator "Like" of pool: expected one of In, NotIn, Exists, DoesNotExist',
    ),
    ("nodeSelector: {matchLabels: {pool: none}}", "no nodes with GPUs are selected"),
]


@pytest.mark.parametrize(("policy", "why"), POLICIES)
def test_a_policy_that_cannot_be_meant_starts_nothing(
    state: Path, tmp_path: Path, policy: str, why: str
) -> None:
    file = tmp_path / "policy.yaml"
    file.write_text(policy)
    run = running.inside(state, *START, "--policy", str(file))
    assert run.code == 2, run.out
    assert why in run.err
    listed = running.inside(state, "stack", "upgrade", "status", "-o", "json")
    assert json.loads(listed.out)["items"] == []


def test_a_number_of_nodes_may_be_written_as_a_number(state: Path, tmp_path: Path) -> None:
    file = tmp_path / "policy.yaml"
    file.write_text("waves: {maxUnavailable: 3}")
    run = running.inside(state, *START, "--policy", str(file), "--dry-run", "-o", "json")
    assert run.code == 0, run.err
    assert json.loads(run.out)["spec"]["waves"]["maxUnavailable"] == "3"


def test_the_next_command_is_the_one_that_was_rehearsed(state: Path, tmp_path: Path) -> None:
    file = tmp_path / "policy.yaml"
    file.write_text("waves: {canary: 2}")
    run = running.inside(state, *START, "--policy", str(file), "--name", "roll", "--dry-run")
    assert run.code == 0, run.err
    assert (
        "next: dovetail stack upgrade --to driver=580.95.05 --allow-unknown"
        f" --policy {file} --name roll\n"
    ) in run.err


def test_a_plan_that_no_order_could_meet_says_so_once(tmp_path: Path) -> None:
    nodes = [building.plugin_node(f"n{number}", gpus=8) for number in range(3)]
    dump = tmp_path / "cluster.json"
    dump.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": nodes}))
    for words, why in (
        (("--max-unavailable", "0%"), "no node could ever go"),
        (("--canary", "4"), "canary 4: the roll-out has 3 nodes; give fewer"),
        (("--nodes", "pool=none"), "`dovetail stack inventory` shows their GPUs"),
    ):
        plan = ("stack", "plan", "--to", "driver=580.95.05", "--snapshot", str(dump))
        run = running.inside(tmp_path / "none", *plan, *words)
        assert (run.code, run.out) == (2, "")
        assert why in run.err
