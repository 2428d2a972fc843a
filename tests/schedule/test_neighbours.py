"""Stories about pods that want to be near others, away from others, or evenly spread, and about ports of nodes."""

from __future__ import annotations

from typing import Any

from dovetail.kubetypes.core import nodes
from dovetail.model import plan, policy
from dovetail.world import dump
from dovetail.world.world import World
from tests.schedule import build
from tests.schedule.build import TREE, decided, nodes_of, summary_of

ZONE = "topology.kubernetes.io/zone"
HOST = "kubernetes.io/hostname"


def zoned(*names: str) -> list[nodes.Node]:
    """Nodes called after their zone and a number: a0 is in zone a."""
    return [build.node(name, labels={ZONE: name[0]}) for name in names]


def term(key: str = ZONE, **more: Any) -> TREE:
    app = more.pop("app", "web")
    return {"topologyKey": key, "labelSelector": {"matchLabels": {"app": app}}, **more}


def wishing(name: str, side: str, *terms: TREE, app: str = "web", **spec: Any) -> Any:
    """A pod with required terms on one side."""
    wish = {side: {"requiredDuringSchedulingIgnoredDuringExecution": list(terms)}}
    metadata = {"labels": {"app": app}} | spec.pop("metadata", {})
    return build.pod(name, affinity=wish, metadata=metadata, **spec)


def preferring(name: str, side: str, weight: int, wanted: TREE, **spec: Any) -> Any:
    listed = [{"weight": weight, "podAffinityTerm": wanted}]
    wish = {side: {"preferredDuringSchedulingIgnoredDuringExecution": listed}}
    return build.pod(name, affinity=wish, metadata={"labels": {"app": "web"}}, **spec)


def running(name: str, node: str, app: str = "web", **spec: Any) -> Any:
    metadata = {"labels": {"app": app}} | spec.pop("metadata", {})
    return build.pod(name, nodeName=node, metadata=metadata, **spec)


def spread(name: str, *rules: TREE, **spec: Any) -> Any:
    metadata = {"labels": {"app": "web"}} | spec.pop("metadata", {})
    return build.pod(name, topologySpreadConstraints=list(rules), metadata=metadata, **spec)


def rule(key: str = ZONE, *, hard: bool = True, skew: int = 1, **more: Any) -> TREE:
    how = "DoNotSchedule" if hard else "ScheduleAnyway"
    selector = more.pop("labelSelector", {"matchLabels": {"app": "web"}})
    return {
        "topologyKey": key,
        "maxSkew": skew,
        "whenUnsatisfiable": how,
        "labelSelector": selector,
        **more,
    }


def refused(done: plan.Plan, name: str) -> str:
    return summary_of(done, name)


def test_a_pod_goes_where_the_pods_it_wants_to_be_near_are() -> None:
    world = build.world(
        *zoned("a0", "b0"), running("there", "b0"), wishing("new", "podAffinity", term())
    )
    assert nodes_of(decided(world)) == {"new": "b0"}


def test_the_first_of_a_group_that_wants_to_be_together_may_go_anywhere_and_the_others_follow() -> (
    None
):
    pods = [wishing(f"p{i}", "podAffinity", term(), cpu="40") for i in range(3)]
    world = build.world(*zoned("a0", "a1", "b0"), *pods)
    placed = nodes_of(decided(world))
    assert sorted(placed.values()) == [
        "a0",
        "a1",
    ]  # the third finds no room in the zone of the first


def test_a_pod_that_wants_others_who_are_nowhere_waits() -> None:
    world = build.world(*zoned("a0"), wishing("new", "podAffinity", term(app="db")))
    assert "pod nearby that the pod has to be near to" in refused(decided(world), "new")


def test_one_pod_has_to_meet_all_terms() -> None:
    both = (
        term(app="web"),
        {"topologyKey": ZONE, "labelSelector": {"matchLabels": {"tier": "front"}}},
    )
    apart = [running("one", "a0"), running("two", "b0", metadata={"labels": {"tier": "front"}})]
    world = build.world(
        *zoned("a0", "b0"), *apart, wishing("new", "podAffinity", *both, app="other")
    )
    assert not decided(world).placements


def test_a_node_without_the_topology_label_is_no_place() -> None:
    world = build.world(build.node("bare"), wishing("new", "podAffinity", term()))
    assert not decided(world).placements


