"""Intents of any shape: what a previous leader could have left, and what no leader would write."""

from __future__ import annotations

import datetime
import random
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from dovetail.kubetypes import registry

Tree = dict[str, Any]

GANGS: Final = (
    "gang/gang",
    "gang/late",
    "pod/running",
    "pod/honest",
    "gang/none",
    "job/x",
    "x",
    "/",
    "gang/" + "g" * 250,
)
AMOUNTS: Final = ("0", "1", "-1", "64", "1e400", "-1e400", "1e2147483646", "100m", "9" * 1200)
MOMENTS: Final = (
    "",
    "0001-01-01T00:00:00Z",
    "0001-01-01T00:00:00+14:00",
    "9999-12-31T23:59:59Z",
    "9999-12-31T23:59:59-12:00",
    "1969-12-31T23:59:59Z",
    "2030-02-30T00:00:00Z",
    "2030-01-01T00:00:00",
    "no time at all",
)


class Scene(NamedTuple):
    """What intents can be about."""

    uids: Sequence[str]
    nodes: Sequence[str]
    now: datetime.datetime


def some(scene: Scene, rng: random.Random) -> list[Tree]:
    """A few intents, often about the same things."""
    makers = (_members, _members, _slot, _slot, _promise, _parts, _all_at_once)
    trees: list[Tree] = []
    for number in range(rng.randrange(1, 12)):
        for spec in rng.choice(makers)(scene, rng):
            trees.append(_intent(f"i-{number}-{len(trees)}", spec))
            if rng.random() < 0.2:
                trees.append(_intent(f"again-{number}-{len(trees)}", spec))
    return trees


def _intent(name: str, spec: Tree) -> Tree:
    metadata = {"name": name, "namespace": "default"}
    return {
        "apiVersion": registry.INTENT.api_version,
        "kind": registry.INTENT.name,
        "metadata": metadata,
        "spec": spec,
    }


def _head(scene: Scene, rng: random.Random) -> Tree:
    return {
        "gang": rng.choice(GANGS),
        "attempt": rng.choice((1, 1, 2, 2**31 - 1)),
        "deadline": _moment(scene, rng),
    }


def _moment(scene: Scene, rng: random.Random) -> str:
    if rng.random() < 0.4:
        return rng.choice(MOMENTS)
    at = scene.now + datetime.timedelta(seconds=rng.choice((-1e9, -60, 0, 1, 60, 250, 1e9)))
    return at.astimezone(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _uid(scene: Scene, rng: random.Random) -> str:
    return rng.choice((*scene.uids, *scene.uids, "", "gone", "slot/gone"))


def _node(scene: Scene, rng: random.Random) -> str:
    return rng.choice((*scene.nodes, *scene.nodes, "", "no-such-node"))


def _member(scene: Scene, rng: random.Random) -> Tree:
    return {
        "pod": rng.choice(("gang-0", "x")),
        "uid": _uid(scene, rng),
        "node": _node(scene, rng),
        "claims": ["c"],
    }


def _members(scene: Scene, rng: random.Random) -> list[Tree]:
    members = [_member(scene, rng) for _ in range(rng.randrange(6))]
    return [_head(scene, rng) | {"members": members}]


def _parts(scene: Scene, rng: random.Random) -> list[Tree]:
    head = _head(scene, rng) | {
        "parts": rng.choice((-1, 0, 2, 3, 2**31 - 1)),
        "batch": rng.choice(("", "a")),
    }
    numbers = rng.sample((-(2**31), 0, 1, 1, 2, 3, 7), rng.randrange(1, 5))
    return [head | {"part": number, "members": [_member(scene, rng)]} for number in numbers]


def _slot(scene: Scene, rng: random.Random) -> list[Tree]:
    device = {
        "driver": "gpu.nvidia.com",
        "pool": _node(scene, rng),
        "device": rng.choice(("gpu-0", "gpu-1", "gpu-9")),
    }
    if rng.random() < 0.3:
        device |= {"shareID": "s", "consumedCapacity": {"memory": rng.choice(AMOUNTS)}}
    slot = {
        "pod": rng.choice(("gang-0", "moved")),
        "uid": _uid(scene, rng),
        "owner": rng.choice(("", "controller")),
        "node": _node(scene, rng),
        "requests": {rng.choice(("cpu", "memory", "nvidia.com/gpu", "")): rng.choice(AMOUNTS)},
        "devices": [device] * rng.randrange(3),
    }
    return [_head(scene, rng) | {"slot": slot}]


def _promise(scene: Scene, rng: random.Random) -> list[Tree]:
    promise = {
        "start": _moment(scene, rng),
        "movedFrom": rng.choice(("", _moment(scene, rng))),
        "cause": "x" * rng.choice((0, 10, 5000)),
        "seats": [_member(scene, rng) for _ in range(rng.randrange(5))],
    }
    return [_head(scene, rng) | {"promise": promise}]


def _all_at_once(scene: Scene, rng: random.Random) -> list[Tree]:
    return [_members(scene, rng)[0] | _slot(scene, rng)[0] | _promise(scene, rng)[0]]
