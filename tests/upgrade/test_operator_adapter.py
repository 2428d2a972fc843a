"""What the operator's adapter writes, in which order, and what it says before a start."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from dovetail.upgrade.adapters import adapter, operator_levers
from dovetail.upgrade.adapters.adapter import Applied, ApplyFailed, ForwardOnly, Target, Working
from dovetail.upgrade.adapters.operator_adapter import OperatorAdapter
from tests.upgrade import trees
from tests.upgrade.trees import NEW, OLD

STATE = "nvidia.com/gpu-driver-upgrade-state"
SKIP = "nvidia.com/gpu-driver-upgrade.skip"
OURS = {"dovetail.dev/driver-skip": NEW}
OPERATOR = OperatorAdapter()
TARGET = Target(driver=NEW)


def _codes(facts_of: tuple[adapter.Problem, ...], *, blocks: bool) -> list[str]:
    return [problem.code for problem in facts_of if problem.blocks is blocks]


def test_every_governed_node_is_skipped_before_the_version_changes() -> None:
    nodes = [trees.node("a"), trees.node("b", {SKIP: "true"}), trees.node("c")]
    first = OPERATOR.apply(trees.facts("a", *nodes, trees.policy()), TARGET)
    assert isinstance(first, Working)
    assert [(type(write), getattr(write, "node", "")) for write in first.writes] == [
        (adapter.NodePatch, "a"),
        (adapter.NodePatch, "c"),
    ]
    assert first.waiting_for.startswith("the skip label on 2 of 3 nodes of ClusterPolicy policy")

    for write in first.writes:
        nodes = [trees.written(node, write) for node in nodes]
    second = OPERATOR.apply(trees.facts("a", *nodes, trees.policy()), TARGET)
    assert isinstance(second, Working)
    [patch] = second.writes
    assert isinstance(patch, adapter.ObjectPatch)
    assert (patch.kind.plural, patch.patch) == (
        "clusterpolicies",
        {"spec": {"driver": {"version": NEW}}},
    )


@given(done=st.sets(st.integers(0, 3)))
def test_a_crash_between_any_two_skip_labels_leaves_the_version_untouched(done: set[int]) -> None:
    nodes = [trees.node(name) for name in "abcd"]
    first = OPERATOR.apply(trees.facts("a", *nodes, trees.policy()), TARGET)
    assert isinstance(first, Working)
    for number in done:
        nodes = [trees.written(node, first.writes[number]) for node in nodes]
    again = OPERATOR.apply(trees.facts("b", *nodes, trees.policy()), TARGET)
    assert isinstance(again, Working)
    kinds = {type(write) for write in again.writes}
    assert kinds == ({adapter.ObjectPatch} if len(done) == 4 else {adapter.NodePatch})
    assert len(again.writes) == (1 if len(done) == 4 else 4 - len(done))


def test_a_pool_with_a_driver_object_of_its_own_leaves_the_other_pools_alone() -> None:
    pools = [trees.node(name, {"pool": name[0]}) for name in ("a-0", "a-1", "b-0")]
    objects = [trees.nvidia_driver(name, OLD, {"pool": name}) for name in "ab"]
    facts = trees.facts("a-0", *pools, *objects, trees.policy(crd=True))
    outcome = OPERATOR.apply(facts, TARGET)
    assert isinstance(outcome, Working)
    assert [getattr(write, "node", "") for write in outcome.writes] == ["a-0", "a-1"]

    skipped = [trees.node(name, {"pool": "a", SKIP: "true"}) for name in ("a-0", "a-1")]
    facts = trees.facts("a-0", *skipped, pools[2], *objects, trees.policy(crd=True))
    outcome = OPERATOR.apply(facts, TARGET)
    assert isinstance(outcome, Working)
    assert [
        (write.name, write.patch)
        for write in outcome.writes
        if isinstance(write, adapter.ObjectPatch)
    ] == [("a", {"spec": {"version": NEW}})]


def test_a_skip_label_of_another_party_stays_and_is_named() -> None:
    node = trees.node("a", {SKIP: "true"})
    facts = trees.facts("a", node, trees.driver(OLD, "a"), trees.policy(NEW))
    assert "SkippedByAnother" in _codes(OPERATOR.unready(facts, TARGET), blocks=True)
    outcome = OPERATOR.apply(facts, TARGET)
    assert isinstance(outcome, ApplyFailed)
    assert "which this upgrade did not set" in outcome.reason


def test_a_node_that_has_the_target_already_is_not_drained_by_the_library() -> None:
    labels = {SKIP: "true", STATE: "upgrade-required"}
    node = trees.node("a", labels, annotations=OURS)
    outcome = OPERATOR.apply(
        trees.facts("a", node, trees.driver(NEW, "a"), trees.policy(NEW)), TARGET
    )
    assert isinstance(outcome, Working)
    [patch] = outcome.writes
    assert isinstance(patch, adapter.NodePatch)
    assert patch.labels == {SKIP: None, STATE: "upgrade-done"}


def test_operands_that_stay_paused_are_resumed_before_the_node_counts_as_done() -> None:
    labels = {
        STATE: "upgrade-done",
        "nvidia.com/gpu.deploy.device-plugin": "paused-for-driver-upgrade",
    }
    node = trees.node("a", labels)
    facts = trees.facts("a", node, trees.driver(NEW, "a"), trees.policy(NEW))
    assert "OperandsPaused" in _codes(OPERATOR.unready(facts, TARGET), blocks=False)
    outcome = OPERATOR.apply(facts, TARGET)
    assert isinstance(outcome, Working)
    resumed = trees.written(node, outcome.writes[0])
    after = OPERATOR.apply(
        trees.facts("a", resumed, trees.driver(NEW, "a"), trees.policy(NEW)), TARGET
    )
    assert isinstance(after, Applied)


def test_what_blocks_a_start_is_named_before_the_node_is_fenced() -> None:
    bare = trees.node("a", {STATE: "drain-required"}, is_ready=False)
    bare["metadata"]["labels"].pop("feature.node.kubernetes.io/system-os_release.ID")
    nodes = [bare, trees.node("b", {STATE: "upgrade-failed"}), trees.node("c"), trees.node("d")]
    facts = trees.facts("a", *nodes, trees.driver(OLD, "b"), trees.policy())
    assert _codes(OPERATOR.unready(facts, TARGET), blocks=True) == [
        "NodeNotReady",
        "NoDiscoveryLabels",
        "UpgradeRunning",
        "DriverPodMissing",
        "FailedNodesHoldSlots",
        "NoNodeMayBeUnavailable",
    ]
    assert _codes(OPERATOR.unready(facts, TARGET), blocks=False) == ["RestartTakesTarget"]


def test_slots_count_as_the_library_counts_them() -> None:
    def free(failed: int, cordoned: int, **upgrade: object) -> int:
        nodes = [
            trees.node(
                f"n{number}",
                {STATE: "upgrade-failed" if number < failed else "upgrade-required"},
                is_cordoned=number < failed or number >= 10 - cordoned,
            )
            for number in range(10)
        ]
        lever = operator_levers.lever_of(trees.facts("n0", *nodes, trees.policy(**upgrade)))
        assert lever is not None
        return operator_levers.slots(lever).free

    # The figures of NVIDIA's own functions: 10 nodes, at most 3 unavailable.
    assert free(1, 0, maxParallelUpgrades=1, maxUnavailable=3) == 0
    assert free(1, 0, maxParallelUpgrades=4, maxUnavailable=3) == 2
    assert free(3, 0, maxParallelUpgrades=4, maxUnavailable=3) == 0
    assert free(0, 3, maxParallelUpgrades=4, maxUnavailable=3) == 0
    assert free(0, 0, maxParallelUpgrades=0, maxUnavailable="25%") == 3


def test_without_a_version_in_the_object_there_is_no_way_back() -> None:
    node = trees.node("a")
    known = trees.facts("a", node, trees.policy(OLD))
    assert isinstance(OPERATOR.reversible(known, TARGET), adapter.Reversible)
    unknown = trees.facts("a", node, trees.policy(""))
    assert isinstance(OPERATOR.reversible(unknown, TARGET), ForwardOnly)


def test_nodes_that_the_way_back_of_another_made_skip_again_are_released_with_the_last_one() -> (
    None
):
    held = trees.node("a", {SKIP: "true", STATE: "upgrade-required"}, annotations=OURS)
    went_back = trees.node("c", {SKIP: "true", STATE: "upgrade-required"}, annotations=OURS)
    last = trees.node("b", {STATE: "upgrade-done"})
    pods = [trees.driver(NEW, "a"), trees.driver(NEW, "b"), trees.driver(OLD, "c")]
    objects = [*pods, trees.policy(NEW)]
    outcome = OPERATOR.apply(trees.facts("b", held, last, went_back, *objects), TARGET)
    assert isinstance(outcome, Working)
    [write] = outcome.writes
    assert isinstance(write, adapter.NodePatch)
    assert (write.node, write.labels) == ("a", {SKIP: None, STATE: "upgrade-done"})
    # c keeps its skip label: the library would install there what it went back from.
    released = trees.written(held, write)
    done = OPERATOR.apply(trees.facts("b", released, last, went_back, *objects), TARGET)
    assert isinstance(done, Applied)
