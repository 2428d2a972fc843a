"""The checker of runs is itself checked: a clean story passes, and each thing that can go wrong is noticed."""

from __future__ import annotations

import ast
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path

import pytest

from tests.faults import checker, checker_pods, checker_scene, harm, harm_gangs, records
from tests.faults.story import HistoryBuilder, partition, selector, share, shareable

JUDGE = checker_scene.Judge(frozenset({"one", "two"}))
COUNTERS = [{"name": "set", "counters": {"slices": {"value": "7"}}}]


def cluster() -> HistoryBuilder:
    """Two nodes with whole devices, partitions of one more, and one that is shared."""
    history_builder = HistoryBuilder()
    for node in ("a", "b"):
        history_builder.node(node)
        devices = [{"name": "gpu-0"}, {"name": "gpu-1"}, shareable("wide", "80Gi")]
        devices += [
            partition("half-0", 3),
            partition("half-1", 3),
            partition("half-2", 3),
            partition("all", 7),
        ]
        history_builder.pool(node, devices, counters=COUNTERS)
    history_builder.lead("one")
    return history_builder


def story() -> HistoryBuilder:
    """A bit of everything, all of it right."""
    history_builder = cluster()
    for name in ("train", "left", "right", "part", "slice", "late"):
        history_builder.pod(
            name,
            claims=("both",) if name in ("left", "right") else (name,),
            asks={"cpu": "2", "memory": "4Gi"},
        )
        if name not in ("left", "right"):
            history_builder.claim(name, owner=name)
    history_builder.claim("both")
    history_builder.allocate(
        "train", {"device": "gpu-0"}, {"device": "gpu-1"}, pods=("train",), node="a"
    )
    history_builder.bind("train", "a")
    history_builder.allocate(
        "both", share("wide", "50Gi", identity="s1"), pods=("left", "right"), node="a"
    )
    history_builder.bind("left", "a")
    history_builder.bind("right", "a")
    history_builder.allocate(
        "part", {"device": "half-0"}, {"device": "half-1"}, pods=("part",), node="b"
    )
    history_builder.bind("part", "b")
    history_builder.allocate(
        "slice", share("wide", "80Gi", identity="s2"), pods=("slice",), node="b"
    )
    history_builder.bind("slice", "b")
    history_builder.refuse("late", "2 nodes: 2 lack free GPUs")
    history_builder.delete("pods", "t/train")
    history_builder.release("train")
    history_builder.delete("resourceclaims", "t/train")
    history_builder.lead("two")
    history_builder.allocate("late", {"device": "gpu-0"}, pods=("late",), node="a", by="two")
    history_builder.bind("late", "a", by="two")
    return history_builder


def rules(history_builder: HistoryBuilder) -> set[str]:
    return {violation.rule for violation in checker.violations(history_builder.history(), JUDGE)}


def test_a_clean_story_passes() -> None:
    assert checker.violations(story().history(), JUDGE) == []


def test_a_violation_names_its_revision() -> None:
    history_builder = story()
    history_builder.pod("thief", claims=("thief",))
    history_builder.claim("thief", owner="thief")
    history_builder.allocate("thief", {"device": "gpu-0"}, pods=("thief",), node="a", by="two")
    history_builder.bind("thief", "a", by="two")
    (result,) = checker.violations(history_builder.history(), JUDGE)
    allocation = history_builder.revisions[-2]
    assert result.revision == allocation.number
    assert result.rule == "over-allocated"
    assert "t/late, t/thief" in result.text


def more(
    history_builder: HistoryBuilder,
    *results: records.Tree,
    node: str = "a",
    by: str = "two",
    name: str = "extra",
) -> None:
    """One more pod, allocated and bound."""
    history_builder.pod(name, claims=(name,))
    history_builder.claim(name, owner=name)
    history_builder.allocate(name, *results, pods=(name,), node=node, by=by)
    history_builder.bind(name, node, by=by)


def an_exclusive_device_beside_its_parts(history_builder: HistoryBuilder) -> None:
    more(history_builder, {"device": "all"}, node="b")


def a_share_of_an_exclusively_held_device(history_builder: HistoryBuilder) -> None:
    more(history_builder, {"device": "gpu-1"})
    more(history_builder, share("gpu-1", "1Gi", identity="s9"), name="second")


def a_share_under_a_name_in_use(history_builder: HistoryBuilder) -> None:
    more(history_builder, share("wide", "1Gi", identity="s1"))


