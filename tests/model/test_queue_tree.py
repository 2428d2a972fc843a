"""Which queues a decision may use: orphans, circles, contradictory numbers; any queue that decodes gets an answer."""

from __future__ import annotations

import itertools
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dovetail.kubetypes import codec, meta
from dovetail.kubetypes.custom import queues
from dovetail.model.queue import queue_resources, queue_tree
from dovetail.model.queue.queue_tree import Reason, Severity
from dovetail.quantity import quantity


def queue(name: str, **spec: Any) -> queues.Queue:
    tree = {"metadata": {"name": name, "generation": 3}, "spec": spec}
    return codec.decode_struct(queues.Queue, codec.encode_tree(tree))


def book(*entries: queues.Queue) -> dict[str, queues.Queue]:
    return {entry.metadata.name: entry for entry in entries}


def test_a_sound_tree_has_no_problem_and_is_used_as_it_is() -> None:
    known = book(
        queue("org", resources={"gpu": {"quota": 16}}),
        queue("a", parent="org", resources={"nvidia.com/gpu": {"quota": 8, "limit": 8}}),
        queue(
            "b", parent="org", resources={"gpu": {"quota": 8}, "gpu/mig.3g.40gb": {"limit": "2.5"}}
        ),
        queue(
            "c",
            parent="a",
            resources={"cpu": {}, "gpu.nvidia.com.deviceclass.resource.k8s.io/devices": {}},
        ),
    )
    assert queue_tree.problems(known) == {}
    assert queue_tree.usable(known) == known
    assert all(queue_tree.usable(known)[name] is known[name] for name in known)
    assert queue_tree.children(known) == {"": ("org",), "org": ("a", "b"), "a": ("c",)}


def test_an_orphan_and_all_below_it_are_out_and_say_why() -> None:
    known = book(
        queue("top"), queue("a", parent="gone"), queue("b", parent="a"), queue("c", parent="b")
    )
    result = queue_tree.problems(known)
    assert result["a"].reason is Reason.PARENT_MISSING
    assert result["a"].message == "parent gone does not exist; create it or remove spec.parent"
    assert result["c"].reason is Reason.PARENT_BROKEN
    assert result["c"].message == f"parent b is not usable: {result['a'].message}"
    assert queue_tree.usable(known).keys() == {"top"}


def test_a_circle_is_shown_from_each_of_its_members() -> None:
    known = book(
        queue("a", parent="c"),
        queue("b", parent="a"),
        queue("c", parent="b"),
        queue("leaf", parent="b"),
    )
    result = queue_tree.problems(known)
    assert {name: one.reason for name, one in result.items()} == {
        "a": Reason.CIRCLE,
        "b": Reason.CIRCLE,
        "c": Reason.CIRCLE,
        "leaf": Reason.PARENT_BROKEN,
    }
    assert "a -> c -> b -> a" in result["a"].message
    assert "b -> a -> c -> b" in result["b"].message
    assert queue_tree.usable(known) == {}


def test_a_queue_that_is_its_own_parent_is_a_circle() -> None:
    assert queue_tree.problems(book(queue("a", parent="a")))["a"].reason is Reason.CIRCLE


def test_of_a_chain_of_parents_only_so_many_levels_are_used() -> None:
    deep = book(queue("q0"), *(queue(f"q{n}", parent=f"q{n - 1}") for n in range(1, 3000)))
    problems = queue_tree.problems(deep)
    levels = queue_tree.MAX_LEVELS
    assert queue_tree.usable(deep).keys() == {f"q{n}" for n in range(levels)}
    assert problems[f"q{levels}"].reason is Reason.TOO_DEEP
    assert (
        problems[f"q{levels}"].message
        == "is more than 64 levels below the top; choose a parent nearer to the top"
    )
    assert problems["q2999"].reason is Reason.PARENT_BROKEN
    assert "more than 64 levels" in problems["q2999"].message
    assert problems.keys() == {f"q{n}" for n in range(levels, 3000)}


def test_a_limit_below_the_quota_holds_and_is_a_warning() -> None:
    known = book(queue("a", resources={"gpu": {"quota": 8, "limit": 4, "weight": 3}}))
    assert queue_tree.problems(known)["a"] == queue_tree.Problem(
        Reason.LIMIT_BELOW_QUOTA,
        "resources.gpu: limit 4 is below quota 8; the limit holds",
        Severity.WARNING,
    )
    assert queue_tree.usable(known)["a"].spec.resources["gpu"] == queues.Share(
        quota=quantity.parse("4"), limit=quantity.parse("4"), weight=3
    )


def test_children_promised_more_than_their_parent_are_a_warning_on_the_parent() -> None:
    known = book(
        queue("org", resources={"gpu": {"quota": 8}, "memory": {"quota": "1Ti"}}),
        queue(
            "a",
            parent="org",
            resources={"nvidia.com/gpu": {"quota": 6}, "memory": {"quota": "1Ti"}},
        ),
        queue("b", parent="org", resources={"gpu": {"quota": "2500m"}}),
    )
    result = queue_tree.problems(known)
    assert result.keys() == {"org"}
    assert (
        result["org"].message
        == "resources.gpu: the quotas of 2 children add up to 8500m, its own quota is 8"
    )
    assert queue_tree.usable(known).keys() == known.keys()
    assert queue_tree.readiness(known["org"], result["org"]).status == "True"