def test_a_pod_stays_away_from_those_it_avoids() -> None:
    world = build.world(
        *zoned("a0", "a1", "b0"), running("there", "a0"), wishing("new", "podAntiAffinity", term())
    )
    assert nodes_of(decided(world)) == {"new": "b0"}


def test_those_who_are_there_keep_others_away_who_ask_for_nothing() -> None:
    hermit = wishing("hermit", "podAntiAffinity", term(app="noisy"), app="quiet", nodeName="a0")
    world = build.world(
        *zoned("a0", "b0"), hermit, build.pod("new", metadata={"labels": {"app": "noisy"}})
    )
    assert nodes_of(decided(world)) == {"new": "b0"}


def test_pods_decided_in_one_cycle_see_each_other() -> None:
    pods = [wishing(f"p{i}", "podAntiAffinity", term()) for i in range(3)]
    done = decided(build.world(*zoned("a0", "a1", "b0"), *pods))
    assert sorted(nodes_of(done).values()) == ["a0", "b0"]
    assert "that the pod has to be away from" in refused(done, "p2")


def test_a_pod_that_is_being_deleted_still_keeps_others_away() -> None:
    gone = running(
        "gone",
        "a0",
        metadata={"labels": {"app": "web"}, "deletionTimestamp": "2026-01-01T00:00:00Z"},
    )
    world = build.world(*zoned("a0"), gone, wishing("new", "podAntiAffinity", term()))
    assert not decided(world).placements


def test_namespaces_are_chosen_by_name_by_label_or_all() -> None:
    other = running("there", "b0", metadata={"labels": {"app": "web"}, "namespace": "team"})
    space = build.struct("Namespace", {"metadata": {"name": "team", "labels": {"kind": "prod"}}})
    for more, node in (
        ({}, None),
        ({"namespaces": ["team"]}, "b0"),
        ({"namespaceSelector": {"matchLabels": {"kind": "prod"}}}, "b0"),
        ({"namespaceSelector": {"matchLabels": {"kind": "test"}}}, None),
        ({"namespaceSelector": {}}, "b0"),
    ):
        wants = wishing("new", "podAffinity", term(**more), app="x")
        placed = nodes_of(decided(build.world(space, *zoned("a0", "b0"), other, wants)))
        assert placed.get("new") == node, more


def test_preferences_about_neighbours_outrank_packing() -> None:
    given = [*zoned("a0", "b0"), running("there", "b0"), running("filler", "a0", app="x", cpu="30")]
    assert (
        nodes_of(decided(build.world(*given, build.pod("new"))))["new"] == "a0"
    )  # the fuller node
    near = preferring("new", "podAffinity", 10, term())
    assert nodes_of(decided(build.world(*given, near)))["new"] == "b0"
    away = preferring("new", "podAntiAffinity", 10, term())
    assert nodes_of(decided(build.world(*given, away)))["new"] == "a0"


def test_what_those_there_would_rather_have_counts_too() -> None:
    there = preferring("there", "podAffinity", 50, term(app="new"), nodeName="b0")
    world = build.world(
        *zoned("a0", "b0"), there, build.pod("new", cpu="1", metadata={"labels": {"app": "new"}})
    )
    assert nodes_of(decided(world)) == {"new": "b0"}


def test_pods_are_spread_over_zones() -> None:
    pods = [spread(f"p{i}", rule()) for i in range(6)]
    placed = nodes_of(decided(build.world(*zoned("a0", "a1", "b0"), *pods)))
    assert sorted(node[0] for node in placed.values()) == ["a", "a", "a", "b", "b", "b"]


def test_a_pod_waits_where_it_would_be_too_uneven() -> None:
    given = [
        *zoned("a0"),
        build.node("b0", labels={ZONE: "b"}, unschedulable=True),
        running("there", "a0"),
    ]
    done = decided(build.world(*given, spread("new", rule())))
    assert "1 would spread such pods over topology.kubernetes.io/zone by more than 1" in refused(
        done, "new"
    )


def test_too_few_domains_count_as_empty_ones() -> None:
    given = [*zoned("a0", "b0"), running("one", "a0"), running("two", "b0")]
    assert decided(build.world(*given, spread("new", rule()))).placements
    assert not decided(build.world(*given, spread("new", rule(minDomains=3)))).placements


def test_nodes_that_the_pod_cannot_use_count_only_if_it_says_so() -> None:
    far = build.node("b0", labels={ZONE: "b", "pool": "other"})
    given = [build.node("a0", labels={ZONE: "a", "pool": "mine"}), far, running("there", "a0")]
    mine = {"nodeSelector": {"pool": "mine"}}
    assert nodes_of(decided(build.world(*given, spread("new", rule(), **mine)))) == {"new": "a0"}
    assert not decided(
        build.world(*given, spread("new", rule(nodeAffinityPolicy="Ignore"), **mine))
    ).placements


