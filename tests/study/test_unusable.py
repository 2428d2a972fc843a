"""Unusable idle GPU: the tables agree with a plain count, before and after any placement."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dovetail.model import pod_mix
from dovetail.study import workload
from dovetail.study.placement import cluster_state, unusable
from tests.study import build

SIZES = (160, 320, 470, 650, 1000)
MODELS = ("A10", "T4")


@st.composite
def shapes(draw: st.DrawFn) -> pod_mix.Shape:
    milli = draw(st.sampled_from((0, *SIZES)))
    gpus = 0 if not milli else 1 if milli < 1000 else draw(st.sampled_from((1, 2, 4)))
    return pod_mix.Shape(
        cpu_milli=draw(st.sampled_from((1_000, 4_000, 12_000))),
        gpu_milli=milli,
        gpus=gpus,
        models=draw(st.sampled_from(((), ("T4",), MODELS))) if gpus else (),
    )


NODES = st.lists(
    st.builds(
        build.node,
        name=st.just("node"),
        gpus=st.sampled_from((1, 2, 4)),
        model=st.sampled_from(MODELS),
        cpu_milli=st.sampled_from((8_000, 32_000)),
    ),
    min_size=1,
    max_size=3,
)
MIXES = st.dictionaries(shapes(), st.integers(1, 9), min_size=1, max_size=5).filter(
    lambda counts: any(shape.gpus for shape in counts)
)


@given(
    nodes=NODES,
    counts=MIXES,
    placed=st.lists(shapes(), max_size=12),
    share=st.sampled_from((0, 0.05)),
)
def test_what_a_placement_would_do_is_what_it_does(
    nodes: list[workload.Node],
    counts: dict[pod_mix.Shape, int],
    placed: list[pod_mix.Shape],
    share: float,
) -> None:
    cluster = build.cluster(*nodes)
    mix = pod_mix.mix_of_counts(counts)
    table = unusable.UnusableGpu(cluster, mix, repeated_share=share)
    for shape in placed:
        feasible = np.flatnonzero(cluster.feasible(shape))
        if not len(feasible):
            continue
        node = feasible[-1:]
        device = cluster.best_fit_device(shape, int(node[0])) if shape.is_sharing else -1
        if shape.is_sharing:
            expected = table.after_sharing(shape, node, cluster.devices[node, device])
        else:
            expected = table.after_whole(shape, node)
        cluster.place(shape, int(node[0]), device)
        table.refresh()
        assert table.by_node[node] == pytest.approx(expected)
        assert table.by_node == pytest.approx(_counted(cluster, mix, share))
        assert table.total == pytest.approx(table.by_node.sum())


@given(nodes=NODES, counts=MIXES)
def test_published_sums_are_the_same_sums(
    nodes: list[workload.Node], counts: dict[pod_mix.Shape, int]
) -> None:
    cluster = build.cluster(*nodes)
    mix = pod_mix.mix_of_counts(counts)
    exact = unusable.UnusableGpu(cluster, mix)
    published = unusable.UnusableGpu(cluster, mix, as_published=True)
    assert published.by_node / published.scale == pytest.approx(exact.by_node / exact.scale)


def _counted(cluster: cluster_state.ClusterState, mix: pod_mix.Mix, share: float) -> list[float]:
    """The definition, node by node and shape by shape."""
    by_node = []
    for number, node in enumerate(cluster.nodes):
        free = cluster.devices[number]
        cpu = cluster.cpu[number]
        idle = free.sum()
        lost = left_over = 0.0
        for shape, count in mix.counts:
            fits = bool(shape.gpus) and shape.accepts(node.model) and cpu >= shape.cpu_milli
            fits = fits and np.count_nonzero(free >= shape.gpu_milli) >= shape.gpus
            lost += count * (free[free < shape.gpu_milli].sum() if fits else idle)
            copies = 0
            if fits and shape.is_sharing:
                copies = int((free // shape.gpu_milli).sum())
            elif fits:
                copies = np.count_nonzero(free == 1000) // shape.gpus
            copies = min(copies, int(cpu // shape.cpu_milli))
            left_over += count * (idle - copies * shape.total_gpu_milli)
        by_node.append((1 - share) * lost + share * left_over)
    return by_node