def test_nothing_is_too_much_for_a_parent_without_a_bound() -> None:
    bound = {"gpu": {"quota": str(queues.UNLIMITED)}}
    known = book(
        queue("org", resources=bound),
        *(queue(n, parent="org", resources=bound) for n in ("a", "b")),
    )
    assert queue_tree.problems(known) == {}


@pytest.mark.parametrize(
    ("spec", "reason", "words"),
    [
        (
            {"resources": {"gpu": {"quota": -1}}},
            Reason.NEGATIVE,
            "resources.gpu.quota is -1, below zero",
        ),
        (
            {"resources": {"cpu": {"weight": -2}}},
            Reason.NEGATIVE,
            "resources.cpu.weight is -2, below zero",
        ),
        ({"resources": {"gpu/vendor.x": {}}}, Reason.UNKNOWN_RESOURCE, "gpu/product.<product>"),
        (
            {"resources": {"a b": {}}},
            Reason.UNKNOWN_RESOURCE,
            "resources.a b is not the name of a resource",
        ),
        (
            {"resources": {"gpu": {}, "nvidia.com/gpu": {}}},
            Reason.RESOURCE_TWICE,
            "gpu and nvidia.com/gpu",
        ),
        (
            {
                "namespaceSelector": {
                    "matchExpressions": [{"key": "team", "operator": "Like", "values": ["x"]}]
                }
            },
            Reason.SELECTOR,
            'matchExpressions[0]: "Like" is no operator',
        ),
        (
            {"namespaceSelector": {"matchExpressions": [{"key": "team", "operator": "In"}]}},
            Reason.SELECTOR,
            "matchExpressions[0]: In needs values",
        ),
    ],
)
def test_an_unreadable_field_closes_the_queue_and_leaves_the_tree_intact(
    spec: dict[str, Any], reason: Reason, words: str
) -> None:
    known = book(queue("a", **spec), queue("below", parent="a"))
    result = queue_tree.problems(known)
    assert result.keys() == {"a"}
    assert result["a"].reason is reason
    assert words in result["a"].message
    assert not result["a"].takes_work
    assert queue_tree.usable(known).keys() == known.keys()
    condition = queue_tree.readiness(known["a"], result["a"])
    assert (condition.type, condition.status, condition.reason) == ("Ready", "False", reason)
    assert condition.observed_generation == 3


def test_an_alias_of_two_queues_is_reported_on_both() -> None:
    known = book(queue("a", aliases=["x", "only-a"]), queue("b", aliases=["x"]), queue("c"))
    result = queue_tree.problems(known)
    assert result.keys() == {"a", "b"}
    assert (
        result["a"].message
        == "alias x is also used by b; until only one queue has it, it leads to none of them"
    )
    assert result["a"].takes_work


def test_runtimes_that_contradict_each_other_are_a_warning() -> None:
    known = book(
        queue("a", reclaimMinRuntimeSeconds=60, maxRuntimeSeconds=10, minRuntimeSeconds=-1)
    )
    result = queue_tree.problems(known)["a"]
    assert result.severity is Severity.WARNING
    assert "reclaimMinRuntimeSeconds 60 is longer than maxRuntimeSeconds 10" in result.message
    assert "minRuntimeSeconds is -1" in result.message
    assert queue_tree.usable(known)["a"].spec.min_runtime_seconds is None


def test_a_runtime_beyond_the_calendar_is_a_warning() -> None:
    result = queue_tree.problems(book(queue("a", maxRuntimeSeconds=2**62)))["a"]
    assert result.severity is Severity.WARNING
    assert "is longer than 3153600000, a hundred years" in result.message


def test_the_gravest_problem_names_the_reason_and_the_message_has_all() -> None:
    known = book(
        queue("a", parent="gone", resources={"gpu": {"quota": -4}, "cpu": {"quota": 2, "limit": 1}})
    )
    result = queue_tree.problems(known)["a"]
    assert (result.reason, result.is_fatal) == (Reason.PARENT_MISSING, True)
    assert [part in result.message for part in ("gone", "below zero", "below quota")] == [True] * 3


