"""The pod index equals a count from scratch, whatever happened before."""

from __future__ import annotations

from typing import Any

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from dovetail.kubetypes import codec, label_selectors, meta
from dovetail.kubetypes.core import pods
from dovetail.world import pod_index

NODES = ("a", "b", "c")
SELECTORS: tuple[dict[str, Any], ...] = (
    {},
    {"matchLabels": {"app": "x"}},
    {"matchExpressions": [{"key": "app", "operator": "NotIn", "values": ["x"]}]},
    {"matchExpressions": [{"key": "tier", "operator": "Exists"}]},
    {
        "matchExpressions": [
            {"key": "tier", "operator": "DoesNotExist"},
            {"key": "app", "operator": "Exists"},
        ]
    },
)


def made(
    number: int, app: str, tier: str, *, is_leaving: bool = False, port: int = 0, volume: str = ""
) -> pods.Pod:
    metadata: dict[str, Any] = {
        "name": f"p{number}",
        "namespace": "even" if number % 2 == 0 else "odd",
    }
    metadata["labels"] = {key: value for key, value in (("app", app), ("tier", tier)) if value}
    if is_leaving:
        metadata["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    ports = [{"containerPort": port, "hostPort": port}] if port else []
    volumes = [{"name": "v", "persistentVolumeClaim": {"claimName": volume}}] if volume else []
    spec = {"containers": [{"name": "main", "ports": ports}], "volumes": volumes}
    tree = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}
    struct = codec.decode(tree).struct
    assert isinstance(struct, pods.Pod)
    return struct


PODS = st.builds(
    made,
    st.integers(0, 5),
    st.sampled_from(["", "x", "y"]),
    st.sampled_from(["", "front"]),
    is_leaving=st.booleans(),
    port=st.sampled_from([0, 80, 81]),
    volume=st.sampled_from(["", "disk"]),
)
QUESTIONS = st.builds(
    pod_index.PodQuery,
    st.sampled_from([None, frozenset({"even"}), frozenset({"even", "odd"}), frozenset[str]()]),
    st.sampled_from(SELECTORS).map(
        lambda tree: label_selectors.tests_of(msgspec.convert(tree, meta.LabelSelector))
    ),
    st.booleans(),
)
STEPS = st.lists(
    st.one_of(st.tuples(PODS, st.sampled_from(NODES)), st.integers(0, 5), QUESTIONS), max_size=40
)


@given(STEPS)
def test_what_is_kept_equals_a_fresh_count(steps: list[Any]) -> None:
    kept = pod_index.PodIndex()
    there: dict[str, tuple[pods.Pod, str]] = {}
    asked: list[pod_index.PodQuery] = []
    for step in steps:
        if isinstance(step, int):
            kept.drop(f"p{step}")
            there.pop(f"p{step}", None)
        elif isinstance(step, pod_index.PodQuery):
            asked.append(step)
            kept.count(step)
        else:
            pod, node = step
            kept.put(pod.metadata.name, pod, node)
            there[pod.metadata.name] = (pod, node)
    fresh = pod_index.PodIndex()
    for id_, (pod, node) in there.items():
        fresh.put(id_, pod, node)
    assert kept.dump() == fresh.dump()
    for question in asked:
        assert dict(kept.count(question)) == dict(fresh.count(question)) == counted(question, there)


def counted(question: pod_index.PodQuery, there: dict[str, tuple[pods.Pod, str]]) -> dict[str, int]:
    """The same, in the plainest way."""
    result: dict[str, int] = {}
    for pod, node in there.values():
        seen = pod.metadata
        if question.namespaces is not None and seen.namespace not in question.namespaces:
            continue
        if seen.deletion_timestamp and not question.with_leaving:
            continue
        if label_selectors.passes(question.tests, seen.labels):
            result[node] = result.get(node, 0) + 1
    return result


def test_an_empty_selector_picks_everything_and_none_nothing() -> None:
    assert label_selectors.passes(label_selectors.tests_of(None), {"a": "b"}) is False
    assert label_selectors.passes(label_selectors.EVERYTHING, {}) is True
    assert (
        label_selectors.narrowed(label_selectors.NOTHING, ["a"], {"a": "b"})
        == label_selectors.NOTHING
    )
