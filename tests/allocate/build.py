"""Builds nodes with whole, partitionable and shareable GPUs, and claims on them, for stories about allocation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from dovetail.allocate import allocator
from dovetail.allocate.outcome import Outcome
from dovetail.kubetypes.core import nodes
from dovetail.kubetypes.resource import claims, device_classes, slices
from dovetail.quantity import quantity
from dovetail.world.devices import device_usage
from dovetail.world.views import static_views
from dovetail.world.views.node_view import NodeView

Tree = dict[str, Any]
DRIVER = "gpu.example.com"
NODE = "node-a"
# Compute slices, memory slices, starts: the seven-slice boards of conformance/mig.
PROFILES: Mapping[str, tuple[int, int, tuple[int, ...]]] = {
    "1g": (1, 1, (0, 1, 2, 3, 4, 5, 6)),
    "1gd": (1, 2, (0, 2, 4, 6)),
    "2g": (2, 2, (0, 2, 4)),
    "3g": (3, 4, (0, 4)),
    "4g": (4, 4, (0,)),
    "7g": (7, 8, (0,)),
}


def made(kind: type[Any], tree: Tree) -> Any:
    """An object of the API from its tree."""
    return msgspec.convert(tree, kind, dec_hook=quantity.decode_hook)


def gpus(count: int, **more: Any) -> list[Tree]:
    """Whole GPUs, each with a uuid of its own."""
    return [
        {
            "name": f"gpu-{number}",
            "attributes": {
                "uuid": {"string": f"uuid-{number}"},
                "numa": {"int": number * 2 // max(count, 2)},
            },
            "capacity": {"memory": {"value": "80Gi"}},
            **more,
        }
        for number in range(count)
    ]


def shareable(count: int, memory: str = "80Gi") -> list[Tree]:
    """GPUs whose memory is handed out in shares."""
    policy = {"default": "10Gi", "validRange": {"min": "1Gi"}}
    return gpus(
        count,
        allowMultipleAllocations=True,
        capacity={"memory": {"value": memory, "requestPolicy": policy}},
    )


def partitions(gpu: int) -> list[Tree]:
    """Every place of every profile on one GPU."""
    return [
        {
            "name": f"gpu-{gpu}-{profile}-{start}",
            "attributes": {"parent": {"string": f"gpu-{gpu}"}, "profile": {"string": profile}},
            "capacity": {"memory": {"value": f"{memory * 10}Gi"}},
            "consumesCounters": [
                {"counterSet": f"gpu-{gpu}", "counters": _amounts(compute, start, memory)}
            ],
        }
        for profile, (compute, memory, starts) in PROFILES.items()
        for start in starts
    ]


def board(gpu: int) -> Tree:
    """The counters of one GPU."""
    return {"name": f"gpu-{gpu}", "counters": _amounts(7, 0, 8)}


def node(
    devices: Sequence[Tree],
    *,
    counters: Sequence[Tree] = (),
    in_use: Sequence[str] = (),
    driver: str = DRIVER,
) -> NodeView:
    """A node with one pool; devices in use by name."""
    parts: list[Tree] = [{"devices": list(devices)}]
    if counters:
        parts.append({"sharedCounters": list(counters)})
    published = [
        made(
            slices.ResourceSlice,
            {
                "metadata": {"name": f"slice-{number}"},
                "spec": {
                    "driver": driver,
                    "pool": {"name": "pool", "generation": 1, "resourceSliceCount": len(parts)},
                    "nodeName": NODE,
                    **part,
                },
            },
        )
        for number, part in enumerate(parts)
    ]
    taken = device_usage.of_listing([f"{driver}/pool/{name}" for name in in_use], (), {})
    return static_views.node_views(
        [made(nodes.Node, {"metadata": {"name": NODE}})], published, in_use=taken
    )[NODE]


def mig_node(count: int, *, in_use: Sequence[str] = ()) -> NodeView:
    """A node of GPUs with all their partitions."""
    devices = [tree for gpu in range(count) for tree in partitions(gpu)]
    return node(devices, counters=[board(gpu) for gpu in range(count)], in_use=in_use)


def exactly(count: int = 1, *, where: str = "", **more: Any) -> Tree:
    """A request for a number of devices."""
    chosen = {"selectors": [{"cel": {"expression": where}}]} if where else {}
    return {
        "deviceClassName": "gpu",
        "allocationMode": "ExactCount",
        "count": count,
        **chosen,
        **more,
    }


def profile(name: str, count: int = 1) -> Tree:
    """A request for partitions."""
    return exactly(count, where=f'device.attributes["{DRIVER}"].?profile.orValue("") == "{name}"')


def claim(
    *requests: Tree | Sequence[Tree], name: str = "claim", constraints: Sequence[Tree] = ()
) -> Any:
    """A claim; a list stands for firstAvailable, its entries named a, b, c."""
    listed: list[Tree] = []
    for number, item in enumerate(requests):
        if isinstance(item, dict):
            listed.append({"name": f"r{number}", "exactly": item})
        else:
            subs = [{"name": chr(ord("a") + place), **sub} for place, sub in enumerate(item)]
            listed.append({"name": f"r{number}", "firstAvailable": subs})
    tree = {
        "metadata": {"name": name, "namespace": "team", "uid": f"uid-{name}"},
        "spec": {"devices": {"requests": listed, "constraints": list(constraints)}},
    }
    return made(claims.ResourceClaim, tree)


CLASSES = {
    "gpu": made(
        device_classes.DeviceClass,
        {
            "metadata": {"name": "gpu"},
            "spec": {"selectors": [{"cel": {"expression": f'device.driver == "{DRIVER}"'}}]},
        },
    )
}


def ask(view: NodeView, *wanted: Any, **more: Any) -> Outcome:
    """The allocator's answer."""
    return allocator.allocate(view, wanted, CLASSES, **more)


def devices_of(outcome: Outcome) -> list[str]:
    """The names of allocated devices, claim after claim."""
    assert isinstance(outcome, allocator.Allocated), outcome
    return [item.device for result in outcome.results for item in result.devices.results]


def _amounts(compute: int, start: int, size: int) -> Tree:
    places = {f"memory-slice-{place}": {"value": "1"} for place in range(start, start + size)}
    return {"multiprocessors": {"value": str(compute * 14)}, **places}
