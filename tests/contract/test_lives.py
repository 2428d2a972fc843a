"""The lives of claims and pods on an API server: allocation, binding, deletion; in memory and on real ones."""

from __future__ import annotations

import pytest

from dovetail.ports import failures
from tests.contract.build import STAY, allocation, claim, pod, user
from tests.contract.places import Hand, Place, encoded, told

# Claims


def test_a_claim_is_reserved_only_with_an_allocation(place: Place) -> None:
    async def story(hand: Hand) -> None:
        await hand.create(claim("c"))
        with pytest.raises(failures.Refused):
            await hand.patch(
                "ResourceClaim", "c", {"status": {"reservedFor": [user()]}}, sub="status"
            )
        both = {"status": {"allocation": allocation(), "reservedFor": [user()]}}
        after = await hand.patch("ResourceClaim", "c", both, sub="status")
        assert after["status"]["reservedFor"] == [user()]
        with pytest.raises(failures.Refused):
            await hand.patch("ResourceClaim", "c", {"status": {"allocation": None}}, sub="status")
        await hand.patch(
            "ResourceClaim",
            "c",
            {"status": {"allocation": None, "reservedFor": None}},
            sub="status",
        )
        assert not (await hand.get("ResourceClaim", "c")).get("status")

    told(place, story)


def test_an_allocation_is_set_and_cleared_but_not_changed(place: Place) -> None:
    async def story(hand: Hand) -> None:
        await hand.create(claim("c"))
        await hand.patch(
            "ResourceClaim", "c", {"status": {"allocation": allocation()}}, sub="status"
        )
        with pytest.raises(failures.Refused):
            await hand.patch(
                "ResourceClaim", "c", {"status": {"allocation": allocation("gpu-1")}}, sub="status"
            )
        unknown = {
            "devices": {"results": [allocation()["devices"]["results"][0] | {"request": "other"}]}
        }
        await hand.patch("ResourceClaim", "c", {"status": {"allocation": None}}, sub="status")
        with pytest.raises(failures.Refused):
            await hand.patch(
                "ResourceClaim", "c", {"status": {"allocation": unknown}}, sub="status"
            )
        await hand.patch(
            "ResourceClaim", "c", {"status": {"allocation": allocation("gpu-1")}}, sub="status"
        )

    told(place, story)


def test_the_same_reservation_twice_is_refused(place: Place) -> None:
    async def story(hand: Hand) -> None:
        await hand.create(claim("c"))
        twice = {"status": {"allocation": allocation(), "reservedFor": [user(), user("q")]}}
        with pytest.raises(failures.Refused):
            await hand.patch("ResourceClaim", "c", twice, sub="status")

    told(place, story)


def test_the_wish_of_a_claim_is_for_ever(place: Place) -> None:
    async def story(hand: Hand) -> None:
        await hand.create(claim("c"))
        other = [{"name": "gpu", "exactly": {"deviceClassName": "other.example.com"}}]
        with pytest.raises(failures.Refused):
            await hand.patch("ResourceClaim", "c", {"spec": {"devices": {"requests": other}}})

    told(place, story)


def test_nobody_joins_a_claim_that_is_being_deleted(place: Place) -> None:
    async def story(hand: Hand) -> None:
        await hand.create(claim("c", **STAY))
        first = {"status": {"allocation": allocation(), "reservedFor": [user()]}}
        await hand.patch("ResourceClaim", "c", first, sub="status")
        await hand.delete("ResourceClaim", "c")
        more = {
            "status": {"reservedFor": [user(), user("q", "11111111-1111-4111-8111-111111111111")]}
        }
        with pytest.raises(failures.Refused):
            await hand.patch("ResourceClaim", "c", more, sub="status")
        await hand.patch("ResourceClaim", "c", {"status": {"reservedFor": None}}, sub="status")
        await hand.patch("ResourceClaim", "c", {"metadata": {"finalizers": None}})

    told(place, story)


# Binding


