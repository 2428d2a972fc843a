"""Rules that scenarios may rely on and public ones hardly touch: a small scenario each, its answer found by reasoning.

The rules are those of the format's description. What a test builds is the least that tells right from wrong.
"""

from __future__ import annotations

from typing import Any

import pytest

from tests.scenarios import build
from tests.scenarios.asking import ALLOCATE, NOTHING, PREEMPT, RECLAIM, answer, group, runs, states
from tests.scenarios.build import job, node, queue, waiting

# States


def test_what_is_held_back_is_not_counted_towards_a_minimum() -> None:
    gated = waiting(gpu=1) | {"state": "gated"}
    gang = job("a", waiting(gpu=1), gated, groups=[group("default", 2)])
    grows = job("b", waiting(gpu=1), gated, groups=[group("default", 1)])
    assert states(gang, grows, run=ALLOCATE) == {
        "a": {"gated": 1, "pending": 1},
        "b": {"bound": 1, "gated": 1},
    }


def test_what_is_bound_holds_its_room_and_its_charge() -> None:
    bound = job("a", build.running(gpu=2, state="bound"))
    assert states(bound, job("b", waiting(gpu=1)), run=ALLOCATE) == {
        "a": {"bound": 1},
        "b": {"pending": 1},
    }


def test_no_plan_counts_on_the_end_of_a_stuck_pod() -> None:
    ending = job("a", build.running(gpu=2, state="terminating"))
    stuck = job("a", build.running(gpu=2, state="terminating_stuck"))
    late = job("b", waiting(gpu=1))
    assert states(ending, late, run=ALLOCATE)["b"] == {"nominated": 1}
    assert states(stuck, late, run=ALLOCATE)["b"] == {"pending": 1}


def test_a_gang_with_one_nominated_pod_waits_together() -> None:
    ending = job("a", build.running(gpu=1, state="terminating"))
    gang = job("b", waiting(gpu=1), waiting(gpu=1), groups=[group("default", 2)])
    elastic = job("b", waiting(gpu=1), waiting(gpu=1))
    assert states(ending, gang, run=ALLOCATE)["b"] == {"nominated": 2}
    assert states(ending, elastic, run=ALLOCATE)["b"] == {"bound": 1, "nominated": 1}


def test_what_is_free_is_not_kept_for_those_who_fit_into_what_becomes_free() -> None:
    ending = job(
        "a",
        build.running(gpu=1, state="terminating"),
        build.running(gpu=1, state="terminating"),
        age_s=9,
    )
    large, small = job("b", waiting(gpu=3), age_s=8), job("c", waiting(gpu=1), age_s=7)
    messages = states(
        ending,
        large,
        small,
        nodes=[node("n0", gpus=4)],
        queues=[queue("q0", quota={})],
        run=ALLOCATE,
    )
    assert messages == {"a": {"terminating": 2}, "b": {"nominated": 1}, "c": {"bound": 1}}


def test_pods_that_state_an_order_come_first_the_higher_the_earlier() -> None:
    asked = [
        waiting(gpu=1),
        waiting(gpu=1) | {"order_priority": 1},
        waiting(gpu=2) | {"order_priority": 2},
    ]
    report = answer(job("a", *asked), run=ALLOCATE)
    assert report.jobs["a"].states == {"bound": 1, "pending": 2}
    assert answer(job("a", *asked[:2]), run=ALLOCATE).jobs["a"].states == {"bound": 2}


# Gates


@pytest.mark.parametrize("least", [1, 2])
def test_a_limit_far_above_holds_for_a_batch_as_a_whole(least: int) -> None:
    tree = [
        queue("top", quota={}, limit={"gpu": 1}),
        queue("mid", parent="top", quota={}),
        queue("q0", parent="mid"),
    ]
    gang = job("a", waiting(gpu=1), waiting(gpu=1), groups=[group("default", least)])
    assert states(gang, queues=tree, run=ALLOCATE)["a"] == (
        {"bound": 1, "pending": 1} if least == 1 else {"pending": 2}
    )


def test_non_preemptible_work_stays_within_the_quota_of_every_ancestor_queue() -> None:
    tree = [queue("top", quota={"gpu": 1}), queue("q0", parent="top", quota={"gpu": 2})]
    fixed = job("a", waiting(gpu=2), preemptible=False)
    assert states(fixed, queues=tree, run=ALLOCATE)["a"] == {"pending": 1}
    assert states(fixed | {"preemptible": True}, queues=tree, run=ALLOCATE)["a"] == {"bound": 1}


def test_only_resources_that_are_asked_for_are_checked() -> None:
    over = queue("q0", limit={"gpu": 1, "cpu": None, "memory": None})
    holds = job("a", runs(gpu=2))
    assert states(holds, job("b", waiting()), queues=[over], run=ALLOCATE)["b"] == {"bound": 1}
    assert states(holds, job("b", waiting()), queues=[over], run=PREEMPT)["a"] == {"running": 1}