@pytest.mark.parametrize(
    ("name", "read"),
    [
        ("gpu", (queue_resources.Measure.GPUS, "")),
        ("nvidia.com/gpu", (queue_resources.Measure.GPUS, "")),
        (
            "gpu/product.NVIDIA-H100-80GB-HBM3",
            (queue_resources.Measure.PRODUCT, "nvidia-h100-80gb-hbm3"),
        ),
        ("gpu/architecture.Hopper", (queue_resources.Measure.ARCHITECTURE, "hopper")),
        ("gpu/mig.1g.10gb.me", (queue_resources.Measure.PROFILE, "1g.10gb.me")),
        (
            "gpu.nvidia.com.deviceclass.resource.k8s.io/devices",
            (queue_resources.Measure.DEVICE_CLASS, "gpu.nvidia.com"),
        ),
        ("nvidia.com/mig-1g.10gb", (queue_resources.Measure.AMOUNT, "nvidia.com/mig-1g.10gb")),
        ("gpu/product.", None),
        ("gpu/", None),
        ("", None),
    ],
)
def test_resource_names_are_read(name: str, read: tuple[Any, ...] | None) -> None:
    resource = queue_resources.read(name)
    assert (None if resource is None else tuple(resource)) == read


@pytest.mark.parametrize(
    ("text", "slug"),
    [
        ("NVIDIA H100 80GB HBM3", "nvidia-h100-80gb-hbm3"),
        ("1g.10gb+me", "1g.10gb.me"),
        ("Ada Lovelace", "ada-lovelace"),
    ],
)
def test_products_and_profiles_are_written_so_that_names_can_hold_them(
    text: str, slug: str
) -> None:
    assert queue_resources.slug(text) == queue_resources.slug(slug) == slug


NAMES = st.sampled_from(["a", "b", "c", "d", "e"])
NUMBERS = st.one_of(st.integers(-5, 20), st.sampled_from(["500m", "1E", "9E", "80Gi", "-2", "0.1"]))
SHARES = st.fixed_dictionaries(
    {}, optional={"quota": NUMBERS, "limit": NUMBERS, "weight": st.integers(-(2**31), 2**31 - 1)}
)
RESOURCES = st.one_of(
    st.sampled_from(["gpu", "nvidia.com/gpu", "cpu", "gpu/mig.x", "gpu/x"]), st.text(max_size=9)
)
RUNTIME = st.integers(-(2**63), 2**63 - 1)
SPECS = st.fixed_dictionaries(
    {},
    optional={
        "parent": st.one_of(NAMES, st.text(max_size=3)),
        "priority": st.integers(-(2**31), 2**31 - 1),
        "resources": st.dictionaries(RESOURCES, SHARES, max_size=4),
        "aliases": st.lists(st.text(max_size=2), max_size=3),
        "minRuntimeSeconds": RUNTIME,
        "maxRuntimeSeconds": RUNTIME,
        "namespaceSelector": st.builds(
            lambda key, operator, values: {
                "matchExpressions": [{"key": key, "operator": operator, "values": values}]
            },
            st.text(max_size=3),
            st.sampled_from(["In", "Exists", ""]),
            st.lists(st.text(max_size=2), max_size=2),
        ),
    },
)


@given(st.dictionaries(NAMES, SPECS, max_size=5))
def test_any_queues_that_decode_get_an_answer(specs: dict[str, dict[str, Any]]) -> None:
    known = {name: queue(name, **spec) for name, spec in specs.items()}
    result = queue_tree.problems(known)
    kept = queue_tree.usable(known)
    assert kept.keys() == {
        name for name in known if name not in result or not result[name].is_fatal
    }
    for name, item in kept.items():
        assert len(_path_up(kept, name)) <= len(kept)
        for share in item.spec.resources.values():
            assert share.weight >= 0
            assert share.quota is None or share.quota.nanos >= 0
            if share.quota is not None and share.limit is not None:
                assert share.quota <= share.limit or share.quota >= queues.UNLIMITED
        assert len({queue_resources.read(name) for name in item.spec.resources}) == len(
            item.spec.resources
        )
    assert (
        queue_tree.problems({name: one for name, one in known.items() if name not in result}).keys()
        <= known.keys()
    )
    for name, problem in result.items():
        assert isinstance(queue_tree.readiness(known[name], problem), meta.Condition)
        assert problem.message


@given(st.permutations(["a", "b", "c", "d", "e", "f"]))
def test_the_order_queues_come_in_changes_nothing(order: list[str]) -> None:
    parents = {"a": "", "b": "a", "c": "d", "d": "c", "e": "x", "f": "e"}
    known = {name: queue(name, parent=parents[name], aliases=["one"]) for name in order}
    assert queue_tree.problems(known) == queue_tree.problems(dict(sorted(known.items())))


def _path_up(known: dict[str, queues.Queue], name: str) -> list[str]:
    """The way to the top; fails where it does not lead there."""
    path: list[str] = []
    for _ in itertools.repeat(None, len(known) + 1):
        if not name:
            return path
        path.append(name)
        name = known[name].spec.parent
    raise AssertionError(f"{path} does not end")


def test_soundness_is_kept_by_reading_twice() -> None:
    odd = queue(
        "a",
        resources={
            "gpu": {"quota": 9, "limit": 2},
            "gpu/x": {},
            "cpu": {"quota": -1, "weight": -1},
        },
    )
    once = queue_tree.sound(odd)
    assert queue_tree.sound(once) is once
    assert msgspec.structs.asdict(once)["metadata"] == odd.metadata
