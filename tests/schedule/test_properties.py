"""What holds for every world: the memo changes nothing, nothing is over-allocated, the same input gives one plan."""

from __future__ import annotations

import collections
import random
from typing import Any

import pytest

from dovetail.model import pod_requests, policy
from dovetail.quantity import quantity
from dovetail.world.events import Object
from dovetail.world.world import World
from tests.schedule import build
from tests.support import hashing

FORGETFUL = policy.Policy(memo=False)
ATTRIBUTE = f'device.attributes["{build.DRIVER}"]'
SELECTORS = (
    "",
    f'{ATTRIBUTE}.model == "H100"',
    f'{ATTRIBUTE}.model != "H100"',
    f'{ATTRIBUTE}.uuid.endsWith("-0")',
    f'{ATTRIBUTE}.uuid.startsWith("n1-")',
    f'device.capacity["{build.DRIVER}"].memory.compareTo(quantity("60Gi")) > 0',
    f'{ATTRIBUTE}.missing == "x"',
)


def random_world(seed: int) -> World:
    rng = random.Random(seed)
    world = build.put(build.world(), nic_class())
    if rng.random() < 0.5:
        ports: list[dict[str, Any]] = [
            {"name": f"port-{index}"} for index in range(rng.randint(1, 3))
        ]
        build.put(world, nic_pool("fabric", ports, allNodes=True))
    if rng.random() < 0.3:
        build.put(world, taint_rule(rng.choice(["n0", "n2"]), rng.choice(["gpu-0", "gpu-1"])))
    for index in range(rng.randint(2, 9)):
        name = f"n{index}"
        build.put(world, *random_node(rng, name))
        if rng.random() < 0.4:
            build.put(
                world, nic_pool(name, [nic(name, place) for place in range(2)], nodeName=name)
            )
    objects = [item for index in range(rng.randint(3, 22)) for item in random_pod(rng, index)]
    rng.shuffle(objects)
    return build.put(world, *objects)


def nic_class() -> Object:
    spec = {"selectors": [{"cel": {"expression": 'device.driver == "net.example.com"'}}]}
    return build.struct("DeviceClass", {"metadata": {"name": "nic"}, "spec": spec})  # type: ignore[no-any-return]


def nic(name: str, index: int) -> dict[str, Any]:
    """Behind the same PCIe roots as the node's GPUs."""
    return {
        "name": f"nic-{index}",
        "attributes": {f"{build.DRIVER}/root": {"string": f"{name}-root-{index}"}},
    }


def nic_pool(name: str, devices: list[dict[str, Any]], **place: Any) -> Object:
    pool = {"name": name, "generation": 1, "resourceSliceCount": 1}
    spec = {"driver": "net.example.com", "pool": pool, "devices": devices, **place}
    return build.struct("ResourceSlice", {"metadata": {"name": f"{name}-nics"}, "spec": spec})  # type: ignore[no-any-return]


def taint_rule(pool: str, device: str) -> Object:
    chosen = {"driver": build.DRIVER, "pool": pool, "device": device}
    spec = {"deviceSelector": chosen, "taint": {"key": "broken", "effect": "NoSchedule"}}
    return build.struct("DeviceTaintRule", {"metadata": {"name": "broken"}, "spec": spec})  # type: ignore[no-any-return]


def gpu_and_nic(rng: random.Random) -> dict[str, Any]:
    """A GPU and a network card, often behind the same PCIe root."""
    common = {"allocationMode": "ExactCount", "count": 1}
    requests = [
        {"name": "gpus", "exactly": {"deviceClassName": "gpu", **common}},
        {"name": "nic", "exactly": {"deviceClassName": "nic", **common}},
    ]
    same = [{"requests": ["gpus", "nic"], "matchAttribute": f"{build.DRIVER}/root"}]
    return {"requests": requests, "constraints": same if rng.random() < 0.7 else []}


def random_node(rng: random.Random, name: str) -> list[Object]:
    facts: dict[str, Any] = {"labels": {"zone": rng.choice("ab")}}
    if rng.random() < 0.15:
        facts["taints"] = [{"key": "team", "value": "a", "effect": "NoSchedule"}]
    if rng.random() < 0.1:
        facts["unschedulable"] = True
    facts["allocatable"] = {"cpu": rng.choice(["16", "64"])}
    kind = rng.choice(["whole", "whole", "whole", "shared", "mig", "none"])
    if kind == "none":
        return [build.node(name, **facts)]
    if kind == "whole":
        model = {"string": rng.choice(["H100", "A100"])}
        return [build.node(name, **facts), build.gpu_slice(name, rng.choice([2, 4]), model=model)]
    if kind == "shared":
        return [
            build.node(name, **facts),
            build.gpu_pool(name, [shareable(name, index) for index in range(2)]),
        ]
    return [build.node(name, **facts), *mig_slices(name)]


