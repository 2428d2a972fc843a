"""The healer on the embedded API server: from a tainted device to a reset, killed between any two writes."""

from __future__ import annotations

import itertools

import msgspec
import pytest

from dovetail import timestamps
from dovetail.kubetypes import codec, object_set, registry
from dovetail.kubetypes.core import nodes
from dovetail.node.health.policy_table import HealthPolicy
from dovetail.ports import failures
from dovetail.ports.api import Target
from dovetail.telemetry import lifecycle_metrics, metrics
from dovetail.upgrade import read_facts
from dovetail.upgrade.heal import (
    heal_facts,
    heal_limits,
    heal_policy,
    heal_record,
    healer_loop,
    healing,
)
from dovetail.upgrade.heal.heal_record import Phase, Record
from tests.live.live_scheduler import Stage, play

TABLE = HealthPolicy()
POLICY = heal_policy.HealPolicy(breaker_share=0.5, fault_seconds=1)


class Ward:
    """A cluster with running work, and a healer that can be replaced at any time."""

    def __init__(self, stage: Stage) -> None:
        self.stage = stage
        ticks = itertools.count(step=10)  # the text is never an old one
        self.metrics = metrics.Metrics(
            lifecycle_metrics.DECLARED, monotonic=lambda: float(next(ticks))
        )
        self.healer = self._healer()

    def _healer(self) -> healer_loop.Healer:
        return healer_loop.Healer(
            self.stage.api, self.stage.clock, policy=POLICY, table=TABLE, meter_=self.metrics
        )

    def events(self) -> list[tuple[str, str, str]]:
        """Node, reason and note of the healer's events, in order of their reasons."""
        return sorted(
            (event.regarding.name, event.reason, event.note)
            for event in self.stage.api.all(registry.EVENT)
            if event.reason.startswith("Heal")
        )

    def shown(self) -> set[str]:
        """The samples of the healer's metrics that are not zero."""
        lines = self.metrics.text().decode().splitlines()
        return {
            line.removeprefix("dovetail_heal_")
            for line in lines
            if line.startswith("dovetail_heal_") and not line.endswith(" 0.0")
        }

    def replace_healer(self) -> None:
        self.healer = self._healer()

    async def objects(self) -> object_set.ObjectSet:
        stored = []
        for kind in healer_loop.KINDS:
            for struct in self.stage.api.all(kind):
                metadata = struct.metadata
                tree = self.stage.api.tree(kind, metadata.name, namespace=metadata.namespace)
                stored.append(codec.Stored(struct, msgspec.json.encode(tree)))
        return object_set.of("stage", stored)

    async def heal(self) -> dict[str, healing.Step]:
        steps = await self.healer.pass_once(await self.objects())
        self._end_pods()
        await self.stage.pass_time(1)
        return {step.node: step for step in steps}

    def _end_pods(self) -> None:
        """Plays the kubelets, which the stage lacks."""
        for pod in self.stage.api.all(registry.POD):
            if pod.metadata.deletion_timestamp is not None:
                key = (pod.metadata.namespace, pod.metadata.name)
                self.stage.api.shelf.delete(registry.POD, key, grace_seconds=0)

    def taint(self, node: str, gpu: str, *taints: dict[str, str]) -> None:
        """The taints of a GPU, as the node agent publishes them."""
        for published in self.stage.api.all(registry.SLICE):
            if published.spec.node_name != node:
                continue
            name = published.metadata.name
            tree = self.stage.api.tree(registry.SLICE, name)
            for device in tree["spec"].get("devices", ()):
                if device["name"].startswith(gpu):
                    device["taints"] = list(taints)
            self.stage.api.shelf.put(registry.SLICE, tree)

    def node(self, name: str) -> nodes.Node:
        node: nodes.Node = self.stage.api.find(registry.NODE, name)
        return node

    def record(self, name: str) -> Record:
        record = heal_record.record_of(self.node(name).metadata.annotations)
        assert isinstance(record, Record)
        return record

    def gpu_of(self, pod: str) -> tuple[str, str]:
        (place,) = [
            (result.pool, result.device)
            for claim in self.stage.claims()
            if claim.status.allocation is not None and claim.metadata.name.startswith(f"{pod}-")
            for result in claim.status.allocation.devices.results
        ]
        return place


def xid(code: int) -> dict[str, str]:
    return {
        "key": "gpu.nvidia.com/xid",
        "value": str(code),
        "effect": "NoSchedule",
        "timeAdded": "2020-01-01T00:00:00Z",
    }


