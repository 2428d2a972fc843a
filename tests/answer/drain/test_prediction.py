"""The prediction of a drain on small clusters, and the command."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from dovetail import errors
from dovetail.answer.drain import drain_answer, drain_filters, prediction
from tests.answer.drain.building import budget, pod
from tests.answer.what_if import building
from tests.cli import running

KNOWN = drain_filters.DaemonSets(frozenset({("default", "agent")}))
NODE = building.plugin_node("n1", gpus=8)


def predicted(
    *trees: dict[str, Any], answers: dict[str, str] | None = None, **options: Any
) -> drain_answer.Prediction:
    replica = building.replica_of(NODE, building.plugin_node("n2", gpus=8), *trees)
    chosen = drain_filters.Options(**options)
    return prediction.predict(replica, "n1", chosen, daemon_sets=KNOWN, answers=answers)


def of_daemon_set(tree: dict[str, Any], name: str) -> dict[str, Any]:
    owner = {"apiVersion": "apps/v1", "kind": "DaemonSet", "name": name, "uid": name}
    tree["metadata"]["ownerReferences"] = [owner | {"controller": True}]
    return tree


def test_training_pods_with_shared_memory_block_until_the_option_lets_them_go() -> None:
    shared = {"name": "shm", "emptyDir": {"medium": "Memory"}}
    train = pod("train-0", volumes=[shared])
    blocked = predicted(train)
    assert not blocked.can_drain
    (blocker,) = blocked.blockers
    assert blocker.pods == ("default/train-0",)
    assert "--delete-emptydir-data" in blocker.next

    free = predicted(train, delete_empty_dir_data=True)
    assert free.can_drain
    assert free.pods[0].action == drain_answer.EVICT
    assert free.pods[0].notes == ("loses the data of its emptyDir volumes",)


def test_a_pod_whose_daemon_set_is_gone_needs_force_and_others_stay() -> None:
    orphan = of_daemon_set(pod("orphan"), "gone")
    agent = of_daemon_set(pod("agent"), "agent")
    answer = predicted(orphan, agent, ignore_daemon_sets=True)
    fates = {fate.pod: fate.action for fate in answer.pods}
    assert fates == {"default/agent": "skip", "default/orphan": "refuse"}
    assert predicted(orphan, agent, ignore_daemon_sets=True, force=True).can_drain


def test_a_budget_of_none_blocks_and_a_budget_of_one_takes_turns() -> None:
    pods = [pod(f"p{number}") for number in range(3)]
    blocked = predicted(*pods, budget(maxUnavailable=0))
    assert [blocker.code for blocker in blocked.blockers] == [prediction.BUDGET_CODE]
    assert blocked.blockers[0].pods == ("default/p0", "default/p1", "default/p2")

    turns = predicted(*pods, budget(maxUnavailable=1))
    assert turns.can_drain
    assert [bool(fate.waits) for fate in turns.pods] == [False, True, True]

    assert predicted(*pods, budget(maxUnavailable=0), disable_eviction=True).can_drain


def test_a_refusal_of_the_server_blocks_where_our_count_does_not() -> None:
    answer = predicted(pod("p0"), answers={"default/p0": "a webhook says no"})
    assert [(blocker.code, blocker.message) for blocker in answer.blockers] == [
        (prediction.SERVER_CODE, "a webhook says no")
    ]


def test_pods_that_hold_gpus_without_a_request_are_listed() -> None:
    bare = {"resources": {}, "name": "main"}
    visible = {"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"}
    viewer = pod("viewer", containers=[bare | {"env": [visible]}])
    void = pod("void", containers=[bare | {"env": [visible | {"value": "void"}]}])
    mounted = {"name": "dev", "hostPath": {"path": "/dev/nvidia0"}}
    exporter = pod("exporter", containers=[bare], volumes=[mounted])
    network = pod("network", containers=[bare | {"securityContext": {"privileged": True}}])
    answer = predicted(viewer, void, exporter, network, pod("asks"))
    assert [(holder.pod, holder.is_certain) for holder in answer.holders] == [
        ("default/exporter", True),
        ("default/network", False),
        ("default/viewer", True),
    ]


def test_a_finalizer_and_the_grace_period_are_said() -> None:
    held = pod("held")
    held["metadata"]["finalizers"] = ["example.com/hold"]
    (fate,) = predicted(held, grace_period_seconds=5).pods
    assert fate.grace_seconds == 5
    assert fate.notes == ("stays until its finalizers are removed: example.com/hold",)


def test_an_unknown_node_is_an_input_error() -> None:
    replica = building.replica_of(NODE)
    with pytest.raises(errors.InputError, match='node "n7"'):
        prediction.predict(replica, "n7", drain_filters.Options(), daemon_sets=KNOWN)


def test_the_command_answers_about_a_file_and_its_exit_code_is_the_verdict(tmp_path: Path) -> None:
    objects = tmp_path / "cluster.json"
    trees = [NODE, pod("train-0"), of_daemon_set(pod("agent"), "agent")]
    objects.write_bytes(msgspec.json.encode({"apiVersion": "v1", "kind": "List", "items": trees}))

    def asked(*words: str) -> running.Run:
        words = ("stack", "drain", *words, "--snapshot", str(objects))
        return running.inside(tmp_path / "none", *words)

    assert asked("n1").code == 1
    done = asked("n1", "--ignore-daemonsets", "-o", "json")
    assert done.code == 0
    answer = msgspec.json.decode(done.out)
    assert [fate["action"] for fate in answer["pods"]] == ["skip", "evict"]
    assert "DaemonSets were not read" in answer["unknown"][0]
    table = asked("node/n1", "--ignore-daemonsets")
    assert table.lines[0] == "node n1 can be drained: of 2 pods 1 leave, 1 stay, 0 refused"
    wrong = asked("n7")
    assert (wrong.code, wrong.out) == (2, "")
    assert asked("n1", "--pod-selector", "a==b==c").code == 2
