"""No device, counter or capacity is given out twice by our writes, and none that had long been gone or tainted.

Looks at each allocation we write, against everything that is held at that revision. Admin access holds nothing. A
holding of another writer counts only once it has been visible for a while; the second writer is to blame.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from fractions import Fraction
from typing import NamedTuple

from tests.allocate.checker_pools import amount, consumption
from tests.faults import checker_scene
from tests.faults.checker_scene import Bounds, DeviceKey, Judge, Scene, Step, Violation
from tests.faults.records import Tree

PoolKey = tuple[str, str]  # driver, pool


class Holding(NamedTuple):
    """One entry of an allocation."""

    claim: str
    device: DeviceKey
    is_ours: bool
    seconds: float  # when it was written
    share: str | None
    consumed: dict[str, str]


class Offer:
    """What a pool publishes, and what it published before: a device that vanished still has its cost."""

    def __init__(self) -> None:
        self.devices: dict[str, Tree] = {}
        self.counters: dict[tuple[str, str], Fraction] = {}
        self.offered: set[str] = set()
        self.since: dict[str, float] = {}  # when a device was last offered or taken back

    def read(self, slices: Iterable[Tree], seconds: float) -> None:
        """The pool as its newest generation has it; an incomplete one offers nothing."""
        parts = list(slices)
        newest = max((_generation(part) for part in parts), default=0)
        parts = [part for part in parts if _generation(part) == newest]
        is_whole = bool(parts) and len(parts) == parts[0]["spec"]["pool"].get("resourceSliceCount")
        offered = (
            {item["name"]: item for part in parts for item in part["spec"].get("devices") or ()}
            if is_whole
            else {}
        )
        for name in offered.keys() ^ self.offered:
            self.since[name] = seconds
        for name, device in offered.items():
            if self.devices.get(name) != device:
                self.since[name] = seconds
        self.offered = set(offered)
        self.devices |= offered
        for part in parts:
            for item in part["spec"].get("sharedCounters") or ():
                self.counters |= {
                    (item["name"], key): amount(val["value"])
                    for key, val in item["counters"].items()
                }


class Devices:
    """Follows who holds what."""

    def __init__(self, judge: Judge, bounds: Bounds) -> None:
        self._judge = judge
        self._bounds = bounds
        self._held: dict[str, list[Holding]] = {}  # by claim
        self._by_pool: dict[PoolKey, dict[str, list[Holding]]] = {}  # by pool, then claim
        self._offers: dict[PoolKey, Offer] = {}

    def see(self, step: Step, scene: Scene) -> Iterator[Violation]:
        """Keeps the books; judges what we allocate."""
        if step.revision.kind == "resourceslices":
            self._publish(step, scene)
        if step.revision.kind != "resourceclaims":
            return
        if checker_scene.allocation_of(step.before) == checker_scene.allocation_of(step.after):
            return
        self._hold(step)
        if step.after is not None and step.revision.writer in self._judge.ours:
            yield from self._judged(step, scene)

    def end(self, scene: Scene, seconds: float) -> Iterator[Violation]:
        """Nothing: what is held has been judged."""
        return iter(())

    def _publish(self, step: Step, scene: Scene) -> None:
        touched = {_pool_of(part) for part in (step.before, step.after) if part is not None}
        for key in touched:
            parts = [part for part in scene.all("resourceslices") if _pool_of(part) == key]
            self._offers.setdefault(key, Offer()).read(parts, step.revision.seconds)

    def _hold(self, step: Step) -> None:
        key = step.revision.key
        for holding in self._held.pop(key, ()):
            self._by_pool[holding.device[:2]].pop(key, None)
        for result in checker_scene.results_of(step.after):
            if result.get("adminAccess"):
                continue
            holding = Holding(
                key,
                checker_scene.device_of(result),
                step.revision.writer in self._judge.ours,
                step.revision.seconds,
                result.get("shareID"),
                result.get("consumedCapacity") or {},
            )
            self._held.setdefault(key, []).append(holding)
            self._by_pool.setdefault(holding.device[:2], {}).setdefault(key, []).append(holding)

    def _judged(self, step: Step, scene: Scene) -> Iterator[Violation]:
        mine = self._held.get(step.revision.key, [])
        for pool in {holding.device[:2] for holding in mine}:
            counted = [
                item
                for several in self._by_pool[pool].values()
                for item in several
                if self._counts(item, step)
            ]
            devices = {holding.device for holding in mine if holding.device[:2] == pool}
            offer = self._offers.get(pool, Offer())
            for text in (
                *_device_problems(devices, counted, offer),
                *_counter_problems(devices, counted, offer),
            ):
                yield step.violates("over-allocated", text)
        for result in checker_scene.results_of(step.after):
            for text in self._stale(result, step.revision.seconds, scene):
                yield step.violates("stale", text)

    def _counts(self, holding: Holding, step: Step) -> bool:
        return holding.is_ours or step.revision.seconds - holding.seconds > self._bounds.visible

    def _stale(self, result: Tree, seconds: float, scene: Scene) -> Iterator[str]:
        driver, pool, name = key = checker_scene.device_of(result)
        offer = self._offers.get((driver, pool), Offer())
        seen = seconds - self._bounds.visible
        if name not in offer.offered and offer.since.get(name, float("-inf")) < seen:
            yield f"device {'/'.join(key)} is not published"
        for taint, since in self._taints(key, offer, scene):
            if since < seen and not checker_scene.tolerates(result.get("tolerations") or (), taint):
                yield f"device {'/'.join(key)} has taint {taint['key']}"

    def _taints(
        self, device: DeviceKey, offer: Offer, scene: Scene
    ) -> Iterator[tuple[Tree, float]]:
        name = device[2]
        result = [
            (taint, offer.since[name]) for taint in offer.devices.get(name, {}).get("taints") or ()
        ]
        for key, rule in scene.items("devicetaintrules"):
            selector = rule["spec"].get("deviceSelector")
            parts = zip(("driver", "pool", "device"), device, strict=True)
            if selector is not None and all(
                selector.get(part) in (None, value) for part, value in parts
            ):
                result.append((rule["spec"]["taint"], scene.since("devicetaintrules", key)))
        return (
            (taint, since)
            for taint, since in result
            if taint["effect"] in ("NoSchedule", "NoExecute")
        )


def _device_problems(
    devices: set[DeviceKey], counted: list[Holding], offer: Offer
) -> Iterator[str]:
    """Exclusive devices with two holders, and shares beyond a device's capacity."""
    for device in sorted(devices):
        holdings = [item for item in counted if item.device == device]
        names = ", ".join(holding.claim for holding in holdings)
        if len(holdings) > 1 and any(holding.share is None for holding in holdings):
            yield f"device {'/'.join(device)} is held by {names}"
            continue
        for capacity, messages in (offer.devices.get(device[2], {}).get("capacity") or {}).items():
            taken = sum(
                (
                    amount(holding.consumed[capacity])
                    for holding in holdings
                    if capacity in holding.consumed
                ),
                Fraction(0),
            )
            if taken > amount(messages["value"]):
                yield f"{capacity} of {'/'.join(device)}: {taken} of {messages['value']} held by {names}"
        shares = [holding.share for holding in holdings]
        if len(shares) != len(set(shares)):
            yield f"a share of {'/'.join(device)} is held twice by {names}"


def _counter_problems(
    devices: set[DeviceKey], counted: list[Holding], offer: Offer
) -> Iterator[str]:
    """A shareable device draws on its counters once, however many shares of it are held."""
    touched = {
        counter
        for device in devices
        for counter, _ in consumption(offer.devices.get(device[2], {}))
    }
    drawn: dict[tuple[str, str], Fraction] = {}
    for device in {item.device for item in counted}:
        for counter, value in consumption(offer.devices.get(device[2], {})):
            drawn[counter] = drawn.get(counter, Fraction(0)) + value
    for counter in sorted(touched):
        if drawn[counter] > offer.counters.get(counter, Fraction(0)):
            have = offer.counters.get(counter, Fraction(0))
            yield f"counter {'/'.join(counter)}: {drawn[counter]} drawn of {have}"


def _pool_of(part: Tree) -> PoolKey:
    return part["spec"]["driver"], part["spec"]["pool"]["name"]


def _generation(part: Tree) -> int:
    return int(part["spec"]["pool"].get("generation", 0))