def working() -> Stage:
    stage = Stage(nodes=2, gpus=2)
    stage.queue("everybody")
    stage.template("one")
    return stage


def test_a_gpu_is_emptied_and_its_reset_asked_for_while_the_neighbour_works_on() -> None:
    async def story() -> None:
        stage = working()
        ward = Ward(stage)
        for name in ("a", "b", "c", "d"):
            stage.pod(name, templates=("one",), job=name)
        async with stage.scheduling():
            await stage.pass_time(5)
            node, gpu = ward.gpu_of("a")
            ward.taint(node, gpu, xid(48))
            uids = {name: stage.the_pod(name).metadata.uid for name in "bcd"}
            for _ in range(6):
                await ward.heal()
            assert ward.record(node).phase is Phase.REQUESTED
            request = ward.node(node).metadata.annotations[heal_record.REQUEST]
            assert f'"gpus":["{gpu}"]' in request
            assert "a" not in {pod.metadata.name for pod in stage.api.all(registry.POD)}
            assert {name: stage.the_pod(name).metadata.uid for name in "bcd"} == uids
            ward.taint(node, gpu)
            await ward.heal()
            assert heal_record.REQUEST not in ward.node(node).metadata.annotations
            assert ward.record(node).attempts[0].result == "healed"

    play(story)


def test_each_decision_is_one_event_and_counted_once_also_by_the_next_healer() -> None:
    async def story() -> None:
        stage = working()
        ward = Ward(stage)
        for name in ("a", "b", "c", "d"):
            stage.pod(name, templates=("one",), job=name)
        async with stage.scheduling():
            await stage.pass_time(5)
            node, gpu = ward.gpu_of("a")
            ward.taint(node, gpu, xid(48))
            for _ in range(4):
                await ward.heal()
            assert 'nodes{state="requested"} 1.0' in ward.shown()
            ward.replace_healer()
            for _ in range(3):
                await ward.heal()
            said = [(reason, note.split(";")[0]) for _, reason, note in ward.events()]
            assert said == [
                ("HealBegin", f"reset-gpu of {gpu} because of xid-48, by the table"),
                ("HealMove", f"1 pods of default/a leave {gpu} before reset-gpu"),
                ("HealRequest", f"no pod is left on {gpu}"),
            ]
            ward.taint(node, gpu)
            await ward.heal()
            assert ward.events()[1] == (
                node,
                "HealFinish",
                f"reset-gpu of {gpu}: healed: the fault is gone",
            )
            shown = ward.shown()
            assert 'remedies_total{result="begun",rung="reset-gpu"} 1.0' in shown
            assert 'remedies_total{result="healed",rung="reset-gpu"} 1.0' in shown
            assert 'evictions_total{result="done"} 1.0' in shown

    play(story)


def test_a_refusal_is_an_event_with_its_reason_and_an_open_breaker_is_shown() -> None:
    async def story() -> None:
        stage = working()
        ward = Ward(stage)
        fresh = xid(48) | {"timeAdded": timestamps.to_text(stage.clock.now())}
        for node in ("n-0", "n-1"):
            ward.taint(node, "gpu-0", fresh)
        for _ in range(3):
            await ward.heal()
        (pool,) = {line for line in ward.shown() if line.startswith("breaker_open")}
        assert pool.endswith(" 1.0")
        assert 'refusals_total{rule="breaker"} 2.0' in ward.shown()
        assert 'nodes{state="refused"} 2.0' in ward.shown()
        refusals = [(node, note) for node, reason, note in ward.events() if reason == "HealRefuse"]
        assert [node for node, _ in refusals] == ["n-0", "n-1"]
        assert all("2 of 2 nodes failed within 300 s, more than 1" in note for _, note in refusals)
        ward.taint("n-1", "gpu-0")
        await stage.pass_time(400)
        await ward.heal()
        assert not {line for line in ward.shown() if line.startswith("breaker_open")}

    play(story)


def test_a_cluster_without_faults_is_not_read_further() -> None:
    async def story() -> None:
        stage = working()
        ward = Ward(stage)
        assert not heal_facts.has_work(await ward.objects())
        ward.taint("n-0", "gpu-0", {**xid(48), "key": "example.com/repair"})
        assert not heal_facts.has_work(await ward.objects())
        ward.taint("n-0", "gpu-0", xid(48))
        assert heal_facts.has_work(await ward.objects())
        await ward.heal()
        ward.taint("n-0", "gpu-0")
        assert heal_facts.has_work(await ward.objects()), "the record is under way"

    play(story)


