"""`dovetail stack mig`: table, documents, manifests, and wrong input."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml

from tests.answer.partitioning.test_partition_plan import slice_pod
from tests.answer.what_if import building
from tests.cli import running


@pytest.fixture
def dump(tmp_path: Path) -> Path:
    """Two nodes with whole GPUs, and pods that wait for partitions."""
    trees = [
        building.plugin_node("a", gpus=2),
        building.plugin_node("b", gpus=2),
        *(slice_pod(f"x{index}", "3g.40gb") for index in range(3)),
    ]
    file = tmp_path / "cluster.json"
    file.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": trees}))
    return file


def _mig(dump: Path, *words: str) -> running.Run:
    return running.inside(dump.parent, "stack", "mig", *words, "--snapshot", str(dump))


def test_the_table_and_the_document_say_the_same(dump: Path) -> None:
    run = _mig(dump)
    assert run.code == 0, run.err
    assert run.lines[0].startswith("0 of 3 waiting pods start as things are, 3 with 1 proposal")
    assert "2 x 3g.40gb" in run.out
    assert "next: dovetail stack mig --write DIR" in run.err
    answer = json.loads(_mig(dump, "-o", "json").out)
    assert answer["after"]["pods"] == 3
    assert _mig(dump, "-o", "json").out == _mig(dump, "-o", "json").out


def test_the_manifests_are_what_the_mig_manager_reads(dump: Path, tmp_path: Path) -> None:
    folder = tmp_path / "out"
    run = _mig(dump, "--write", str(folder), "-o", "json")
    assert run.code == 0, run.err
    (proposal,) = json.loads(run.out)["proposals"]
    (config_map,) = yaml.safe_load_all((folder / "mig-config.yaml").read_text())
    configuration = yaml.safe_load(config_map["data"]["config.yaml"])
    assert configuration["version"] == "v1"
    assert configuration["mig-configs"]["all-disabled"] == [
        {"devices": "all", "mig-enabled": False}
    ]
    entries = configuration["mig-configs"][proposal["config"]]
    assert sorted(index for entry in entries for index in entry["devices"]) == [0, 1]
    wanted = [entry["mig-devices"]["3g.40gb"] * len(entry["devices"]) for entry in entries]
    assert sum(wanted) >= 3
    (node,) = yaml.safe_load_all((folder / "node-labels.yaml").read_text())
    assert node["metadata"] == {
        "name": proposal["node"],
        "labels": {"nvidia.com/mig.config": proposal["config"]},
    }


def test_wrong_input_is_exit_code_2(dump: Path, tmp_path: Path) -> None:
    assert _mig(dump, "--restart", "soon").code == 2
    blocked = tmp_path / "file"
    blocked.write_text("")
    refused = _mig(dump, "--write", str(blocked / "below"))
    assert refused.code == 2
    assert "--write" in refused.err


def test_what_recorded_work_waited_for_gets_the_room_that_is_left(
    dump: Path, tmp_path: Path
) -> None:
    owner = {"namespace": "team", "pod": "a", "pod_uid": "a"}
    waited = {"owner": owner, "micro_gpu": 142_857, "start": 1_000, "end": 2_000}
    held = {
        "allocation": "a",
        "asset": "gpu",
        "node": "n",
        "micro_gpu": 142_857,
        "form": "mig",
        "owner": owner,
        "start": 2_000,
        "end": 3_000,
        "profile": "1g.20gb",
    }
    records = tmp_path / "records.json"
    records.write_text(json.dumps({"waiting": [waited], "allocations": [held]}))
    plain = json.loads(_mig(dump, "-o", "json").out)
    run = _mig(dump, "--history", str(records), "-o", "json")
    assert run.code == 0, run.err
    recent = json.loads(run.out)
    assert "1g.20gb" not in str(plain["proposals"])
    assert "1g.20gb" in str(recent["proposals"])
    assert recent["after"] == plain["after"]
    assert _mig(dump, "--history", str(tmp_path / "none")).code == 2
    assert _mig(dump, "--history", str(records), "--window", "soon").code == 2


def test_options_that_do_not_go_together_are_exit_code_2(dump: Path) -> None:
    for words, why in (
        (("--apply",), "--apply needs a cluster"),
        (("--apply", "--write", "x"), "not both"),
        (("--dry-run",), "go with --apply"),
        (("--policy", "x"), "go with --apply"),
    ):
        run = _mig(dump, *words)
        assert (run.code, why in run.err) == (2, True), run.err


def test_nothing_is_started_where_no_pod_waits(state: Path) -> None:
    run = running.inside(state, "stack", "mig", "--apply")
    assert run.code == 0, run.err
    assert "nothing to apply: every pod that waits for GPUs starts without a change" in run.err
    own = running.inside(
        state, "stack", "mig", "--apply", "--config-map", "default-mig-parted-config"
    )
    assert own.code == 2
    assert "the GPU Operator writes it again" in own.err