def test_a_pod_is_bound_once(place: Place) -> None:
    async def story(hand: Hand) -> None:
        made = await hand.create(pod("a"))
        await hand.patch("Pod", "a", {"status": {"nominatedNodeName": "n9"}}, sub="status")
        await hand.bind("a", hand.node, uid=made["metadata"]["uid"])
        after = await hand.get("Pod", "a")
        assert after["spec"]["nodeName"] == hand.node
        [scheduled] = [
            one for one in after["status"]["conditions"] if one["type"] == "PodScheduled"
        ]
        assert scheduled["status"] == "True"
        assert scheduled["lastTransitionTime"]
        assert "nominatedNodeName" not in after["status"]
        for again in (hand.node, "n2"):
            with pytest.raises(failures.Conflict):
                await hand.bind("a", again)
        assert (await hand.get("Pod", "a"))["spec"]["nodeName"] == hand.node

    told(place, story)


def test_a_binding_for_another_pod_of_the_name_is_a_conflict(place: Place) -> None:
    async def story(hand: Hand) -> None:
        await hand.create(pod("a"))
        with pytest.raises(failures.Conflict):
            await hand.bind("a", hand.node, uid="00000000-0000-4000-8000-000000000000")
        assert "nodeName" not in (await hand.get("Pod", "a"))["spec"]

    told(place, story)


def test_a_gated_or_leaving_pod_is_not_bound(place: Place) -> None:
    async def story(hand: Hand) -> None:
        await hand.create(pod("gated", spec={"schedulingGates": [{"name": "dovetail.dev/wait"}]}))
        waiting = (await hand.get("Pod", "gated"))["status"]["conditions"][0]
        assert (waiting["type"], waiting["status"], waiting["reason"]) == (
            "PodScheduled",
            "False",
            "SchedulingGated",
        )
        with pytest.raises(failures.Conflict):
            await hand.bind("gated", hand.node)
        await hand.patch("Pod", "gated", {"spec": {"schedulingGates": None}})
        await hand.bind("gated", hand.node)
        await hand.create(pod("leaving", **STAY))
        await hand.delete("Pod", "leaving")
        more = {"metadata": {"finalizers": [*STAY["finalizers"], "dovetail.dev/more"]}}
        with pytest.raises(failures.Refused):
            await hand.patch("Pod", "leaving", more)
        with pytest.raises(failures.Conflict):
            await hand.bind("leaving", hand.node)
        await hand.patch("Pod", "leaving", {"metadata": {"finalizers": None}})

    told(place, story)


def test_a_pods_spec_does_not_move_it(place: Place) -> None:
    async def story(hand: Hand) -> None:
        await hand.create(pod("a"))
        with pytest.raises(failures.Refused):
            await hand.patch("Pod", "a", {"spec": {"nodeName": hand.node}})
        with pytest.raises(failures.Refused):
            await hand.patch("Pod", "a", {"spec": {"nodeSelector": {"x": "y"}}})
        with pytest.raises(failures.Refused):
            await hand.patch(
                "Pod", "a", {"spec": {"schedulingGates": [{"name": "dovetail.dev/wait"}]}}
            )

    told(place, story)


def test_what_is_limited_is_asked_for(place: Place) -> None:
    async def story(hand: Hand) -> None:
        container = {"name": "main", "image": "none", "resources": {"limits": {"cpu": "2"}}}
        made = await hand.create(pod("a", spec={"containers": [container]}))
        assert made["spec"]["containers"][0]["resources"]["requests"] == {"cpu": "2"}
        assert made["spec"]["schedulerName"] == "default-scheduler"
        assert made["spec"]["priority"] == 0

    told(place, story)


# Deletion


def test_finalizers_keep_an_object_until_the_last_is_gone(place: Place) -> None:
    async def story(hand: Hand) -> None:
        await hand.create(claim("c", finalizers=["dovetail.dev/one", "dovetail.dev/two"]))
        await hand.delete("ResourceClaim", "c")
        kept = await hand.get("ResourceClaim", "c")
        assert kept["metadata"]["deletionTimestamp"]
        await hand.delete("ResourceClaim", "c")  # again is no failure and changes nothing
        more = [*kept["metadata"]["finalizers"], "dovetail.dev/more"]
        with pytest.raises(failures.Refused):
            await hand.patch("ResourceClaim", "c", {"metadata": {"finalizers": more}})
        await hand.patch("ResourceClaim", "c", {"metadata": {"finalizers": ["dovetail.dev/one"]}})
        assert (await hand.get("ResourceClaim", "c"))["metadata"]["finalizers"] == [
            "dovetail.dev/one"
        ]
        await hand.patch("ResourceClaim", "c", {"metadata": {"finalizers": None}})
        with pytest.raises(failures.Missing):
            await hand.get("ResourceClaim", "c")

    told(place, story)


