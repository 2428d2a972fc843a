"""Judges from outside whether silicon ever had two owners. Shares no code with the agent or its tests' node.

Given the hardware's history (history.jsonl) and a log of what the kubelet was answered, each entry with the number of
the last change of the hardware before it. Knows the memory slices of an H100's profiles from NVIDIA's tables. Raises
AssertionError with the moment and the claims.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import NamedTuple

SLICES = {19: 1, 20: 1, 15: 2, 14: 2, 9: 4, 5: 4, 0: 8}  # memory slices by GPU instance profile id
ALL = frozenset(range(8))
MEMORY_MIB = {None: 81559, 19: 9984, 20: 9984, 15: 20096, 14: 20096, 9: 40448, 5: 40448, 0: 81152}


class Entry(NamedTuple):
    """One answer to the kubelet, or a request whose answer will be final."""

    sequence: int  # of the hardware's last change at that moment
    event: str  # prepared, unpreparing
    claim: str
    devices: tuple[tuple[str, str | None, int], ...] = ()  # name, share, MiB it consumes


class Part(NamedTuple):
    gpu: int
    profile: int | None  # None is the whole GPU
    start: int

    @property
    def slices(self) -> frozenset[int]:
        if self.profile is None:
            return ALL
        return frozenset(range(self.start, self.start + SLICES[self.profile]))


def part_of(name: str) -> Part:
    """What a device name means."""
    numbers = [int(number) for number in re.findall(r"-(\d+)(?=-|$)", name)]
    if "mig" not in name:
        return Part(numbers[0], None, 0)
    return Part(numbers[0], numbers[-2], numbers[-1])


def judge(history: Path, log: list[Entry]) -> int:
    """Checks every moment; returns how many times a claim was prepared."""
    changes = [json.loads(line) for line in history.read_text("utf-8").splitlines()]
    owners: dict[str, Entry] = {}
    instances: dict[tuple[int, int], tuple[int, int]] = {}  # (gpu, id): (profile, start)
    count = 0
    position = 0
    for entry in log:
        while position < len(changes) and changes[position]["sequence"] <= entry.sequence:
            _apply(changes[position], instances, owners)
            position += 1
        if entry.event == "unpreparing":
            owners.pop(entry.claim, None)
            continue
        if entry.claim not in owners:
            count += 1
        owners[entry.claim] = entry
        _alone(owners, entry)
        _present(entry, instances)
    return count


def _apply(
    change: dict[str, object],
    instances: dict[tuple[int, int], tuple[int, int]],
    owners: dict[str, Entry],
) -> None:
    event = change["event"]
    if event == "gpu-instance-created":
        place = (int(str(change["profile_id"])), int(str(change["start"])))
        instances[int(str(change["gpu"])), int(str(change["gi"]))] = place
        made = Part(int(str(change["gpu"])), *place)
        for claim, entry in owners.items():
            for name, _, _ in entry.devices:
                part = part_of(name)
                meet = part.gpu == made.gpu and part.slices & made.slices
                assert not meet, f"{change}: made on silicon of claim {claim} ({name})"
    if event == "gpu-instance-destroyed":
        profile, start = instances.pop((int(str(change["gpu"])), int(str(change["gi"]))))
        gone = Part(int(str(change["gpu"])), profile, start)
        for claim, entry in owners.items():
            names = [name for name, _, _ in entry.devices]
            assert all(part_of(name) != gone for name in names), f"{change}: claim {claim} has it"


def _alone(owners: dict[str, Entry], entry: Entry) -> None:
    used: dict[str, int] = {}
    everything = [(claim, device) for claim, each in owners.items() for device in each.devices]
    for index, (claim, (name, share, mib)) in enumerate(everything):
        part = part_of(name)
        used[name] = used.get(name, 0) + mib
        assert used[name] <= MEMORY_MIB[part.profile], f"{entry}: {name} is over-committed"
        for other, (other_name, other_share, _) in everything[:index]:
            other_part = part_of(other_name)
            if part.gpu != other_part.gpu or not part.slices & other_part.slices:
                continue
            both_shares = share is not None and other_share is not None and name == other_name
            assert both_shares, f"{entry}: {claim} has {name} while {other} has {other_name}"


def _present(entry: Entry, instances: dict[tuple[int, int], tuple[int, int]]) -> None:
    for name, _, _ in entry.devices:
        part = part_of(name)
        on_gpu = [place for (gpu, _), place in instances.items() if gpu == part.gpu]
        if part.profile is None:
            assert not on_gpu, f"{entry}: {name} is prepared beside instances {on_gpu}"
        else:
            matching = [place for place in on_gpu if place == (part.profile, part.start)]
            assert len(matching) == 1, f"{entry}: {name} is not there; there are {on_gpu}"
