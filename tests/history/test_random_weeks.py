"""Random weeks through the recorder and the cost table, against a ledger that shares nothing with them.

Drawn are happenings: work starts and ends on whole GPUs, MIG halves and shared claims, nodes are lost and return, the
recorder is killed and started again. The ledger goes through the week minute by minute in whole millionths of a
dollar and of a GPU, and knows of the recorder only when it was away.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import hypothesis
from hypothesis import strategies as st

from dovetail.history import intervals
from dovetail.history.history_recorder import Recorder, Times
from dovetail.model.accounting.records import Allocation, Asset, Records
from dovetail.world.events import Changed, Deleted
from dovetail.world.world import World
from tests.answer.cost import accounts
from tests.history import whole_history
from tests.history.test_history_recorder import mig_slices, reserved
from tests.world import build

MINUTE = 60_000
WEEK = 7 * 24 * 60  # minutes
PRICE_CHANGE = 5_070  # Thursday 12:30
NAMESPACES = ("research", "serving", "edge")
KINDS = ("start", "start", "start", "start", "end pod", "end", "lose", "return", "kill", "revive")
# Node n has one GPU that can be halved, node s two that several pods may share.
DEVICES = {
    ("n", "gpu-0"): ("GPU-n-0", 1_000_000),
    ("n", "half-0"): ("GPU-n-0", 500_000),
    ("n", "half-1"): ("GPU-n-0", 500_000),
    ("s", "gpu-0"): ("GPU-s-0", 1_000_000),
    ("s", "gpu-1"): ("GPU-s-1", 1_000_000),
}
PRICES = """
currency: USD
prices:
  - {product: "*H100*", perHour: 6, until: 2026-11-05T12:30:00Z}
  - {product: "*H100*", perHour: 4.80}
  - {perHour: 1.20}
