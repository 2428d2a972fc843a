"""Whether `what-if` is true: random clusters, random changes, the answer beside what happens when the change is made.

`python -m tests.answer.what_if.truth --seeds 0:60` prints one line for each seed and the differences. Compared are the
pods that run, by workload, with the GPUs they hold and the type of their node; the pods that wait; and evictions.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from typing import Any, NamedTuple

from dovetail import errors
from dovetail.answer.replica.replica import Replica
from dovetail.answer.what_if import (
    changes,
    cluster_outcome,
    consequences,
    gpu_numbers,
    node_selection,
)
from dovetail.answer.what_if.effect import Effect
from dovetail.ask import catalogue_machines, new_work
from dovetail.kubetypes import codec, object_set
from dovetail.kubetypes.core import pods
from dovetail.manifest import manifests
from dovetail.model import plan
from tests.answer.what_if import random_worlds
from tests.answer.what_if.true_cluster import POLICY, TrueCluster

SETTLED = 300.0  # seconds: all work has arrived and nothing changes any more
LATER = 900.0  # what the change led to has happened
Tree = dict[str, Any]


class Picture(NamedTuple):
    """What a cluster comes to, in words that do not depend on generated names."""

    running: Counter[tuple[str, str, int]]  # workload, type of its node, thousandths of GPUs
    waiting: Counter[str]
    evicted: Counter[str]
    nodes: Counter[tuple[str, str]]  # workload, node


class Trial(NamedTuple):
    """One seed: the change, what was answered and what happened."""

    seed: int
    change: str
    answered: Picture
    happened: Picture
    effects: int  # pods that run, wait or yield differently than before the change

    @property
    def is_true(self) -> bool:
        return self.answered[:3] == self.happened[:3]

    @property
    def is_exact(self) -> bool:
        """Whether even the nodes are the same."""
        return self.is_true and self.answered.nodes == self.happened.nodes


class _Run:
    """One cluster on its way through one seed."""

    def __init__(self, seed: int) -> None:
        self.draws = random_worlds.Draws(seed)
        self.world = self.draws.world()
        self.change = ""
        self.answered: Picture | None = None
        self.before: Picture | None = None
        self.evictions_before = 0

    def finish(self, seed: int) -> Trial:
        run = TrueCluster(self.world.fleet, objects=self.world.objects, policy_=POLICY)
        script = [
            (20.0 * number, self._arrival(batch)) for number, batch in enumerate(self.world.batches)
        ]
        run.follow([*script, (SETTLED, self._change)], until=LATER)
        assert self.answered is not None
        assert self.before is not None
        evictions = [eviction for _, eviction in run.evictions[self.evictions_before :]]
        happened = picture(Replica(run.objects(), POLICY, run.clock.now()), evictions)
        differing = (happened.running - self.before.running).total()
        differing += (self.before.running - happened.running).total()
        return Trial(seed, self.change, self.answered, happened, differing)

    def _arrival(self, batch: list[Tree]) -> Any:
        async def arrive(run: TrueCluster) -> None:
            run.create(batch)

        return arrive

    async def _change(self, run: TrueCluster) -> None:
        objects = run.objects()
        replica = Replica(objects, POLICY, run.clock.now())
        self.before = picture(replica, ())
        self.evictions_before = len(run.evictions)
        others_wait = bool(replica.world.pending())
        while True:
            drawn = self._drawn(replica)
            try:
                stated = [self._stated(verb, text, objects, run) for verb, text in drawn]
                with consequences.changed(replica, stated, catalogue_machines.build) as effects:
                    if not is_predictable(stated[0].change, effects[0], others_wait=others_wait):
                        continue
                    outcome = cluster_outcome.outcome_of(replica, horizon_seconds=0)
                    self.answered = picture_of(outcome, replica)
                break
            except errors.InputError:
                continue  # such as a board without MIG
        self.change = " ".join(each.text for each in stated)
        for (_, text), each, effect in zip(drawn, stated, effects, strict=True):
            if isinstance(text, str):
                await run.make(each, effect)
            else:
                run.create([text])

    def _drawn(self, replica: Replica) -> list[tuple[str, str | Tree]]:
        world = replica.world
        nodes = sorted(world.nodes)
        partitionable = [name for name in nodes if world.view(name).pools]
        work = sorted({_work(pod) for pod in world.pods.values()})
        return self.draws.changes(nodes, partitionable, work)

    def _stated(
        self, verb: str, text: str | Tree, objects: object_set.ObjectSet, run: TrueCluster
    ) -> changes.Stated:
        if isinstance(text, str):
            return changes.read(verb, text, namespace=random_worlds.NAMESPACE)
        loaded = manifests.load(codec.encode_tree(text), file="new.yaml")
        created = new_work.expanded(loaded.objects, objects, run.clock.now(), is_lenient=True)
        summary = f"-f {text['kind']} {text['metadata']['name']}"
        return changes.Stated(summary, changes.NewWork(file="new.yaml", objects=created))


def is_predictable(change: changes.Change, effect: Effect, *, others_wait: bool) -> bool:
    """Whether it does not matter when controllers create displaced pods again.

    A Job waits for 10 seconds and longer, so that others that wait may use the room meanwhile; a Deployment does not
    wait. Pods of one second are ordered by their random uids. The answer takes all of them as created at once. So the
    campaign displaces one workload at a time, and a Job only where nothing else wants the room.
    """
    displaced = {
        _work(edit.stored.struct)
        for edit in effect.edits
        if edit.stored is not None
        and isinstance(edit.stored.struct, pods.Pod)
        and not isinstance(change, changes.SetPriority | changes.NewWork)
    }
    has_jobs = any(kind == "job" for kind, _ in displaced)
    return len(displaced) <= 1 and not (has_jobs and others_wait)


def trial(seed: int) -> Trial:
    """One seed."""
    return _Run(seed).finish(seed)


def picture_of(outcome: cluster_outcome.Outcome, replica: Replica) -> Picture:
    """What was answered."""
    running: Counter[tuple[str, str, int]] = Counter()
    nodes: Counter[tuple[str, str]] = Counter()
    for each in outcome.running.values():
        name = _base(each.pod.name)
        running[name, node_selection.gpu_type(replica.world, each.node), each.gpus] += 1
        nodes[name, each.node] += 1
    waiting = Counter(_base(name) for names in outcome.pending for name in [names[1]])
    evicted = Counter(_base(eviction.pod.name) for eviction in outcome.evictions)
    return Picture(running, waiting, evicted, nodes)


def picture(replica: Replica, evictions: Any) -> Picture:
    """What is there."""
    world = replica.world
    stock = gpu_numbers.Stock(world, POLICY)
    running: Counter[tuple[str, str, int]] = Counter()
    nodes: Counter[tuple[str, str]] = Counter()
    for pod_id, (node, _) in world.running().items():
        pod = world.pods[pod_id]
        name = _base(pod.metadata.name)
        running[name, node_selection.gpu_type(world, node), stock.held(pod)] += 1
        nodes[name, node] += 1
    waiting = Counter(_base(pod.metadata.name) for pod in world.pending())
    evicted = Counter(_base(eviction.pod.name) for eviction in _distinct(evictions))
    return Picture(running, waiting, evicted, nodes)


def _distinct(evictions: Any) -> list[plan.Eviction]:
    """A plan that is decided again while a victim is leaving names it again."""
    return list({eviction.pod.uid: eviction for eviction in evictions}.values())


def _work(pod: pods.Pod) -> tuple[str, str]:
    owners = [owner.kind for owner in pod.metadata.owner_references if owner.controller]
    kind = {"Job": "job", "ReplicaSet": "deployment"}.get(owners[0] if owners else "", "pod")
    return kind, _base(pod.metadata.name)


def _base(name: str) -> str:
    """Workloads have no dash in their names."""
    return name.split("-")[0]


def shown(result: Trial) -> list[str]:
    """One line, and what differs."""
    word = "exact" if result.is_exact else "true" if result.is_true else "FALSE"
    lines = [f"seed {result.seed}: {word}: {result.change} ({result.effects} pods differ)"]
    if not result.is_true:
        for field in ("running", "waiting", "evicted"):
            answered, happened = getattr(result.answered, field), getattr(result.happened, field)
            if answered != happened:
                lines.append(f"  {field} only in the answer: {dict(answered - happened)}")
                lines.append(f"  {field} only in truth:      {dict(happened - answered)}")
    return lines


def main() -> int:
    """Runs the campaign; 1 if an answer was wrong."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--seeds", default="0:60", help="FIRST:END")
    first, _, end = parser.parse_args().seeds.partition(":")
    results = []
    for seed in range(int(first), int(end)):
        result = trial(seed)
        results.append(result)
        print("\n".join(shown(result)), flush=True)
    true = sum(result.is_true for result in results)
    exact = sum(result.is_exact for result in results)
    moving = sum(result.effects > 0 for result in results)
    yielding = sum(bool(result.happened.evicted) for result in results)
    print(
        f"{true} of {len(results)} answers are true, {exact} to the node; "
        f"{moving} changes had effects, {yielding} of them evictions"
    )
    return 0 if true == len(results) else 1


if __name__ == "__main__":
    sys.exit(main())
