"""What the controllers of claims do for pods, checked on those in memory and on kube-controller-manager."""

from __future__ import annotations

from typing import Any

from dovetail.kubetypes.resource import claims
from tests.contract.build import allocation, claim, pod
from tests.contract.places import Place, TreeClient, run_story

Tree = dict[str, Any]
PROTECTED = {"metadata": {"finalizers": [claims.DELETE_PROTECTION_FINALIZER]}}


def template(name: str) -> Tree:
    mould = {"metadata": {"labels": {"made": "yes"}}, "spec": claim("x")["spec"]}
    return claim(name) | {"kind": "ResourceClaimTemplate", "spec": mould}


def using(**source: str) -> Tree:
    return {"resourceClaims": [{"name": "gpu", **source}]}


async def claim_name_of(place: Place, client: TreeClient, name: str) -> str:
    """The name of the claim that a controller created for a pod."""
    found = ""

    async def is_made() -> bool:
        nonlocal found
        statuses = (await client.get("Pod", name))["status"].get("resourceClaimStatuses", [])
        found = statuses[0]["resourceClaimName"] if statuses else ""
        return bool(found)

    await place.until(is_made)
    return found


async def allocate_to(client: TreeClient, name: str, *users: Tree, protected: bool = True) -> None:
    """Allocates and reserves a claim, as a scheduler would."""
    if protected:
        await client.patch("ResourceClaim", name, PROTECTED)
    reserved = [
        {"resource": "pods", "name": user["metadata"]["name"], "uid": user["metadata"]["uid"]}
        for user in users
    ]
    status = {"allocation": allocation(), "reservedFor": reserved}
    await client.patch("ResourceClaim", name, {"status": status}, sub="status")


def test_a_template_becomes_a_claim_that_the_pod_owns(place: Place) -> None:
    async def story(client: TreeClient) -> None:
        await client.create(template("t"))
        owner = await client.create(pod("a", spec=using(resourceClaimTemplateName="t")))
        found = await client.get("ResourceClaim", await claim_name_of(place, client, "a"))
        metadata = found["metadata"]
        assert metadata["generateName"] == "a-gpu-"
        assert metadata["labels"] == {"made": "yes"}
        assert metadata["annotations"] == {"resource.kubernetes.io/pod-claim-name": "gpu"}
        [reference] = metadata["ownerReferences"]
        assert (reference["kind"], reference["name"], reference["controller"]) == ("Pod", "a", True)
        assert reference["uid"] == owner["metadata"]["uid"]
        assert found["spec"]["devices"]["requests"][0]["exactly"]["count"] == 1

    run_story(place, story)


def test_devices_come_back_when_the_pod_has_ended_and_its_claim_goes(place: Place) -> None:
    async def story(client: TreeClient) -> None:
        await client.create(template("t"))
        owner = await client.create(
            pod("a", spec=using(resourceClaimTemplateName="t") | {"restartPolicy": "Never"})
        )
        name = await claim_name_of(place, client, "a")
        await allocate_to(client, name, owner)
        await client.bind("a", client.node)
        await client.patch("Pod", "a", {"status": {"phase": "Succeeded"}}, sub="status")

        async def is_gone() -> bool:
            return await client.find("ResourceClaim", name) is None

        await place.until(is_gone)
        assert (await client.get("Pod", "a"))["status"]["phase"] == "Succeeded"

    run_story(place, story)


def test_a_shared_claim_is_given_back_by_the_last_user_and_stays(place: Place) -> None:
    async def story(client: TreeClient) -> None:
        await client.create(claim("c"))
        users = [
            await client.create(pod(name, spec=using(resourceClaimName="c"))) for name in ("a", "b")
        ]
        await allocate_to(client, "c", *users)

        async def only_b() -> bool:
            return [
                one["name"]
                for one in (await client.get("ResourceClaim", "c"))["status"]["reservedFor"]
            ] == ["b"]

        async def is_free() -> bool:
            found = await client.get("ResourceClaim", "c")
            return not found.get("status") and "finalizers" not in found["metadata"]

        await client.delete("Pod", "a")
        await place.until(only_b)
        assert "allocation" in (await client.get("ResourceClaim", "c"))["status"]
        await client.delete("Pod", "b")
        await place.until(is_free)

    run_story(place, story)


def test_an_allocation_without_protection_is_not_taken_back(place: Place) -> None:
    async def story(client: TreeClient) -> None:
        await client.create(claim("c"))
        owner = await client.create(pod("a", spec=using(resourceClaimName="c")))
        await allocate_to(client, "c", owner, protected=False)
        await client.delete("Pod", "a")

        async def is_unreserved() -> bool:
            return not (await client.get("ResourceClaim", "c")).get("status", {}).get("reservedFor")

        await place.until(is_unreserved)
        assert "allocation" in (await client.get("ResourceClaim", "c")).get("status", {})

    run_story(place, story)


def test_an_unused_claim_that_is_deleted_goes_and_gives_its_devices_back(place: Place) -> None:
    async def story(client: TreeClient) -> None:
        await client.create(claim("c"))
        await allocate_to(client, "c")
        await client.delete("ResourceClaim", "c")

        async def is_gone() -> bool:
            return await client.find("ResourceClaim", "c") is None

        await place.until(is_gone)

    run_story(place, story)


def test_a_bound_pod_becomes_a_user_of_its_allocated_claim(place: Place) -> None:
    async def story(client: TreeClient) -> None:
        await client.create(claim("c"))
        await client.create(pod("a", spec=using(resourceClaimName="c")))
        await allocate_to(client, "c")
        await client.bind("a", client.node)

        async def is_reserved() -> bool:
            found = (await client.get("ResourceClaim", "c"))["status"].get("reservedFor", [])
            return [one["name"] for one in found] == ["a"]

        await place.until(is_reserved)

    run_story(place, story)


def test_what_a_deleted_pod_owned_is_collected(place: Place) -> None:
    async def story(client: TreeClient) -> None:
        await client.create(template("t"))
        owner = await client.create(pod("a", spec=using(resourceClaimTemplateName="t")))
        name = await claim_name_of(place, client, "a")
        await allocate_to(client, name, owner)
        await client.delete("Pod", "a")

        async def is_gone() -> bool:
            return await client.find("ResourceClaim", name) is None

        await place.until(is_gone)

    run_story(place, story)
