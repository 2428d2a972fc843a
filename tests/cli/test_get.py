"""`dovetail get`: tables for people, Kubernetes objects for programs, exit codes for scripts."""

from __future__ import annotations

import re
from pathlib import Path

import msgspec
import pytest

from dovetail.kubetypes import codec
from tests.cli import embedded, running
from tests.support import waiting

RESOURCES = ("gpus", "devices", "claims", "nodes", "classes", "slices", "pods", "templates")


def test_gpus_has_one_row_per_node_with_a_tile_per_gpu(state: Path) -> None:
    run = running.inside(state, "get", "gpus")
    assert run.code == 0
    assert len(run.lines) == 1 + 26
    rows = dict(zip(run.column("NODE"), run.column("TILES"), strict=True))
    assert rows["h100-0"] == "□" * 8
    assert rows["a100-3"] == "▤" * 4
    assert len({clique for clique in run.column("CLIQUE") if clique != "-"}) == 1
    assert run.err.splitlines()[-1].startswith("next: dovetail ")


def test_devices_has_one_row_per_device(state: Path) -> None:
    run = running.inside(state, "get", "devices")
    assert len(run.lines) == 1 + 4 * 8 + 4 * 4 * 25 + 18 * (4 + 2)
    assert set(run.column("STATE")) == {"free"}
    of_node = running.inside(state, "get", "devices", "--node", "h100-1")
    assert of_node.column("DEVICE") == [f"gpu-{index}" for index in range(8)]
    assert len(set(of_node.column("GPU"))) == len(set(of_node.column("PCI"))) == 8


@pytest.mark.parametrize("resource", RESOURCES)
@pytest.mark.parametrize("form", ["json", "yaml"])
def test_objects_come_as_one_list_that_decodes(state: Path, resource: str, form: str) -> None:
    apply_all(state)
    run = running.inside(state, "get", resource, "-A", "-o", form)
    assert run.code == 0
    assert run.err == ""
    tree = msgspec.json.decode(run.out) if form == "json" else running.yaml_tree(run.out)
    assert (tree["apiVersion"], tree["kind"]) == ("v1", "List")
    assert len(codec.decode_all(tree)) == len(tree["items"]) > 0
    if form == "yaml":
        as_json = running.inside(state, "get", resource, "-A", "-o", "json")
        assert tree == msgspec.json.decode(as_json.out)


@pytest.mark.parametrize("resource", RESOURCES)
def test_wide_adds_columns_and_names_are_one_per_row(state: Path, resource: str) -> None:
    apply_all(state)
    narrow, wide, names = (
        running.inside(state, "get", resource, "-A", "-o", form)
        for form in ("table", "wide", "name")
    )
    assert set(narrow.lines[0].split()) <= set(wide.lines[0].split())
    assert len(narrow.lines) == len(wide.lines) == len(names.lines) + 1
    assert all("/" in name for name in names.lines)
    assert narrow.lines[0] == narrow.lines[0].upper()


def test_claims_show_requests_state_and_age(state: Path) -> None:
    apply_all(state)
    here = running.inside(state, "get", "claims")
    assert [name.rpartition("-")[0] or name for name in here.column("NAME")] == [
        "h100-or",
        "notebook-gpu",
        "one",
    ]
    assert here.column("REQUESTS")[0] == (
        "1 x gpu.nvidia.com [1 selector] or 1 x mig.nvidia.com [1 selector]"
    )
    assert here.column("STATE") == [
        "pending",
        "allocated,reserved",
        "allocated,reserved",
    ]  # no pod uses the first
    assert all(age.endswith("s") for age in here.column("AGE"))
    there = running.inside(state, "get", "claims", "-n", "train")
    assert there.column("REQUESTS") == ["8 x gpu.nvidia.com [1 selector]"]
    everywhere = running.inside(state, "get", "claims", "-A")
    assert everywhere.column("NAMESPACE") == ["default", "default", "default", "train"]


