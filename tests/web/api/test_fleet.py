"""The picture of all GPUs: every GPU once, holders by number, and what changed since a version."""

from __future__ import annotations

import copy
from collections import Counter

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dovetail.kubetypes import codec, object_set
from dovetail.sim.fleet import fleet_spec
from dovetail.tables.fleet import fleet_map, fleet_memory
from dovetail.tables.gpus import gpu_summary, gpu_tiles
from dovetail.web import asked, problems
from dovetail.web.api import fleet_resource, node_resource, overview_resource
from dovetail.web.endpoints import Nothing
from tests.web.api import clusters


def fleet_of(
    trees: list[clusters.Tree],
    name: str,
    may: asked.Visibility = asked.EVERYTHING,
    **params: object,
) -> fleet_resource.Fleet:
    question = clusters.asked_of(trees, name=name, may=may)
    return fleet_resource.answer(question, fleet_resource.FleetParams(**params))


def gpus_of(answer: fleet_resource.Fleet, node: str) -> tuple[fleet_map.FleetGpu, ...]:
    return next(each for each in answer.nodes if each.name == node).gpus


def test_states_of_gpus_are_those_of_the_tiles() -> None:
    trees = clusters.typical()
    answer = fleet_of(trees, "tiles")
    objects = object_set.of("tiles", clusters.stored(trees))
    tiles = {
        node.name: [gpu.state for gpu in node.gpus] for node in gpu_tiles.nodes_with_gpus(objects)
    }
    assert {node.name: [gpu.state for gpu in node.gpus] for node in answer.nodes} == tiles


def test_types_add_up_to_the_total_and_agree_with_the_summary_of_the_command() -> None:
    trees = clusters.typical()
    question = clusters.asked_of(trees, name="sums")
    types = overview_resource.answer(question, Nothing()).types
    objects = question.view.objects
    summaries = {
        each.gpu: each for each in gpu_summary.summaries(gpu_tiles.nodes_with_gpus(objects))
    }
    assert {row.type for row in types} == set(summaries)
    for row in types:
        assert row.allocated + row.free + row.tainted + row.reserved == row.total
        assert row.total == summaries[row.type].gpus
        assert row.tainted == summaries[row.type].tainted


def test_every_holder_that_a_gpu_refers_to_is_listed_once() -> None:
    answer = fleet_of(clusters.typical(), "holders")
    listed = Counter(holder.id for holder in answer.holders)
    assert set(listed.values()) == {1}
    referred = {number for node in answer.nodes for gpu in node.gpus for number in gpu.holders}
    parts = {part.holder for node in answer.nodes for gpu in node.gpus for part in gpu.parts}
    assert referred | (parts - {None}) == set(listed)


def test_a_holder_says_its_work_queue_and_since_when() -> None:
    answer = fleet_of(clusters.typical(), "holder")
    first = gpus_of(answer, "h100-0")[0].holders[0]
    holder = next(each for each in answer.holders if each.id == first)
    assert (holder.namespace, holder.name) == ("train", "llama-0")
    assert (holder.work, holder.queue, holder.kind) == ("job/llama", "train", "pod")
    assert holder.since == clusters.at(20)


def test_a_stated_runtime_gives_the_end() -> None:
    annotations = {"dovetail.dev/expected-runtime": "2h"}
    trees = clusters.fleet(fleet_spec.Pool(name="a", count=1, gpu="H100-SXM5-80GB"))
    trees += clusters.running(
        "timed", where="train", node="a-0", devices=["gpu-0"], annotations=annotations, minutes=30
    )
    answer = fleet_of(trees, "until")
    assert [holder.until for holder in answer.holders] == [clusters.at(-90)]


def test_slices_in_use_are_parts_with_their_holder() -> None:
    trees = clusters.typical()
    objects = clusters.stored(trees)
    slices = [each.tree for each in objects if each.struct.kind == "ResourceSlice"]
    of_node = [each for each in slices if each["spec"].get("nodeName") == "a100-0"]
    devices = [device for each in of_node for device in each["spec"].get("devices", [])]
    mig = next(device for device in devices if device["attributes"]["type"]["string"] == "mig")
    trees += clusters.running("slice", where="train", node="a100-0", devices=[mig["name"]])
    gpus = gpus_of(fleet_of(trees, "parts"), "a100-0")
    sliced = [gpu for gpu in gpus if gpu.state == "sliced"]
    assert len(sliced) == 1
    parts = sliced[0].parts
    profile = mig["attributes"]["profile"]["string"]
    assert [(part.profile, part.state) for part in parts] == [(profile, "used")]
    assert (parts[0].holder,) == sliced[0].holders


