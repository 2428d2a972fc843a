"""MIG geometry from demand: what is proposed, for whom, and what is left alone."""

from __future__ import annotations

import itertools
from typing import Any

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from dovetail import gpus
from dovetail.answer.partitioning import partition_plan
from dovetail.answer.partitioning.partition_answer import PartitionPlan
from dovetail.answer.partitioning.partition_nodes import BoardState, StaticNode
from dovetail.answer.partitioning.partition_trial import NodeChange
from dovetail.answer.what_if import mig_layout
from tests.answer.what_if import building

Tree = dict[str, Any]
BOARD = gpus.by_name("A100-SXM4-80GB")
PROFILES = ("1g.10gb", "1g.20gb", "2g.20gb", "3g.40gb", "4g.40gb", "7g.80gb")


def slice_pod(name: str, profile: str, *, node: str = "", job: str = "", count: int = 1) -> Tree:
    resource = f"nvidia.com/mig-{profile}"
    return building.pod(name, gpus=count, resource=resource, node=node, job=job)


def partitioned_node(name: str, *, gpus: int, **profiles: int) -> Tree:
    """A node whose device plugin counts partitions: so many of each profile on the whole node."""
    tree = building.plugin_node(name, gpus=gpus)
    amounts = {f"nvidia.com/mig-{key}": str(number) for key, number in profiles.items()}
    plain = {
        key: value
        for key, value in tree["status"]["allocatable"].items()
        if key != "nvidia.com/gpu"
    }
    labels = tree["metadata"]["labels"] | {"nvidia.com/mig.strategy": "mixed"}
    status = {"allocatable": plain | amounts, "capacity": plain | amounts}
    return tree | {"metadata": {"name": name, "labels": labels}, "status": status}


def _job(name: str) -> Tree:
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"namespace": "default", "name": name, "uid": f"job-{name}"},
        "spec": {"parallelism": 1},
    }


def plan(*trees: Tree, **options: Any) -> PartitionPlan:
    return partition_plan.planned(building.replica_of(*trees), **options)


def test_a_free_gpu_is_partitioned_for_what_waits() -> None:
    answer = plan(
        building.plugin_node("a", gpus=1), slice_pod("x", "3g.40gb"), slice_pod("y", "1g.10gb")
    )
    (proposal,) = answer.proposals
    (board,) = proposal.boards
    assert board.before == ()
    assert {"3g.40gb", "1g.10gb"} <= set(board.after)
    assert proposal.starts == ("default/x", "default/y")
    assert (answer.before.pods, answer.after.pods, answer.after.of) == (0, 2, 2)
    assert proposal.moves == ()
    assert answer.demand == {"1g.10gb": 1, "3g.40gb": 1}


def test_nothing_waits_so_nothing_is_proposed() -> None:
    answer = plan(building.plugin_node("a", gpus=2))
    assert answer.proposals == ()
    assert answer.before == answer.after


def test_partitions_become_a_whole_gpu_again() -> None:
    answer = plan(partitioned_node("a", gpus=1, **{"1g.10gb": 7}), building.pod("big", gpus=1))
    (proposal,) = answer.proposals
    assert [board.after for board in proposal.boards] == [()]
    assert answer.after.pods == 1


def test_work_that_starts_anyway_is_not_partitioned_for() -> None:
    node = partitioned_node("a", gpus=1, **{"1g.10gb": 7})
    assert plan(node, slice_pod("x", "1g.10gb")).proposals == ()


def test_a_pod_that_starts_without_the_change_still_starts_with_it() -> None:
    """The only GPU serves a whole-GPU pod already: partitioning it would take that away."""
    answer = plan(
        building.plugin_node("a", gpus=1), building.pod("whole"), slice_pod("x", "1g.10gb")
    )
    assert answer.proposals == ()
    assert answer.before.names == ("default/whole",)


def test_a_holder_leaves_if_it_starts_again_elsewhere() -> None:
    busy = building.plugin_node("a", gpus=1)
    other = building.plugin_node(
        "b", gpus=1, labels={"nvidia.com/gpu.product": "Tesla-V100-SXM2-32GB"}
    )
    runs = building.pod("runs", node="a", job="j")
    answer = plan(busy, other, runs, _job("j"), slice_pod("x", "1g.10gb"))
    (proposal,) = answer.proposals
    (move,) = proposal.moves
    assert (move.pod, move.node, move.to) == ("default/runs", "a", "b")
    assert move.gpu_hours > 1.0  # an hour of work and the restart
    assert proposal.gpu_hours > move.gpu_hours
    assert answer.after.names == ("default/x",)


def test_a_holder_that_no_controller_creates_again_stays() -> None:
    answer = plan(
        building.plugin_node("a", gpus=1), building.pod("bare", node="a"), slice_pod("x", "1g.10gb")
    )
    assert answer.proposals == ()
    (passed,) = answer.passed
    assert passed.nodes == ("a",)
    assert "no controller would create it again" in passed.why


def test_a_holder_without_another_place_stays() -> None:
    runs = building.pod("runs", node="a", job="j")
    answer = plan(building.plugin_node("a", gpus=1), runs, _job("j"), slice_pod("x", "1g.10gb"))
    assert answer.proposals == ()
    assert "default/runs would not start again" in answer.passed[0].why


def test_nodes_that_partition_on_demand_need_nothing() -> None:
    pool = msgspec.structs.replace(building.h100(1, gpus=1), mig=True)
    answer = plan(*building.fleet(pool), building.plugin_node("a", gpus=1))
    assert answer.proposals == ()
    assert len(answer.on_demand) == 1


