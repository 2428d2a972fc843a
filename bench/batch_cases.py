"""What the batch benchmark asks: a cluster of some size in a certain state, and what has to come out of it.

A case that does not end as it says measures something else, so its result is checked before its time counts.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Final, NamedTuple

from bench.batch_worlds import GPUS, NODES_PER_ZONE, Site
from dovetail.model import plan

TOGETHER: Final = {"topology": "rooms", "topology-required": "zone", "topology-preferred": "rack"}
ANY_ZONE: Final = {"topology": "rooms", "topology-preferred": "zone"}
FIXED: Final = {"preemptible": "false"}
GANG_PODS: Final = 10
CONSOLIDATED_GANGS: Final = 40


class Expected(NamedTuple):
    """What a plan has to hold: pods that start, pods given room that others leave, pods that go, pods that wait."""

    placements: int = 0
    nominations: int = 0
    evictions: int | None = 0  # None: some
    refusals: int = 0


class Case(NamedTuple):
    """One question."""

    title: str
    build: Callable[[Site], Expected]
    asked: Callable[[int], int]  # pods it is about, by nodes
    kai_seconds: float | None = (
        None  # KAI's own example figure at 500 nodes, API included, on their machines
    )


def mismatch(expected: Expected, found: plan.Plan) -> str | None:
    """How a plan differs from what it should hold."""
    counts = Expected(
        len(found.placements), len(found.nominations), len(found.evictions), len(found.refusals)
    )
    if expected.evictions is None and counts.evictions:
        counts = counts._replace(evictions=None)
    return None if counts == expected else f"expected {expected}, found {counts}"


def _halves(site: Site) -> None:
    """Two queues, each sure of half of the cluster."""
    half = len(site.nodes) * GPUS // 2
    site.queue("red", half)
    site.queue("blue", half)


def _fill(site: Site) -> Expected:
    count = len(site.nodes) * GPUS
    for name in ("a", "b", "c", "d"):
        site.queue(name, count // 4)
    for number in range(count):
        site.wait("abcd"[number % 4])
    return Expected(placements=count)


def _gang_of_ones(site: Site) -> Expected:
    _halves(site)
    site.wait("red", gang="llama", pods=512, marks=TOGETHER)
    return Expected(placements=512)


def _gang_in_a_crowd(site: Site) -> Expected:
    """All zones but the last whole one have three free GPUs a node: too few, and they are tried first."""
    _halves(site)
    last = len(site.nodes) // NODES_PER_ZONE - 1
    for number in range(site.zones):
        if number != last:
            for node in site.zone(number):
                for _ in range(5):
                    site.run("blue", node)
    site.wait("red", gang="llama", pods=512, marks=TOGETHER)
    return Expected(placements=512)


def _gang_of_eights(site: Site) -> Expected:
    """A whole zone."""
    _halves(site)
    site.wait("red", gpus=8, gang="llama", pods=NODES_PER_ZONE, marks=TOGETHER)
    return Expected(placements=NODES_PER_ZONE)


def _gang_across_zones(site: Site) -> Expected:
    """Larger than any zone: every one is tried in vain before it may go anywhere."""
    site.queue("red", len(site.nodes) * GPUS)
    pods = _widest(len(site.nodes))
    site.wait("red", gpus=8, gang="llama", pods=pods, marks=ANY_ZONE)
    return Expected(placements=pods)


def _widest(nodes: int) -> int:
    return min(512, nodes)


def _last(site: Site) -> Expected:
    """What a turn costs in which next to nothing happens."""
    _halves(site)
    for node in site.nodes:
        for _ in range(GPUS - (node == site.nodes[-1])):
            site.run("blue", node)
    site.wait("red")
    return Expected(placements=1)


def _reclaim(site: Site) -> Expected:
    _halves(site)
    for node in site.nodes:
        for _ in range(GPUS):
            site.run("blue", node)
    site.wait("red")
    return Expected(nominations=1, evictions=1)


def _cannot_fit(site: Site) -> Expected:
    """Only nine nodes could be emptied: on all others one of the jobs never yields."""
    _halves(site)
    for at, node in enumerate(site.nodes):
        for number in range(GPUS):
            if at >= GANG_PODS - 1 and number == at % GPUS:
                site.run("blue", node, marks=FIXED)
            else:
                site.run("blue", node)
    site.wait("red", gpus=8, gang="llama", pods=GANG_PODS)
    return Expected(refusals=GANG_PODS)


def _cannot_fit_fixed(site: Site) -> Expected:
    """No running pod may be evicted."""
    _halves(site)
    for node in site.nodes:
        for _ in range(GPUS):
            site.run("blue", node, marks=FIXED)
    site.wait("red", gpus=8, gang="llama", pods=GANG_PODS)
    return Expected(refusals=GANG_PODS)


def _cannot_fit_by_cpu(site: Site) -> Expected:
    """All GPUs could be had, but on all nodes but nine a pod that never yields holds most of the cpu."""
    _halves(site)
    for at, node in enumerate(site.nodes):
        for _ in range(GPUS):
            site.run("blue", node)
        if at >= GANG_PODS - 1:
            site.run("blue", node, gpus=0, cpu="200", marks=FIXED)
    site.wait("red", gpus=8, gang="llama", pods=GANG_PODS, cpu="64")
    return Expected(refusals=GANG_PODS)


def _consolidate(site: Site) -> Expected:
    """One one-GPU job on every node; ten of them move for every gang."""
    site.queue("red", len(site.nodes) * GPUS)
    for node in site.nodes:
        site.run("red", node)
    for number in range(CONSOLIDATED_GANGS):
        site.wait("red", gpus=8, gang=f"llama-{number}", pods=GANG_PODS)
    fit = min(CONSOLIDATED_GANGS, len(site.nodes) * 7 // 8 // GANG_PODS) * GANG_PODS
    return Expected(nominations=fit, evictions=fit, refusals=CONSOLIDATED_GANGS * GANG_PODS - fit)


def _consolidate_halves(site: Site) -> Expected:
    """Every node half full with a job of four GPUs: two of them make one node free."""
    site.queue("red", len(site.nodes) * GPUS)
    for node in site.nodes:
        site.run("red", node, gpus=4)
    for number in range(CONSOLIDATED_GANGS):
        site.wait("red", gpus=8, gang=f"llama-{number}", pods=GANG_PODS)
    fit = min(CONSOLIDATED_GANGS, len(site.nodes) // 2 // GANG_PODS) * GANG_PODS
    return Expected(nominations=fit, evictions=fit, refusals=CONSOLIDATED_GANGS * GANG_PODS - fit)


def _consolidate_scattered(site: Site) -> Expected:
    """One to four one-GPU jobs on every node, at random: the emptiest nodes are worth most."""
    site.queue("red", len(site.nodes) * GPUS)
    dice = random.Random(1)
    for node in site.nodes:
        for _ in range(dice.randint(1, 4)):
            site.run("red", node)
    for number in range(4):
        site.wait("red", gpus=8, gang=f"llama-{number}", pods=GANG_PODS)
    return Expected(nominations=4 * GANG_PODS, evictions=None)


CASES: Final = {
    "fill": Case("fill with one-GPU jobs, 8 a node", _fill, lambda nodes: nodes * GPUS, 398),
    "gang": Case(
        "512-pod gang, 1 GPU each, required zone, preferred rack", _gang_of_ones, lambda _: 512, 49
    ),
    "gang-crowd": Case("the same, one zone has room", _gang_in_a_crowd, lambda _: 512),
    "gang-zone": Case(
        "128-pod gang, 8 GPUs each: a whole zone", _gang_of_eights, lambda _: NODES_PER_ZONE
    ),
    "gang-wide": Case(
        "512-pod gang, 8 GPUs each, preferred zone, larger than any", _gang_across_zones, _widest
    ),
    "last": Case("one job for the last free GPU", _last, lambda _: 1),
    "reclaim": Case("reclaim one GPU, all GPUs taken", _reclaim, lambda _: 1, 14),
    "cannot": Case(
        "cannot fit: 10 pods, 80 GPUs; 9 nodes could be emptied",
        _cannot_fit,
        lambda _: GANG_PODS,
        250,
    ),
    "cannot-fixed": Case("cannot fit: no pod yields", _cannot_fit_fixed, lambda _: GANG_PODS),
    "cannot-cpu": Case(
        "cannot fit: GPUs could be had, cpu not", _cannot_fit_by_cpu, lambda _: GANG_PODS
    ),
    "consolidate": Case(
        "consolidate for forty 10-pod gangs, 1 GPU taken a node", _consolidate, lambda _: 400, 456
    ),
    "consolidate-half": Case("the same, 4 GPUs taken a node", _consolidate_halves, lambda _: 400),
    "consolidate-mixed": Case(
        "consolidate for 4 gangs, 1-4 jobs a node", _consolidate_scattered, lambda _: 40
    ),
}