def test_counted_gpus_are_there_with_their_pods() -> None:
    answer = fleet_of(clusters.typical(), "counted")
    gpus = gpus_of(answer, "l4-0")
    assert [gpu.state for gpu in gpus] == ["used", "free", "free", "free"]
    holder = next(each for each in answer.holders if each.id == gpus[0].holders[0])
    assert holder.name == "eval"


def test_racks_and_nvlink_domains_are_shown() -> None:
    pool = fleet_spec.Pool(
        name="gb", count=2, gpu="GB200", gpus_per_node=4, rack="nvl72", clique="auto"
    )
    answer = fleet_of(clusters.fleet(pool), "domains")
    assert {node.rack for node in answer.nodes} == {"nvl72"}
    cliques = {node.clique for node in answer.nodes}
    assert len(cliques) == 1
    assert {node.domain for node in answer.nodes} == {cliques.pop().partition(".")[0]}


@pytest.mark.parametrize(
    ("change", "state"),
    [
        ({"spec": {"unschedulable": True}}, "cordoned"),
        ({"spec": {"taints": [{"key": "repair", "effect": "NoSchedule"}]}}, "tainted"),
        ({"spec": {"taints": [{"key": "nvidia.com/gpu", "effect": "NoSchedule"}]}}, "ready"),
        ({"status": {"conditions": []}}, "notReady"),
    ],
)
def test_nodes_have_one_state(change: clusters.Tree, state: str) -> None:
    node = clusters.plugin_node("n", 1)
    if "status" in change:
        node["status"] |= change["status"]
    else:
        node |= change
    answer = fleet_of([node], f"state {state} {change}")
    assert [each.state for each in answer.nodes] == [state]


def test_filters_choose_nodes() -> None:
    trees = clusters.typical()
    assert {node.name for node in fleet_of(trees, "f1", rack="r1").nodes} == {
        "h100-0",
        "h100-1",
        "h100-2",
    }
    assert [node.name for node in fleet_of(trees, "f2", type="l4").nodes] == ["l4-0"]
    assert [node.name for node in fleet_of(trees, "f3", node="100-1").nodes] == ["h100-1"]
    assert [node.name for node in fleet_of(trees, "f4", pool="a100").nodes] == ["a100-0"]


def test_a_user_without_the_right_to_list_nodes_gets_no_fleet() -> None:
    with pytest.raises(problems.Refusal) as refusal:
        fleet_of(clusters.typical(), "no nodes", clusters.STRANGER)
    assert refusal.value.problem.status == 403


def test_one_node_shows_its_devices_pods_and_holders() -> None:
    question = clusters.asked_of(clusters.typical(), name="node")
    node = node_resource.answer(question, node_resource.NodeParams(name="h100-0"))
    assert {pod.name for pod in node.pods} == {"llama-0", "vault-0"}
    assert {holder.name for holder in node.holders} == {"llama-0", "vault-0"}
    assert len([each for each in node.devices if each.type == "gpu"]) == 8
    assert node.conditions[0].type == "Ready"
    with pytest.raises(problems.Refusal) as refusal:
        node_resource.answer(question, node_resource.NodeParams(name="none"))
    assert refusal.value.problem.status == 404


# What changed since a version


def asked_at(
    memory_name: str, objects: list[codec.Stored], version: int, since: int | None
) -> fleet_resource.Fleet:
    frame = clusters.frame_of(objects, name=memory_name, version=version)
    params = fleet_resource.FleetParams(changed_since=since)
    return fleet_resource.answer(asked.Asked(frame, asked.EVERYTHING), params)


def test_only_the_nodes_that_changed_are_sent() -> None:
    before = clusters.stored(clusters.typical())
    asked_at("one pod", before, 1, None)
    started = clusters.stored(
        clusters.running("new", where="train", node="h100-2", devices=["gpu-6"])
    )
    answer = asked_at("one pod", [*before, *started], 2, 1)
    assert answer.is_partial
    assert [node.name for node in answer.nodes] == ["h100-2"]
    assert {holder.name for holder in answer.holders} == {"new", "vault-2"}


def test_a_version_from_before_gets_everything() -> None:
    before = clusters.stored(clusters.typical())
    asked_at("restart", before, 7, None)
    for unknown in (3, 9):
        answer = asked_at("restart", before, 7, unknown)
        assert not answer.is_partial
        assert len(answer.nodes) == 5