def test_quotas_that_are_not_enforced_bind_no_queue() -> None:
    shut = queue("q0", quota=NOTHING, limit=NOTHING)
    asked = job("a", waiting(gpu=1), preemptible=False)
    assert states(asked, queues=[shut], run=ALLOCATE)["a"] == {"pending": 1}
    assert states(asked, queues=[shut], settings={"quota_enforced": False}, run=ALLOCATE)["a"] == {
        "bound": 1
    }


def test_memory_of_a_gpu_is_priced_by_the_node_and_gated_by_the_largest() -> None:
    nodes = [node("small", gpus=1, memory_mib=200), node("large", gpus=1, memory_mib=400)]
    asked = waiting(gpu_memory_mib=150)
    near = queue("q0", quota={"gpu": 0}, limit={"gpu": 0.5})
    report = answer(job("a", asked), nodes=nodes, queues=[near], run=ALLOCATE)
    assert report.jobs["a"].nodes == ("large",)  # 150 of 400 is 0.38; of 200 it would be 0.75
    nearer = near | {"limit": {"gpu": 0.3}}
    assert states(job("a", asked), nodes=nodes, queues=[nearer], run=ALLOCATE)["a"] == {
        "pending": 1
    }


def test_a_part_of_several_gpus_costs_that_part_of_each() -> None:
    tight = queue("q0", limit={"gpu": 0.9})
    two = waiting(gpu_fraction=0.5, gpu_devices=2)
    assert states(job("a", two), queues=[tight], run=ALLOCATE)["a"] == {"pending": 1}
    assert states(job("a", two), queues=[queue("q0", limit={"gpu": 1})], run=ALLOCATE)["a"] == {
        "bound": 1
    }


def test_slices_cost_their_compute_units_and_count_for_the_cluster() -> None:
    cut = node(
        "n0",
        gpus=0,
        mig="mixed",
        allocatable={"nvidia.com/mig-3g.40gb": 2, "nvidia.com/mig-1g.10gb": 4},
    )
    three = waiting(mig={"nvidia.com/mig-3g.40gb": 1})
    messages = states(
        job("a", three),
        job("b", three),
        nodes=[cut],
        queues=[queue("q0", limit={"gpu": 5})],
        run=ALLOCATE,
    )
    assert messages == {"a": {"bound": 1}, "b": {"pending": 1}}


# Node types


@pytest.mark.parametrize(
    ("mig", "whole", "part", "none", "sliced"),
    [
        ("none", True, True, True, False),
        ("single", True, False, True, False),
        ("mixed", False, False, True, True),
    ],
)
def test_which_pods_a_node_takes_by_the_way_its_gpus_are_cut(
    mig: str, *, whole: bool, part: bool, none: bool, sliced: bool
) -> None:
    slices = {"nvidia.com/mig-1g.10gb": 1} if mig == "mixed" else {}
    cut = node("n0", gpus=1, mig=mig, allocatable=slices)
    asked = (
        waiting(gpu=1),
        waiting(gpu_fraction=0.5),
        waiting(),
        waiting(mig={"nvidia.com/mig-1g.10gb": 1}),
    )
    for pod, starts in zip(asked, (whole, part, none, sliced), strict=True):
        assert states(job("a", pod), nodes=[cut], run=ALLOCATE)["a"] == {
            "bound" if starts else "pending": 1
        }, pod


def test_slices_of_old_are_never_placed_and_bar_new_ones_from_their_node() -> None:
    cut = node("n0", gpus=0, mig="mixed", allocatable={"nvidia.com/mig-1g.10gb": 3})
    tree: dict[str, Any] = {"mig": {"nvidia.com/mig-1g.10gb": 1}}
    old = job("old", build.running(**tree) | {"legacy_mig": True})
    new = job("new", waiting(**tree))
    assert states(old, new, nodes=[cut], run=ALLOCATE) == {
        "old": {"running": 1},
        "new": {"pending": 1},
    }
    unplaced = job("old", waiting(**tree) | {"legacy_mig": True})
    assert states(unplaced, new, nodes=[cut], run=ALLOCATE) == {
        "old": {"pending": 1},
        "new": {"bound": 1},
    }


@pytest.mark.parametrize("missing", [True, 1, ["data"]])
def test_a_pod_without_its_volume_claim_is_not_placed(missing: object) -> None:
    asked = job("a", waiting() | {"missing_volume_claims": missing})
    assert states(asked, run=ALLOCATE)["a"] == {"pending": 1}


