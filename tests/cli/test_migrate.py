"""`dovetail migrate`: objects on stdout that apply as they are, the account on stderr, and honest exit codes."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
import yaml

from tests.cli import running

KUEUE = str(running.EXAMPLES / "migrate" / "kueue.yaml")
KAI = str(running.EXAMPLES / "migrate" / "kai.yaml")


@pytest.mark.parametrize(("scheduler", "file"), [("kueue", KUEUE), ("kai", KAI)])
def test_what_is_printed_applies_and_every_queue_is_ready(state: Path, scheduler: str, file: str) -> None:
    done = running.inside(state, "migrate", scheduler, "-f", file)
    assert done.code == 0
    assert [one["kind"] for one in yaml.safe_load_all(done.out)].count("Queue") == 3
    assert "carried over" in done.err
    applied = running.inside(state, "apply", "-f", "-", stdin=done.out)
    assert applied.code == 0, applied.err
    assert running.inside(state, "get", "queues").column("READY") == ["yes"] * 3


def test_the_account_names_each_field_with_its_fate_and_counts_them(state: Path) -> None:
    done = running.inside(state, "migrate", "kueue", "-f", KUEUE)
    lines = done.err.splitlines()
    assert "  carried over  spec.cohortName -> spec.parent" in lines
    dropped = "  dropped       spec.resourceGroups[1].flavors[1].resources[0].lendingLimit: quota that is not used"
    assert any(line.startswith(dropped) for line in lines)
    assert any(line.startswith("  added         gpu/product.NVIDIA-A100-SXM4-80GB: limit 0:") for line in lines)
    assert lines[-2].startswith("5 objects made; fields: ")
    quiet = running.inside(state, "migrate", "kueue", "-f", KUEUE, "--quiet")
    assert "carried over  " not in quiet.err
    assert quiet.out == done.out
    assert quiet.err.splitlines()[-2] == lines[-2]


def test_strict_fails_where_something_is_dropped_and_says_the_same(state: Path) -> None:
    loose, strict = (running.inside(state, "migrate", "kai", "-f", KAI, *more) for more in ((), ("--strict",)))
    assert (loose.code, strict.code) == (0, 1)
    assert loose.out == strict.out


def test_json_is_one_list(state: Path) -> None:
    done = running.inside(state, "migrate", "kai", "-f", KAI, "-o", "json")
    assert [one["kind"] for one in msgspec.json.decode(done.out)["items"]] == ["Queue", "Queue", "Queue", "Topology"]


def test_a_directory_and_a_list_of_kubectl_are_read(state: Path, tmp_path: Path) -> None:
    trees = list(yaml.safe_load_all(Path(KAI).read_text(encoding="utf-8")))
    for tree in trees:
        tree["metadata"] |= {"uid": "1", "resourceVersion": "2", "creationTimestamp": "2026-01-01T00:00:00Z"}
        tree["status"] = {"childQueues": ["x"]}
    listed = {"apiVersion": "v1", "kind": "List", "items": trees}
    (tmp_path / "all.json").write_bytes(msgspec.json.encode(listed))
    done = running.inside(state, "migrate", "kai", "-f", str(tmp_path))
    assert done.code == 0, done.err
    assert done.out == running.inside(state, "migrate", "kai", "-f", KAI).out
    assert "  left out      status: the server's own, not its owner's wish" in done.err.splitlines()


def test_objects_of_somebody_else_are_named_and_nothing_is_made_of_them(state: Path) -> None:
    pod = "apiVersion: v1\nkind: Pod\nmetadata: {name: p}\nspec: {containers: [{name: a, image: b}]}\n"
    done = running.inside(state, "migrate", "kueue", "-f", "-", stdin=pod)
    assert (done.code, done.out) == (0, "")
    assert "all of it: objects of the core group, kind Pod, are not converted" in done.err
    assert "0 objects made" in done.err


def test_what_cannot_be_read_is_refused(state: Path) -> None:
    done = running.inside(state, "migrate", "kueue", "-f", "-", stdin="kind: [\n")
    assert (done.code, done.out) == (1, "")
    assert "nothing was converted: 1 problem" in done.err
    assert running.inside(state, "migrate", "kueue", "-f", "nowhere.yaml").code == 1
    assert running.inside(state, "migrate", "slurm", "-f", KUEUE).code == 2