def the_same_device_twice_in_one_claim(history_builder: HistoryBuilder) -> None:
    more(history_builder, {"device": "gpu-1"}, {"device": "gpu-1"})


def a_device_a_rival_has_held_for_long(history_builder: HistoryBuilder) -> None:
    more(history_builder, {"device": "gpu-1"}, by="rival", name="theirs")
    history_builder.wait(30)
    more(history_builder, {"device": "gpu-1"})


def a_device_that_never_was(history_builder: HistoryBuilder) -> None:
    more(history_builder, {"device": "gpu-9"})


def a_device_withdrawn_long_ago(history_builder: HistoryBuilder) -> None:
    history_builder.pool(
        "a", [{"name": "gpu-0"}, shareable("wide", "80Gi")], counters=COUNTERS, generation=2
    )
    history_builder.wait(30)
    more(history_builder, {"device": "gpu-1"})


def taint_rule(history_builder: HistoryBuilder, effect: str = "NoExecute") -> None:
    taint = {"key": "broken", "effect": effect}
    history_builder.put(
        "devicetaintrules",
        {"metadata": {"name": "rule"}, "spec": {"deviceSelector": {"pool": "a"}, "taint": taint}},
    )
    history_builder.wait(30)


def a_device_tainted_long_ago(history_builder: HistoryBuilder) -> None:
    taint_rule(history_builder)
    more(history_builder, {"device": "gpu-1"})


def a_node_gone_long_ago(history_builder: HistoryBuilder) -> None:
    history_builder.delete("nodes", "a")
    history_builder.wait(30)
    more(history_builder, {"device": "gpu-1"})


def a_node_closed_long_ago(history_builder: HistoryBuilder) -> None:
    history_builder.node("a", unschedulable=True)
    history_builder.wait(30)
    more(history_builder, {"device": "gpu-1"})


def a_node_tainted_long_ago(history_builder: HistoryBuilder) -> None:
    history_builder.node("a", taints=[{"key": "down", "effect": "NoSchedule"}])
    history_builder.wait(30)
    more(history_builder, {"device": "gpu-1"})


def an_allocation_without_a_user(history_builder: HistoryBuilder) -> None:
    history_builder.claim("idle")
    history_builder.allocate("idle", {"device": "gpu-1"}, pods=(), node="a", by="two")
    history_builder.wait(100)


def an_allocation_without_a_user_that_ended_too_late(history_builder: HistoryBuilder) -> None:
    an_allocation_without_a_user(history_builder)
    history_builder.release("idle")


def a_pod_that_waits_on_its_devices(history_builder: HistoryBuilder) -> None:
    history_builder.pod("idle", claims=("idle",))
    history_builder.claim("idle", owner="idle")
    history_builder.allocate("idle", {"device": "gpu-1"}, pods=("idle",), node="a", by="two")
    history_builder.refuse("idle", "no node has room", by="two")
    history_builder.wait(100)


def a_pod_without_an_answer(history_builder: HistoryBuilder) -> None:
    history_builder.pod("forgotten")


def a_pod_refused_without_a_reason(history_builder: HistoryBuilder) -> None:
    history_builder.pod("forgotten")
    history_builder.change(
        "pods",
        "t/forgotten",
        status={"conditions": [{"type": "PodScheduled", "status": "False"}]},
        by="two",
    )


def a_reservation_for_a_pod_that_went(history_builder: HistoryBuilder) -> None:
    history_builder.delete("pods", "t/left")
    history_builder.wait(100)


def a_finalizer_after_the_pod_went(history_builder: HistoryBuilder) -> None:
    history_builder.delete("pods", "t/late")
    history_builder.change(
        "resourceclaims", "t/late", status={"allocation": None, "reservedFor": []}
    )
    history_builder.wait(100)


def a_deleted_claim_that_stays(history_builder: HistoryBuilder) -> None:
    history_builder.delete("pods", "t/left")
    history_builder.delete("pods", "t/right")
    history_builder.change(
        "resourceclaims", "t/both", status={"allocation": None, "reservedFor": []}
    )
    meta = {"deletionTimestamp": "2026-01-01T00:00:00Z"}
    history_builder.change("resourceclaims", "t/both", metadata=meta)
    history_builder.wait(100)


def a_binding_before_the_allocation(history_builder: HistoryBuilder) -> None:
    history_builder.pod("early", claims=("early",))
    history_builder.claim("early", owner="early")
    history_builder.bind("early", "a", by="two")


def a_binding_before_the_claim(history_builder: HistoryBuilder) -> None:
    history_builder.pod("early", claims=("early",))
    history_builder.bind("early", "a", by="two")


