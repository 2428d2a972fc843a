"""`dovetail decide --scenarios`: scenarios in, one answer a line out, in order and at once."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

from tests.cli import running
from tests.scenarios import build


def written(folder: Path, *trees: build.Tree, name: str = "scenarios.jsonl") -> str:
    text = "".join(json.dumps(tree) + "\n" for tree in trees)
    path = folder / name
    path.write_bytes(gzip.compress(text.encode()) if name.endswith(".gz") else text.encode())
    return str(path)


def test_an_answer_a_line(tmp_path: Path) -> None:
    tree = build.document(
        build.job("a", build.waiting(gpu=1)), build.job("b", build.running(gpu=1))
    )
    file = written(tmp_path, tree, tree | {"id": "again"}, name="scenarios.jsonl.gz")
    run = running.inside(tmp_path, "decide", "--scenarios", file, "-o", "jsonl")
    assert run.code == 0, run.err
    assert [json.loads(line) for line in run.lines] == [
        {
            "id": name,
            "jobs": {
                "a": {"states": {"bound": 1}, "changes": {"starts": 1}, "nodes": ["n0"]},
                "b": {"states": {"running": 1}, "changes": {"stays": 1}, "nodes": ["n0"]},
            },
            "per_cycle": [{"binds": 1, "evictions": 0, "nominations": 0}],
        }
        for name in ("small", "again")
    ]
    assert not run.err


def test_a_table_for_people(tmp_path: Path) -> None:
    tree = build.document(
        build.job("a", build.waiting(gpu=1)), build.job("b", build.waiting(gpu=9))
    )
    run = running.inside(tmp_path, "decide", "--scenarios", written(tmp_path, tree))
    assert run.code == 0, run.err
    assert [line.split() for line in run.lines] == [
        ["STARTS", "NOMINATED", "EVICTED", "MOVES", "STAYS", "WAITS", "UNCHANGED", "ID"],
        ["1", "-", "-", "-", "-", "1", "-", "small"],
    ]


def test_a_broken_line_is_reported_and_the_others_are_answered(tmp_path: Path) -> None:
    broken = build.document() | {"nodes": [{"name": 7}]}
    file = written(tmp_path, build.document(), broken, build.document())
    run = running.inside(tmp_path, "decide", "--scenarios", file, "-o", "jsonl")
    assert run.code == 1
    assert len(run.lines) == 2
    assert "scenarios.jsonl: line 2:" in run.err
    assert "$.nodes[0].name" in run.err


def test_where_nothing_is_answered_there_is_no_table(tmp_path: Path) -> None:
    for file, messages in (
        (str(tmp_path), "cannot be read: Is a directory"),
        (written(tmp_path), "no scenarios in it"),
    ):
        for form in ("table", "jsonl"):
            run = running.inside(tmp_path, "decide", "--scenarios", file, "-o", form)
            assert (run.code, run.out) == (1, "")
            assert run.err.startswith(f"error: {file}: {messages}")


def test_an_unknown_word_is_reported_with_the_known_ones(tmp_path: Path) -> None:
    strange = build.document(build.job("a", build.waiting() | {"state": "asleep"}))
    deeds = build.document() | {"run": {"mode": "single", "actions": ["allocate", "fly"]}}
    run = running.inside(tmp_path, "decide", "--scenarios", written(tmp_path, strange, deeds))
    assert run.code == 1
    assert "`$.jobs[0].pods[0].state`; expected one of pending, gated, bound, running" in run.err
    assert "`$.run.actions[1]`; expected one of allocate, consolidation, reclaim" in run.err


def test_more_gpus_than_any_node_has_are_refused_and_not_built(tmp_path: Path) -> None:
    tree = build.document() | {"nodes": [{"name": "n0", "gpu": {"count": 10**9}}]}
    run = running.inside(tmp_path, "decide", "--scenarios", written(tmp_path, tree))
    assert run.code == 1
    assert "`$.nodes[0].gpu.count`" in run.err


def test_a_scenario_that_cannot_be_is_refused_with_its_line(tmp_path: Path) -> None:
    file = written(tmp_path, build.document(build.job("a", build.running(gpu=3))))
    run = running.inside(tmp_path, "decide", "--scenarios", file)
    assert run.code == 1
    assert "line 1: pod 'a-0': node 'n0' has 2 GPUs" in run.err


def test_standard_input_is_read_too(tmp_path: Path) -> None:
    text = json.dumps(build.document(build.job("a", build.waiting())))
    run = running.inside(tmp_path, "decide", "--scenarios", "-", "-o", "jsonl", stdin=text)
    assert run.code == 0, run.err
    assert json.loads(run.out)["id"] == "small"