def claim(name: str, profile: str) -> Tree:
    """A claim for one partition, by the profile it names."""
    expression = f"device.attributes['gpu.nvidia.com'].profile == '{profile}'"
    request = {
        "deviceClassName": "mig.nvidia.com",
        "selectors": [{"cel": {"expression": expression}}],
        "allocationMode": "ExactCount",
        "count": 1,
    }
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {"namespace": "default", "name": name, "uid": f"claim-{name}"},
        "spec": {"devices": {"requests": [{"name": "gpu", "exactly": request}]}},
    }


def claiming_pod(name: str) -> Tree:
    tree = building.pod(name)
    container = {"name": "main", "resources": {"claims": [{"name": "gpu"}]}}
    claims = [{"name": "gpu", "resourceClaimName": name}]
    return tree | {"spec": {"containers": [container], "resourceClaims": claims}}


def test_claims_are_understood_by_asking_the_engine() -> None:
    """Whole GPUs that a driver without dynamic MIG publishes; only some of them change."""
    fleet = building.fleet(building.h100(1, gpus=4))
    wanted = [claim("x", "3g.40gb"), claiming_pod("x"), claim("y", "1g.10gb"), claiming_pod("y")]
    answer = plan(*fleet, *wanted)
    (proposal,) = answer.proposals
    changed = [board for board in proposal.boards if board.before != board.after]
    assert len(changed) == 1
    assert len(proposal.boards) == 4
    assert answer.demand == {"1g.10gb": 1, "3g.40gb": 1}
    assert answer.after.names == ("default/x", "default/y")


def test_a_gang_that_needs_two_nodes_gets_both() -> None:
    nodes = [building.plugin_node(f"n{index}", gpus=1) for index in range(3)]
    members = [slice_pod(f"m{index}", "7g.80gb", job="train") for index in range(2)]
    labels = {"dovetail.dev/gang": "train", "dovetail.dev/gang-min": "2"}
    for member in members:
        member["metadata"]["labels"] = labels
    answer = plan(*nodes, *members, _job("train"))
    assert len(answer.proposals) == 2
    assert answer.after.pods == 2


def test_boards_without_mig_are_passed() -> None:
    old = building.plugin_node(
        "a", gpus=1, labels={"nvidia.com/gpu.product": "Tesla-V100-SXM2-32GB"}
    )
    answer = plan(old, slice_pod("x", "1g.10gb"))
    assert [(each.nodes, "MIG" in each.why or "known" in each.why) for each in answer.passed] == [
        (("a",), True)
    ]


def test_what_is_cut_short_is_counted() -> None:
    nodes = [building.plugin_node(f"n{index}", gpus=1) for index in range(5)]
    pods = [slice_pod(f"x{index}", "7g.80gb") for index in range(5)]
    assert plan(*nodes, *pods, most_trials=2).cut_short > 0
    whole = plan(*nodes, *pods)
    assert (whole.cut_short, whole.after.pods) == (0, 5)


def test_the_order_of_the_objects_does_not_matter() -> None:
    trees = (
        building.plugin_node("a", gpus=1),
        building.plugin_node("b", gpus=1),
        slice_pod("x", "4g.40gb"),
        slice_pod("y", "4g.40gb"),
    )
    documents = {msgspec.json.encode(plan(*order)) for order in itertools.permutations(trees)}
    assert len(documents) == 1


@settings(max_examples=25, deadline=None)
@given(
    free=st.integers(1, 2),
    gpus_=st.integers(1, 2),
    wanted=st.lists(st.sampled_from((*PROFILES, "whole")), max_size=6),
    is_held=st.booleans(),
)
def test_geometries_are_legal_and_no_waiting_pod_loses(
    free: int, gpus_: int, wanted: list[str], is_held: bool
) -> None:
    trees = [building.plugin_node(f"free-{index}", gpus=gpus_) for index in range(free)]
    if is_held:
        trees += [
            partitioned_node("held", gpus=1, **{"1g.10gb": 7}),
            slice_pod("runs", "1g.10gb", node="held", job="j"),
            _job("j"),
        ]
    for index, profile in enumerate(wanted):
        name = f"w{index}"
        is_whole = profile == "whole"
        trees.append(building.pod(name) if is_whole else slice_pod(name, profile))
    answer = plan(*trees)
    assert BOARD is not None
    for proposal in answer.proposals:
        for board in proposal.boards:
            if board.after:
                mig_layout.layout(BOARD, board.after)  # raises where the board does not allow it
        assert all(move.to for move in proposal.moves)
    assert set(answer.before.names) <= set(answer.after.names)
    assert bool(answer.proposals) == (answer.after.pods > answer.before.pods)


def test_a_node_that_is_drained_loses_the_holders_of_its_other_gpus() -> None:
    assert BOARD is not None
    boards = (BoardState(0, (), ("default/a",)), BoardState(1, (), ("default/b",)))
    node = StaticNode("n", "A100", BOARD, boards, is_counted=False)
    after = {0: ("7g.80gb",)}
    assert NodeChange(node, after).leaving == ("default/a",)
    assert NodeChange(node, after, is_drained=True).leaving == ("default/a", "default/b")


def test_an_excluded_node_is_left_alone_with_its_reason() -> None:
    answer = plan(
        building.plugin_node("a", gpus=1),
        building.plugin_node("b", gpus=1),
        slice_pod("x", "3g.40gb"),
        excluded={"a": "no MIG manager runs there", "c": "not a node"},
    )
    assert [proposal.node for proposal in answer.proposals] == ["b"]
    assert [(passed.why, passed.nodes) for passed in answer.passed] == [
        ("no MIG manager runs there", ("a",))
    ]
