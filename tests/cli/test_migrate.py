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
def test_what_is_printed_applies_and_every_queue_is_ready(
    state: Path, scheduler: str, file: str
) -> None:
    done = running.inside(state, "migrate", scheduler, "-f", file)
    assert done.code == 0
    assert [item["kind"] for item in yaml.safe_load_all(done.out)].count("Queue") == 3
    assert "carried over" in done.err
    applied = running.inside(state, "apply", "-f", "-", stdin=done.out)
    assert applied.code == 0, applied.err
    assert running.inside(state, "get", "queues").column("READY") == ["yes"] * 3


def test_the_account_names_each_field_with_its_fate_and_counts_them(state: Path) -> None:
    done = running.inside(state, "migrate", "kueue", "-f", KUEUE)
    lines = done.err.splitlines()
    assert "  carried over  spec.cohortName -> spec.parent" in lines
    dropped = "  dropped       spec.resourceGroups[1].flavors[1].resources[0].lendingLimit: unused quota is lent"
    assert any(line.startswith(dropped) for line in lines)
    assert any(
        line.startswith("  added         gpu/product.NVIDIA-A100-SXM4-80GB: limit 0:")
        for line in lines
    )
    assert lines[-2].startswith("5 objects made; fields: ")
    quiet = running.inside(state, "migrate", "kueue", "-f", KUEUE, "--quiet")
    assert "carried over  " not in quiet.err
    assert quiet.out == done.out
    assert quiet.err.splitlines()[-2] == lines[-2]


def test_strict_fails_where_something_is_dropped_and_says_the_same(state: Path) -> None:
    loose, strict = (
        running.inside(state, "migrate", "kai", "-f", KAI, *more) for more in ((), ("--strict",))
    )
    assert (loose.code, strict.code) == (0, 1)
    assert loose.out == strict.out


def test_json_is_one_list(state: Path) -> None:
    done = running.inside(state, "migrate", "kai", "-f", KAI, "-o", "json")
    assert [item["kind"] for item in msgspec.json.decode(done.out)["items"]] == [
        "Queue",
        "Queue",
        "Queue",
        "Topology",
    ]


def test_a_directory_and_a_list_of_kubectl_are_read(state: Path, tmp_path: Path) -> None:
    trees = list(yaml.safe_load_all(Path(KAI).read_text(encoding="utf-8")))
    for tree in trees:
        tree["metadata"] |= {
            "uid": "1",
            "resourceVersion": "2",
            "creationTimestamp": "2026-01-01T00:00:00Z",
        }
        tree["status"] = {"childQueues": ["x"]}
    listed = {"apiVersion": "v1", "kind": "List", "items": trees}
    (tmp_path / "all.json").write_bytes(msgspec.json.encode(listed))
    done = running.inside(state, "migrate", "kai", "-f", str(tmp_path))
    assert done.code == 0, done.err
    assert done.out == running.inside(state, "migrate", "kai", "-f", KAI).out
    assert (
        "  left out      status: written by the server, not by the owner" in done.err.splitlines()
    )


def test_objects_of_other_kinds_are_named_and_not_converted(state: Path) -> None:
    pod = "apiVersion: v1\nkind: Pod\nmetadata: {name: p}\nspec: {containers: [{name: a, image: b}]}\n"
    done = running.inside(state, "migrate", "kueue", "-f", "-", stdin=pod)
    assert (done.code, done.out) == (1, "")
    assert "all of it: objects of the core group, kind Pod, are not converted" in done.err
    assert "error: no objects of Kueue found\n" in done.err
    beside = running.inside(state, "migrate", "kueue", "-f", KUEUE, "-f", "-", stdin=pod)
    assert beside.code == 0
    assert "next:" not in beside.err, "standard input cannot be read twice"


def test_the_wrong_scheduler_name_gets_the_right_one(state: Path) -> None:
    done = running.inside(state, "migrate", "kueue", "-f", KAI)
    assert (done.code, done.out) == (1, "")
    assert (
        f"error: no objects of Kueue found; for those of KAI Scheduler: dovetail migrate kai -f {KAI}"
        in done.err
    )


def test_the_next_command_names_every_file(state: Path, tmp_path: Path) -> None:
    (tmp_path / "more of it.yaml").write_text(
        Path(KAI).read_text(encoding="utf-8"), encoding="utf-8"
    )
    done = running.inside(
        state, "migrate", "kai", "-f", KAI, "-f", str(tmp_path / "more of it.yaml")
    )
    last = (
        f"next: dovetail migrate kai -f {KAI} -f '{tmp_path}/more of it.yaml' | kubectl apply -f -"
    )
    assert done.err.splitlines()[-1] == last


def test_pod_groups_alone_make_no_objects_and_are_no_error(state: Path) -> None:
    alone = "apiVersion: scheduling.run.ai/v2alpha2\nkind: PodGroup\nmetadata: {name: p}\nspec: {minMember: 2}\n"
    done = running.inside(state, "migrate", "kai", "-f", "-", stdin=alone)
    assert (done.code, done.out) == (0, "")
    assert "dovetail.dev/gang-min: 2" in done.err


def test_what_cannot_be_read_is_refused(state: Path) -> None:
    done = running.inside(state, "migrate", "kueue", "-f", "-", stdin="kind: [\n")
    assert (done.code, done.out) == (1, "")
    assert "nothing was converted: 1 problem" in done.err
    assert running.inside(state, "migrate", "kueue", "-f", "nowhere.yaml").code == 1
    assert running.inside(state, "migrate", "slurm", "-f", KUEUE).code == 2
