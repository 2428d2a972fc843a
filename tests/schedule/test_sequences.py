"""What holds from cycle to cycle: a world that remembers decides as one that was made this moment, whatever happens."""

from __future__ import annotations

import random
from typing import Any

import msgspec
import pytest

from dovetail.kubetypes.resource import claims
from dovetail.model import policy
from dovetail.world import dump
from dovetail.world.events import Changed, Deleted, Object
from dovetail.world.world import World
from tests.schedule import build
from tests.schedule import test_properties as properties

RESOURCE = "example.com/gpu"
POLICIES = (
    policy.DEFAULT,
    policy.Policy(ownership=policy.Ownership(node_labels={"zone": "a"})),
    policy.Policy(ownership=policy.Ownership(device_rules=("ours",))),
)


class History:
    """A world and the objects an API server would list."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.world = World()
        self.facts: dict[tuple[str, str, str], Any] = {}
        self.made = 0
        self.put(build.gpu_class(extendedResourceName=RESOURCE), properties.nic_class())
        for index in range(self.rng.randint(3, 7)):
            self.new_node(f"n{index}")

    def put(self, *given: Object) -> None:
        for item in given:
            self.facts[type(item).__name__, item.metadata.namespace, item.metadata.name] = item
            self.world.apply(Changed(item))

    def drop(self, item: Object) -> None:
        del self.facts[type(item).__name__, item.metadata.namespace, item.metadata.name]
        self.world.apply(Deleted(item))

    def any_of(self, kind: str) -> Any:
        result = [one for key, one in sorted(self.facts.items()) if key[0] == kind]
        return self.rng.choice(result) if result else None

    def new_node(self, name: str) -> None:
        objects = properties.random_node(self.rng, name)
        if self.rng.random() < 0.2:
            objects[0] = build.node(
                name, allocatable={RESOURCE: "2"}, labels={"zone": self.rng.choice("ab")}
            )
        self.put(*objects)

    def new_pods(self) -> None:
        for _ in range(self.rng.randint(1, 4)):
            self.made += 1
            if self.rng.random() < 0.3:
                self.put(extended_pod(self.rng, f"p{self.made}"))
            else:
                self.put(*properties.random_pod(self.rng, self.made))

    def happen(self) -> None:
        """One thing of those that happen to clusters."""
        rng = self.rng
        match rng.choice(
            (
                "pods",
                "pods",
                "node",
                "relabel",
                "taint",
                "delete",
                "class",
                "rule",
                "end",
                "slice",
                "hold",
            )
        ):
            case "pods":
                self.new_pods()
            case "node":
                self.new_node(f"n{rng.randint(0, 8)}")
            case "relabel":
                self.relabel()
            case "taint":
                self.taint()
            case "delete":
                self.delete()
            case "class":
                self.change_class()
            case "rule":
                self.change_rule()
            case "end":
                self.end_pod()
            case "slice":
                if (node := self.any_of("Node")) is not None:
                    self.put(build.gpu_slice(node.metadata.name, rng.choice([1, 3])))
            case "hold":
                self.hold()

    def relabel(self) -> None:
        if (node := self.any_of("Node")) is not None:
            labels = node.metadata.labels | {"zone": self.rng.choice("ab")}
            self.put(
                msgspec.structs.replace(
                    node, metadata=msgspec.structs.replace(node.metadata, labels=labels)
                )
            )

    def taint(self) -> None:
        node = self.any_of("Node")
        if node is not None:
            tree = build.node(
                "x", taints=[{"key": "team", "value": "a", "effect": "NoSchedule"}]
            ).spec
            spec = self.rng.choice(
                [tree, build.node("x").spec, build.node("x", unschedulable=True).spec]
            )
            self.put(msgspec.structs.replace(node, spec=spec))

    def delete(self) -> None:
        kind = self.rng.choice(["Node", "ResourceSlice", "DeviceTaintRule", "Pod", "ResourceClaim"])
        if (item := self.any_of(kind)) is not None:
            self.drop(item)

    def change_class(self) -> None:
        when = self.rng.choice(
            ["device.driver != ''", f'{properties.ATTRIBUTE}.model == "H100"', "false"]
        )
        name = self.rng.choice(["gpu", "gpu", "other"])
        resource = self.rng.choice([RESOURCE, RESOURCE, None])
        extra = {} if resource is None else {"extendedResourceName": resource}
        if self.rng.random() < 0.4 and ("DeviceClass", "", name) in self.facts:
            self.drop(self.facts["DeviceClass", "", name])
        else:
            self.put(build.gpu_class(name, when=when, **extra))

    def change_rule(self) -> None:
        pool = {"pool": f"n{self.rng.randint(0, 4)}"} if self.rng.random() < 0.7 else {}
        self.put(build.taint_rule(self.rng.choice(["ours", "broken"]), **pool))

    def end_pod(self) -> None:
        pod = self.any_of("Pod")
        if pod is None:
            return
        self.put(
            msgspec.structs.replace(
                pod, status=msgspec.structs.replace(pod.status, phase="Succeeded")
            )
        )
        for entry in pod.spec.resource_claims:
            claim = self.facts.get(("ResourceClaim", "default", entry.resource_claim_name or ""))
            if claim is not None and entry.resource_claim_name != "shared":
                self.put(msgspec.structs.replace(claim, status=claims.ResourceClaimStatus()))

    def hold(self) -> None:
        result = claims.DeviceRequestAllocationResult(
            driver=build.DRIVER,
            pool=f"n{self.rng.randint(0, 3)}",
            device=self.rng.choice(["gpu-0", "part-1-0"]),
        )
        held = claims.AllocationResult(devices=claims.DeviceAllocationResult(results=(result,)))
        name = f"hold-{self.rng.randint(0, 2)}"
        if self.rng.random() < 0.5:
            self.world.hold(name, held)
        else:
            self.world.release(name)

    def fresh(self) -> World:
        return dump.rebuilt(list(self.facts.values()), self.world)

    def carry_on(self, settings: policy.Policy) -> None:
        """A cycle as a loop lives it: placements are written, only assumed or given up, claims released."""
        ids = [id_ for id_ in self.world.pods if self.rng.random() < 0.8]
        plan = build.decided(self.world, policy=settings, among=ids)
        for ref in (ref for refusal in plan.refusals for ref in refusal.holding):
            claim = self.world.claims[ref.namespace, ref.name]
            self.put(msgspec.structs.replace(claim, status=claims.ResourceClaimStatus()))
        for placement in plan.placements:
            luck = self.rng.random()
            build.assume(self.world, placement)
            if luck < 0.4:
                build.carry_out(self.world, placement)
            elif luck < 0.6:  # the binding failed: claims hold devices, the pod still waits
                build.write_claims(self.world, placement)
                self.world.forget(self.world.pods[placement.pod.uid])
            elif luck < 0.8:  # given up, perhaps after the claim for extended resources was made
                if placement.made is not None and placement.made.existing is None:
                    build.create_claim(self.world, placement.made)
                self.world.forget(self.world.pods[placement.pod.uid])
            self.note()

    def note(self) -> None:
        for table in (self.world.pods, self.world.claims):
            for item in table.values():  # type: ignore[attr-defined]
                self.facts[type(item).__name__, item.metadata.namespace, item.metadata.name] = item


def extended_pod(rng: random.Random, name: str) -> Any:
    amounts = {"cpu": "1", RESOURCE: str(rng.choice([1, 1, 2]))}
    containers = [
        {
            "name": rng.choice(["main", "other"]),
            "resources": {"requests": amounts, "limits": amounts},
        }
    ]
    return build.pod(
        name,
        containers=containers,
        **({"nodeSelector": {"zone": "a"}} if rng.random() < 0.3 else {}),
    )


@pytest.mark.parametrize("seed", range(40))
def test_what_is_remembered_never_changes_the_plan(seed: int) -> None:
    history = History(seed)
    settings = POLICIES[seed % len(POLICIES)]
    forgetful = msgspec.structs.replace(settings, memo=False)
    for _ in range(12):
        history.new_pods()
        for _ in range(history.rng.randint(0, 4)):
            history.happen()
        remembered = build.decided(history.world, policy=settings)
        assert remembered == build.decided(history.world, policy=forgetful)
        fresh = history.fresh()
        assert remembered == build.decided(fresh, policy=settings)
        assert dump.dump(history.world) == dump.dump(fresh)
        history.carry_on(settings)


def test_histories_reach_what_they_are_meant_to_reach() -> None:
    """Otherwise the test above says little: claims are made, rules bar devices, nodes are refused as not ours."""
    seen: set[str] = set()
    for seed in range(20):
        history = History(seed)
        settings = POLICIES[seed % len(POLICIES)]
        for _ in range(12):
            history.new_pods()
            history.happen()
            plan = build.decided(history.world, policy=settings)
            for placement in plan.placements:
                if placement.made is not None:
                    is_held = placement.made.claim.status.allocation is not None
                    seen.add(
                        "made"
                        if placement.made.existing is None
                        else "followed"
                        if is_held
                        else "adopted"
                    )
            seen |= {
                str(obstacle.reason.code)
                for refusal in plan.refusals
                for obstacle in refusal.obstacles
            }
            seen |= {"holding" for refusal in plan.refusals if refusal.holding}
            history.carry_on(settings)
    meant = {
        "made",
        "adopted",
        "followed",
        "holding",
        "NotOwned",
        "DevicesTainted",
        "TooLittleRoom",
    }
    assert meant | {"ClaimAllocatedElsewhere", "InvalidInput", "DevicesInUse"} <= seen