def test_a_deletion_for_another_uid_or_version_is_a_conflict(place: Place) -> None:
    async def story(hand: Hand) -> None:
        made = (await hand.create(claim("c")))["metadata"]
        with pytest.raises(failures.Conflict):
            await hand.delete("ResourceClaim", "c", uid="00000000-0000-4000-8000-000000000000")
        await hand.patch("ResourceClaim", "c", {"metadata": {"labels": {"x": "y"}}})
        with pytest.raises(failures.Conflict):
            await hand.delete("ResourceClaim", "c", resource_version=made["resourceVersion"])
        await hand.delete("ResourceClaim", "c", uid=made["uid"])
        with pytest.raises(failures.Missing):
            await hand.get("ResourceClaim", "c")

    told(place, story)


def test_a_pod_without_a_node_goes_at_once_and_one_with_a_node_after_its_grace(
    place: Place,
) -> None:
    async def story(hand: Hand) -> None:
        await hand.create(pod("free"))
        await hand.delete("Pod", "free")
        with pytest.raises(failures.Missing):
            await hand.get("Pod", "free")
        await hand.create(pod("bound"))
        await hand.bind("bound", hand.node)
        await hand.delete("Pod", "bound")
        leaving = await hand.get("Pod", "bound")
        assert leaving["metadata"]["deletionGracePeriodSeconds"] == 30
        await hand.patch("Pod", "bound", {"status": {"phase": "Failed"}}, sub="status")
        await hand.delete("Pod", "bound")  # its grace was given before
        assert (await hand.get("Pod", "bound"))["metadata"]["deletionGracePeriodSeconds"] == 30
        await hand.create(pod("ended"))
        await hand.bind("ended", hand.node)
        await hand.patch("Pod", "ended", {"status": {"phase": "Failed"}}, sub="status")
        await hand.delete("Pod", "ended")  # what has ended needs no grace
        with pytest.raises(failures.Missing):
            await hand.get("Pod", "ended")

    told(place, story)


def test_an_eviction_is_of_one_pod_and_can_be_rehearsed(place: Place) -> None:
    async def story(hand: Hand) -> None:
        uid = (await hand.create(pod("a")))["metadata"]["uid"]
        await hand.bind("a", hand.node)
        await hand.patch(
            "Pod", "a", {"status": {"phase": "Running"}}, sub="status"
        )  # else a server tries for long
        target = hand.at("Pod", "a")
        with pytest.raises(failures.Conflict):
            await hand.api.evict(target, uid="00000000-0000-4000-8000-000000000000")
        await hand.api.evict(target, uid=uid, is_rehearsal=True)
        assert "deletionTimestamp" not in (await hand.get("Pod", "a"))["metadata"]
        await hand.api.evict(target, uid=uid)
        assert (await hand.get("Pod", "a"))["metadata"]["deletionTimestamp"]
        with pytest.raises(failures.Missing):
            await hand.api.evict(hand.at("Pod", "nobody"), uid=uid)

    told(place, story)


def test_an_eviction_is_a_deletion(place: Place) -> None:
    async def story(hand: Hand) -> None:
        await hand.create(pod("a"))
        await hand.bind("a", hand.node)
        body = {
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": {"name": "a"},
            "deleteOptions": {"gracePeriodSeconds": 7},
        }
        await hand.api.create(hand.at("Pod", "a", "eviction"), encoded(body))
        assert (await hand.get("Pod", "a"))["metadata"]["deletionGracePeriodSeconds"] == 7

    told(place, story)


# Events


def test_an_event_can_be_told(place: Place) -> None:
    async def story(hand: Hand) -> None:
        event = {
            "apiVersion": "events.k8s.io/v1",
            "kind": "Event",
            "metadata": {"name": "a.1"},
            "eventTime": "2026-01-01T00:00:00.000000Z",
            "reportingController": "dovetail",
            "reportingInstance": "dovetail-0",
            "action": "Scheduling",
            "reason": "FailedScheduling",
            "regarding": {
                "apiVersion": "v1",
                "kind": "Pod",
                "namespace": hand.namespace,
                "name": "a",
            },
            "note": "waits",
            "type": "Warning",
        }
        made = await hand.create(event)
        assert (made["note"], made["type"]) == ("waits", "Warning")

    told(place, story)
