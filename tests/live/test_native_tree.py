"""CompositePodGroups: trees in any order of events, one gang per tree, the same as from a new list."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from dovetail.kubetypes import meta, registry
from dovetail.kubetypes.core import pods
from dovetail.kubetypes.workloads import owners
from dovetail.model import gangs, workload_annotations
from dovetail.model.workloads import native_gangs
from dovetail.world.events import Changed, Deleted
from dovetail.world.owners import gang_builder
from dovetail.world.world import World
from tests.live.test_owner_watch import GangRecorder

RACK = owners.Constraints(topology=(owners.TopologyConstraint(key="example.com/rack"),))
ALL: dict[str, Any] = {"all": {}}


def named(name: str, **annotations: str) -> meta.ObjectMeta:
    notes = {f"dovetail.dev/{key}": value for key, value in annotations.items()}
    return meta.ObjectMeta(namespace="ml", name=name, uid=f"uid-of-{name}", annotations=notes)


def group(
    name: str, parent: str | None = None, *, least: int | None = 2, **spec: Any
) -> owners.PodGroup:
    policy = owners.SchedulingPolicy(gang=owners.Count(min_count=least) if least else None)
    more = {"scheduling_policy": policy, "parent_composite_pod_group_name": parent} | spec
    return owners.PodGroup(metadata=named(name), spec=owners.PodGroupSpec(**more))


def composite(
    name: str, parent: str | None = None, *, least: int | None = 2, **spec: Any
) -> owners.CompositePodGroup:
    notes = spec.pop("annotations", {})
    policy = owners.CompositePolicy(
        gang=owners.GroupCount(min_group_count=least) if least else None
    )
    more = {"scheduling_policy": policy, "parent_composite_pod_group_name": parent} | spec
    return owners.CompositePodGroup(
        metadata=named(name, **notes), spec=owners.CompositePodGroupSpec(**more)
    )


def kind_of(result: Any) -> registry.Kind:
    return registry.POD_GROUP if isinstance(result, owners.PodGroup) else registry.COMPOSITE


def book_of(*result: Any, is_served: bool = True) -> tuple[gang_builder.GangBuilder, GangRecorder]:
    events = GangRecorder()
    book = gang_builder.GangBuilder(events)
    if is_served:
        book.finish_list(registry.COMPOSITE.name, ())
    for item in result:
        book.changed(kind_of(item), item)
    return book, events


def shape(gang: gangs.Gang) -> list[tuple[str, str | None, int]]:
    return [(item.name, item.parent, item.min) for item in gang.groups]


def knows(events: GangRecorder, name: str) -> bool:
    """Whether all is known about a PodGroup and its parents."""
    return events.there[f"podgroup/{name}"].is_known


def test_a_tree_is_one_gang() -> None:
    _, events = book_of(
        composite(
            "root", priority=7, annotations={"queue": "research"}, scheduling_constraints=RACK
        ),
        composite("inner", "root", least=1),
        group("leader", "root", least=1),
        group("left", "inner", least=4, scheduling_constraints=RACK),
        group("right", "inner", least=None),
    )
    result = events.there["compositepodgroup/root"]
    assert (result.min_groups, result.priority, result.queue) == (2, 7, "research")
    assert result.topology == workload_annotations.TopologyRequest(
        topology="", required="example.com/rack"
    )
    inner = "compositepodgroup/inner"
    assert shape(result) == [
        (inner, None, 1),
        ("podgroup/left", inner, 4),
        ("podgroup/right", inner, 1),
        ("podgroup/leader", None, 1),
    ]
    assert [item.name for item in result.groups if item.topology] == ["podgroup/left"]
    assert [item.name for item in result.groups if item.holds_groups] == [inner]
    assert {
        name for name, one in events.there.items() if one.part_of == "compositepodgroup/root"
    } == {
        "podgroup/leader",
        "podgroup/left",
        "podgroup/right",
    }
    assert inner not in events.there
    assert not any(item.is_loose for item in events.there.values())


def test_groups_of_a_composite_that_ties_nothing_are_gangs_of_their_own() -> None:
    loose = composite(
        "root", least=None, priority=7, preemption_policy="Never", annotations={"queue": "research"}
    )
    _, events = book_of(loose, group("a", "root"), composite("b", "root"), group("c", "b"))
    assert sorted(events.there) == ["compositepodgroup/b", "podgroup/a", "podgroup/c"]
    assert events.there["podgroup/c"].part_of == "compositepodgroup/b"
    for name in ("podgroup/a", "compositepodgroup/b"):
        item = events.there[name]
        assert (item.part_of, item.priority, item.queue, item.may_evict_after > 0) == (
            "",
            7,
            "research",
            True,
        )


def test_a_composite_that_is_placed_or_disrupted_as_a_whole_is_a_gang_though_it_counts_nothing() -> (
    None
):
    for more in ({"scheduling_constraints": RACK}, {"disruption_mode": ALL}):
        _, events = book_of(composite("root", least=None, **more), group("a", "root"))
        assert events.there["compositepodgroup/root"].min_groups == 1
    assert events.there["compositepodgroup/root"].evicts_whole
    _, events = book_of(
        composite("root"), group("a", "root"), group("b", "root", disruption_mode=ALL)
    )
    assert events.there["compositepodgroup/root"].evicts_whole  # more than asked for, never less


def test_a_group_waits_for_its_parents() -> None:
    book, events = book_of(group("a", "b"))
    assert (knows(events, "a"), events.there["podgroup/a"].part_of) == (
        False,
        "compositepodgroup/b",
    )
    book.changed(registry.COMPOSITE, composite("b", "root"))
    assert events.there["podgroup/a"].part_of == "compositepodgroup/root"
    assert not knows(events, "a")
    book.changed(registry.COMPOSITE, composite("root"))
    assert knows(events, "a")
    assert "compositepodgroup/root" in events.there
    book.deleted(registry.COMPOSITE, composite("root"))
    assert not knows(events, "a")
    assert [*events.there] == ["podgroup/a"]


def test_where_composites_are_not_served_a_group_stands_alone() -> None:
    book, events = book_of(group("a", "b"), is_served=False)
    result = events.there["podgroup/a"]
    assert (result.part_of, result.is_known, len(result.problems)) == ("", True, 1)
    book.finish_list(registry.COMPOSITE.name, ())
    assert not knows(events, "a")
    book.changed(registry.COMPOSITE, composite("b"))
    assert knows(events, "a")
    book.remove_kind(registry.COMPOSITE.name)
    assert events.there == {"podgroup/a": result}


def test_circles_and_towers_never_start_and_never_hang() -> None:
    _, events = book_of(composite("a", "b"), composite("b", "a"), group("x", "a"))
    assert [*events.there] == ["podgroup/x"]
    assert not events.there["podgroup/x"].is_known
    assert "its own ancestor" in events.there["podgroup/x"].problems[0]
    book_of(composite("a", "a"), group("x", "a"))
    tower = [composite(f"c{n}", f"c{n - 1}" if n else None) for n in range(2000)]
    _, events = book_of(*tower, group("x", "c3"), group("y", "c2"))
    assert not events.there["podgroup/x"].is_known
    assert "levels" in events.there["podgroup/x"].problems[0]
    assert events.there["podgroup/y"].is_known


def test_a_gang_of_too_many_groups_waits_and_says_so() -> None:
    many = [group(f"g{n}", "root") for n in range(native_gangs.MOST_GROUPS + 2)]
    book, events = book_of(*many, composite("root"))
    root = events.there["compositepodgroup/root"]
    assert (root.is_known, len(root.problems)) == (False, 1)
    for item in many[:2]:
        book.deleted(registry.POD_GROUP, item)
    assert events.there["compositepodgroup/root"].is_known


def test_a_change_of_status_is_not_reported() -> None:
    book, events = book_of(composite("root"), group("a", "root"))
    before = len(events.said)
    again = group("a", "root")
    metadata = meta.ObjectMeta(namespace="ml", name="a", uid="uid-of-a", resource_version="7")
    book.changed(registry.POD_GROUP, owners.PodGroup(metadata=metadata, spec=again.spec))
    assert len(events.said) == before


NAMES = st.sampled_from("abcd")
STEPS = st.lists(
    st.tuples(st.booleans(), NAMES, st.one_of(st.none(), NAMES), st.booleans(), st.booleans()),
    max_size=14,
)


@given(STEPS)
def test_the_same_gangs_in_whichever_order(
    steps: list[tuple[bool, str, str | None, bool, bool]],
) -> None:
    book, events = book_of()
    there: dict[tuple[str, str], Any] = {}
    for is_group, name, parent, is_gone, is_loose in steps:
        least = None if is_loose else 2
        result: Any = (
            group(name, parent, least=least) if is_group else composite(name, parent, least=least)
        )
        kind = kind_of(result)
        if is_gone:
            book.deleted(kind, result)
            there.pop((kind.name, name), None)
        else:
            book.changed(kind, result)
            there[kind.name, name] = result
    _, fresh = book_of(*(there[key] for key in sorted(there, reverse=True)))
    assert events.there == fresh.there
    tied = {item.part_of for item in events.there.values() if item.part_of and item.is_known}
    assert tied <= events.there.keys()


class WorldFeed:
    """Passes gangs on to a world."""

    def __init__(self, world: World) -> None:
        self.world = world

    def replaced(self, kind: registry.Kind, objects: Any, resource_version: str) -> None: ...

    def changed(self, kind: registry.Kind, gang: gangs.Gang) -> None:
        self.world.apply(Changed(gang))

    def deleted(self, kind: registry.Kind, gang: gangs.Gang) -> None:
        self.world.apply(Deleted(gang))


def test_pods_move_to_the_gang_of_the_tree_and_back() -> None:
    world = World()
    book = gang_builder.GangBuilder(WorldFeed(world))
    book.finish_list(registry.COMPOSITE.name, ())
    for name in ("a", "b"):
        pod = pods.Pod(
            metadata=meta.ObjectMeta(namespace="ml", name=name, uid=name),
            spec=pods.PodSpec(scheduling_group=pods.PodSchedulingGroup(pod_group_name=name)),
        )
        world.apply(Changed(pod))
    for item in (group("a", "root", least=1), group("b", "root", least=1), composite("root")):
        book.changed(kind_of(item), item)
    root = ("ml", "compositepodgroup/root")
    assert world.gangs.of("a") == gangs.Membership(root, "podgroup/a")
    assert dict(world.gangs.members(root)) == {"a": "podgroup/a", "b": "podgroup/b"}
    known = world.gangs.definition(root)
    assert (known.min_groups, len(known.groups), known.is_known) == (2, 2, True)
    assert set(world.gangs.owned(root)) == {"a", "b"}
    book.deleted(registry.POD_GROUP, group("b", "root"))
    assert [*world.gangs.members(root)] == ["a"]
    book.deleted(registry.COMPOSITE, composite("root"))
    assert not world.gangs.definition(root).is_known
