"""`dovetail get gpus`: states of GPUs, blocks, sums and holders, for published and for counted GPUs alike."""

from __future__ import annotations

import datetime
import itertools
import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dovetail.kubetypes import codec, object_set
from dovetail.kubetypes.custom import intents
from dovetail.tables import listing
from dovetail.tables.gpus import gpu_summary, gpu_table, gpu_tiles
from tests.cli import running

Tree = dict[str, Any]
NOW = datetime.datetime(2026, 1, 31, 12, tzinfo=datetime.UTC)
DRIVER = "gpu.nvidia.com"


def node(name: str, resource: str = "", count: int = 0, *, cordoned: bool = False) -> Tree:
    allocatable = {f"nvidia.com/{resource}": str(count)} if resource else {}
    tree = {"metadata": {"name": name}, "status": {"allocatable": allocatable}}
    return {"apiVersion": "v1", "kind": "Node", "spec": {"unschedulable": cordoned}, **tree}


def device(name: str, gpu: int, **more: Any) -> Tree:
    attributes = {
        "type": {"string": more.pop("type", "gpu")},
        "productName": {"string": more.pop("product", "NVIDIA H100")},
        "uuid": {"string": f"GPU-{gpu}"},
    }
    if attributes["type"] == {"string": "mig"}:
        attributes |= {"uuid": {"string": f"MIG-{name}"}, "parentUUID": {"string": f"GPU-{gpu}"}}
    capacity = {"memory": {"value": "80Gi"}}
    return {"name": name, "attributes": attributes, "capacity": capacity, **more}


def slice_of(node_name: str, *devices: Tree) -> Tree:
    pool = {"name": node_name, "generation": 1, "resourceSliceCount": 1}
    spec = {"driver": DRIVER, "nodeName": node_name, "pool": pool, "devices": list(devices)}
    metadata = {"name": f"{node_name}-slice"}
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceSlice",
        "metadata": metadata,
        "spec": spec,
    }


def claim(name: str, node_name: str, *devices: str, user: str = "", memory: str = "") -> Tree:
    results = [
        {"request": "r", "driver": DRIVER, "pool": node_name, "device": each} for each in devices
    ]
    if memory:
        results = [each | {"consumedCapacity": {"memory": memory}} for each in results]
    status = {
        "allocation": {
            "devices": {"results": results},
            "allocationTimestamp": "2026-01-31T10:00:00Z",
        },
        "reservedFor": [{"resource": "pods", "name": user, "uid": user}] if user else [],
    }
    metadata = {"name": name, "namespace": "train"}
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": metadata,
        "status": status,
    }


def pod(name: str, node_name: str, resource: str = "", count: int = 0) -> Tree:
    requests = {f"nvidia.com/{resource}": str(count)} if resource else {}
    container = {"name": "c", "resources": {"requests": requests, "limits": requests}}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "train", "uid": name},
        "spec": {"nodeName": node_name, "containers": [container]},
        "status": {"phase": "Running", "startTime": "2026-01-31T11:00:00Z"},
    }


def query_of(*trees: Tree, in_full: bool = False) -> listing.Query:
    stored = []
    for tree in trees:
        if tree["kind"] == "Intent":
            document = msgspec.json.encode(tree)
            struct: Any = codec.decode_struct(intents.Intent, document)
            stored.append(codec.Stored(struct, document))
        else:
            stored.append(codec.decode(tree))
    return listing.Query(
        objects=object_set.of("test", stored),
        now=NOW,
        test=lambda _: True,
        namespace=None,
        node=None,
        in_full=in_full,
    )


def tiles_of(*trees: Tree) -> str:
    [shown] = gpu_tiles.nodes_with_gpus(query_of(*trees).objects)
    return shown.tiles


