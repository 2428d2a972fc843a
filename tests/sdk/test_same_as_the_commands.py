"""Every method gives what the command of the same question prints about the same snapshot, as data and as text."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from dovetail.sdk import Capacity, Changes, Cluster, Table, WhatIf, Why, WorkItem
from tests.cli import running

JOB = """
apiVersion: batch/v1
kind: Job
metadata: {namespace: vision, name: new}
spec:
  template:
    spec:
      restartPolicy: Never
      containers: [{name: main, image: training, resources: {requests: {cpu: "4"}}}]
"""
Asked = Callable[[Cluster], Any]


def printed(snapshot: Path, *arguments: str) -> running.Run:
    return running.inside(snapshot.parent / "none", *arguments, "--snapshot", str(snapshot))


def data(snapshot: Path, *arguments: str) -> Any:
    run = printed(snapshot, *arguments, "-o", "json")
    assert run.out, run.err
    return msgspec.json.decode(run.out)


TABLES: dict[str, Asked] = {
    "get gpus": Cluster.gpus,
    "get gpus --node h100-1": lambda cluster: cluster.gpus(node="h100-1"),
    "get gpus -l tier=inference": lambda cluster: cluster.gpus(labels="tier=inference"),
    "get devices": Cluster.devices,
    "get devices --node l4-0": lambda cluster: cluster.devices(node="l4-0"),
    "get nodes": Cluster.nodes,
    "get nodes -l !tier": lambda cluster: cluster.nodes(labels="!tier"),
    "get pods -A": Cluster.pods,
    "get pods -n vision": lambda cluster: cluster.pods(namespace="vision"),
    "get pods -A --node h100-0": lambda cluster: cluster.pods(node="h100-0"),
    "get pods -A -l app=trainer": lambda cluster: cluster.pods(labels="app=trainer"),
    "get claims -A": Cluster.claims,
    "get claims -A --node h100-0": lambda cluster: cluster.claims(node="h100-0"),
    "get queues": Cluster.queues,
}


@pytest.mark.parametrize("command", TABLES)
def test_tables_are_read_from_the_objects_that_get_prints(
    cluster: Cluster, snapshot: Path, command: str
) -> None:
    table = TABLES[command](cluster)
    words = command.split()
    assert len(table) == len(printed(snapshot, *words, "--no-headers").lines)
    assert table.objects() == data(snapshot, *words)["items"]


TEXTS: dict[str, Asked] = {
    "get gpus": Cluster.gpus,
    "get nodes": Cluster.nodes,
    "get pods -A": Cluster.pods,
    "get claims -A": Cluster.claims,
    "queue": Cluster.work,
    "when": Cluster.when,
    "why -A": Cluster.why_waiting,
    "top": Cluster.usage,
    "top --by node -n vision": lambda cluster: cluster.usage(by="node", namespace="vision"),
    "why big -n speech": lambda cluster: cluster.why("big", namespace="speech"),
    "what-if --add 2xh100": lambda cluster: cluster.what_if(add="2xh100"),
}


@pytest.mark.parametrize("command", TEXTS)
def test_text_is_what_the_command_prints(cluster: Cluster, snapshot: Path, command: str) -> None:
    shown = str(TEXTS[command](cluster)).replace("to_text(wide=True)", "-o wide")
    assert shown == printed(snapshot, *command.split()).out.rstrip("\n")


def test_devices_and_queues_have_the_rows_of_get(cluster: Cluster, snapshot: Path) -> None:
    devices = printed(snapshot, "get", "devices")
    assert [each.device for each in cluster.devices()] == devices.column("DEVICE")
    assert [each.state for each in cluster.devices()] == devices.column("STATE")
    queues = printed(snapshot, "get", "queues")
    assert [each.name for each in cluster.queues()] == [
        each.strip() for each in queues.column("QUEUE")
    ]
    text = str(cluster.queues()).splitlines()
    assert [line.split()[:8] for line in text] == [line.split()[:8] for line in queues.lines]


def test_who_holds_a_device_is_a_pod_of_that_node(cluster: Cluster) -> None:
    running_on = {f"{pod.namespace}/{pod.name}": pod.node for pod in cluster.pods()}
    held = cluster.devices().filter(lambda device: device.holder)
    assert held
    assert all(running_on[device.holder] == device.node for device in held)


def test_work_is_the_struct_that_queue_prints(cluster: Cluster, snapshot: Path) -> None:
    items = data(snapshot, "queue")["items"]
    assert list(cluster.work()) == msgspec.convert(items, list[WorkItem])
    pending = data(snapshot, "queue", "--pending")["items"]
    assert list(cluster.work(pending=True)) == msgspec.convert(pending, list[WorkItem])
    named = data(snapshot, "queue", "vision")["items"]
    assert list(cluster.work("vision")) == msgspec.convert(named, list[WorkItem])
    assert {item.owner for item in cluster.work("job/wide")} == {"job/wide"}


def test_lists_of_answers_are_those_of_json(cluster: Cluster, snapshot: Path) -> None:
    assert cluster.when().to_dicts() == data(snapshot, "when")
    assert cluster.when("big").to_dicts() == data(snapshot, "when", "big")
    assert cluster.why_waiting().to_dicts() == data(snapshot, "why", "-A")
    speech = cluster.why_waiting(namespace="speech")
    assert speech.to_dicts() == data(snapshot, "why", "-n", "speech")
    assert len(speech) == 1


@pytest.mark.parametrize("by", ["queue", "namespace", "user", "node", "type"])
def test_usage_is_that_of_top(cluster: Cluster, snapshot: Path, by: str) -> None:
    top = data(snapshot, "top", "--by", by)
    usage = cluster.usage(by=by)
    assert usage.to_dicts() == top["rows"]
    assert usage.total == top["gpus"]
    assert usage.by(by) == usage


ANSWERS: dict[str, Asked] = {
    "why big -n speech": lambda cluster: cluster.why("big", namespace="speech"),
    "why job/wide -n vision": lambda cluster: cluster.why("job/wide", namespace="vision"),
    "why sweep-0 -n vision": lambda cluster: cluster.why("sweep-0", namespace="vision"),
    "capacity": lambda cluster: cluster.capacity(),
    "capacity --gpus 8 --type h100 --gang 2": lambda cluster: cluster.capacity(
        gpus=8, type="h100", gang=2
    ),
    "capacity --mig 3g.40gb -q vision": lambda cluster: cluster.capacity(
        mig="3g.40gb", queue="vision"
    ),
    "capacity --gpu-memory 20Gi --cpu 4 --memory 8Gi --priority 3": lambda cluster: (
        cluster.capacity(gpu_memory="20Gi", cpu="4", memory="8Gi", priority=3)
    ),
    "capacity --like vision/sweep-0": lambda cluster: cluster.capacity(like="vision/sweep-0"),
    "what-if --add 2xh100 --add 1xl4": lambda cluster: cluster.what_if(add=["2xh100", "1xl4"]),
    "what-if --set queue/vision.quota=8": lambda cluster: cluster.what_if(
        set={"queue/vision.quota": 8}
    ),
    "what-if --drain node/h100-0 --price h100=2.5 --horizon 7d": lambda cluster: cluster.what_if(
        drain="node/h100-0", prices={"h100": 2.5}, horizon="7d"
    ),
    "what-if --drain node/h100-0 --add 1xh100 --uncordon node/h100-0": lambda cluster: (
        cluster.what_if(Changes().drain("node/h100-0").add("1xh100").uncordon("node/h100-0"))
    ),
    "what-if --set queue/vision.limit=5 --cordon node/h100-0": lambda cluster: cluster.what_if(
        [("set", "queue/vision.limit=5"), ("cordon", "node/h100-0")]
    ),
    "what-if --remove node/h100-1 --cordon node/h100-0 --end pod/vision/sweep-0": lambda cluster: (
        cluster.what_if(end="pod/vision/sweep-0", remove="node/h100-1", cordon="node/h100-0")
    ),
}
KINDS = {"why": Why, "what-if": WhatIf, "capacity": Capacity}


@pytest.mark.parametrize("command", ANSWERS)
def test_answers_are_those_of_json(cluster: Cluster, snapshot: Path, command: str) -> None:
    words = command.split()
    answer = ANSWERS[command](cluster)
    assert isinstance(answer, KINDS[words[0]])
    assert answer.to_dict() == data(snapshot, *words)
    assert ANSWERS[command](cluster) == answer  # a question leaves the cluster as it was


def test_capacity_reads_like_the_command(cluster: Cluster, snapshot: Path) -> None:
    run = printed(snapshot, "capacity", "--gpus", "1", "-o", "wide")
    assert cluster.capacity(gpus=1).to_text(wide=True) == run.out.rstrip("\n")


@pytest.mark.parametrize("form", ["path", "Path", "text", "object", "objects"])
def test_new_work_may_be_a_file_a_text_or_objects(
    cluster: Cluster, snapshot: Path, tmp_path: Path, form: str
) -> None:
    file = tmp_path / "job.yaml"
    file.write_text(JOB)
    tree = running.yaml_tree(JOB)
    given: Any = {"path": str(file), "Path": file, "text": JOB, "object": tree, "objects": [tree]}
    answer = cluster.what_if(work=given[form]).to_dict()
    expected = data(snapshot, "what-if", "-f", str(file))
    name = str(file) if form in ("path", "Path") else "work"
    (stated,) = answer.pop("changes")
    (stated_there,) = expected.pop("changes")
    assert stated["change"] == f"-f {name}"
    assert stated["assumption"] == stated_there["assumption"].replace(str(file), name)
    assert answer["difference"]["newWork"]
    assert without_names(answer) == without_names(expected)


def without_names(tree: Any) -> bytes:
    """Controllers name the pods of a Job at random."""
    return re.sub(rb"(new-)[a-z0-9]{5}", rb"\1", msgspec.json.encode(tree))


def test_rows_can_be_asked_about(cluster: Cluster) -> None:
    pod = cluster.pods().filter(name="big")[0]
    assert cluster.why(pod) == cluster.why("big", namespace="speech")
    first, second = cluster.work("job/wide")
    assert cluster.why(first).subject.name == first.name.removeprefix("pod/")
    assert first != second
    like = cluster.pods().filter(name="sweep-0")[0]
    assert cluster.capacity(like=like) == cluster.capacity(like="vision/sweep-0")


def test_json_of_an_answer_has_nothing_more_than_the_struct(cluster: Cluster) -> None:
    answer = cluster.why("big", namespace="speech")
    assert msgspec.json.decode(msgspec.json.encode(answer)) == answer.to_dict()
    assert isinstance(cluster.why_waiting(), Table)
