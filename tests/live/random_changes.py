"""Random clusters that change at random under the live loop.

    python -m tests.live.random_changes --seeds 0:300

The cluster comes to rest after most events, and then the periodic net is cast: whatever starts or has to yield only by
that was not asked about when it should have been. Prints a line for every such story. Exit 1 if there was any.
"""

from __future__ import annotations

import argparse
import logging
import random
import sys
from collections.abc import Callable
from typing import Any, Final

from dovetail.kubetypes import registry
from dovetail.ports import meter
from tests.live.live_scheduler import Stage, play

CAUGHT: Final = "dovetail_caught_by_net_total"
EVENTS: Final = 20
NET_SECONDS: Final = (
    6.0  # within most pauses between two events: the hints are judged after each of them
)
PAUSES: Final = (0.25, 2.0, 10.0, 10.0, 25.0)
LEVELS: Final = ("rack", "no-such-label")
QUEUES: Final = ("a", "b", "c")
GANGS: Final = ("g", "h")
RACK: Final = "example.com/rack"
Tree = dict[str, Any]


class Counts(meter.NoMeter):
    """What was counted, by name and labels."""

    def __init__(self) -> None:
        self.totals: dict[tuple[str, ...], float] = {}

    def count(self, name: str, amount: float = 1, **labels: str) -> None:
        key = (name, *labels.values())
        self.totals[key] = self.totals.get(key, 0) + amount

    def caught(self) -> dict[tuple[str, ...], float]:
        """What only the net brought about."""
        return {key: total for key, total in self.totals.items() if key[0] == CAUGHT}