WHOLE = [device(f"gpu-{number}", number) for number in range(4)]
CUT = {"key": "bad", "effect": "NoSchedule"}
RULE = {
    "apiVersion": "resource.k8s.io/v1",
    "kind": "DeviceTaintRule",
    "metadata": {"name": "r"},
    "spec": {"deviceSelector": {"pool": "a", "device": "gpu-3"}, "taint": CUT},
}
KEPT = {"driver": DRIVER, "pool": "a", "device": "gpu-2"}


def intent(**spec: Any) -> Tree:
    metadata = {"name": "i", "namespace": "train"}
    return {
        "apiVersion": "dovetail.dev/v1alpha1",
        "kind": "Intent",
        "metadata": metadata,
        "spec": spec,
    }


def test_every_state_has_a_tile_of_its_own() -> None:
    quiet = {"key": "note", "effect": "None"}
    devices = [
        *WHOLE[:3],
        WHOLE[3] | {"taints": [quiet]},
        device("gpu-4", 4, taints=[CUT]),
        device("gpu-5", 5, allowMultipleAllocations=True),
        device("gpu-6", 6),
        device("gpu-6-mig-0", 6, type="mig"),
        device("gpu-7-mig-0", 7, type="mig"),
    ]
    held = [claim("a", "a", "gpu-0"), claim("b", "a", "gpu-5", memory="10Gi")]
    held.append(claim("c", "a", "gpu-6-mig-0"))
    reserved = intent(slot={"pod": "p", "node": "a", "devices": [KEPT]})
    assert tiles_of(node("a"), slice_of("a", *devices), *held, reserved) == "■□▣□▨◧▥▤"


def test_rules_quarantines_and_cordons_close_what_would_be_free() -> None:
    published = slice_of("a", *WHOLE)
    assert tiles_of(node("a"), published, RULE) == "□□□▨"
    assert tiles_of(node("a"), published, intent(quarantine={"devices": [KEPT]})) == "□□▣□"
    assert tiles_of(node("a", cordoned=True), published, claim("c", "a", "gpu-1")) == "▨■▨▨"


def test_counted_gpus_have_the_same_states() -> None:
    slot = {"pod": "q", "node": "a", "requests": {"nvidia.com/gpu": "1"}}
    trees = [node("a", "gpu", 4), pod("p", "a", "gpu", 2), intent(slot=slot)]
    assert tiles_of(*trees) == "■■▣□"
    assert tiles_of(node("a", "gpu", 2, cordoned=True), pod("p", "a", "gpu", 1)) == "■▨"
    assert tiles_of(node("a", "gpu.shared", 4), pod("p", "a", "gpu.shared", 1)) == "◧"
    assert tiles_of(node("a", "mig-1g.10gb", 7)) == "▤"


STATES = st.lists(
    st.tuples(
        st.sampled_from(["NVIDIA H100", "NVIDIA L4", "NVIDIA A100"]),
        st.sampled_from(["free", "used", "tainted", "reserved", "shared", "sliced", "parts"]),
    ),
    min_size=1,
    max_size=9,
)


@given(st.lists(STATES, min_size=1, max_size=5))
def test_sums_add_up(fleet: list[list[tuple[str, str]]]) -> None:
    nodes = [
        gpu_tiles.NodeGpus(
            node=codec.decode(node(f"n{number}")).struct,  # type: ignore[arg-type]
            gpus=tuple(
                gpu_tiles.Gpu(
                    uuid=f"{number}/{index}",
                    product=product,
                    memory_bytes=0,
                    has_whole=state != "parts",
                    partitions=0,
                    state=state,
                )
                for index, (product, state) in enumerate(states)
            ),
            pools=frozenset(),
        )
        for number, states in enumerate(fleet)
    ]
    by_type, total = gpu_summary.summaries(nodes), gpu_summary.total_of(nodes)
    for summary in (*by_type, total):
        assert summary.counted == summary.gpus
        assert list(summary.nodes_with_free.values()) == sorted(summary.nodes_with_free.values())
        assert summary.largest_free <= summary.free
        assert (summary.largest_free >= 4) == (summary.nodes_with_free[4] > 0)
    for field in ("gpus", "free", "in_use", "in_slices", "shared", "tainted", "reserved"):
        assert sum(getattr(each, field) for each in by_type) == getattr(total, field)
    assert total.gpus == sum(map(len, fleet))
    assert total.largest_free == max(each.free for each in nodes)
    drawn = "".join(each.tiles for each in nodes)
    assert drawn.count("□") == total.free


