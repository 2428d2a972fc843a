"""Random small clusters in motion, and pods with all kinds of constraints mixed: a story that two schedulers run.

A story is the cluster as it begins and steps in order: a pod that wants a node, or a change by another client.
Given a `random.Random`; the same seed gives the same story. Never decides where anything goes.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any, Final, NamedTuple

from tests.generators import constraints_nodes as places
from tests.generators import constraints_pods as pods
from tests.generators import constraints_volumes as volumes

Tree = dict[str, Any]
Admit = Callable[
    [list[Tree]], list[Tree | None]
]  # pods as users write them -> as the API server stores them

LARGE: Final = 0.04  # of all clusters
THEMES: Final = ("", "", "ports", "neighbours", "spread", "volumes", "old volumes")


class Step(NamedTuple):
    """One thing that happens."""

    pod: Tree | None = None  # wants a node
    changed: tuple[Tree, ...] = ()
    gone: tuple[Tree, ...] = ()


class Story(NamedTuple):
    """A cluster and what happens in it."""

    objects: list[Tree]
    steps: list[Step]
    refused: int  # pods the API server would not take


def story(
    rng: random.Random, admit: Admit, *, pod_count: int = 40, with_volumes: bool = True
) -> Story:
    """A cluster of a few nodes, seldom of many, some pods in it already, and `pod_count` pods that want in."""
    theme = rng.choice(THEMES)
    count = (
        rng.randint(40, 70)
        if rng.random() < LARGE
        else rng.randint(3, 6 if theme == "spread" else 12)
    )
    nodes = places.nodes(
        rng, count, tainted=2 * places.TAINTED if theme == "spread" else places.TAINTED
    )
    names = [node["metadata"]["name"] for node in nodes]
    stored = (
        volumes.storage(rng, nodes, is_old=theme == "old volumes")
        if with_volumes
        else volumes.Storage([], {}, [])
    )
    running = [
        pods.pod(rng, at, nodes=names, name="old", theme=theme)
        for at in range(rng.randint(0, 3 * count))
    ]
    wanting = [_pod(rng, at, names, stored, theme=theme) for at in range(pod_count)]
    extra: dict[str, list[Tree]] = {}
    if with_volumes:
        for item in wanting:
            if rng.random() < 0.04:
                item["spec"].setdefault("volumes", []).append(volumes.ephemeral_mount())
                if rng.random() < 0.9:
                    extra[item["metadata"]["name"]] = volumes.ephemeral_claim(rng, item, nodes)
    expected = [
        _pod(rng, at, names, stored, theme=theme, name="kept")
        for at in range(rng.choice((0, 0, 0, 0, 1, 2)))
    ]
    if expected:
        wanting = [pods.beside_nominated(item) for item in wanting]
    admitted = admit([*running, *wanting, *expected])
    old = [pods.bound(rng, item, names) for item in admitted[: len(running)] if item is not None]
    alone = volumes.for_one_pod(stored.objects)
    waiting = [item for item in admitted[len(admitted) - len(expected) :] if item is not None]
    kept = [pods.nominated(rng, item, names, alone=alone) for item in waiting]
    new = [
        item for item in admitted[len(running) : len(running) + len(wanting)] if item is not None
    ]
    begin = [*places.namespaces(rng), *nodes, *stored.objects, *old, *kept]
    steps = _steps(rng, new, old=list(old), nodes=nodes, extra=extra)
    return Story(
        begin, [_with_storage(rng, step, stored.objects) for step in steps], admitted.count(None)
    )


def _with_storage(rng: random.Random, step: Step, objects: list[Tree]) -> Step:
    """The step, before which now and then a piece of storage goes, or comes back as it was."""
    if not objects or rng.random() >= 0.05:
        return step
    item = rng.choice(objects)
    if rng.random() < 0.5:
        return step._replace(gone=(*step.gone, item))
    return step._replace(changed=(*step.changed, item))


def _pod(
    rng: random.Random,
    at: int,
    names: list[str],
    stored: volumes.Storage,
    *,
    theme: str,
    name: str = "pod",
) -> Tree:
    tree = pods.pod(rng, at, nodes=names, name=name, theme=theme)
    mountable = stored.mounts.get(tree["metadata"]["namespace"])
    chance = rng.random() * (0.4 if "volumes" in theme else 1)
    mounted = rng.sample(mountable, rng.choice((1, 1, 2))) if mountable and chance < 0.22 else []
    if stored.disks and 0.2 < chance < 0.26:
        mounted.append(rng.choice(stored.disks))
    if mounted:
        tree["spec"]["volumes"] = [
            {"name": f"v{place}", **one} for place, one in enumerate(mounted)
        ]
    return tree


def _steps(
    rng: random.Random,
    new: list[Tree],
    *,
    old: list[Tree],
    nodes: list[Tree],
    extra: dict[str, list[Tree]],
) -> list[Step]:
    """Pods one after the other; now and then something else changes before one of them."""
    steps = []
    others = _Others(rng, old=old, nodes=nodes)
    for place, pod in enumerate(new):
        changed = list(extra.get(pod["metadata"]["name"], ()))
        gone: list[Tree] = []
        others.change(changed, gone)
        if place and rng.random() < 0.06:
            gone.append(new[rng.randrange(place)])  # if it found a node, it leaves
        steps.append(Step(pod=pod, changed=tuple(changed), gone=tuple(gone)))
    return steps


class _Others:
    """What other people do to a cluster."""

    def __init__(self, rng: random.Random, *, old: list[Tree], nodes: list[Tree]) -> None:
        self._rng = rng
        self._old = old
        self._nodes = {node["metadata"]["name"]: node for node in nodes}
        self._away: list[str] = []

    def change(self, changed: list[Tree], gone: list[Tree]) -> None:
        """Adds what happens before the next pod, most often nothing."""
        if self._rng.random() < 0.1:
            changed.append(self._node())
        if self._old and self._rng.random() < 0.15:
            self._pod(changed, gone)
        if len(self._nodes) > len(self._away) + 2 and self._rng.random() < 0.02:
            leaving = self._rng.choice([name for name in self._nodes if name not in self._away])
            self._away.append(leaving)
            gone.append(self._nodes[leaving])
        if self._rng.random() < 0.02:
            changed += places.namespaces(self._rng)

    def _node(self) -> Tree:
        """A node that changed; one that was away comes back, and finds its pods still there."""
        name = self._rng.choice(list(self._nodes))
        if name in self._away:
            self._away.remove(name)
        self._nodes[name] = places.changed(self._rng, self._nodes[name])
        return self._nodes[name]

    def _pod(self, changed: list[Tree], gone: list[Tree]) -> None:
        """A pod that is gone, is being deleted, or gets other labels."""
        place = self._rng.randrange(len(self._old))
        item = self._old.pop(place)
        match self._rng.randrange(3):
            case 0 if "host port" not in pods.kinds_of(
                item
            ):  # upstream frees a port that another pod there holds too
                gone.append(item)
            case 1:
                changed.append(pods.terminating(item))
            case _:
                labelled = pods.relabelled(self._rng, item)
                self._old.append(labelled)
                changed.append(labelled)