def a_binding_without_a_reservation(history_builder: HistoryBuilder) -> None:
    history_builder.pod("third", claims=("both",))
    history_builder.bind("third", "a", by="two")


def a_binding_out_of_reach(history_builder: HistoryBuilder) -> None:
    history_builder.pod("third", claims=("both",))
    users = [history_builder.reference(name) for name in ("left", "right", "third")]
    history_builder.change("resourceclaims", "t/both", status={"reservedFor": users}, by="two")
    history_builder.bind("third", "b", by="two")


def a_binding_with_the_claim_of_another_pod(history_builder: HistoryBuilder) -> None:
    history_builder.pod("third", claims=("late",))
    users = [history_builder.reference(name) for name in ("late", "third")]
    history_builder.change("resourceclaims", "t/late", status={"reservedFor": users}, by="two")
    history_builder.bind("third", "a", by="two")


def a_binding_with_half_its_extended_resources(history_builder: HistoryBuilder) -> None:
    history_builder.pod("early", asks={"gpu.example.com/whole": "1"})
    history_builder.bind("early", "a", by="two")


def too_much_of_a_processor(history_builder: HistoryBuilder) -> None:
    history_builder.pod("big", asks={"cpu": "3"})
    history_builder.bind("big", "a", by="two")


def too_many_counted_devices(history_builder: HistoryBuilder) -> None:
    for name in ("first", "second"):
        history_builder.pod(name, asks={"example.com/port": "1500m"})
        history_builder.bind(name, "b", by="two")


def too_many_pods(history_builder: HistoryBuilder) -> None:
    for number in range(9):
        history_builder.pod(f"small-{number}")
        history_builder.bind(f"small-{number}", "b", by="two")


def a_second_binding(history_builder: HistoryBuilder) -> None:
    history_builder.bind("late", "b", by="two")


def a_pod_of_another_scheduler(history_builder: HistoryBuilder) -> None:
    history_builder.pod("foreign", scheduler="default-scheduler")
    history_builder.bind("foreign", "a", by="two")


def another_allocation_in_place(history_builder: HistoryBuilder) -> None:
    result = {"request": "r", "driver": "gpu.example.com", "pool": "a", "device": "gpu-1"}
    allocation = {"devices": {"results": [result]}, "nodeSelector": selector("a")}
    history_builder.change("resourceclaims", "t/late", status={"allocation": allocation}, by="two")


def devices_taken_from_a_bound_pod(history_builder: HistoryBuilder) -> None:
    history_builder.change(
        "resourceclaims", "t/late", status={"allocation": None, "reservedFor": []}, by="two"
    )


def a_reservation_taken_from_a_bound_pod(history_builder: HistoryBuilder) -> None:
    history_builder.change(
        "resourceclaims",
        "t/both",
        status={"reservedFor": [history_builder.reference("left")]},
        by="two",
    )


def the_same_words_again(history_builder: HistoryBuilder) -> None:
    history_builder.pod("poor")
    history_builder.refuse("poor", "no room", by="two")
    history_builder.refuse("poor", "no room", by="two")


def a_write_of_the_one_that_led_before(history_builder: HistoryBuilder) -> None:
    more(history_builder, {"device": "gpu-1"}, by="one")


def a_write_after_the_lease_was_given_back(history_builder: HistoryBuilder) -> None:
    history_builder.lead("", by="two")
    more(history_builder, {"device": "gpu-1"}, by="two")


