"""How long one turn holds the event loop, whatever waits: `decide` with the live budget, at sizes that double.

`python -m bench turns` prints for every case and size what the first turn takes, what the longest of the turns that
follow takes while what was decided is carried out, how many turns it needs until nothing is to be continued, and how
often the first turn takes what it took at half the size. Seconds are processor time of the thread that decides.
"""

from __future__ import annotations

import argparse
import datetime
import time
from collections.abc import Callable, Iterator
from typing import Any, Final, NamedTuple

import msgspec

from bench import batch_run
from dovetail.kubetypes import codec, meta
from dovetail.kubetypes.core import namespaces, nodes, pods
from dovetail.kubetypes.custom import queues
from dovetail.model import plan, policy
from dovetail.schedule import decide
from dovetail.world.events import Changed
from dovetail.world.world import World

NOW: Final = datetime.datetime(2026, 6, 1, tzinfo=datetime.UTC)
SPACE: Final = "bench"
MOST_TURNS: Final = 8
NO_MARKS: Final[dict[str, str]] = {}
Tree = dict[str, Any]


class Case(NamedTuple):
    """A cluster of which something waits, by how much of it."""

    title: str
    build: Callable[[World, int], None]
    sizes: tuple[int, ...]


def main(arguments: list[str]) -> int:
    """Measures and prints."""
    parser = argparse.ArgumentParser(prog="python -m bench turns", description=__doc__)
    parser.add_argument(
        "--cases", nargs="+", choices=list(CASES), metavar="CASE", help="which questions"
    )
    parser.add_argument("--sizes", type=int, nargs="+", help="how much waits, small to large")
    parser.add_argument("--turns", type=int, default=MOST_TURNS, help="turns taken at most")
    chosen = parser.parse_args(arguments)
    for name in chosen.cases or CASES:
        case = CASES[name]
        before: float | None = None
        for size in chosen.sizes or case.sizes:
            taken = list(_turns(case, size, chosen.turns))
            seconds = [one.seconds for one in taken]
            growth = f"  {seconds[0] / before:.2f} times the size before" if before else ""
            before = seconds[0]
            started = sum(one.placements for one in taken)
            longest = max(seconds[1:], default=0.0)
            print(
                f"{name:16} {size:7}  first {seconds[0]:.3f} s  later at most {longest:.3f} s  turns {len(taken)}"
                f"  started {started}{growth}",
                flush=True,
            )
    return 0


class _Taken(NamedTuple):
    seconds: float
    placements: int


def _turns(case: Case, size: int, most: int) -> Iterator[_Taken]:
    world = World()
    case.build(world, size)
    batch_run.settle()
    for _ in range(most):
        began = time.process_time()
        decided = decide.decide(world, policy.DEFAULT, NOW, policy.LIVE)
        yield _Taken(time.process_time() - began, len(decided.placements))
        for placement in decided.placements:
            _bind(world, placement)
        if not decided.placements and not decided.undecided and decided.wake_at != NOW:
            return


def _bind(world: World, placement: plan.Placement) -> None:
    pod = world.pods[placement.pod.uid]
    spec = msgspec.structs.replace(pod.spec, node_name=placement.node)
    status = msgspec.structs.replace(pod.status, phase="Running")
    world.apply(Changed(msgspec.structs.replace(pod, spec=spec, status=status)))


# Clusters


def _put(world: World, kind: str, name: str, **parts: Tree) -> None:
    tree = {"apiVersion": "v1", "kind": kind, "metadata": {"name": name}, **parts}
    world.apply(Changed(codec.decode(tree).struct))  # type: ignore[arg-type]


def _ground(world: World, count: int, *, cpu: int, queue_names: tuple[str, ...] = ("red",)) -> None:
    world.apply(Changed(namespaces.Namespace(metadata=meta.ObjectMeta(name=SPACE))))
    for name in queue_names:
        spec = queues.QueueSpec(namespace_selector=meta.LabelSelector())
        world.apply(Changed(queues.Queue(metadata=meta.ObjectMeta(name=name), spec=spec)))
    allocatable = {"cpu": str(cpu), "memory": "4Ti", "pods": "100000"}
    for index in range(count):
        struct = codec.decode(
            {
                "apiVersion": "v1",
                "kind": "Node",
                "metadata": {"name": f"n{index:05d}"},
                "status": {"allocatable": allocatable},
            }
        ).struct
        assert isinstance(struct, nodes.Node)
        world.apply(Changed(struct))


