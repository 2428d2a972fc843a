"""Running pods that settle are charged as if every decision looked at each of them."""

from __future__ import annotations

import msgspec
import pytest

from dovetail.kubetypes.resource import claims
from dovetail.model import plan, policy
from dovetail.schedule.gang import job_cache
from dovetail.schedule.gang.settled_jobs import SettledJobs
from dovetail.schedule.queue import amounts
from dovetail.schedule.session import Scope, Session
from dovetail.world.events import Changed, Deleted
from tests.batch import random_clusters, simulated_cluster
from tests.batch.simulated_cluster import Ask, Cluster
from tests.schedule import build

Charged = dict[str, tuple[dict[str, int], dict[str, int]]]


def charged(cluster: Cluster, rules: policy.Policy) -> Charged:
    """By queue, what is charged when a decision begins, and the part of it that cannot be preempted."""
    with cluster.world.trial():
        session = Session(cluster.world, rules, cluster.now, policy.UNLIMITED, Scope())
        accounts = session.transaction.accounts.by_name
        return {
            name: (_without_zeros(account.charged), _without_zeros(account.fixed))
            for name, account in accounts.items()
        }


def from_scratch(cluster: Cluster) -> Charged:
    """The same, added up over all pods."""
    return charged(cluster, msgspec.structs.replace(cluster.policy, memo=False))


def settled(cluster: Cluster) -> SettledJobs:
    return job_cache.of(cluster.world, cluster.policy).settled


def _without_zeros(total: amounts.Amounts) -> dict[str, int]:
    return {name: amount for name, amount in total.items() if amount}


def with_three_jobs() -> Cluster:
    cluster = Cluster([build.node("n0"), build.gpu_slice("n0", 4)])
    cluster.put(simulated_cluster.queue("a", gpu=(4,)))
    for number in range(3):
        cluster.submit(simulated_cluster.gang(f"j{number}", Ask(gpus=1), queue="a"))
    cluster.settle()
    cluster.decided()
    return cluster


@pytest.mark.parametrize("seed", range(12))
def test_sums_that_are_kept_are_those_added_up_from_scratch(seed: int) -> None:
    cluster = random_clusters.seeded(seed, random_clusters.LONG)
    most_settled = 0

    def differs(cluster: Cluster, done: plan.Plan) -> list[str]:
        nonlocal most_settled
        most_settled = max(most_settled, len(settled(cluster)))
        kept, added_up = charged(cluster, cluster.policy), from_scratch(cluster)
        return [f"{kept} are not {added_up}"] if kept != added_up else []

    cluster.judge = differs
    cluster.live()
    assert most_settled > 0


def test_a_quiet_decision_looks_at_no_running_pod() -> None:
    cluster = with_three_jobs()
    assert len(settled(cluster)) == 3
    cluster.decided()
    kept = job_cache.of(cluster.world, cluster.policy)
    kept.jobs(cluster.world, ("a",))
    assert kept.live_jobs(cluster.world) == []


def test_only_the_job_whose_claim_changed_is_looked_at() -> None:
    cluster = with_three_jobs()
    (claim, *_) = cluster.world.claims.values()
    cluster.world.apply(Changed(msgspec.structs.replace(claim)))
    kept = job_cache.of(cluster.world, cluster.policy)
    kept.jobs(cluster.world, ("a",))
    assert len(kept.live_jobs(cluster.world)) == 1
    assert charged(cluster, cluster.policy) == from_scratch(cluster)


def test_another_price_makes_a_decision_look_at_all_of_them() -> None:
    cluster = with_three_jobs()
    before = from_scratch(cluster)
    cluster.put(simulated_cluster.queue("a", gpu=(3,)))
    assert charged(cluster, cluster.policy) == from_scratch(cluster) == before
    cluster.world.apply(Deleted(cluster.world.queues["a"]))
    assert charged(cluster, cluster.policy) == from_scratch(cluster) != before


def test_a_claim_of_two_running_pods_settles_neither() -> None:
    cluster = with_three_jobs()
    claim_of_pod = {
        claim.status.reserved_for[0].uid: claim for claim in cluster.world.claims.values()
    }
    first, second = list(claim_of_pod)[:2]
    users = (
        *claim_of_pod[first].status.reserved_for,
        claims.ResourceClaimConsumerReference(resource="pods", name="other", uid=second),
    )
    status = msgspec.structs.replace(claim_of_pod[first].status, reserved_for=users)
    shared = msgspec.structs.replace(claim_of_pod[first], status=status)
    cluster.world.apply(Changed(shared))
    cluster.decided()
    assert len(settled(cluster)) == 2
    assert charged(cluster, cluster.policy) == from_scratch(cluster)