def test_pods_of_another_revision_do_not_count() -> None:
    old = [
        running(f"old{i}", "a0", metadata={"labels": {"app": "web", "rev": "1"}}) for i in range(3)
    ]
    new = spread(
        "new",
        rule(matchLabelKeys=["rev"]),
        metadata={"labels": {"app": "web", "rev": "2"}},
        cpu="1",
    )
    given = [*zoned("a0", "b0"), *old, running("busy", "b0", app="x", metadata={"labels": {}})]
    assert decided(build.world(*given, new)).placements


def test_soft_spreading_prefers_the_emptier_zone_and_never_refuses() -> None:
    given = [*zoned("a0", "b0"), running("there", "a0")]
    assert nodes_of(decided(build.world(*given, spread("new", rule(hard=False))))) == {"new": "b0"}
    only = [*zoned("a0"), running("there", "a0")]
    assert nodes_of(decided(build.world(*only, spread("new", rule(hard=False))))) == {"new": "a0"}


def wanting_port(name: str, number: int = 80, **port: Any) -> Any:
    ports = [{"containerPort": number, "hostPort": number, **port}]
    return build.pod(name, containers=[{"name": "main", "ports": ports}])


def test_one_port_of_a_node_is_given_once() -> None:
    world = build.world(*[wanting_port(f"p{i}") for i in range(3)], nodes=2, gpus=0)
    done = decided(world)
    assert sorted(nodes_of(done).values()) == ["n0", "n1"]
    assert "host port 80/TCP in use" in refused(done, "p2")


def test_ports_differ_by_protocol_and_address() -> None:
    pods = [
        wanting_port("any"),
        wanting_port("udp", protocol="UDP"),
        wanting_port("one", 81, hostIP="10.0.0.1"),
        wanting_port("two", 81, hostIP="10.0.0.2"),
        wanting_port("zero", 81),
    ]
    done = decided(build.world(*pods, nodes=1, gpus=0))
    assert set(nodes_of(done)) == {"any", "udp", "one", "two"}


def test_a_node_is_kept_for_a_nominated_pod_that_is_not_less_important() -> None:
    def nominated(priority: int) -> World:
        expected = build.pod(
            "big",
            cpu="60",
            priority=priority,
            schedulerName="other",
            status={"nominatedNodeName": "n0"},
        )
        return build.world(
            expected, build.pod("new", cpu="10", priority=5, schedulerName="mine"), nodes=1, gpus=0
        )

    mine = policy.Policy(scheduler_names=("mine",))
    assert "kept for nominated pods such as default/big" in refused(
        decided(nominated(5), policy=mine), "new"
    )
    assert nodes_of(decided(nominated(4), policy=mine)) == {"new": "n0"}


def test_a_nominated_pod_is_a_neighbour_on_its_node() -> None:
    kept = wishing(
        "kept",
        "podAntiAffinity",
        term(HOST),
        schedulerName="other",
        status={"nominatedNodeName": "a0"},
    )
    new = wishing("new", "podAntiAffinity", term(HOST), schedulerName="mine")
    mine = policy.Policy(scheduler_names=("mine",))
    world = build.world(*zoned("a0", "b0"), kept, new)
    before = dump.dump(world)
    assert nodes_of(decided(world, policy=mine)) == {"new": "b0"}
    assert dump.dump(world) == before


def test_a_nominated_pod_goes_to_its_node_if_that_suits() -> None:
    world = build.world(build.pod("new", status={"nominatedNodeName": "n1"}), nodes=2, gpus=0)
    assert nodes_of(decided(world)) == {"new": "n1"}
    world = build.world(build.pod("new", status={"nominatedNodeName": "gone"}), nodes=2, gpus=0)
    assert nodes_of(decided(world)) == {"new": "n0"}


def test_the_world_is_left_as_it_was() -> None:
    pods = [wishing(f"p{i}", "podAntiAffinity", term(HOST)) for i in range(3)]
    world = build.world(*zoned("a0", "b0"), *pods, wanting_port("port"))
    before = dump.dump(world)
    first = decided(world)
    assert dump.dump(world) == before
    assert decided(world) == first
    assert decided(world, policy=policy.Policy(memo=False)) == first