def _pod(
    world: World,
    name: str,
    *,
    cpu: str,
    queue: str = "red",
    gang: str = "",
    group: str = "",
    marks: dict[str, str] = NO_MARKS,
    node: str = "",
    priority: int = 0,
    number: int = 0,
) -> None:
    created = (NOW - datetime.timedelta(days=2) + datetime.timedelta(seconds=number)).isoformat()
    named = {"queue": queue, "gang": gang, "gang-group": group}
    labels = {f"dovetail.dev/{key}": value for key, value in named.items() if value}
    owner = {
        "apiVersion": "apps/v1",
        "kind": "ReplicaSet",
        "name": "owner",
        "uid": "owner",
        "controller": True,
    }
    tree = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "namespace": SPACE,
            "uid": f"uid-{name}",
            "creationTimestamp": created,
            "labels": labels,
            "annotations": {f"dovetail.dev/{key}": value for key, value in marks.items()},
            "ownerReferences": [owner],
        },
        "spec": {
            "nodeName": node,
            "priority": priority,
            "containers": [
                {"name": "main", "image": "train", "resources": {"requests": {"cpu": cpu}}}
            ],
        },
        "status": {"phase": "Running", "startTime": created} if node else {"phase": "Pending"},
    }
    struct = codec.decode(tree).struct
    assert isinstance(struct, pods.Pod)
    world.apply(Changed(struct))


def _elastic(world: World, size: int) -> None:
    """A gang of minimum one, room for all."""
    _ground(world, 20, cpu=size)
    for index in range(size):
        _pod(world, f"p{index:06d}", cpu="1", gang="sweep", marks={"gang-min": "1"}, number=index)


def _groups(world: World, size: int) -> None:
    """A gang of groups of one pod each, room for all."""
    _ground(world, 20, cpu=size)
    for index in range(size):
        group = f"g{index:06d}"
        _pod(
            world,
            f"p{index:06d}",
            cpu="1",
            gang="groups",
            group=group,
            marks={"gang-min": "1"},
            number=index,
        )


def _whole(world: World, size: int) -> None:
    """A gang of which all pods start or none, room for all."""
    _ground(world, 20, cpu=size)
    for index in range(size):
        _pod(
            world,
            f"p{index:06d}",
            cpu="1",
            gang="whole",
            marks={"gang-min": str(size)},
            number=index,
        )


def _equal(world: World, size: int) -> None:
    """Equal pods without room in one queue."""
    _ground(world, 20, cpu=1)
    for index in range(size):
        _pod(world, f"p{index:06d}", cpu="2", number=index)


def _distinct(world: World, size: int) -> None:
    """Pods without room, each of another size."""
    _ground(world, 20, cpu=1)
    for index in range(size):
        _pod(world, f"p{index:06d}", cpu=f"{2000 + index}m", number=index)


def _preempting(world: World, size: int) -> None:
    """As many victims of two queues as pods of distinct sizes that could make them yield."""
    _ground(world, 20, cpu=size // 10 + 1, queue_names=("red", "blue"))
    for index in range(size):
        node = f"n{index % 20:05d}"
        _pod(
            world,
            f"v{index:06d}",
            cpu="2",
            queue=("red", "blue")[index % 2],
            node=node,
            number=index,
        )
    for index in range(size):
        cpu = f"{2000 + index}m"
        _pod(
            world,
            f"p{index:06d}",
            cpu=cpu,
            priority=10,
            queue=("red", "blue")[index % 2],
            number=size + index,
        )


def _preempting_gangs(world: World, size: int) -> None:
    """Gangs of two pods of distinct sizes, each of which could preempt."""
    _ground(world, 20, cpu=size // 5 + 1)
    for index in range(2 * size):
        _pod(world, f"v{index:06d}", cpu="2", node=f"n{index % 20:05d}", number=index)
    for index in range(size):
        for member in range(2):
            marks = {"gang-min": "2"}
            _pod(
                world,
                f"p{index:06d}-{member}",
                cpu=f"{1000 + index}m",
                priority=10,
                gang=f"g{index:06d}",
                marks=marks,
                number=2 * size + index,
            )


CASES: Final = {
    "elastic": Case("elastic gang, room for all", _elastic, (1_000, 2_000, 4_000)),
    "groups": Case("gang of groups of one pod, room for all", _groups, (1_000, 2_000, 4_000)),
    "whole": Case("gang of which all start or none, room for all", _whole, (1_000, 2_000, 4_000)),
    "equal": Case("equal pods, no room", _equal, (25_000, 50_000, 100_000)),
    "distinct": Case("pods of distinct sizes, no room", _distinct, (5_000, 10_000, 20_000)),
    "preempting": Case(
        "distinct pods that could preempt as many", _preempting, (500, 1_000, 2_000)
    ),
    "preempting-gangs": Case(
        "distinct gangs that could preempt", _preempting_gangs, (125, 250, 500)
    ),
}