def test_an_allocated_claim_turns_its_tile_and_its_device(
    cluster: embedded.Embedded, state: Path
) -> None:
    hold(cluster, "whole", {"pool": "h100-2", "device": "gpu-3"})
    hold(cluster, "slice", {"pool": "a100-1", "device": "gpu-0-mig-7g80gb-0-0"})
    run = running.inside(state, "get", "gpus")
    rows = dict(zip(run.column("NODE"), run.column("TILES"), strict=True))
    assert rows["h100-2"] == "□□□■□□□□"
    assert rows["a100-1"] == "▥▤▤▤"
    devices = running.inside(state, "get", "devices", "--node", "h100-2")
    assert devices.column("STATE").index("allocated") == 3
    assert devices.column("STATE").count("allocated") == 1
    claims = running.inside(state, "get", "claims", "whole", "-o", "wide")
    assert claims.column("STATE") == ["allocated"]
    assert claims.column("DEVICES") == ["h100-2/gpu-3"]
    assert running.inside(state, "get", "claims", "-A", "--node", "h100-2").column("NAME") == [
        "whole"
    ]


def test_pods_show_their_node_or_why_they_have_none(state: Path) -> None:
    greedy = (running.EXAMPLES / "one-gpu.yaml").read_text().replace("one-gpu", "greedy")
    greedy = greedy.replace(
        "deviceClassName: gpu.nvidia.com", "{deviceClassName: gpu.nvidia.com, count: 9}"
    )
    greedy = greedy.replace("exactly:\n          {", "exactly: {")
    assert (
        running.inside(state, "apply", "-f", str(running.EXAMPLES), "-f", "-", stdin=greedy).code
        == 0
    )
    shown = running.inside(state, "get", "pods")
    rows = dict(
        zip(
            shown.column("NAME"),
            zip(shown.column("STATUS"), shown.column("NODE"), strict=True),
            strict=True,
        )
    )
    assert rows["greedy"] == ("Pending", "-")
    assert rows["one-gpu"][0] == rows["notebook"][0] == "Running"
    assert rows["notebook"][1].startswith("a100-")
    assert shown.err.splitlines()[-1] == "next: dovetail why analysis"
    assert shown.column("WHY NOT")[shown.column("NAME").index("greedy")].endswith("...")
    wide = running.inside(state, "get", "pods", "greedy", "-o", "wide")
    (whole,) = wide.column("WHY NOT")
    assert whole.startswith("26 nodes: ")
    assert whole.endswith("(needs 9)")
    assert wide.out.count("26 nodes: ") == 1, "the reason stands there once"
    assert (
        running.inside(state, "get", "pods", "one-gpu").err.splitlines()[-1]
        == "next: dovetail get gpus"
    )
    held = running.inside(state, "get", "claims", "one-gpu", "-o", "wide")
    assert held.column("DEVICES")[0].startswith(f"{rows['one-gpu'][1]}/gpu-")
    assert held.column("RESERVED FOR") == ["one-gpu"]


def test_a_pod_that_names_a_node_which_does_not_exist_reads_its_name(state: Path) -> None:
    manifest = """
apiVersion: v1
kind: Pod
metadata: {name: lost}
spec:
  nodeName: nonode
  containers: [{name: main, image: x}]
"""
    assert running.inside(state, "apply", "-f", "-", stdin=manifest).code == 0
    shown = running.inside(state, "get", "pods", "lost")
    assert (shown.column("STATUS"), shown.column("NODE")) == (["Pending"], ["nonode"])
    assert shown.column("WHY NOT") == [
        "node nonode does not exist; a pod that names its node is placed on no other"
    ]
    (node,) = running.inside(state, "get", "nodes", "-o", "name").out.splitlines()[:1]
    manifest = manifest.replace("lost", "found").replace("nonode", node.removeprefix("node/"))
    assert running.inside(state, "apply", "-f", "-", stdin=manifest).code == 0
    assert running.inside(state, "get", "pods", "found").column("WHY NOT") == ["-"]


def test_a_promised_start_is_not_cut_off(small: Path) -> None:
    assert running.inside(small, "apply", "-f", str(running.EXAMPLES / "backfill.yaml")).code == 0
    (reason,) = running.inside(small, "get", "pods", "llama").column("WHY NOT")
    assert re.fullmatch(r"5 nodes: .+\.\.\.; starts by [-0-9]+T[:0-9]+Z", reason)
    assert len(reason) == 90


