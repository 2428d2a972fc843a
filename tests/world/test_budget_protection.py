"""Disruption budgets in the World: which pods they protect from eviction."""

from __future__ import annotations

from dovetail.kubetypes import meta
from dovetail.kubetypes.core import disruption_budgets, pods
from dovetail.world import budget_protection
from dovetail.world.events import Changed, Deleted
from dovetail.world.world import World
from tests.schedule import build


def budget(
    name: str, *, allowed: int = 0, desired: int = 0, **labels: str
) -> disruption_budgets.PodDisruptionBudget:
    """A budget of the default namespace over pods with these labels."""
    return disruption_budgets.PodDisruptionBudget(
        metadata=meta.ObjectMeta(name=name, namespace="default"),
        spec=disruption_budgets.BudgetSpec(selector=meta.LabelSelector(match_labels=labels)),
        status=disruption_budgets.BudgetStatus(
            disruptions_allowed=allowed, desired_healthy=desired
        ),
    )


def pod(name: str, *, app: str = "a", minute: int = 0) -> pods.Pod:
    created = f"2026-01-01T00:{minute:02d}:00Z"
    return build.pod(
        name, metadata={"namespace": "default", "labels": {"app": app}}, created=created
    )


def held(world: World) -> set[str]:
    return {
        world.pods[id_].metadata.name for id_ in world.budget_protection.protected(world.running())
    }


def test_a_budget_that_allows_no_disruption_holds_all_pods_under_it_whenever_they_came() -> None:
    world = build.put(World(), pod("before"), pod("stranger", app="b"))
    world.budget_protection.put([budget("no", app="a")])
    world.apply(Changed(pod("after")))
    assert held(world) == {"before", "after"}
    world.apply(Deleted(pod("before")))
    assert held(world) == {"after"}


def test_a_budget_that_allows_some_holds_as_many_as_it_wants_healthy_the_oldest_first() -> None:
    world = build.put(World(), *(pod(f"p{minute}", minute=minute) for minute in (3, 1, 2)))
    world.budget_protection.put([budget("some", allowed=1, desired=2, app="a")])
    assert held(world) == {"p1", "p2"}


def test_a_pod_under_two_budgets_can_never_be_evicted() -> None:
    world = build.put(World(), pod("p"))
    loose = [budget("one", allowed=5, app="a"), budget("two", allowed=5, app="a")]
    world.budget_protection.put(loose[:1])
    assert held(world) == set()
    world.budget_protection.put(loose)
    assert held(world) == {"p"}


def test_it_is_reported_when_budgets_allow_evictions_again() -> None:
    world = World()
    strict = budget("b", app="a")
    assert not world.budget_protection.put([strict])
    assert not world.budget_protection.put([strict])
    assert world.budget_protection.put([budget("b", allowed=1, app="a")])
    assert not world.budget_protection.put([strict])
    assert world.budget_protection.put([])


def test_a_namespace_with_very_many_budgets_is_held_as_a_whole() -> None:
    """Each budget is compared with each pod: a tenant's thousands of budgets must not slow every decision."""
    world = build.put(World(), pod("p", app="none"))
    world.budget_protection.put(
        [budget(f"b{n}", allowed=1, app="a") for n in range(budget_protection.MOST_BUDGETS + 1)]
    )
    assert held(world) == {"p"}
    world.apply(Changed(pod("q")))
    assert held(world) == {"p", "q"}
