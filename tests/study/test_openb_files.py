"""Reading openb: orders as published, orders of our own, and input that cannot be used."""

from __future__ import annotations

from pathlib import Path

import pytest

from dovetail import errors
from dovetail.study import openb_files
from tests.study import openb_folder


def test_a_published_run_has_the_published_orders(tmp_path: Path) -> None:
    work = openb_files.read(openb_folder.written(tmp_path), trace="default", seed=42)
    assert work.has_published_order
    assert [node.name for node in work.nodes] == [
        "node-b",
        "node-a",
    ]  # without the one that has no GPU
    assert [shape.total_gpu_milli for shape in work.arrivals] == [1000, 500, 0, 1000]
    assert work.arrivals[1].models == ("A10", "T4")
    assert work.gpu_milli == 3000


def test_another_seed_draws_its_own_order_which_the_seed_repeats(tmp_path: Path) -> None:
    folder = openb_folder.written(tmp_path)
    work = openb_files.read(folder, trace="default", seed=7)
    assert not work.has_published_order
    assert work == openb_files.read(folder, trace="default", seed=7)
    asked = sum(shape.total_gpu_milli for shape in work.arrivals)
    assert 1.3 * work.gpu_milli - 1000 < asked <= 1.3 * work.gpu_milli


def test_a_missing_file_is_named_with_the_place_of_the_public_data(tmp_path: Path) -> None:
    folder = openb_folder.written(tmp_path)
    (folder / "openb_pods.csv.gz").unlink()
    with pytest.raises(errors.NotFound, match=r"no openb_pods.csv.gz there.*clusterdata.*--traces"):
        openb_files.read(folder, trace="default", seed=42)


def test_an_unknown_trace_lists_those_there_are(tmp_path: Path) -> None:
    with pytest.raises(errors.NotFound, match="there are: default, other"):
        openb_files.read(openb_folder.written(tmp_path), trace="nope", seed=42)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("openb_pods", "trace,name\ndefault,pod-0\n"),
        ("openb_pods", openb_folder.PODS.replace("2000", "many")),
        ("openb_pods", openb_folder.PODS.replace("1,500", "2,500")),
        ("openb_pods", openb_folder.PODS.replace("1,500", "1,-500")),
        ("openb_nodes", "sn,cpu_milli,memory_mib,gpu,model\nnode-a,1,1,0,\n"),
        ("openb_nodes", openb_folder.NODES.replace("16000", "lots")),
        ("fgd_runs", openb_folder.RUNS.replace("n3,4", "n9,4")),
        ("fgd_arrival_sequences", openb_folder.ARRIVALS.replace("2 0 1", "2 x 1")),
        ("fgd_arrival_sequences", openb_folder.ARRIVALS.replace("2 0 1", "2 9 1")),
        ("fgd_node_tiebreak_order", openb_folder.NODE_ORDERS.replace("1 0", "1 1")),
    ],
)
def test_a_broken_file_is_named(tmp_path: Path, name: str, text: str) -> None:
    folder = openb_folder.written(tmp_path, **{name: text})
    with pytest.raises(errors.InputError, match=r"csv.gz"):
        openb_files.read(folder, trace="default", seed=42)


def test_a_file_that_is_no_gzip_is_named(tmp_path: Path) -> None:
    folder = openb_folder.written(tmp_path)
    (folder / "openb_nodes.csv.gz").write_text("sn,gpu\n")
    with pytest.raises(errors.InputError, match=r"openb_nodes.csv.gz: cannot be read"):
        openb_files.read(folder, trace="default", seed=42)