def test_a_cordon_and_taints_of_others_stay_as_they_are() -> None:
    async def story() -> None:
        stage = working()
        ward = Ward(stage)
        foreign = {"key": "example.com/repair", "value": "x", "effect": "NoSchedule"}
        tree = stage.api.tree(registry.NODE, "n-0")
        tree["spec"] |= {"unschedulable": True, "taints": [foreign]}
        stage.api.shelf.put(registry.NODE, tree)
        ward.taint("n-0", "gpu-0", xid(79))
        await ward.heal()
        spec = ward.node("n-0").spec
        assert [taint.key for taint in spec.taints] == ["example.com/repair", heal_record.FENCE]
        assert spec.unschedulable
        await ward.heal()
        ward.taint("n-0", "gpu-0")
        await ward.heal()
        spec = ward.node("n-0").spec
        assert [taint.key for taint in spec.taints] == ["example.com/repair"]
        assert spec.unschedulable

    play(story)


def test_a_node_that_an_upgrade_has_fenced_is_left_to_it() -> None:
    async def story() -> None:
        stage = working()
        ward = Ward(stage)
        tree = stage.api.tree(registry.NODE, "n-0")
        fence = {"key": read_facts.FENCE, "value": "roll", "effect": "NoSchedule"}
        stage.api.shelf.put(registry.NODE, tree | {"spec": tree["spec"] | {"taints": [fence]}})
        ward.taint("n-0", "gpu-0", xid(79))
        step = (await ward.heal())["n-0"]
        assert (step.action, step.rule) == (healing.Action.REFUSE, heal_limits.Rule.UPGRADE)
        assert step.reason.startswith("StackUpgrade roll has fenced the node")

    play(story)


def test_a_gang_with_a_protected_member_stays_whole() -> None:
    async def story() -> None:
        stage = working()
        ward = Ward(stage)
        names = stage.gang("g", 2, templates=("one",), job="g")

        def protect(verb: str, target: Target) -> None:
            if target.subresource == "eviction" and target.name == names[1]:
                raise failures.Protected("the budget allows no disruption", status=429)

        async with stage.scheduling():
            await stage.pass_time(5)
            stage.api.before = protect
            node, gpu = ward.gpu_of("g-0")
            ward.taint(node, gpu, xid(48))
            for _ in range(4):
                await ward.heal()
            assert all(stage.node_of(name) for name in names)
            assert ward.record(node).phase is Phase.DRAINING
            stage.api.before = None
            for _ in range(4):
                await ward.heal()
            assert not {pod.metadata.name for pod in stage.api.all(registry.POD)} & set(names)

    play(story)


def _writes(verb: str, target: Target) -> bool:
    return verb in ("patch", "create") and target.kind in (registry.NODE, registry.POD)


@pytest.mark.parametrize("moment", ["before", "after"])
@pytest.mark.parametrize("place", range(6))
def test_a_healer_that_dies_between_any_two_writes_leaves_its_work_to_the_next(
    place: int, moment: str
) -> None:
    async def story() -> None:
        stage = working()
        ward = Ward(stage)
        names = stage.gang("g", 3, templates=("one",), job="g")
        stage.pod("other", templates=("one",), job="other")
        async with stage.scheduling():
            await stage.pass_time(5)
            other = stage.the_pod("other").metadata.uid
            node, gpu = ward.gpu_of("g-0")
        ward.taint(node, gpu, xid(48))

        count = itertools.count()

        def die(verb: str, target: Target) -> None:
            if _writes(verb, target) and next(count) >= place:
                raise failures.Fenced("dead")

        setattr(stage.api, moment, die)
        died = False
        for _ in range(6):
            try:
                await ward.heal()
            except failures.Fenced:
                died = True
                break
        setattr(stage.api, moment, None)
        assert died or place >= 5  # begin, three evictions, request
        ward.replace_healer()
        for _ in range(6):
            await ward.heal()
        assert ward.record(node).phase is Phase.REQUESTED
        present = {pod.metadata.name: pod.metadata.uid for pod in stage.api.all(registry.POD)}
        assert not present.keys() & set(names)
        assert present["other"] == other
        ward.taint(node, gpu)
        ward.replace_healer()
        await ward.heal()
        attempts = ward.record(node).attempts
        assert [(each.rung, each.result) for each in attempts] == [("reset-gpu", "healed")]

    play(story)
