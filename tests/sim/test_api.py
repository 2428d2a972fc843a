"""The API server in memory beyond the contract it shares with real ones: feeds, controllers, interference."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest

from dovetail.kubetypes import registry
from dovetail.kubetypes.resource import claims
from dovetail.ports import failures
from dovetail.ports.api import Target
from dovetail.sim.fleet import fleet_objects, fleet_spec
from dovetail.sim.server.api_server import SimApi
from dovetail.sim.virtual_clock import VirtualClock

Tree = dict[str, Any]
PROTECTED = [claims.DELETE_PROTECTION_FINALIZER]


def pod(name: str, *, spec: Tree | None = None, **metadata: Any) -> Tree:
    body = {"containers": [{"name": "main", "image": "none"}]} | (spec or {})
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, **metadata}, "spec": body}


def template(name: str) -> Tree:
    request = {"name": "gpu", "exactly": {"deviceClassName": "gpu.nvidia.com"}}
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaimTemplate",
        "metadata": {"name": name},
        "spec": {
            "metadata": {"labels": {"made": "yes"}},
            "spec": {"devices": {"requests": [request]}},
        },
    }


def claim(name: str, **metadata: Any) -> Tree:
    spec = template("x")["spec"]["spec"]
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {"name": name, **metadata},
        "spec": spec,
    }


def wants(template_name: str) -> Tree:
    return {"resourceClaims": [{"name": "gpu", "resourceClaimTemplateName": template_name}]}


def allocation(device: str = "gpu-0") -> Tree:
    return {
        "devices": {
            "results": [
                {"request": "gpu", "driver": "gpu.nvidia.com", "pool": "n1", "device": device}
            ]
        }
    }


def patch(api: SimApi, target: Target, change: Tree) -> None:
    asyncio.run(_patch(api, target, change))


async def _patch(api: SimApi, target: Target, change: Tree) -> None:
    await api.patch(target, msgspec.json.encode(change))


def the_claim(api: SimApi) -> claims.ResourceClaim:
    [found] = api.all(registry.CLAIM)
    assert isinstance(found, claims.ResourceClaim)
    return found


def given_to(api: SimApi, name: str, *users: Any) -> None:
    """Allocates a claim and reserves it for pods, as a scheduler would."""
    reserved = [
        {"resource": "pods", "name": user.metadata.name, "uid": user.metadata.uid} for user in users
    ]
    patch(api, Target(registry.CLAIM, "default", name), {"metadata": {"finalizers": PROTECTED}})
    status = {"allocation": allocation(), "reservedFor": reserved}
    patch(api, Target(registry.CLAIM, "default", name, "status"), {"status": status})


def bind(api: SimApi, name: str, node: str = "n1") -> None:
    body = msgspec.json.encode(
        {"metadata": {"name": name}, "target": {"kind": "Node", "name": node}}
    )
    asyncio.run(api.create(Target(registry.POD, "default", name, "binding"), body))


def deleted(api: SimApi, kind: registry.Kind, name: str, **options: Any) -> None:
    asyncio.run(api.delete(Target(kind, "default" if kind.is_namespaced else "", name), **options))


class Book:
    """A sink that records its calls."""

    def __init__(self) -> None:
        self.lines: list[tuple[str, Any]] = []

    def replaced(self, objects: list[Any], resource_version: str) -> None:
        self.lines.append(("replaced", sorted(one.metadata.name for one in objects)))

    def changed(self, found: Any) -> None:
        self.lines.append(("changed", found.metadata.name))

    def deleted(self, found: Any) -> None:
        self.lines.append(("deleted", found.metadata.name))


# Feeds


def test_a_follower_hears_what_is_there_and_then_every_change_in_order() -> None:
    api = SimApi()
    api.put(pod("a"))
    book = Book()
    subscription = api.follow(registry.POD, book)
    api.put(pod("b"))
    patch(api, Target(registry.POD, "default", "a"), {"metadata": {"labels": {"x": "y"}}})
    patch(
        api, Target(registry.POD, "default", "a"), {"metadata": {"labels": {"x": "y"}}}
    )  # changes nothing
    deleted(api, registry.POD, "b")
    api.put(claim("c"))  # another kind
    assert book.lines == [("replaced", ["a"]), ("changed", "b"), ("changed", "a"), ("deleted", "b")]
    subscription.end()
    api.put(pod("d"))
    assert len(book.lines) == 4


def test_a_follower_can_fall_behind_catch_up_and_start_over() -> None:
    api, book = SimApi(), Book()
    subscription = api.follow(registry.POD, book)
    subscription.hold()
    api.put(pod("a"))
    deleted(api, registry.POD, "a")
    assert book.lines == [("replaced", [])]
    subscription.release()
    assert book.lines[1:] == [("changed", "a"), ("deleted", "a")]
    subscription.hold()
    api.put(pod("b"))
    subscription.relist()
    api.put(pod("c"))
    subscription.release()
    assert book.lines[3:] == [("replaced", ["b"]), ("changed", "c")]


def test_versions_grow_with_every_change_and_a_deletion_is_one() -> None:
    api = SimApi()
    seen: list[tuple[str, int]] = []
    api.subscribe(
        registry.POD,
        lambda event, struct: seen.append((event, int(struct.metadata.resource_version))),
    )
    api.put(pod("a"))
    bind(api, "a")
    deleted(api, registry.POD, "a", grace_seconds=5)
    deleted(api, registry.POD, "a", grace_seconds=0)
    assert [event for event, _ in seen] == ["ADDED", "MODIFIED", "MODIFIED", "DELETED"]
    versions = [version for _, version in seen]
    assert versions == sorted(set(versions))


# Grace


def test_grace_is_only_ever_shortened() -> None:
    api = SimApi()
    api.put(pod("a", finalizers=["dovetail.dev/test"]))
    bind(api, "a")
    for asked, left in ((None, 30), (60, 30), (5, 5), (None, 5), (0, 0)):
        deleted(api, registry.POD, "a", grace_seconds=asked)
        assert (
            api.find(registry.POD, "a", namespace="default").metadata.deletion_grace_period_seconds
            == left
        )
    patch(api, Target(registry.POD, "default", "a"), {"metadata": {"finalizers": None}})
    assert api.find(registry.POD, "a", namespace="default") is None


def test_a_terminating_pod_outlives_its_finalizers_until_its_grace_is_over() -> None:
    api = SimApi()
    api.put(pod("a", finalizers=["dovetail.dev/test"]))
    bind(api, "a")
    deleted(api, registry.POD, "a")
    patch(api, Target(registry.POD, "default", "a"), {"metadata": {"finalizers": None}})
    assert api.find(registry.POD, "a", namespace="default") is not None
    deleted(api, registry.POD, "a", grace_seconds=0)
    assert api.find(registry.POD, "a", namespace="default") is None


# Controllers


def test_a_template_becomes_a_claim_of_the_pods_own_once() -> None:
    api = SimApi()
    api.put(template("one"))
    made = api.put(pod("a", spec=wants("one")))
    assert api.settle() > 0
    found = the_claim(api)
    [owner] = found.metadata.owner_references
    assert (owner.uid, owner.controller) == (made.metadata.uid, True)
    assert found.metadata.annotations["resource.kubernetes.io/pod-claim-name"] == "gpu"
    assert found.metadata.labels == {"made": "yes"}
    assert found.metadata.name.startswith("a-gpu-")
    [status] = api.find(registry.POD, "a", namespace="default").status.resource_claim_statuses
    assert (status.name, status.resource_claim_name) == ("gpu", found.metadata.name)
    assert api.settle() == 0


def test_a_pod_waits_for_its_template() -> None:
    api = SimApi()
    api.put(pod("a", spec=wants("one")))
    assert api.settle() == 0
    api.put(template("one"))
    assert api.settle() > 0
    assert the_claim(api).metadata.name.startswith("a-gpu-")


@pytest.mark.parametrize("phase", ["Succeeded", "Failed"])
def test_devices_come_back_when_the_pod_has_ended_and_its_claim_goes(phase: str) -> None:
    api = SimApi()
    api.put(template("one"))
    made = api.put(pod("a", spec=wants("one")))
    api.settle()
    given_to(api, the_claim(api).metadata.name, made)
    bind(api, "a")
    assert api.settle() == 0
    patch(api, Target(registry.POD, "default", "a", "status"), {"status": {"phase": phase}})
    api.settle()
    assert api.all(registry.CLAIM) == []
    assert api.find(registry.POD, "a", namespace="default") is not None


def test_a_shared_claim_is_given_back_by_the_last_user_and_stays() -> None:
    api = SimApi()
    api.put(claim("shared"))
    spec = {"resourceClaims": [{"name": "gpu", "resourceClaimName": "shared"}]}
    users = [api.put(pod(name, spec=spec)) for name in ("a", "b")]
    given_to(api, "shared", *users)
    for name in ("a", "b"):
        bind(api, name)
    deleted(api, registry.POD, "a", grace_seconds=0)
    api.settle()
    assert [user.name for user in the_claim(api).status.reserved_for] == ["b"]
    assert the_claim(api).status.allocation is not None
    deleted(api, registry.POD, "b", grace_seconds=0)
    api.settle()
    left = the_claim(api)
    assert left.status == claims.ResourceClaimStatus()
    assert left.metadata.finalizers == ()


def test_a_terminating_pod_keeps_its_devices() -> None:
    api = SimApi()
    api.put(claim("mine"))
    user = api.put(
        pod("a", spec={"resourceClaims": [{"name": "gpu", "resourceClaimName": "mine"}]})
    )
    given_to(api, "mine", user)
    bind(api, "a")
    deleted(api, registry.POD, "a")
    assert api.settle() == 0
    assert the_claim(api).status.allocation is not None


def test_a_claim_of_a_pod_that_is_gone_is_collected_with_its_devices() -> None:
    api = SimApi()
    api.put(template("one"))
    made = api.put(pod("a", spec=wants("one")))
    api.settle()
    given_to(api, the_claim(api).metadata.name, made)
    deleted(api, registry.POD, "a")
    api.settle()
    assert api.all(registry.CLAIM) == []


def test_another_pod_of_the_name_does_not_inherit() -> None:
    api = SimApi()
    api.put(claim("mine"))
    first = api.put(
        pod("a", spec={"resourceClaims": [{"name": "gpu", "resourceClaimName": "mine"}]})
    )
    given_to(api, "mine", first)
    deleted(api, registry.POD, "a")
    api.put(pod("a"))
    api.settle()
    assert the_claim(api).status.allocation is None


def test_a_claim_that_was_never_reserved_keeps_its_devices() -> None:
    api = SimApi()
    api.put(claim("held"))
    given_to(api, "held")
    assert api.settle() == 0
    assert the_claim(api).status.allocation is not None
    deleted(api, registry.CLAIM, "held")
    api.settle()
    assert api.all(registry.CLAIM) == []


def test_a_bound_pod_becomes_a_user_of_its_allocated_claims() -> None:
    api = SimApi()
    api.put(claim("mine"))
    api.put(pod("a", spec={"resourceClaims": [{"name": "gpu", "resourceClaimName": "mine"}]}))
    given_to(api, "mine")
    bind(api, "a")
    api.settle()
    assert [user.name for user in the_claim(api).status.reserved_for] == ["a"]


def test_what_a_node_owned_goes_with_it() -> None:
    api = SimApi()
    node = api.put({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1"}})
    owner = {"apiVersion": "v1", "kind": "Node", "name": "n1", "uid": node.metadata.uid}
    api.put(
        {
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": {"name": "n1", "ownerReferences": [owner]},
        },
        namespace="kube-node-lease",
    )
    job = {"apiVersion": "batch/v1", "kind": "Job", "name": "j", "uid": "x"}
    api.put(pod("worker", ownerReferences=[job]))
    assert api.settle() == 0
    deleted(api, registry.NODE, "n1")
    api.settle()
    assert api.all(registry.LEASE) == []
    assert len(api.all(registry.POD)) == 1  # this server does not know whether its Job is gone


# Interference


def test_a_request_can_be_stopped_before_it_arrives_or_its_answer_lost() -> None:
    api = SimApi()
    asked: list[str] = []

    def refuse(verb: str, target: Target) -> None:
        asked.append(f"{verb} {target.kind.plural}")
        raise failures.Unavailable("cut off")

    body = msgspec.json.encode(claim("c"))
    api.before = refuse
    with pytest.raises(failures.Unavailable):
        asyncio.run(api.create(Target(registry.CLAIM, "default"), body))
    assert api.all(registry.CLAIM) == []
    api.before, api.after = None, refuse
    with pytest.raises(failures.Unavailable):
        asyncio.run(api.create(Target(registry.CLAIM, "default"), body))
    assert len(api.all(registry.CLAIM)) == 1
    assert asked == ["create resourceclaims", "create resourceclaims"]


def test_requests_take_the_configured_time() -> None:
    async def main() -> None:
        clock = VirtualClock()
        api = SimApi(clock, delay_seconds=0.5)
        task = asyncio.create_task(
            api.create(Target(registry.CLAIM, "default"), msgspec.json.encode(claim("c")))
        )
        await clock.advance(0.4)
        assert api.all(registry.CLAIM) == []
        await clock.advance(0.2)
        assert len(api.all(registry.CLAIM)) == 1
        await task

    asyncio.run(main())


# Fidelity


def test_fields_without_a_struct_survive_every_change() -> None:
    api = SimApi()
    api.put(
        pod(
            "a",
            spec={"dnsPolicy": "None", "containers": [{"name": "main", "image": "x", "tty": True}]},
        )
    )
    patch(api, Target(registry.POD, "default", "a"), {"metadata": {"labels": {"x": "y"}}})
    bind(api, "a")
    kept = api.tree(registry.POD, "a", namespace="default")["spec"]
    assert (kept["dnsPolicy"], kept["containers"][0]["tty"]) == ("None", True)


def test_a_whole_fleet_is_accepted_as_it_is() -> None:
    api = SimApi()
    for tree in fleet_objects.objects_of(fleet_spec.sample()):
        if tree["kind"] != "Namespace":
            api.put(tree)
    assert len(api.all(registry.NODE)) == 26
    node = api.all(registry.NODE)[0]
    assert node.status.allocatable["pods"].value() == 110
    assert {one.status for one in node.status.conditions} == {"True"}
    assert len(api.all(registry.SLICE)) > 26


def test_what_breaks_the_rules_of_claims_is_refused_with_the_field() -> None:
    api = SimApi()
    wrong = claim("c")
    wrong["spec"]["devices"]["requests"][0]["exactly"]["selectors"] = [
        {"cel": {"expression": "device.nothing"}}
    ]
    with pytest.raises(
        failures.Refused, match=r"spec.devices.requests\[0\].exactly.selectors\[0\]"
    ) as caught:
        api.put(wrong)
    assert (caught.value.status, caught.value.reason) == (422, "Invalid")