def test_a_node_that_left_is_named() -> None:
    before = clusters.stored(clusters.typical())
    asked_at("gone", before, 1, None)
    after = [each for each in before if each.struct.metadata.name != "l4-0"]
    answer = asked_at("gone", after, 2, 1)
    assert answer.removed == ("l4-0",)


def test_a_holder_whose_queue_changed_is_sent_again() -> None:
    before = clusters.stored(clusters.typical())
    asked_at("queue", before, 1, None)
    pod = next(each for each in before if each.struct.metadata.name == "llama-0")
    tree = copy.deepcopy(pod.tree)
    tree["metadata"]["labels"]["dovetail.dev/queue"] = "others"
    changed = codec.decode(tree)
    answer = asked_at("queue", [changed if each is pod else each for each in before], 2, 1)
    assert [(holder.name, holder.queue) for holder in answer.holders] == [("llama-0", "others")]


MOVES = st.lists(
    st.tuples(
        st.sampled_from(["start", "end", "cordon", "node gone", "taint", "nothing"]),
        st.integers(0, 3),
        st.integers(0, 3),
    ),
    max_size=8,
)


@given(MOVES)
def test_what_was_sent_bit_by_bit_is_the_whole_picture(moves: list[tuple[str, int, int]]) -> None:
    """A reader who applies every change has what a reader who asks for everything has."""
    memory = fleet_memory.FleetMemory()
    objects = _base()
    known_nodes: dict[str, bytes] = {}
    last = 0
    for version, move in enumerate([("nothing", 0, 0), *moves], start=1):
        objects = _moved(objects, *move)
        now = memory.at(object_set.of("walk", objects.values()), version)
        fresh = fleet_memory.FleetMemory().at(object_set.of("walk", objects.values()), 1)
        for node in now.nodes:
            if now.node_versions[node.name] > last:
                known_nodes[node.name] = _drawing(node, now)
        for name, gone_at in now.removed.items():
            if gone_at > last:
                known_nodes.pop(name, None)
        assert known_nodes == {node.name: _drawing(node, fresh) for node in fresh.nodes}
        last = version


def _drawing(node: fleet_map.FleetNode, picture: fleet_memory.FleetMap) -> bytes:
    """The node with the names of its holders instead of their numbers."""
    tree = msgspec.to_builtins(node)
    for gpu in tree["gpus"]:
        gpu["holders"] = [picture.holders[number].name for number in gpu["holders"]]
        for part in gpu["parts"]:
            part["holder"] = part["holder"] and picture.holders[part["holder"]].name
    return msgspec.json.encode(tree)


Objects = dict[object_set.Key, codec.Stored]


def _base() -> Objects:
    pools = (
        fleet_spec.Pool(name="h", count=2, gpu="H100-SXM5-80GB", gpus_per_node=4),
        fleet_spec.Pool(name="a", count=2, gpu="A100-SXM4-80GB", gpus_per_node=4),
    )
    stored = clusters.stored(clusters.fleet(*pools))
    return {object_set.key_of(each.struct): each for each in stored}


def _moved(objects: Objects, what: str, node: int, device: int) -> Objects:
    name = ("h-0", "h-1", "a-0", "a-1")[node]
    node_key = object_set.Key("Node", "", name)
    after = dict(objects)
    if what == "node gone":
        after.pop(node_key, None)
    elif what == "cordon" and node_key in after:
        tree = after[node_key].tree
        is_cordoned = tree.get("spec", {}).get("unschedulable", False)
        spec = tree.get("spec", {}) | {"unschedulable": not is_cordoned}
        after[node_key] = codec.decode(tree | {"spec": spec})
    elif what == "taint":
        rule = {
            "apiVersion": "resource.k8s.io/v1",
            "kind": "DeviceTaintRule",
            "metadata": {"name": f"rule-{node}"},
            "spec": {
                "deviceSelector": {
                    "driver": clusters.DRIVER,
                    "pool": name,
                    "device": f"gpu-{device}",
                },
                "taint": {"key": "sick", "effect": "NoSchedule"},
            },
        }
        stored = codec.decode(rule)
        after[object_set.key_of(stored.struct)] = stored
    elif what in ("start", "end"):
        pod_name = f"p-{node}-{device}"
        trees = clusters.running(pod_name, where="train", node=name, devices=[f"gpu-{device}"])
        for stored in clusters.stored(trees):
            key = object_set.key_of(stored.struct)
            if what == "start":
                after[key] = stored
            else:
                after.pop(key, None)
    return after