def test_devices_no_node_owns_are_shown_too(state: Path) -> None:
    published = """
apiVersion: resource.k8s.io/v1
kind: ResourceSlice
metadata: {name: fabric}
spec:
  driver: fabric.example.com
  allNodes: true
  pool: {name: fabric, generation: 1, resourceSliceCount: 1}
  devices: [{name: port-0, attributes: {type: {string: port}}}]
"""
    assert running.inside(state, "apply", "-f", "-", stdin=published).code == 0
    shown = running.inside(state, "get", "devices", "port-0")
    assert (shown.column("NODE"), shown.column("TYPE")) == (["-"], ["port"])
    assert running.inside(state, "get", "devices", "-l", "tier=x", "-o", "name").lines == []
    listed = msgspec.json.decode(
        running.inside(state, "get", "devices", "port-0", "-o", "json").out
    )
    assert [item["metadata"]["name"] for item in listed["items"]] == ["fabric"]
    assert len(running.inside(state, "get", "gpus").lines) == 27


def test_labels_choose_rows(state: Path) -> None:
    apply_all(state)
    hopper = running.inside(state, "get", "gpus", "-l", "nvidia.com/gpu.family=hopper")
    assert hopper.column("NODE") == ["h100-0", "h100-1", "h100-2", "h100-3"]
    rack = running.inside(state, "get", "nodes", "-l", "nvidia.com/gpu.clique", "-o", "name")
    assert len(rack.lines) == 18
    team = running.inside(state, "get", "claims", "-A", "-l", "team in (vision)", "-o", "name")
    assert team.lines == ["resourceclaim.resource.k8s.io/eight-gpus"]
    wrong = running.inside(state, "get", "gpus", "-l", "a b")
    assert (wrong.code, wrong.out) == (1, "")


def test_names_choose_rows_and_a_missing_one_is_an_error(state: Path) -> None:
    apply_all(state)
    assert running.inside(state, "get", "node", "h100-1").column("NAME") == ["h100-1"]
    some = running.inside(state, "get", "claims", "one-gpu", "nope")
    assert some.code == 1
    assert some.column("NAME") == ["one-gpu"]
    assert 'claims "nope" not found' in some.err


def test_nothing_found_is_said_on_stderr_and_is_no_error(state: Path) -> None:
    run = running.inside(state, "get", "claims", "-n", "elsewhere")
    assert (run.code, run.out) == (0, "")
    assert "no claims found in namespace elsewhere; -A looks in all" in run.err
    listed = running.inside(state, "get", "claims", "-o", "json")
    assert msgspec.json.decode(listed.out)["items"] == []


def test_without_a_cluster_the_next_step_is_up(empty: Path) -> None:
    run = running.inside(empty, "get", "gpus")
    assert run.code == 1
    assert run.out == ""
    assert run.err.splitlines()[-1] == "next: dovetail up"
    assert not empty.exists()


@pytest.mark.parametrize(
    "arguments",
    [
        ("get",),
        ("get", "gpus", "-o", "xml"),
        ("fly",),
        ("get", "gpus", "--wat"),
    ],
)
def test_wrong_usage_ends_with_2(state: Path, arguments: tuple[str, ...]) -> None:
    run = running.inside(state, *arguments)
    assert run.code == 2
    assert run.out == ""
    assert run.err


def test_a_resource_that_is_not_served_is_an_error_with_a_suggestion(state: Path) -> None:
    run = running.inside(state, "get", "deploymnts")
    assert (run.code, run.out) == (1, "")
    assert 'serves no resource "deploymnts"; did you mean deployments?' in run.err


def apply_all(state: Path) -> None:
    run = running.inside(state, "apply", *running.single())
    assert run.code == 0, run.err


def hold(cluster: embedded.Embedded, name: str, device: dict[str, str]) -> None:
    """A claim that holds a device, as a scheduler would have left it."""
    exactly = {"deviceClassName": "gpu.nvidia.com", "allocationMode": "ExactCount", "count": 1}
    result = {"request": "gpu", "driver": "gpu.nvidia.com", **device}
    cluster.put(
        {
            "apiVersion": "resource.k8s.io/v1",
            "kind": "ResourceClaim",
            "metadata": {"name": name, "namespace": "default"},
            "spec": {"devices": {"requests": [{"name": "gpu", "exactly": exactly}]}},
            "status": {"allocation": {"devices": {"results": [result]}}},
        }
    )