"""

happenings = st.lists(
    st.tuples(st.integers(1, 1_500), st.sampled_from(KINDS), st.integers(0, 1_000)), max_size=30
)


class Work(NamedTuple):
    """A claim on a device, and the pods that hold it."""

    device: tuple[str, str]
    namespace: str
    pods: tuple[str, ...]


class Ledger:
    """What was there from which minute on: pods with their millionths of a GPU, and GPUs."""

    def __init__(self) -> None:
        self.pages: list[tuple[int, dict[str, tuple[str, str, int]], frozenset[str]]] = []

    def note(self, minute: int, work: dict[str, Work], nodes: set[str]) -> None:
        """How things are from this minute on."""
        held: dict[str, tuple[str, str, int]] = {}
        for each in work.values():
            gpu, micro_gpu = DEVICES[each.device]
            for pod in each.pods:
                held[pod] = (gpu, each.namespace, micro_gpu // len(each.pods))
        gpus = frozenset(gpu for (node, _), (gpu, _) in DEVICES.items() if node in nodes)
        self.pages.append((minute, held, gpus))

    def was_away(self, since: int) -> None:
        """Only what was there before and is there now is known of the time since; it was as it is now."""
        _, now, gpus_now = self.pages.pop()
        self.pages = [page for page in self.pages if page[0] <= since]
        _, before, gpus_before = self.pages[-1]
        certain = {pod: share for pod, share in now.items() if pod in before}
        self.pages.append((since, certain, gpus_now & gpus_before))

    def billed(self) -> tuple[dict[str, int], dict[str, int]]:
        """Millionths of a millionth of a dollar, by namespace and by GPU."""
        by_namespace = dict.fromkeys((*NAMESPACES, "__idle__"), 0)
        by_gpu = dict.fromkeys(("GPU-n-0", "GPU-s-0", "GPU-s-1"), 0)
        pages = iter(self.pages)
        page = next(pages)
        following = next(pages, None)
        for minute in range(WEEK):
            while following is not None and following[0] <= minute:
                page, following = following, next(pages, None)
            _, held, gpus = page
            for gpu in gpus:
                price = _price(gpu, minute)
                by_gpu[gpu] += price * 1_000_000
                by_namespace["__idle__"] += price * 1_000_000
            for gpu, namespace, micro_gpu in held.values():
                amount = _price(gpu, minute) * micro_gpu
                by_namespace[namespace] += amount
                by_namespace["__idle__"] -= amount
        return by_namespace, by_gpu


def _price(gpu: str, minute: int) -> int:
    """Millionths of a dollar a minute."""
    if gpu != "GPU-n-0":
        return 20_000
    return 100_000 if minute < PRICE_CHANGE else 80_000


class Cluster:
    """Objects as an API server has them, and a recorder that may be away."""

    def __init__(self) -> None:
        self.objects: dict[tuple[str, str], Any] = {}
        self.kept: dict[tuple[object, ...], Any] = {}
        self.gaps: list[Any] = []
        self.recorder: Recorder | None = None
        self._world = World()

    def put(self, object_: Any, at: int) -> None:
        self.objects[type(object_).__name__, object_.metadata.name] = object_
        self._tell(Changed(object_), at)

    def drop(self, kind: str, name: str, at: int) -> None:
        self._tell(Deleted(self.objects.pop((kind, name))), at)

    def _tell(self, event: Any, at: int) -> None:
        if self.recorder is None:
            return
        self._world.apply(event)
        self._keep(self.recorder.observe(event, times=Times(at, at)))

    def start_recorder(self, *, watched_until: int | None, at: int) -> None:
        self._world = World()
        self.recorder = Recorder(self._world)
        for each in self.objects.values():
            self._world.apply(Changed(each))
            self.recorder.prime(Changed(each))
        opened = [each for each in self.kept.values() if each.end is None]
        records = Records(
            assets=tuple(each for each in opened if isinstance(each, Asset)),
            allocations=tuple(each for each in opened if isinstance(each, Allocation)),
        )
        self._keep(self.recorder.resume(records, watched_until=watched_until, now=at))

    def _keep(self, records: Records) -> None:
        for each in (*records.assets, *records.allocations):
            self.kept[type(each), intervals.id_of(each), each.start] = each
        self.gaps += records.gaps

    def records(self) -> Records:
        kept = self.kept.values()
        return Records(
            assets=tuple(each for each in kept if isinstance(each, Asset)),
            allocations=tuple(each for each in kept if isinstance(each, Allocation)),
            gaps=tuple(self.gaps),
        )


class Week:
    """Plays happenings, and notes in the ledger what each of them means."""

    def __init__(self) -> None:
        self.cluster = Cluster()
        self.ledger = Ledger()
        self.work: dict[str, Work] = {}
        self.nodes: set[str] = set()
        self.minute = 0
        self.away_since: int | None = None
        self._number = 0
        for name in ("n", "s"):
            self._return(name)
        self.cluster.start_recorder(watched_until=None, at=self._now)
        self.ledger.note(0, self.work, self.nodes)

    @property
    def _now(self) -> int:
        return accounts.MONDAY + self.minute * MINUTE

    def happen(self, later: int, kind: str, pick: int) -> None:
        """Something happens so many minutes later, as far as it can."""
        self.minute = min(self.minute + later, WEEK)
        match kind:
            case "start":
                self._start(pick)
            case "end pod" if self.work:
                self._end_pod(sorted(self.work)[pick % len(self.work)])
            case "end" if self.work:
                self._end(sorted(self.work)[pick % len(self.work)])
            case "lose" if self.nodes:
                self._lose(sorted(self.nodes)[pick % len(self.nodes)])
            case "return" if len(self.nodes) < 2:
                self._return(min({"n", "s"} - self.nodes))
            case "kill" if self.away_since is None:
                self.cluster.recorder = None
                self.away_since = self.minute
            case "revive":
                self.revive()
            case _:
                pass
        self.ledger.note(self.minute, self.work, self.nodes)

    def revive(self) -> None:
        """The recorder starts again on what it had stored."""
        if self.away_since is None:
            return
        self.ledger.note(self.minute, self.work, self.nodes)
        self.ledger.was_away(self.away_since)
        watched_until = accounts.MONDAY + self.away_since * MINUTE
        self.cluster.start_recorder(watched_until=watched_until, at=self._now)
        self.away_since = None

    def _start(self, pick: int) -> None:
        free = [device for device in DEVICES if self._is_free(device)]
        if not free:
            return
        device = free[pick % len(free)]
        self._number += 1
        name = f"c{self._number}"
        count = 1 + pick % 3 if device[0] == "s" else 1
        pods = tuple(f"{name}-{place}" for place in range(count))
        work = Work(device, NAMESPACES[pick // 7 % 3], pods)
        self.work[name] = work
        objects = [
            build.pod(
                pod,
                namespace=work.namespace,
                node_name=device[0],
                phase="Running",
                claims=({"name": "gpu", "resourceClaimName": name},),
            )
            for pod in pods
        ]
        objects.insert(0 if pick % 2 else len(objects), self._claim(name, work))
        for each in objects:
            self.cluster.put(each, self._now)

    def _claim(self, name: str, work: Work) -> Any:
        claim = build.claim(name, devices=(work.device,), namespace=work.namespace)
        return reserved(claim, *work.pods)

    def _is_free(self, device: tuple[str, str]) -> bool:
        gpu, micro_gpu = DEVICES[device]
        others = [DEVICES[each.device] for each in self.work.values()]
        held = sum(micro for name, micro in others if name == gpu)
        is_taken = device in {each.device for each in self.work.values()}
        return device[0] in self.nodes and not is_taken and held + micro_gpu <= 1_000_000

    def _end_pod(self, name: str) -> None:
        work = self.work[name]
        if len(work.pods) == 1:
            self._end(name)
            return
        self.cluster.drop("Pod", work.pods[0], self._now)
        self.work[name] = work._replace(pods=work.pods[1:])
        self.cluster.put(self._claim(name, self.work[name]), self._now)

    def _end(self, name: str) -> None:
        work = self.work.pop(name)
        for pod in work.pods:
            self.cluster.drop("Pod", pod, self._now)
        self.cluster.drop("ResourceClaim", name, self._now)

    def _lose(self, node: str) -> None:
        for name in [each for each, work in self.work.items() if work.device[0] == node]:
            self._end(name)
        for slice_ in self._slices(node):
            self.cluster.drop("ResourceSlice", slice_.metadata.name, self._now)
        self.cluster.drop("Node", node, self._now)
        self.nodes.discard(node)

    def _return(self, node: str) -> None:
        for each in (build.node(node), *self._slices(node)):
            self.cluster.put(each, self._now)
        self.nodes.add(node)

    @staticmethod
    def _slices(node: str) -> list[Any]:
        return mig_slices() if node == "n" else [build.gpu_slice("s", gpus=2)]


@hypothesis.settings(max_examples=40)
@hypothesis.given(happenings)
def test_any_week_costs_what_the_ledger_says(drawn: list[tuple[int, str, int]]) -> None:
    week = Week()
    for happening in drawn:
        week.happen(*happening)
    week.happen(WEEK, "revive", 0)

    records = week.cluster.records()
    assert whole_history.problems(records) == []
    prices = accounts.prices(PRICES)
    by_namespace, by_gpu = week.ledger.billed()
    for key, by_hand in (("namespace", by_namespace), ("gpu", by_gpu)):
        answer = accounts.table(records, prices, key, hours=(0, WEEK / 60))
        printed = accounts.costs(answer)
        for name, amount in by_hand.items():
            dollars = amount / 10**12
            assert abs(printed.get(name, 0.0) - dollars) < 0.0101, (key, name)
        assert printed.keys() <= by_hand.keys()
        total = round(sum(by_gpu.values()) / 10**10)  # cents: whole GPUs for whole minutes
        assert round(sum(printed.values()) * 100) == total
        assert round(answer.total.cost.total * 100) == total
