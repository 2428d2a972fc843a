"""What the controllers of claims do for pods, asked of those in memory and of kube-controller-manager."""

from __future__ import annotations

from typing import Any

from dovetail.kubetypes.resource import claims
from tests.contract.build import allocation, claim, pod
from tests.contract.places import Hand, Place, told

Tree = dict[str, Any]
PROTECTED = {"metadata": {"finalizers": [claims.DELETE_PROTECTION_FINALIZER]}}


def template(name: str) -> Tree:
    mould = {"metadata": {"labels": {"made": "yes"}}, "spec": claim("x")["spec"]}
    return claim(name) | {"kind": "ResourceClaimTemplate", "spec": mould}


def using(**source: str) -> Tree:
    return {"resourceClaims": [{"name": "gpu", **source}]}


async def made_for(place: Place, hand: Hand, name: str) -> str:
    """The name of the claim that was made for a pod."""
    found = ""

    async def is_made() -> bool:
        nonlocal found
        statuses = (await hand.get("Pod", name))["status"].get("resourceClaimStatuses", [])
        found = statuses[0]["resourceClaimName"] if statuses else ""
        return bool(found)

    await place.until(is_made)
    return found


async def given_to(hand: Hand, name: str, *users: Tree, protected: bool = True) -> None:
    """Allocates and reserves a claim, as a scheduler would."""
    if protected:
        await hand.patch("ResourceClaim", name, PROTECTED)
    reserved = [
        {"resource": "pods", "name": user["metadata"]["name"], "uid": user["metadata"]["uid"]}
        for user in users
    ]
    status = {"allocation": allocation(), "reservedFor": reserved}
    await hand.patch("ResourceClaim", name, {"status": status}, sub="status")


def test_a_template_becomes_a_claim_of_the_pods_own(place: Place) -> None:
    async def story(hand: Hand) -> None:
        await hand.create(template("t"))
        owner = await hand.create(pod("a", spec=using(resourceClaimTemplateName="t")))
        found = await hand.get("ResourceClaim", await made_for(place, hand, "a"))
        metadata = found["metadata"]
        assert metadata["generateName"] == "a-gpu-"
        assert metadata["labels"] == {"made": "yes"}
        assert metadata["annotations"] == {"resource.kubernetes.io/pod-claim-name": "gpu"}
        [reference] = metadata["ownerReferences"]
        assert (reference["kind"], reference["name"], reference["controller"]) == ("Pod", "a", True)
        assert reference["uid"] == owner["metadata"]["uid"]
        assert found["spec"]["devices"]["requests"][0]["exactly"]["count"] == 1

    told(place, story)


def test_devices_come_back_when_the_pod_has_ended_and_its_claim_goes(place: Place) -> None:
    async def story(hand: Hand) -> None:
        await hand.create(template("t"))
        owner = await hand.create(
            pod("a", spec=using(resourceClaimTemplateName="t") | {"restartPolicy": "Never"})
        )
        name = await made_for(place, hand, "a")
        await given_to(hand, name, owner)
        await hand.bind("a", hand.node)
        await hand.patch("Pod", "a", {"status": {"phase": "Succeeded"}}, sub="status")

        async def is_gone() -> bool:
            return await hand.find("ResourceClaim", name) is None

        await place.until(is_gone)
        assert (await hand.get("Pod", "a"))["status"]["phase"] == "Succeeded"

    told(place, story)


def test_a_shared_claim_is_given_back_by_the_last_user_and_stays(place: Place) -> None:
    async def story(hand: Hand) -> None:
        await hand.create(claim("c"))
        users = [
            await hand.create(pod(name, spec=using(resourceClaimName="c"))) for name in ("a", "b")
        ]
        await given_to(hand, "c", *users)

        async def only_b() -> bool:
            return [
                one["name"]
                for one in (await hand.get("ResourceClaim", "c"))["status"]["reservedFor"]
            ] == ["b"]

        async def is_free() -> bool:
            found = await hand.get("ResourceClaim", "c")
            return not found.get("status") and "finalizers" not in found["metadata"]

        await hand.delete("Pod", "a")
        await place.until(only_b)
        assert "allocation" in (await hand.get("ResourceClaim", "c"))["status"]
        await hand.delete("Pod", "b")
        await place.until(is_free)

    told(place, story)


def test_an_allocation_without_protection_is_not_taken_back(place: Place) -> None:
    async def story(hand: Hand) -> None:
        await hand.create(claim("c"))
        owner = await hand.create(pod("a", spec=using(resourceClaimName="c")))
        await given_to(hand, "c", owner, protected=False)
        await hand.delete("Pod", "a")

        async def is_unreserved() -> bool:
            return not (await hand.get("ResourceClaim", "c")).get("status", {}).get("reservedFor")

        await place.until(is_unreserved)
        assert "allocation" in (await hand.get("ResourceClaim", "c")).get("status", {})

    told(place, story)


def test_a_claim_nobody_uses_goes_when_told_to_and_gives_its_devices_back(place: Place) -> None:
    async def story(hand: Hand) -> None:
        await hand.create(claim("c"))
        await given_to(hand, "c")
        await hand.delete("ResourceClaim", "c")

        async def is_gone() -> bool:
            return await hand.find("ResourceClaim", "c") is None

        await place.until(is_gone)

    told(place, story)


def test_a_bound_pod_becomes_a_user_of_its_allocated_claim(place: Place) -> None:
    async def story(hand: Hand) -> None:
        await hand.create(claim("c"))
        await hand.create(pod("a", spec=using(resourceClaimName="c")))
        await given_to(hand, "c")
        await hand.bind("a", hand.node)

        async def is_reserved() -> bool:
            found = (await hand.get("ResourceClaim", "c"))["status"].get("reservedFor", [])
            return [one["name"] for one in found] == ["a"]

        await place.until(is_reserved)

    told(place, story)


def test_what_a_gone_pod_owned_is_collected(place: Place) -> None:
    async def story(hand: Hand) -> None:
        await hand.create(template("t"))
        owner = await hand.create(pod("a", spec=using(resourceClaimTemplateName="t")))
        name = await made_for(place, hand, "a")
        await given_to(hand, name, owner)
        await hand.delete("Pod", "a")

        async def is_gone() -> bool:
            return await hand.find("ResourceClaim", name) is None

        await place.until(is_gone)

    told(place, story)