def shareable(name: str, index: int) -> dict[str, Any]:
    return {
        "name": f"gpu-{index}",
        "allowMultipleAllocations": True,
        "attributes": {"uuid": {"string": f"{name}-{index}"}, "model": {"string": "L4"}},
        "capacity": {"memory": {"value": "24Gi", "requestPolicy": {"default": "6Gi"}}},
    }


def mig_slices(name: str) -> list[Object]:
    counters = {f"slice-{index}": {"value": "1"} for index in range(4)}
    devices = [
        {
            "name": f"part-{size}-{start}",
            "attributes": {
                "uuid": {"string": f"{name}-{size}-{start}"},
                "model": {"string": f"part-{size}"},
            },
            "consumesCounters": [
                {
                    "counterSet": "set",
                    "counters": {f"slice-{i}": {"value": "1"} for i in range(start, start + size)},
                }
            ],
        }
        for size in (1, 2, 4)
        for start in range(0, 4, size)
    ]
    parts: list[dict[str, Any]] = [
        {"devices": devices},
        {"sharedCounters": [{"name": "set", "counters": counters}]},
    ]
    return [
        build.struct(
            "ResourceSlice",
            {
                "metadata": {"name": f"{name}-{number}"},
                "spec": {
                    "driver": build.DRIVER,
                    "nodeName": name,
                    "pool": {"name": name, "generation": 1, "resourceSliceCount": 2},
                    **part,
                },
            },
        )
        for number, part in enumerate(parts)
    ]


def random_pod(rng: random.Random, index: int) -> list[Object]:
    facts: dict[str, Any] = {
        "cpu": rng.choice(["1", "1", "4", "12"]),
        "priority": rng.choice([0, 0, 5]),
    }
    if rng.random() < 0.25:
        facts["nodeSelector"] = {"zone": rng.choice("ab")}
    if rng.random() < 0.2:
        facts["tolerations"] = [{"operator": "Exists"}]
    kind = rng.random()
    if kind < 0.2:
        return [build.pod(f"p{index}", **facts)]
    if kind < 0.3:
        return [build.pod(f"p{index}", uses=("shared",), **facts), build.claim("shared")]
    extra: dict[str, Any] = gpu_and_nic(rng) if rng.random() < 0.25 else {}
    if not extra and rng.random() < 0.3:
        extra["constraints"] = [
            {"matchAttribute": f"{build.DRIVER}/{rng.choice(['root', 'uuid'])}"}
        ]
    count = rng.choice([1, 1, 1, 2, 3])
    made = build.claim(f"c{index}", count=count, when=rng.choice(SELECTORS), **extra)
    return [made, build.pod(f"p{index}", uses=(f"c{index}",), **facts)]


SEEDS = range(60)


@pytest.mark.parametrize("seed", SEEDS)
def test_the_memo_never_changes_the_plan(seed: int) -> None:
    world = random_world(seed)
    assert build.decided(world) == build.decided(world, policy=FORGETFUL)


@pytest.mark.parametrize("seed", SEEDS)
def test_nothing_is_given_twice_and_no_node_is_overfull(seed: int) -> None:
    world = random_world(seed)
    done = build.decided(world)
    assert len(done.placements) + len(done.refusals) == len(world.pending())
    exclusive: collections.Counter[tuple[str, str]] = collections.Counter()
    memory: collections.Counter[tuple[str, str]] = collections.Counter()
    for placement in done.placements:
        for result in (
            item
            for allocation in placement.allocations
            for item in allocation.result.devices.results
        ):
            assert result.pool in (placement.node, "fabric")
            if result.share_id is None:
                exclusive[f"{result.driver}/{result.pool}", result.device] += 1
            else:
                memory[result.pool, result.device] += result.consumed_capacity["memory"].nanos
    assert not [device for device, count in exclusive.items() if count > 1]
    assert all(nanos <= quantity.parse("24Gi").nanos for nanos in memory.values())
    build.carried_out(world, done)
    for name, node in world.nodes.items():
        held = [pod for pod in world.pods.values() if pod.spec.node_name == name]
        expected = sum(pod_requests.pod_request(pod).milli_cpu for pod in held)
        assert expected <= node.status.allocatable["cpu"].milli_value()


@pytest.mark.parametrize("seed", range(10))
def test_who_was_refused_is_refused_again_after_the_plan_is_carried_out(seed: int) -> None:
    world = random_world(seed)
    first = build.decided(world)
    again = build.decided(build.carried_out(world, first))
    assert [refusal.pod for refusal in again.refusals] == [
        refusal.pod for refusal in first.refusals
    ]
    assert again.placements == ()


@pytest.mark.slow
def test_two_hash_seeds_give_one_plan() -> None:
    code = (
        "from tests.schedule import build, test_properties as t\nfrom tests.support import hashing\n"
        "for seed in range(12): print(hashing.as_text(build.decided(t.random_world(seed))))"
    )
    names = hashing.printed(code)
    assert len(names) == 1
    assert "placements" in names.pop()
