"""`dovetail allocate --worlds`: worlds in, one answer per world and node out, line by line."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from tests.cli import running

DRIVER = "gpu.example.com"
Tree = dict[str, Any]


def world(name: str, *, wanted: int = 1, nodes: tuple[str, ...] = ("a",), **more: Any) -> Tree:
    """Two GPUs on every node and a claim for some."""
    return {
        "id": name,
        "nodes": [
            {"apiVersion": "v1", "kind": "Node", "metadata": {"name": node}} for node in nodes
        ],
        "deviceClasses": [{"metadata": {"name": "gpu"}, "spec": {}}],
        "resourceSlices": [
            {
                "metadata": {"name": f"s-{node}", "creationTimestamp": None},
                "spec": {
                    "driver": DRIVER,
                    "nodeName": node,
                    "pool": {"name": node, "generation": 1, "resourceSliceCount": 1},
                    "devices": [{"name": "gpu-0"}, {"name": "gpu-1"}],
                },
            }
            for node in nodes
        ],
        "claims": [
            {
                "metadata": {"name": "c", "namespace": "default"},
                "spec": {
                    "devices": {
                        "requests": [
                            {
                                "name": "r",
                                "exactly": {
                                    "deviceClassName": "gpu",
                                    "allocationMode": "ExactCount",
                                    "count": wanted,
                                },
                            }
                        ]
                    }
                },
            }
        ],
        "answers": {"a": "unknown fields are left alone"},
        **more,
    }


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "worlds.jsonl"


def written(file: Path, *worlds: Tree) -> str:
    file.write_text("".join(json.dumps(cluster) + "\n" for cluster in worlds))
    return str(file)


def answered(empty: Path, name: str) -> list[Tree]:
    run = running.inside(empty, "allocate", "--worlds", name, "-o", "jsonl")
    assert run.code == 0, run.err
    return [json.loads(line) for line in run.lines]


def test_every_world_and_node_has_a_line_in_order(empty: Path, file: Path) -> None:
    rows = answered(empty, written(file, world("w1", nodes=("b", "a")), world("w2", wanted=3)))
    assert [(row["id"], row["node"], row["outcome"]) for row in rows] == [
        ("w1", "b", "allocated"),
        ("w1", "a", "allocated"),
        ("w2", "a", "none"),
    ]
    assert all(set(row) == {"id", "node", "outcome", "results", "reasons"} for row in rows)


def test_a_result_is_an_allocation_as_the_api_writes_it(empty: Path, file: Path) -> None:
    (row,) = answered(empty, written(file, world("w", wanted=2)))
    assert row["results"] == [
        {
            "devices": {
                "results": [
                    {"request": "r", "driver": DRIVER, "pool": "a", "device": "gpu-0"},
                    {"request": "r", "driver": DRIVER, "pool": "a", "device": "gpu-1"},
                ]
            },
            "nodeSelector": {
                "nodeSelectorTerms": [
                    {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["a"]}]}
                ]
            },
        }
    ]
    assert row["reasons"] == []


def test_a_refusal_says_why_with_numbers(empty: Path, file: Path) -> None:
    (row,) = answered(empty, written(file, world("w", wanted=3)))
    assert row["results"] == []
    assert any("3" in reason and "2" in reason for reason in row["reasons"]), row["reasons"]


def test_what_is_in_use_is_given_either_way(empty: Path, file: Path) -> None:
    result = {"request": "r", "driver": DRIVER, "pool": "a", "device": "gpu-0"}
    holder = {
        "metadata": {"name": "h"},
        "status": {"allocation": {"devices": {"results": [result]}}},
    }
    rows = answered(
        empty,
        written(
            file,
            world("claims", wanted=2, allocatedClaims=[holder]),
            world("listing", wanted=2, inUse={"devices": [f"{DRIVER}/a/gpu-0"]}),
            world("listing wins", wanted=2, allocatedClaims=[holder], inUse={"devices": []}),
            world("one is left", allocatedClaims=[holder]),
        ),
    )
    assert [row["outcome"] for row in rows] == ["none", "none", "allocated", "allocated"]
    assert rows[-1]["results"][0]["devices"]["results"][0]["device"] == "gpu-1"


def test_rules_of_administrators_taint_devices(empty: Path, file: Path) -> None:
    rule = {
        "metadata": {"name": "r"},
        "spec": {
            "deviceSelector": {"device": "gpu-0"},
            "taint": {"key": "k", "effect": "NoSchedule"},
        },
    }
    rows = answered(empty, written(file, world("w", wanted=2, deviceTaintRules=[rule])))
    assert rows[0]["outcome"] == "none"


def test_a_broken_pool_is_an_error_of_the_node(empty: Path, file: Path) -> None:
    broken = world("w")
    broken["resourceSlices"][0]["spec"]["devices"].append({"name": "gpu-0"})
    (row,) = answered(empty, written(file, broken))
    assert row["outcome"] == "node-error"
    assert any(f"{DRIVER}/a" in reason for reason in row["reasons"]), row["reasons"]


def test_an_unknown_class_is_an_error(empty: Path, file: Path) -> None:
    (row,) = answered(empty, written(file, world("w", deviceClasses=[])))
    assert row["outcome"] == "error"
    assert any("gpu" in reason for reason in row["reasons"])


def test_gzip_and_empty_lines_are_read(empty: Path, file: Path) -> None:
    text = "\n" + json.dumps(world("w")) + "\n\n"
    packed = file.with_suffix(".jsonl.gz")
    packed.write_bytes(gzip.compress(text.encode()))
    assert [row["id"] for row in answered(empty, str(packed))] == ["w"]


def test_people_get_a_table(empty: Path, file: Path) -> None:
    run = running.inside(
        empty, "allocate", "--worlds", written(file, world("w1"), world("w2", wanted=3))
    )
    assert run.column("OUTCOME") == ["allocated", "none"]
    assert "r=a/gpu-0" in run.out


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("{", "not JSON"),
        ("[]", "Expected `object`"),
        ('{"nodes": 1}', "nodes"),
        ('{"claims": [{"spec": {"devices": 7}}]}', "spec.devices"),
        ('{"inUse": {"devices": ["nonsense"]}}', "nonsense"),
        ('{"inUse": {"capacity": {"d/p/x": {"memory": "much"}}}}', "much"),
    ],
)
def test_a_line_that_is_no_world_is_named(empty: Path, file: Path, line: str, message: str) -> None:
    file.write_text(json.dumps(world("w")) + "\n" + line + "\n")
    run = running.inside(empty, "allocate", "--worlds", str(file), "-o", "jsonl")
    assert run.code == 1
    assert f"{file}: line 2" in run.err
    assert message in run.err
    assert [json.loads(item)["id"] for item in run.lines] == ["w"], "what came before is answered"


def test_a_missing_file_is_named(empty: Path, file: Path) -> None:
    run = running.inside(empty, "allocate", "--worlds", str(file))
    assert run.code == 1
    assert str(file) in run.err


def test_answers_come_as_they_are_found(empty: Path, file: Path) -> None:
    """As a process of its own, with answers before the end of a long input."""
    written(file, *(world(f"w{number}") for number in range(600)))
    run = running.outside(empty, "allocate", "--worlds", str(file), "-o", "jsonl")
    assert run.code == 0
    assert [json.loads(line)["id"] for line in run.lines] == [f"w{number}" for number in range(600)]
