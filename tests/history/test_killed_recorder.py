"""A recorder that dies at random calls of its store, again and again; then the whole history is read and judged.

The truth is a script of events with virtual times. Each life of the recorder begins with the list that the server would
have then, records until it dies, and leaves only its store behind.
"""

from __future__ import annotations

import os
import random
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

import pytest

from dovetail.history import stores
from dovetail.history.history_recorder import Recorder, Times
from dovetail.model.accounting.records import MICRO_GPU, Records
from dovetail.world.events import Changed, Deleted
from dovetail.world.world import World
from tests.history import history_writer, whole_history
from tests.history.test_history_recorder import reserved
from tests.world import build

NODES, GPUS = 2, 3
STEP = 1_000  # milliseconds between two events
ALWAYS = 1 << 50


class Happening(NamedTuple):
    """One event of the script."""

    at: int
    object: Any
    is_there: bool = True


class Truth:
    """Pods that come, hold a GPU, some of them together, and end: when what was held by whom."""

    def __init__(self, seed: int, count: int) -> None:
        self.randomness = random.Random(seed)
        self.script: list[Happening] = []
        self.held: dict[str, tuple[int, int | None]] = {}  # pod -> from, to
        self._free = [(f"n{node}", f"gpu-{gpu}") for node in range(NODES) for gpu in range(GPUS)]
        self._running: list[tuple[str, tuple[str, str], tuple[str, ...]]] = []
        for node in range(NODES):
            self._say(build.node(f"n{node}"))
            self._say(build.gpu_slice(f"n{node}", gpus=GPUS))
        for number in range(count):
            if self._free and (not self._running or self.randomness.random() < 0.6):
                self._start(number)
            else:
                self._end(self.randomness.randrange(len(self._running)))

    @property
    def now(self) -> int:
        return (len(self.script) + 1) * STEP

    def _say(self, object_: Any, *, is_there: bool = True) -> None:
        self.script.append(Happening(self.now, object_, is_there))

    def _start(self, number: int) -> None:
        device = self._free.pop(self.randomness.randrange(len(self._free)))
        names = tuple(f"p{number}-{part}" for part in range(self.randomness.choice((1, 1, 2))))
        claim = f"c{number}"
        uses = ({"name": "gpu", "resourceClaimName": claim},)
        for name in names:
            self._say(build.pod(name, claims=uses))
        allocated = reserved(build.claim(claim, devices=(device,)), *names)
        for name in names:
            self.held[name] = (self.now, None)
        self._say(allocated)
        for name in names:
            self._say(build.pod(name, claims=uses, node_name=device[0], phase="Running"))
        self._running.append((claim, device, names))

    def _end(self, place: int) -> None:
        claim, device, names = self._running.pop(place)
        for name in names:
            self.held[name] = (self.held[name][0], self.now)
            uses = ({"name": "gpu", "resourceClaimName": claim},)
            gone = build.pod(name, claims=uses, node_name=device[0], phase="Running")
            self._say(gone, is_there=False)
        self._say(build.claim(claim), is_there=False)
        self._free.append(device)


@pytest.mark.parametrize(
    "seed", [0, *(pytest.param(seed, marks=pytest.mark.slow) for seed in (1, 2))]
)
def test_a_recorder_may_die_at_any_call_of_its_store(seed: int, tmp_path: Path) -> None:
    truth = Truth(seed, 40)
    location = str(tmp_path / "history.sqlite")
    reached, lives = 0, 0
    while reached < len(truth.script):
        boundary = truth.randomness.randint(1, 160)
        reached = _lived(location, truth, reached, boundary)
        # The next life begins a little later: what happens meanwhile is not seen.
        reached = min(reached + truth.randomness.randrange(4), len(truth.script))
        lives += 1
        assert lives < 500
    _lived(location, truth, reached, 0)
    with stores.open_store(location) as store:
        records = store.records(0, ALWAYS)
    assert lives > 3
    assert whole_history.problems(records) == []
    _compare(records, truth)


def _compare(records: Records, truth: Truth) -> None:
    """Nothing lasted longer than it did, and what is missing lies in a gap."""
    recorded: dict[str, list[Any]] = {}
    for each in records.allocations:
        if each.owner.pod:
            recorded.setdefault(each.owner.pod, []).append(each)
    gaps = [(gap.start, gap.end) for gap in records.gaps]
    last = truth.now
    for pod, (start, end) in truth.held.items():
        begun, ended = start, last if end is None else end
        intervals = [(each.start, each.end or last) for each in recorded.get(pod, ())]
        assert all(begun <= first <= until <= ended for first, until in intervals), pod
        for at in range(begun, ended, STEP // 2):
            is_recorded = any(first <= at < until for first, until in intervals)
            is_unknown = any(first <= at < until for first, until in gaps)
            assert is_recorded or is_unknown, f"{pod} at {at}: {intervals}, gaps {gaps}"
    assert all(each.micro_gpu in (MICRO_GPU, MICRO_GPU // 2) for each in records.allocations)


def _lived(location: str, truth: Truth, begin: int, boundary: int) -> int:
    """One life in a process of its own, until it dies or the script ends; how many events it saw."""
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        os.close(reading)
        _live(location, truth, begin, boundary, writing)
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        seen = len(pipe.read())
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) in (0, history_writer.ENDED)
    return begin + seen


def _live(location: str, truth: Truth, begin: int, boundary: int, pipe: int) -> NoReturn:
    """Never returns: what is above belongs to the parent."""
    try:
        behind = history_writer.EndingDatabase(history_writer.database_at(location), boundary)
        _record(stores.Store(behind), truth, begin, pipe)  # type: ignore[arg-type]
    except BaseException as error:
        os.write(2, f"{error!r}\n".encode())
        os._exit(1)
    os._exit(0)


def _record(store: stores.Store, truth: Truth, begin: int, pipe: int) -> None:
    world = World()
    recorder = Recorder(world)
    for happening in truth.script[:begin]:
        event = Changed(happening.object) if happening.is_there else Deleted(happening.object)
        world.apply(event)
        recorder.prime(event)
    # Listed between two events.
    now = begin * STEP + STEP // 2
    records = recorder.resume(store.open_records(), watched_until=store.watched_until(), now=now)
    store.append(records, watched_until=now)
    for happening in truth.script[begin:]:
        event = Changed(happening.object) if happening.is_there else Deleted(happening.object)
        world.apply(event)
        os.write(pipe, b".")
        records = recorder.observe(event, times=Times(happening.at, happening.at))
        store.append(records, watched_until=happening.at)