Change = Callable[[HistoryBuilder], None]
MUTATIONS: dict[str, list[Change]] = {
    "over-allocated": [
        an_exclusive_device_beside_its_parts,
        a_share_of_an_exclusively_held_device,
        a_share_under_a_name_in_use,
        the_same_device_twice_in_one_claim,
        a_device_a_rival_has_held_for_long,
        lambda history_builder: more(history_builder, share("wide", "31Gi", identity="s9")),
        lambda history_builder: more(history_builder, {"device": "half-2"}, node="b"),
    ],
    "stale": [
        a_device_that_never_was,
        a_device_withdrawn_long_ago,
        a_device_tainted_long_ago,
        a_node_gone_long_ago,
        a_node_closed_long_ago,
        a_node_tainted_long_ago,
    ],
    "unreserved": [an_allocation_without_a_user, an_allocation_without_a_user_that_ended_too_late],
    "hoarded": [a_pod_that_waits_on_its_devices],
    "unexplained": [a_pod_without_an_answer, a_pod_refused_without_a_reason],
    "leaked": [
        a_reservation_for_a_pod_that_went,
        a_finalizer_after_the_pod_went,
        a_deleted_claim_that_stays,
    ],
    "unready": [
        a_binding_before_the_allocation,
        a_binding_before_the_claim,
        a_binding_without_a_reservation,
        a_binding_out_of_reach,
        a_binding_with_the_claim_of_another_pod,
        a_binding_with_half_its_extended_resources,
        harm.a_binding_before_its_volume,
        harm.a_binding_away_from_its_disk,
    ],
    "overcommitted": [too_much_of_a_processor, too_many_counted_devices, too_many_pods],
    "half-bound": [harm_gangs.half_a_gang_for_long, harm_gangs.half_a_gang_at_the_end],
    "apart": [harm_gangs.a_binding_before_the_claims_of_its_gang],
    "greedy": [harm_gangs.a_gang_that_takes_too_much],
    "in vain": [harm_gangs.a_gang_that_does_not_start_after_all],
    "beside": [harm.two_pods_with_one_port, harm.a_pod_beside_one_that_wants_to_be_alone],
    "moved": [a_second_binding, a_pod_of_another_scheduler],
    "changed": [
        another_allocation_in_place,
        devices_taken_from_a_bound_pod,
        a_reservation_taken_from_a_bound_pod,
    ],
    "noisy": [the_same_words_again],
    "two leaders": [a_write_of_the_one_that_led_before, a_write_after_the_lease_was_given_back],
}
CASES = [(rule, change) for rule, changes in MUTATIONS.items() for change in changes]


@pytest.mark.parametrize(
    ("rule", "change"), CASES, ids=[f"{rule}-{change.__name__}" for rule, change in CASES]
)
def test_harm_is_noticed(rule: str, change: Change) -> None:
    history_builder = story()
    change(history_builder)
    assert rule in rules(history_builder)


def test_every_rule_has_a_mutation() -> None:
    assert {*MUTATIONS, "incomplete"} == set(checker.RULES)


def test_a_history_with_gaps_proves_nothing() -> None:
    history = story().history()._replace(gaps=("revisions 5 to 9 are missing",))
    assert [violation.rule for violation in checker.violations(history, JUDGE)] == ["incomplete"]


def what_a_rival_wrote_a_moment_ago(history_builder: HistoryBuilder) -> None:
    more(history_builder, {"device": "gpu-1"}, by="rival", name="theirs")
    more(history_builder, {"device": "gpu-1"})


def a_rival_that_writes_second(history_builder: HistoryBuilder) -> None:
    more(history_builder, {"device": "gpu-1"})
    history_builder.wait(30)
    more(history_builder, {"device": "gpu-1"}, by="rival", name="theirs")


def an_administrator_looking_on(history_builder: HistoryBuilder) -> None:
    more(
        history_builder,
        {"device": "gpu-0", "adminAccess": True},
        {"device": "half-2", "adminAccess": True},
    )
    more(history_builder, {"device": "all", "adminAccess": True}, node="b", name="second")


def a_taint_that_is_tolerated(history_builder: HistoryBuilder) -> None:
    taint_rule(history_builder)
    more(
        history_builder,
        {"device": "gpu-1", "tolerations": [{"key": "broken", "operator": "Exists"}]},
    )


def a_taint_for_information(history_builder: HistoryBuilder) -> None:
    taint_rule(history_builder, effect="None")
    more(history_builder, {"device": "gpu-1"})


def a_taint_of_a_moment_ago(history_builder: HistoryBuilder) -> None:
    taint_rule(history_builder)
    history_builder.wait(-30)
    more(history_builder, {"device": "gpu-1"})


def a_device_withdrawn_a_moment_ago(history_builder: HistoryBuilder) -> None:
    history_builder.pool("a", [{"name": "gpu-0"}], counters=COUNTERS, generation=2)
    more(history_builder, {"device": "gpu-1"})


def a_pod_that_ended_and_made_room(history_builder: HistoryBuilder) -> None:
    history_builder.change("pods", "t/left", status={"phase": "Succeeded"})
    history_builder.pod("big", asks={"cpu": "3"})
    history_builder.bind("big", "a", by="two")


def other_words(history_builder: HistoryBuilder) -> None:
    history_builder.pod("poor")
    history_builder.refuse("poor", "no room", by="two")
    history_builder.refuse("poor", "less room still", by="two")


