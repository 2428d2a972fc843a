"""Random lives of a node: an independent judge finds no instant with two owners of the same silicon."""

from __future__ import annotations

import random
from typing import Any

import pytest

from dovetail.devcluster.fake_gpus.hardware import Refused
from dovetail.node.kubelet.claim_service import ClaimReference, Prepared
from tests.node.claims.conftest import MakeNode
from tests.node.claims.double_use import Entry, judge
from tests.node.claims.node import Node, share, time_slicing

PROFILES = {
    "1g10gb-19": range(7),
    "1g10gb-me-20": range(7),
    "1g20gb-15": (0, 2, 4, 6),
    "2g20gb-14": (0, 2, 4),
    "3g40gb-9": (0, 4),
    "4g40gb-5": (0,),
    "7g80gb-0": (0,),
}
STEPS = 12


class Life:
    """One sequence on a node that starts and ends empty."""

    def __init__(self, node: Node, seed: int) -> None:
        self.node = node
        self.seed = seed
        self.random = random.Random(seed)
        self.log: list[Entry] = []
        self.claims: dict[str, tuple[ClaimReference, Any]] = {}
        self.foreign: list[tuple[int, int]] = []

    def live(self) -> None:
        for step in range(STEPS):
            choice = self.random.random()
            if choice < 0.55:
                self.prepare_some(step)
            elif choice < 0.85:
                self.unprepare_some()
            elif choice < 0.92:
                self.node.restart()
            else:
                self.administrate()
        self.end()

    def device(self) -> str:
        gpu = self.random.randrange(2)
        if self.random.random() < 0.25:
            return f"gpu-{gpu}"
        profile = self.random.choice(list(PROFILES))
        return f"gpu-{gpu}-mig-{profile}-{self.random.choice(list(PROFILES[profile]))}"

    def prepare_some(self, step: int) -> None:
        """New claims and, now and then, one that is prepared already, all in one request."""
        wanted: list[str] = self.random.sample(sorted(self.claims), min(len(self.claims), 1))
        for number in range(self.random.randint(1, 3)):
            name = f"c{self.seed}-{step}-{number}"
            devices: list[Any] = []
            for _ in range(self.random.choice([1, 1, 1, 2])):
                device = self.device()
                is_share = self.random.random() < 0.3
                gib = self.random.randint(1, 30)
                devices.append(share(device, memory=f"{gib}Gi") if is_share else device)
            configs = [time_slicing("Long")] if self.random.random() < 0.2 else []
            reference = self.node.allocate(name, *devices, configs=configs)
            self.claims[name] = (reference, devices)
            wanted.append(name)
        references = [self.claims[name][0] for name in wanted]
        answers = self.node.run(self.node.agent.prepare(references))
        for name in wanted:
            if isinstance(answers[self.claims[name][0].uid], Prepared):
                self.note("prepared", name)
            elif self.random.random() < 0.5:
                self.forget([name])

    def unprepare_some(self) -> None:
        names = sorted(self.claims)
        self.forget(self.random.sample(names, min(len(names), self.random.randint(1, 3))))

    def forget(self, names: list[str]) -> None:
        for name in names:
            self.note("unpreparing", name)
        references = [self.claims.pop(name)[0] for name in names]
        answers = self.node.run(self.node.agent.unprepare(references))
        assert set(answers.values()) <= {None}, answers

    def administrate(self) -> None:
        """An administrator with nvidia-smi beside the agent."""
        if self.foreign and self.random.random() < 0.5:
            self.node.hardware.destroy_mig(*self.foreign.pop())
            return
        gpu = self.random.randrange(2)
        profile = self.random.choice([19, 14, 9])
        held = {device for _, devices in self.claims.values() for device in map(str, devices)}
        if any(f"gpu-{gpu}" in device for device in held):
            return  # an administrator looks before making an instance on a GPU that is claimed
        try:
            if not self.node.is_mig_on(gpu):
                return
            gi, _ = self.node.hardware.create_mig(gpu, profile)
        except Refused:
            return
        self.foreign.append((gpu, gi))

    def note(self, event: str, name: str) -> None:
        facts: list[tuple[str, str | None, int]] = []
        for device in self.claims[name][1]:
            if isinstance(device, str):
                facts.append((device, None, 0))
            else:
                gib = int(device["consumedCapacity"]["memory"].removesuffix("Gi"))
                facts.append((device["device"], device["shareID"], gib * 1024))
        sequence = self.node.hardware.snapshot().sequence
        self.log.append(Entry(sequence, event, name, tuple(facts)))

    def end(self) -> None:
        if self.claims:
            self.forget(sorted(self.claims))
        while self.foreign:
            self.node.hardware.destroy_mig(*self.foreign.pop())
        for gpu in self.node.hardware.snapshot().gpus:
            assert gpu.gpu_instances == ()
            assert (gpu.compute_mode, gpu.time_slice) == (0, 0)
        self.node.assert_clean((0, 1))


def live(make_node: MakeNode, seeds: range) -> int:
    node = make_node(keeps_inventory=True, is_in_memory=True)
    node.hardware.set_mig_mode(1, True)  # one GPU on which an administrator may act
    log: list[Entry] = []
    for seed in seeds:
        life = Life(node, seed)
        try:
            life.live()
        except BaseException:
            print(f"seed {seed}")
            raise
        log += life.log
    return judge(node.hardware.home / "history.jsonl", log)


def test_no_silicon_has_two_owners(make_node: MakeNode) -> None:
    assert live(make_node, range(8)) > 8


@pytest.mark.slow
@pytest.mark.parametrize("first", range(1000, 1500, 100))
def test_no_silicon_has_two_owners_in_three_hundred_lives(make_node: MakeNode, first: int) -> None:
    """The same lives in each run: sixty a node reach every mixture of devices, shares and restarts."""
    assert live(make_node, range(first, first + 60)) > 60