class Unrest:
    """One cluster and what happens there."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
        self.stage = Stage(nodes=self._random.randint(1, 3), gpus=self._random.choice((2, 4)))
        self.counts = Counts()
        self.stage.meter = self.counts
        self.log: list[str] = []
        self._made = 0
        for count in (1, 2, 4):
            self.stage.template(f"gpus-{count}", count=count)
        self._uses_queues = self._random.random() < 0.5
        self._uses_gangs = self._random.random() < 0.6
        self._uses_times = self._random.random() < 0.5

    async def live(self) -> dict[tuple[str, ...], float]:
        """Everything that happens; what only the net caught."""
        chance = self._random
        for _ in range(chance.randint(2, 5)):
            self._add_pod()
        async with self.stage.scheduling(net_seconds=NET_SECONDS, slot_seconds=20.0):
            for _ in range(EVENTS):
                await self.stage.pass_time(chance.choice(PAUSES))
                self._happen()
            await self.stage.pass_time(10 * NET_SECONDS)
        return self.counts.caught()

    # What happens

    def _happen(self) -> None:
        acts: list[tuple[int, Callable[[], None]]] = [
            (6, self._add_pod),
            (4, self._run_pods),
            (3, self._delete_pod),
            (2, self._end_pod),
            (4, self._annotate_pod),
            (2, self._label_pod),
            (2, self._ungate_pod),
            (1, self._nominate_pod),
            (2, self._change_node),
            (2, self._change_claim),
        ]
        if self._uses_queues:
            acts.append((3, self._change_queue))
        if self._uses_gangs:
            acts.append((2, self._change_group))
        weights = [weight for weight, _ in acts]
        act = self._random.choices([act for _, act in acts], weights)[0]
        act()

    def _add_pod(self) -> None:
        chance = self._random
        self._made += 1
        name = f"pod-{self._made}"
        size = chance.choice((0, 1, 1, 2, 4))
        spec: Tree = {"templates": (f"gpus-{size}",) if size else ()}
        spec |= {
            "priority": chance.choice((0, 0, 5, 10)),
            "labels": self._labels(),
            "annotations": self._words(),
        }
        if chance.random() < 0.6:
            spec["job"] = f"job-{chance.randint(1, 3)}"
        if chance.random() < 0.15:
            spec["schedulingGates"] = [{"name": "example.com/gate"}]
        if chance.random() < 0.15:
            spec["nodeSelector"] = {RACK: chance.choice("rs")}
        if chance.random() < 0.1:
            spec["affinity"] = _apart(chance.choice(GANGS), is_near=chance.random() < 0.5)
        if self._uses_gangs and chance.random() < 0.2:
            spec["schedulingGroup"] = {"podGroupName": "group"}
        if chance.random() < 0.1:
            spec |= {"schedulerName": "another", "templates": ()}
            if chance.random() < 0.5:
                spec["nodeName"] = self._node()
        if chance.random() < 0.1:
            spec["named"] = ("shared",)
        self.stage.pod(name, **spec)
        self.log.append(f"add {name} {spec}")

    def _labels(self) -> dict[str, str]:
        chance = self._random
        labels = {}
        if self._uses_queues and chance.random() < 0.8:
            labels["dovetail.dev/queue"] = chance.choice(QUEUES)
        if self._uses_gangs and chance.random() < 0.4:
            labels["dovetail.dev/gang"] = chance.choice(GANGS)
            if chance.random() < 0.3:
                labels["dovetail.dev/gang-group"] = chance.choice("xy")
        return labels

    def _words(self) -> dict[str, str]:
        chance = self._random
        words = {}
        if self._uses_times and chance.random() < 0.6:
            words["dovetail.dev/max-runtime"] = chance.choice(("20s", "60s", "10m", "3h"))
        if self._uses_times and chance.random() < 0.2:
            words["dovetail.dev/expected-runtime"] = chance.choice(("10s", "5m"))
        if chance.random() < 0.15:
            words["dovetail.dev/topology-required"] = chance.choice((RACK, "no-such-label"))
        if chance.random() < 0.15:
            words["dovetail.dev/preemptible"] = chance.choice(("true", "false"))
        if chance.random() < 0.15:
            words["dovetail.dev/may-evict-after"] = chance.choice(("15s", "40s"))
        if chance.random() < 0.15:
            words["dovetail.dev/when-evicted"] = chance.choice(("end", "restart"))
        if self._uses_gangs and chance.random() < 0.3:
            words["dovetail.dev/gang-min"] = chance.choice("123")
        if chance.random() < 0.1:
            words["dovetail.dev/topology-relax-after"] = "30s"
        return words

    def _run_pods(self) -> None:
        """Kubelets start what was bound."""
        now = self.stage.clock.now().strftime("%Y-%m-%dT%H:%M:%SZ")
        for pod in self._pods():
            if pod.spec.node_name and pod.status.phase in ("", "Pending"):
                self._edit(
                    registry.POD, pod.metadata.name, status={"phase": "Running", "startTime": now}
                )

    def _delete_pod(self) -> None:
        if (name := self._any_pod()) is not None:
            self.stage.api.shelf.delete(registry.POD, ("default", name), grace_seconds=0)
            self.log.append(f"delete {name}")

    def _end_pod(self) -> None:
        if (name := self._any_pod()) is not None:
            self._edit(
                registry.POD, name, status={"phase": self._random.choice(("Succeeded", "Failed"))}
            )

    def _annotate_pod(self) -> None:
        if (name := self._any_pod()) is not None:
            self._edit(registry.POD, name, metadata={"annotations": self._words()})

    def _label_pod(self) -> None:
        if (name := self._any_pod()) is not None:
            self._edit(registry.POD, name, metadata={"labels": self._labels()})

    def _ungate_pod(self) -> None:
        gated = [pod.metadata.name for pod in self._pods() if pod.spec.scheduling_gates]
        if gated:
            self._edit(registry.POD, self._random.choice(gated), spec={"schedulingGates": []})

    def _nominate_pod(self) -> None:
        foreign = [
            pod
            for pod in self._pods()
            if pod.spec.scheduler_name == "another" and not pod.spec.node_name
        ]
        if foreign:
            name = self._random.choice(foreign).metadata.name
            node = self._random.choice((self._node(), ""))
            self._edit(registry.POD, name, status={"nominatedNodeName": node})

    def _change_node(self) -> None:
        chance = self._random
        name = self._node()
        match chance.randint(0, 2):
            case 0:
                self._edit(registry.NODE, name, spec={"unschedulable": chance.random() < 0.5})
            case 1:
                labels = self.stage.api.tree(registry.NODE, name)["metadata"]["labels"]
                self._edit(
                    registry.NODE, name, metadata={"labels": labels | {RACK: chance.choice("rs")}}
                )
            case _:
                taint = {"key": "example.com/busy", "effect": "NoSchedule"}
                self._edit(
                    registry.NODE, name, spec={"taints": [taint] if chance.random() < 0.5 else []}
                )

    def _change_claim(self) -> None:
        stage = self.stage
        names = [claim.metadata.name for claim in stage.claims()]
        if "shared" not in names:
            stage.claim("shared")
            self.log.append("claim shared")
        elif "rival" not in names:
            stage.claim("rival")
            stage.take("rival", (self._node(), "gpu-0"))
            self.log.append("rival takes a device")
        else:
            self._edit(registry.CLAIM, "rival", status={"allocation": None, "reservedFor": []})

    def _change_queue(self) -> None:
        chance = self._random
        name = chance.choice(QUEUES)
        there = {queue.metadata.name for queue in self.stage.api.all(registry.QUEUE)}
        if name in there and chance.random() < 0.25:
            self.stage.api.shelf.delete(registry.QUEUE, ("", name), grace_seconds=0)
            self.log.append(f"delete queue {name}")
            return
        quota = chance.choice((0, 1, 2, 4))
        amounts = {"quota": str(quota), "limit": str(quota + chance.choice((0, 2, 4)))}
        spec: Tree = {"resources": {"gpu": amounts}}
        if chance.random() < 0.3:
            spec["minRuntimeSeconds"] = chance.choice((10, 30))
        if name in there:
            self._edit(registry.QUEUE, name, spec=spec)
        else:
            self.stage.queue(name, **spec)
            self.log.append(f"queue {name} {spec}")

    def _change_group(self) -> None:
        there = [group.metadata.name for group in self.stage.api.all(registry.POD_GROUP)]
        least = self._random.randint(1, 3)
        if not there:
            self.stage.group("group", least=least)
            self.log.append(f"group of {least}")
        else:
            self._edit(
                registry.POD_GROUP,
                "group",
                spec={"schedulingPolicy": {"gang": {"minCount": least}}},
            )

    # Looking around

    def _pods(self) -> list[Any]:
        return sorted(self.stage.api.all(registry.POD), key=lambda pod: pod.metadata.name)

    def _any_pod(self) -> str | None:
        names = [pod.metadata.name for pod in self._pods()]
        return self._random.choice(names) if names else None

    def _node(self) -> str:
        names = sorted(node.metadata.name for node in self.stage.api.all(registry.NODE))
        return self._random.choice(names)

    def _edit(self, kind: registry.Kind, name: str, **parts: Tree) -> None:
        tree = self.stage.api.tree(kind, name, namespace="default" if kind.is_namespaced else "")
        for part, values in parts.items():
            tree[part] = {**(tree.get(part) or {}), **values}
            tree[part] = {key: value for key, value in tree[part].items() if value is not None}
        self.stage.api.shelf.put(kind, tree)
        self.log.append(f"{kind.name} {name}: {parts}")


def _apart(gang: str, *, is_near: bool) -> Tree:
    selector = {"matchLabels": {"dovetail.dev/gang": gang}}
    term = {"labelSelector": selector, "topologyKey": "kubernetes.io/hostname"}
    kind = "podAffinity" if is_near else "podAntiAffinity"
    return {kind: {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}


def lived(seed: int) -> tuple[dict[tuple[str, ...], float], list[str]]:
    """What only the net caught in the story of a seed, and the story."""
    unrest = Unrest(seed)
    caught: dict[tuple[str, ...], float] = {}

    async def story() -> None:
        caught.update(await unrest.live())

    play(story)
    if unrest.stage.ended is not None:
        raise unrest.stage.ended
    return caught, unrest.log


def main() -> int:
    """Lives through the stories asked for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", default="0:100", help="first and beyond the last")
    parser.add_argument("--story", action="store_true", help="print what happened")
    asked = parser.parse_args()
    first, last = map(int, asked.seeds.split(":"))
    if not asked.story:
        logging.disable(logging.CRITICAL)
    failed = 0
    for seed in range(first, last):
        caught, log = lived(seed)
        if asked.story:
            print("\n".join(log))
        if caught:
            failed += 1
            print(f"seed {seed}: caught by the net: {caught}")
    print(f"{last - first} stories, {failed} in which the net caught something")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
