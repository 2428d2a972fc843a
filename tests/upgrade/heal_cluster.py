"""Facts of clusters for the stories of healing, and a world that plays a healer's steps against them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from dovetail.node.health.policy_table import HealthPolicy
from dovetail.upgrade.heal import healing
from dovetail.upgrade.heal.heal_facts import GpuFacts, HealFacts, NodeFacts, PodFacts
from dovetail.upgrade.heal.heal_policy import HealPolicy
from dovetail.upgrade.heal.heal_record import Record
from dovetail.upgrade.heal.healing import Action, Step
from dovetail.upgrade.heal.remedy_ladder import SeenFault

TABLE = HealthPolicy()
DEFAULT = HealPolicy()


def fault(name: str, *, since: float = 0.0, effect: str = "NoSchedule") -> SeenFault:
    return SeenFault(name=name, effect=effect, since=since)


class Cluster:
    """Nodes with GPUs and pods on them, by uid; a gang is a list of uids that leave together."""

    def __init__(self, *, nodes: int = 4, gpus: int = 2) -> None:
        self.now = 1_000.0
        self.faults: dict[tuple[str, str], tuple[SeenFault, ...]] = {}
        self.places: dict[str, tuple[str, str]] = {}  # uid: node and GPU
        self.gangs: dict[str, tuple[str, ...]] = {}  # uid: all of its gang
        self.ending: set[str] = set()
        self.bare: set[str] = set()
        self.nodes: dict[str, NodeFacts] = {}
        for number in range(nodes):
            name = f"n-{number}"
            names = [f"gpu-{at}" for at in range(gpus)]
            self.nodes[name] = NodeFacts(
                name=name,
                pool="h100",
                version="1",
                is_ready=True,
                gpus=tuple(GpuFacts(name=each) for each in names),
            )

    def pod(self, uid: str, node: str, gpu: str = "gpu-0") -> None:
        self.places[uid] = (node, gpu)
        self.gangs.setdefault(uid, (uid,))

    def gang(self, *places: tuple[str, str, str]) -> None:
        uids = tuple(uid for uid, _, _ in places)
        for uid, node, gpu in places:
            self.pod(uid, node, gpu)
            self.gangs[uid] = uids

    def breaks(self, node: str, gpu: str, *faults: SeenFault) -> None:
        self.faults[node, gpu] = faults

    def set(self, node: str, **fields: object) -> None:
        self.nodes[node] = msgspec.structs.replace(self.nodes[node], **fields)

    @property
    def facts(self) -> HealFacts:
        pods = {uid: self._pod(uid, node) for uid, (node, _) in self.places.items()}
        return HealFacts(nodes=tuple(map(self._node, self.nodes.values())), pods=pods)

    def steps(self, policy: HealPolicy = DEFAULT) -> dict[str, Step]:
        decided = healing.decide(self.facts, policy, TABLE, now=self.now)
        return {step.node: step for step in decided}

    def play(self, policy: HealPolicy = DEFAULT) -> dict[str, Step]:
        """One pass: records are written; moved pods begin to end."""
        steps = self.steps(policy)
        for step in steps.values():
            if step.record is not None:
                self.set(step.node, record=step.record)
            if step.action is Action.MOVE:
                self.ending.update(pod.uid for pod in step.pods)
        return steps

    def end_pods(self, uids: Iterable[str] | None = None) -> None:
        for uid in list(self.ending if uids is None else uids):
            self.ending.discard(uid)
            self.places.pop(uid, None)

    def record(self, node: str) -> Record:
        record = self.nodes[node].record
        assert isinstance(record, Record)
        return record

    def _node(self, node: NodeFacts) -> NodeFacts:
        here = {uid: gpu for uid, (name, gpu) in self.places.items() if name == node.name}
        gpus = tuple(self._gpu(node.name, gpu.name, here) for gpu in node.gpus)
        uids = tuple(sorted(here))
        return msgspec.structs.replace(node, gpus=gpus, gpu_pods=uids, all_pods=uids)

    def _gpu(self, node: str, name: str, here: Mapping[str, str]) -> GpuFacts:
        holders = tuple(sorted(uid for uid, gpu in here.items() if gpu == name))
        return GpuFacts(name=name, faults=self.faults.get((node, name), ()), holders=holders)

    def _pod(self, uid: str, node: str) -> PodFacts:
        return PodFacts(
            uid=uid,
            namespace="train",
            name=uid,
            node=node,
            has_controller=uid not in self.bare,
            is_ending=uid in self.ending,
            unit="train/" + self.gangs[uid][0],
            with_it=tuple(each for each in self.gangs[uid] if each in self.places),
        )