def test_holders_are_named_with_their_time() -> None:
    trees = [
        node("a"),
        slice_of("a", *WHOLE),
        claim("both", "a", "gpu-0", "gpu-1", user="p"),
        claim("lonely", "a", "gpu-3"),
        pod("p", "a"),
    ]
    [row] = gpu_table.rows(query_of(*trees, in_full=True)).rows
    assert row.wide[-1] == "0-1 train/p (120m); 3 claim train/lonely (120m)"
    [counted] = gpu_table.rows(
        query_of(
            node("a", "gpu", 4), pod("p", "a", "gpu", 1), pod("q", "a", "gpu", 2), in_full=True
        )
    ).rows
    assert counted.wide[-1] == "0 train/p (60m); 1-2 train/q (60m)"
    [shared] = gpu_table.rows(
        query_of(
            node("a", "gpu.shared", 4),
            pod("p", "a", "gpu.shared", 1),
            pod("q", "a", "gpu.shared", 1),
            in_full=True,
        )
    ).rows
    assert shared.wide[-1] == "0 train/p (60m) + train/q (60m)"


@pytest.fixture
def used(state: Path) -> Path:
    """The sample fleet with the examples on it."""
    assert running.inside(state, "apply", *running.single()).code == 0
    return state


def test_the_cluster_and_its_snapshots_say_the_same(used: Path, tmp_path: Path) -> None:
    saved, dumped = tmp_path / "snap", tmp_path / "dump.json"
    assert running.inside(used, "snapshot", "save", str(saved)).code == 0
    objects = running.inside(used, "get", "nodes,slices,claims,pods", "-A", "-o", "json")
    dumped.write_text(objects.out)
    live = running.inside(used, "get", "gpus", "--summary")
    assert live.column("GPU")[-1] == "total"
    assert live.column("GPUS")[-1] == str(sum(map(int, live.column("GPUS")[:-1])))
    for path in (saved, dumped):
        again = running.inside(used, "get", "gpus", "--summary", "--snapshot", str(path))
        assert again.out == live.out
        narrow, wide = (
            running.inside(used, "get", "gpus", *form, "--snapshot", str(path))
            for form in ((), ("-o", "wide"))
        )
        assert narrow.column("TILES") == wide.column("TILES")
        assert any("default/one-gpu (" in cell for cell in wide.column("HELD BY"))


def test_a_summary_is_data_too(used: Path) -> None:
    run = running.inside(used, "get", "gpus", "--summary", "-o", "json")
    items = json.loads(run.out)["items"]
    assert {each["gpu"] for each in items} == {"A100-SXM4-80GB", "GB200", "H100 80GB HBM3"}
    states = ("free", "inUse", "inSlices", "shared", "tainted", "reserved")
    for each in items:
        assert sum(each[name] for name in states) == each["gpus"]


@pytest.mark.parametrize("words", [("pods",), ("gpus,nodes",), ("events",)])
def test_a_summary_is_about_gpus(used: Path, words: tuple[str, ...]) -> None:
    run = running.inside(used, "get", *words, "--summary")
    assert (run.code, run.out) == (2, "")
    assert "--summary is about gpus" in run.err


def test_tiles_have_letters_without_unicode() -> None:
    letters = gpu_tiles.ascii_only("□▤▥◧■▨▣")
    assert letters.isascii()
    assert all(a != b for a, b in itertools.pairwise(sorted(letters)))
