"""The World equals the last state of every object, whatever the order and number of events."""

from __future__ import annotations

import asyncio
import datetime
import random
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from dovetail.kubetypes import meta, registry
from dovetail.kubetypes.core import nodes
from dovetail.kubetypes.resource import claims
from dovetail.live.informer import informer
from dovetail.world import events
from dovetail.world.world import World


class StillClock:
    """Time does not pass."""

    def now(self) -> datetime.datetime:
        return datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)

    def monotonic(self) -> float:
        return 0.0

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(0)


def claim(name: str, version: int, uid: str = "", label: str = "") -> claims.ResourceClaim:
    metadata = meta.ObjectMeta(
        namespace="a",
        name=name,
        uid=uid or f"uid-{name}",
        resource_version=str(version),
        labels={"v": label},
    )
    return claims.ResourceClaim(metadata=metadata)


def seen() -> tuple[informer.Informer, list[tuple[str, str]]]:
    made = informer.Informer(World(), StillClock(), (registry.CLAIM, registry.NODE))
    received: list[tuple[str, str]] = []

    def listener(kind: registry.Kind, event: events.Event, before: Any) -> None:
        received.append((type(event).__name__, event.object.metadata.resource_version or "-"))

    made.listen(listener)
    return made, received


def drained(made: informer.Informer) -> None:
    async def main() -> None:
        pump = asyncio.create_task(made.pump())
        for _ in range(20):
            await asyncio.sleep(0)
        pump.cancel()
        await asyncio.gather(pump, return_exceptions=True)

    asyncio.run(main())


def test_old_news_and_repetitions_are_dropped() -> None:
    made, received = seen()
    for version in (5, 3, 5, 6):
        made.changed(registry.CLAIM, claim("x", version))
    assert received == [("Changed", "5"), ("Changed", "6")]


def test_news_of_the_dead_is_dropped() -> None:
    made, received = seen()
    made.changed(registry.CLAIM, claim("x", 5))
    made.deleted(registry.CLAIM, claim("x", 8))
    made.changed(registry.CLAIM, claim("x", 7))
    assert received == [("Changed", "5"), ("Deleted", "8")]
    assert not made.world.claims
    made.changed(registry.CLAIM, claim("x", 9, uid="another"))
    assert made.world.claims


def test_a_recreated_object_replaces_the_old_one() -> None:
    made, received = seen()
    made.changed(registry.CLAIM, claim("x", 5, uid="first"))
    made.changed(registry.CLAIM, claim("x", 9, uid="second"))
    made.deleted(registry.CLAIM, claim("x", 8, uid="first"))
    assert [kind for kind, _ in received] == ["Changed", "Deleted", "Changed"]
    assert made.world.claims["a", "x"].metadata.uid == "second"


def test_a_list_removes_what_it_does_not_hold_but_not_what_was_written_since() -> None:
    made, _ = seen()
    made.changed(registry.CLAIM, claim("old", 3))
    made.replaced(registry.CLAIM, [claim("kept", 4)], "10")
    made.observe(registry.CLAIM, claim("ours", 12))
    drained(made)
    assert sorted(name for _, name in made.world.claims) == ["kept", "ours"]


def test_it_is_synced_when_every_kind_was_taken_in() -> None:
    made, _ = seen()
    made.replaced(registry.CLAIM, [claim("a", 1)], "10")
    drained(made)
    assert not made.synced.is_set()
    made.replaced(
        registry.NODE,
        [nodes.Node(metadata=meta.ObjectMeta(name="n", uid="n", resource_version="1"))],
        "10",
    )
    drained(made)
    assert made.synced.is_set()


@given(st.randoms(use_true_random=False), st.integers(1, 30))
def test_any_order_and_repetition_ends_the_same(chance: random.Random, length: int) -> None:
    """A history of one name: versions grow, objects are deleted and recreated. Delivered shuffled and repeated."""
    history: list[tuple[str, claims.ResourceClaim]] = []
    number, is_there = 0, False
    for version in range(1, length + 1):
        if is_there and chance.random() < 0.3:
            history.append(("deleted", claim("x", version, uid=f"u{number}")))
            is_there = False
        else:
            number += not is_there
            is_there = True
            history.append(("changed", claim("x", version, uid=f"u{number}", label=str(version))))
    messages = history + [chance.choice(history) for _ in range(length)]
    chance.shuffle(messages)
    made, _ = seen()
    for verb, result in messages:
        getattr(made, verb)(registry.CLAIM, result)
    verb, last = history[-1]
    now = made.world.claims.get(("a", "x"))
    assert (now is None) if verb == "deleted" else (now == last)