@pytest.mark.parametrize(
    ("policy", "qos", "starts"),
    [
        ("single-numa-node", "Guaranteed", False),
        ("restricted", "Guaranteed", False),
        ("best-effort", "Guaranteed", True),
        ("none", "Guaranteed", True),
        ("single-numa-node", "Burstable", True),
        ("single-numa-node", "", True),
    ],
)
def test_only_guaranteed_pods_have_to_fit_a_zone_and_not_under_every_policy(
    policy: str, qos: str, *, starts: bool
) -> None:
    zones = [
        {"id": f"zone-{at}", "allocatable": {"cpu": 4}, "available": {"cpu": 2}} for at in range(2)
    ]
    aligned = node("n0", numa={"policy": policy, "scope": "pod", "zones": zones})
    pod = waiting(cpu=3) | {"qos": qos}
    assert states(job("a", pod), nodes=[aligned], run=ALLOCATE)["a"] == {
        "bound" if starts else "pending": 1
    }


def test_what_pods_that_are_not_aligned_hold_of_a_zone_is_not_free() -> None:
    zones = [{"id": "0", "allocatable": {"cpu": 4}, "available": {"cpu": 1}}]
    aligned = node("n0", numa={"policy": "single-numa-node", "zones": zones})
    holds = job("a", build.running(cpu=3) | {"numa_placement": {"0": {"cpu": 3}}})
    late = job("b", waiting(cpu=2) | {"qos": "Guaranteed"})
    assert states(holds, late, nodes=[aligned], run=ALLOCATE)["b"] == {"pending": 1}


# Claims


def with_claim(**claim: Any) -> dict[str, Any]:
    """A node with two devices, and a claim for some."""
    names = ["0", "1"]
    return {
        "nodes": [node("n0", gpus=0)],
        "device_classes": [{"name": "gpus", "gpu": True}],
        "device_slices": [{"name": "s", "node": "n0", "pool": "n0", "gpu": True, "devices": names}],
        "claims": [{"name": "c", "device_class": "gpus", "gpu": True, "queue": "q0", **claim}],
    }


@pytest.mark.parametrize(
    ("claim", "starts"),
    [
        ({}, True),
        ({"queue": None}, False),
        ({"queue": "q1"}, False),
        ({"count": 3}, False),
        ({"allocated": [{"pool": "n0", "device": "0"}], "other_consumers": 255}, True),
        ({"allocated": [{"pool": "n0", "device": "0"}], "other_consumers": 256}, False),
    ],
)
def test_a_claim_is_used_by_its_queue_alone_and_by_so_many(
    claim: dict[str, Any], *, starts: bool
) -> None:
    asked = job("a", waiting() | {"claims": ["c"]})
    messages = states(asked, queues=[queue("q0"), queue("q1")], run=ALLOCATE, **with_claim(**claim))
    assert messages["a"] == {"bound" if starts else "pending": 1}


def test_a_claim_costs_as_many_gpus_as_it_has() -> None:
    asked = job("a", waiting() | {"claims": ["c"]})
    for limit, state in ((1, "pending"), (2, "bound")):
        tight = [queue("q0", limit={"gpu": limit})]
        assert states(asked, queues=tight, run=ALLOCATE, **with_claim(count=2))["a"] == {state: 1}


def test_where_gpus_are_claimed_no_parts_of_them_are_given() -> None:
    parts = with_claim()
    parts["nodes"] = [node("n0", gpus=1)]
    assert states(job("a", waiting(gpu_fraction=0.5)), run=ALLOCATE, **parts)["a"] == {"pending": 1}
    assert states(job("a", waiting(gpu=1)), run=ALLOCATE, **parts)["a"] == {"bound": 1}


# Topology

RACKS = [{"name": "t", "levels": ["zone", "rack"]}]


def rack(name: str, zone: str, rack_: str | None, *, gpus: int = 1) -> build.Tree:
    return node(name, gpus=gpus, labels={"zone": zone} | ({} if rack_ is None else {"rack": rack_}))


@pytest.mark.parametrize(
    ("wish", "starts"),
    [
        (
            {"topology": "t", "required": "rack"},
            False,
        ),  # racks of one name in two zones are two racks
        ({"topology": "t", "required": "zone"}, False),
        ({"topology": "t", "preferred": "rack"}, True),
        ({"topology": "missing", "preferred": "rack"}, False),
        ({"topology": "t", "preferred": "row"}, False),
        ({"topology": "t", "required": "row"}, False),
    ],
)
def test_domains_are_whole_paths_and_unknown_levels_cannot_be_met(
    wish: dict[str, str], *, starts: bool
) -> None:
    nodes = [rack("a", "z1", "r"), rack("b", "z2", "r")]
    gang = job("j", waiting(gpu=1), waiting(gpu=1), groups=[group("default", 2)], topology=wish)
    messages = states(gang, nodes=nodes, topologies=RACKS, run=ALLOCATE)
    assert messages["j"] == {"bound" if starts else "pending": 2}