def words_again_after_others_that_came_without_an_event(history_builder: HistoryBuilder) -> None:
    history_builder.pod("poor")
    history_builder.refuse("poor", "no room", by="two")
    other = {
        "type": "PodScheduled",
        "status": "False",
        "reason": "Unschedulable",
        "message": "less room still",
    }
    history_builder.change("pods", "t/poor", status={"conditions": [other]}, by="two")
    history_builder.refuse("poor", "no room", by="two")


def a_gated_pod(history_builder: HistoryBuilder) -> None:
    spec = {"schedulerName": "dovetail", "containers": [], "schedulingGates": [{"name": "g"}]}
    history_builder.put("pods", {"metadata": {"name": "gated", "namespace": "t"}, "spec": spec})


def a_pod_that_others_forgot(history_builder: HistoryBuilder) -> None:
    history_builder.pod("foreign", scheduler="default-scheduler")


def extended_resources_served_by_a_claim(history_builder: HistoryBuilder) -> None:
    history_builder.pod("early", asks={"gpu.example.com/whole": "1"})
    history_builder.claim("early-made", owner="early")
    history_builder.allocate("early-made", {"device": "gpu-1"}, pods=("early",), node="a", by="two")
    mapping = {"containerName": "main", "resourceName": "gpu.example.com/whole", "requestName": "r"}
    status = {
        "extendedResourceClaimStatus": {
            "resourceClaimName": "early-made",
            "requestMappings": [mapping],
        }
    }
    history_builder.change("pods", "t/early", status=status, by="two")
    history_builder.bind("early", "a", by="two")


def the_controllers_take_back(history_builder: HistoryBuilder) -> None:
    history_builder.change("pods", "t/late", status={"phase": "Succeeded"})
    history_builder.release("late")


HARMLESS: list[Change] = [
    what_a_rival_wrote_a_moment_ago,
    a_rival_that_writes_second,
    an_administrator_looking_on,
    a_taint_that_is_tolerated,
    a_taint_for_information,
    a_taint_of_a_moment_ago,
    a_device_withdrawn_a_moment_ago,
    a_pod_that_ended_and_made_room,
    other_words,
    words_again_after_others_that_came_without_an_event,
    a_gated_pod,
    a_pod_that_others_forgot,
    extended_resources_served_by_a_claim,
    the_controllers_take_back,
    harm_gangs.a_gang_that_starts_as_a_whole,
    harm_gangs.half_a_gang_that_is_taken_back,
    harm_gangs.a_gang_that_is_deleted_while_it_starts,
    harm_gangs.a_gang_that_lost_a_pod_after_it_ran,
    harm_gangs.a_gang_that_a_pod_yields_to,
    harm_gangs.a_gang_that_is_gone_before_it_starts,
]


@pytest.mark.parametrize("change", HARMLESS, ids=lambda change: change.__name__)
def test_what_is_allowed_passes(change: Change) -> None:
    history_builder = story()
    change(history_builder)
    assert rules(history_builder) == set()


def test_a_pod_asks_for_its_largest_moment() -> None:
    def container(cpu: str, **more: str) -> records.Tree:
        return {"name": "c", "resources": {"requests": {"cpu": cpu}}, **more}

    sidecar = container("1", restartPolicy="Always")
    spec: records.Tree = {
        "containers": [container("2"), container("500m")],
        "initContainers": [sidecar],
    }
    assert checker_pods.demand_of({"spec": spec}) == {"cpu": Fraction(7, 2)}
    spec["initContainers"] = [container("9"), sidecar, container("5")]
    assert checker_pods.demand_of({"spec": spec}) == {"cpu": 9}
    spec["overhead"] = {"cpu": "1", "memory": "1Ki"}
    assert checker_pods.demand_of({"spec": spec}) == {"cpu": 10, "memory": 1024}
    spec["resources"] = {"limits": {"cpu": "4"}}
    assert checker_pods.demand_of({"spec": spec}) == {"cpu": 5, "memory": 1024}


def test_a_history_survives_the_disk(tmp_path: Path) -> None:
    history = story().history()._replace(gaps=("a gap",))
    records.save(history, tmp_path / "history.gz")
    assert records.load(tmp_path / "history.gz") == history


def test_the_checker_knows_nothing_of_the_scheduler() -> None:
    here = Path(__file__).parent
    allocate = here.parent / "allocate"
    files = [*here.glob("checker*.py"), here / "records.py", allocate / "checker_pools.py"]
    assert len(files) > 6
    for path in files:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            assert not [name for name in names if name.split(".")[0] == "dovetail"], path