def test_a_pod_that_has_ended_gives_its_gpu_back(state: Path, tmp_path: Path) -> None:
    """A snapshot of the time it ran stays what it was."""
    manifest = """
apiVersion: v1
kind: Pod
metadata: {name: short, annotations: {dovetail.dev/run-seconds: "1"}}
spec: {containers: [{name: main, image: x, resources: {limits: {nvidia.com/gpu: "1"}}}]}
"""
    assert running.inside(state, "apply", "-f", "-", stdin=manifest).code == 0
    saved = tmp_path / "saved"
    assert running.inside(state, "snapshot", "save", str(saved)).code == 0

    def has_ended() -> bool:
        return running.inside(state, "get", "pods").column("STATUS") == ["Succeeded"]

    waiting.wait_until(has_ended, "the pod ends")
    waiting.wait_until(
        lambda: running.inside(state, "get", "claims").lines == [], "its claim is deleted"
    )
    assert "■" not in running.inside(state, "get", "gpus").out
    shown = running.inside(state, "get", "pods", "--snapshot", str(saved))
    assert shown.column("STATUS") == ["Running"]
    assert "■" in running.inside(state, "get", "gpus", "--snapshot", str(saved)).out


def test_pods_of_all_namespaces_are_listed_namespace_by_namespace(state: Path) -> None:
    apply_all(state)
    namespaces = running.inside(state, "get", "pods", "-A").column("NAMESPACE")
    assert len(set(namespaces)) > 1
    assert namespaces == sorted(namespaces)


def test_headers_can_be_left_out(state: Path) -> None:
    _, *whole = running.inside(state, "get", "nodes").lines
    bare = running.inside(state, "get", "nodes", "--no-headers").lines
    # All but the age, which may be a second more.
    assert [line.split()[:-1] for line in bare] == [line.split()[:-1] for line in whole]


def test_formats_that_only_kubectl_has_are_refused_with_the_way_to_get_them(state: Path) -> None:
    run = running.inside(state, "get", "pods", "-o", "go-template={{.items}}")
    assert run.code == 2
    assert "go-template is kubectl's" in run.err
    bare = running.inside(state, "get", "pods", "-o", "jsonpath")
    assert bare.code == 2
    assert "jsonpath needs a template: -o jsonpath='{.items[*].metadata.name}'" in bare.err


def test_a_pod_that_is_being_deleted_reads_terminating(
    cluster: embedded.Embedded, state: Path
) -> None:
    pod = "apiVersion: v1\nkind: Pod\nmetadata: {name: kept, finalizers: [example.com/wait]}\n"
    pod += "spec: {containers: [{name: a, image: x}]}\n"
    assert running.inside(state, "apply", "-f", "-", stdin=pod).code == 0
    assert running.inside(state, "delete", "pod", "kept", "--no-wait").code == 0
    waiting.wait_until(
        lambda: running.inside(state, "get", "pods").column("STATUS") == ["Terminating"],
        "the pod reads Terminating",
    )


def test_a_device_that_its_driver_taints_is_not_free(
    cluster: embedded.Embedded, state: Path
) -> None:
    published = """
apiVersion: resource.k8s.io/v1
kind: ResourceSlice
metadata: {name: fabric}
spec:
  driver: fabric.example.com
  allNodes: true
  pool: {name: fabric, generation: 1, resourceSliceCount: 1}
  devices:
  - {name: port-0, taints: [{key: broken, value: "yes", effect: NoExecute}]}
  - {name: port-1, taints: [{key: noted, effect: None}]}
"""
    assert running.inside(state, "apply", "-f", "-", stdin=published).code == 0
    hold(cluster, "taken", {"driver": "fabric.example.com", "pool": "fabric", "device": "port-0"})
    shown = running.inside(state, "get", "devices", "port-0", "port-1", "-o", "wide")
    assert shown.column("STATE") == ["allocated,tainted", "free"]
    assert shown.column("TAINTS") == ["broken=yes:NoExecute", "noted:None"]