def test_a_node_that_lacks_a_level_is_in_no_domain() -> None:
    wish = {"topology": "t", "required": "zone"}
    outside = [rack("a", "z1", None, gpus=2)]
    asked = job("j", waiting(gpu=1), topology=wish)
    assert states(asked, nodes=outside, topologies=RACKS, run=ALLOCATE)["j"] == {"pending": 1}


def test_what_comes_later_joins_the_domain_of_what_is_there() -> None:
    nodes = [rack("a", "z1", "r1"), rack("b", "z1", "r2", gpus=4)]
    wish = {"topology": "t", "required": "rack"}
    grows = job(
        "j", build.running("a", gpu=1), waiting(gpu=1), groups=[group("default", 1, topology=wish)]
    )
    assert states(grows, nodes=nodes, topologies=RACKS, run=ALLOCATE)["j"] == {
        "pending": 1,
        "running": 1,
    }


# Order


def test_queues_of_higher_priority_are_due_what_is_over_before_others() -> None:
    queues = [queue("q0", quota=NOTHING, priority=1), queue("q1", quota=NOTHING, priority=2)]
    messages = states(
        job("a", waiting(gpu=2)), job("b", waiting(gpu=2), queue="q1"), queues=queues, run=ALLOCATE
    )
    assert messages == {"a": {"pending": 1}, "b": {"bound": 1}}


def test_the_last_unit_is_for_the_older_queue() -> None:
    for first, second in ((0, 1), (1, 0)):
        queues = [
            queue(f"q{at}", quota=NOTHING, creation_order=age)
            for at, age in enumerate((first, second))
        ]
        jobs = [
            job(f"j{at}", *[runs(gpu=1)] * 3 if at else [waiting(gpu=1)] * 2, queue=f"q{at}")
            for at in (0, 1)
        ]
        messages = states(*jobs, nodes=[node("n0", gpus=3)], queues=queues, run=RECLAIM)
        lost = messages["j1"].get("terminating", 0)
        assert lost == (2 if first == 0 else 1), (first, messages)


def test_in_a_queue_the_important_then_the_old_then_the_name_comes_first() -> None:
    for item, other in (
        ({"priority": 51, "age_s": 0}, {"priority": 50, "age_s": 99}),
        ({"priority": 50, "age_s": 60.5}, {"priority": 50, "age_s": 60.4}),
        ({"priority": 50, "age_s": 60}, {"priority": 50, "age_s": 60}),
    ):
        messages = states(
            job("b", waiting(gpu=2), **other), job("a", waiting(gpu=2), **item), run=ALLOCATE
        )
        assert messages == {"a": {"bound": 1}, "b": {"pending": 1}}
    messages = states(
        job("b", waiting(gpu=2), age_s=61), job("a", waiting(gpu=2), age_s=60), run=ALLOCATE
    )
    assert messages["b"] == {"bound": 1}


# Preferences


def test_binpack_and_spread_choose_the_fuller_and_the_emptier_node() -> None:
    nodes = [node("n0", gpus=4), node("n1", gpus=4)]
    holds = job("a", build.running("n1", gpu=1))
    for strategy, chosen in (("binpack", "n1"), ("spread", "n0")):
        settings = {"node_strategy": {"gpu": strategy, "cpu": strategy}}
        asked = job("b", waiting(gpu=1))
        assert answer(holds, asked, nodes=nodes, settings=settings, run=ALLOCATE).jobs[
            "b"
        ].nodes == (chosen,)


def test_pods_without_gpus_keep_off_nodes_that_have_some() -> None:
    nodes = [node("n0", gpus=4), node("n1", gpus=0)]
    assert answer(job("a", waiting()), nodes=nodes, run=ALLOCATE).jobs["a"].nodes == ("n1",)


def test_room_now_is_liked_better_than_room_later() -> None:
    nodes = [node("n0", gpus=2), node("n1", gpus=4)]
    ending = job("a", build.running("n0", gpu=2, state="terminating"))
    report = answer(ending, job("b", waiting(gpu=2)), nodes=nodes, run=ALLOCATE)
    assert (report.jobs["b"].states, report.jobs["b"].nodes) == ({"bound": 1}, ("n1",))


def test_a_gpu_that_is_shared_already_is_liked_better_than_a_fresh_one() -> None:
    nodes = [node("n0", gpus=2), node("n1", gpus=1)]
    sharer = job("a", build.running("n0", gpu_fraction=0.5, devices=("0",)))
    report = answer(
        sharer, job("b", waiting(gpu_fraction=0.5)), job("c", waiting(gpu=1), age_s=9), nodes=nodes
    )
    assert report.jobs["b"].nodes == ("n0",)
