"""The life cycle of claims and pods on an API server: allocation, binding, deletion; in memory and on real ones."""

from __future__ import annotations

import pytest

from dovetail.ports import failures
from tests.contract.build import STAY, allocation, claim, pod, user
from tests.contract.places import Place, TreeClient, encoded, run_story

# Claims


def test_a_claim_is_reserved_only_with_an_allocation(place: Place) -> None:
    async def story(client: TreeClient) -> None:
        await client.create(claim("c"))
        with pytest.raises(failures.Refused):
            await client.patch(
                "ResourceClaim", "c", {"status": {"reservedFor": [user()]}}, sub="status"
            )
        both = {"status": {"allocation": allocation(), "reservedFor": [user()]}}
        after = await client.patch("ResourceClaim", "c", both, sub="status")
        assert after["status"]["reservedFor"] == [user()]
        with pytest.raises(failures.Refused):
            await client.patch("ResourceClaim", "c", {"status": {"allocation": None}}, sub="status")
        await client.patch(
            "ResourceClaim",
            "c",
            {"status": {"allocation": None, "reservedFor": None}},
            sub="status",
        )
        assert not (await client.get("ResourceClaim", "c")).get("status")

    run_story(place, story)


def test_an_allocation_is_set_and_cleared_but_not_changed(place: Place) -> None:
    async def story(client: TreeClient) -> None:
        await client.create(claim("c"))
        await client.patch(
            "ResourceClaim", "c", {"status": {"allocation": allocation()}}, sub="status"
        )
        with pytest.raises(failures.Refused):
            await client.patch(
                "ResourceClaim", "c", {"status": {"allocation": allocation("gpu-1")}}, sub="status"
            )
        unknown = {
            "devices": {"results": [allocation()["devices"]["results"][0] | {"request": "other"}]}
        }
        await client.patch("ResourceClaim", "c", {"status": {"allocation": None}}, sub="status")
        with pytest.raises(failures.Refused):
            await client.patch(
                "ResourceClaim", "c", {"status": {"allocation": unknown}}, sub="status"
            )
        await client.patch(
            "ResourceClaim", "c", {"status": {"allocation": allocation("gpu-1")}}, sub="status"
        )

    run_story(place, story)


def test_the_same_reservation_twice_is_refused(place: Place) -> None:
    async def story(client: TreeClient) -> None:
        await client.create(claim("c"))
        twice = {"status": {"allocation": allocation(), "reservedFor": [user(), user("q")]}}
        with pytest.raises(failures.Refused):
            await client.patch("ResourceClaim", "c", twice, sub="status")

    run_story(place, story)


def test_the_spec_of_a_claim_cannot_be_changed(place: Place) -> None:
    async def story(client: TreeClient) -> None:
        await client.create(claim("c"))
        other = [{"name": "gpu", "exactly": {"deviceClassName": "other.example.com"}}]
        with pytest.raises(failures.Refused):
            await client.patch("ResourceClaim", "c", {"spec": {"devices": {"requests": other}}})

    run_story(place, story)


def test_no_pod_is_added_to_a_claim_that_is_being_deleted(place: Place) -> None:
    async def story(client: TreeClient) -> None:
        await client.create(claim("c", **STAY))
        first = {"status": {"allocation": allocation(), "reservedFor": [user()]}}
        await client.patch("ResourceClaim", "c", first, sub="status")
        await client.delete("ResourceClaim", "c")
        more = {
            "status": {"reservedFor": [user(), user("q", "11111111-1111-4111-8111-111111111111")]}
        }
        with pytest.raises(failures.Refused):
            await client.patch("ResourceClaim", "c", more, sub="status")
        await client.patch("ResourceClaim", "c", {"status": {"reservedFor": None}}, sub="status")
        await client.patch("ResourceClaim", "c", {"metadata": {"finalizers": None}})

    run_story(place, story)


# Binding


def test_a_pod_is_bound_once(place: Place) -> None:
    async def story(client: TreeClient) -> None:
        made = await client.create(pod("a"))
        await client.patch("Pod", "a", {"status": {"nominatedNodeName": "n9"}}, sub="status")
        await client.bind("a", client.node, uid=made["metadata"]["uid"])
        after = await client.get("Pod", "a")
        assert after["spec"]["nodeName"] == client.node
        [scheduled] = [
            one for one in after["status"]["conditions"] if one["type"] == "PodScheduled"
        ]
        assert scheduled["status"] == "True"
        assert scheduled["lastTransitionTime"]
        assert "nominatedNodeName" not in after["status"]
        for again in (client.node, "n2"):
            with pytest.raises(failures.Conflict):
                await client.bind("a", again)
        assert (await client.get("Pod", "a"))["spec"]["nodeName"] == client.node

    run_story(place, story)


def test_a_binding_for_another_pod_of_the_name_is_a_conflict(place: Place) -> None:
    async def story(client: TreeClient) -> None:
        await client.create(pod("a"))
        with pytest.raises(failures.Conflict):
            await client.bind("a", client.node, uid="00000000-0000-4000-8000-000000000000")
        assert "nodeName" not in (await client.get("Pod", "a"))["spec"]

    run_story(place, story)


def test_a_gated_or_leaving_pod_is_not_bound(place: Place) -> None:
    async def story(client: TreeClient) -> None:
        await client.create(pod("gated", spec={"schedulingGates": [{"name": "dovetail.dev/wait"}]}))
        waiting = (await client.get("Pod", "gated"))["status"]["conditions"][0]
        assert (waiting["type"], waiting["status"], waiting["reason"]) == (
            "PodScheduled",
            "False",
            "SchedulingGated",
        )
        with pytest.raises(failures.Conflict):
            await client.bind("gated", client.node)
        await client.patch("Pod", "gated", {"spec": {"schedulingGates": None}})
        await client.bind("gated", client.node)
        await client.create(pod("leaving", **STAY))
        await client.delete("Pod", "leaving")
        more = {"metadata": {"finalizers": [*STAY["finalizers"], "dovetail.dev/more"]}}
        with pytest.raises(failures.Refused):
            await client.patch("Pod", "leaving", more)
        with pytest.raises(failures.Conflict):
            await client.bind("leaving", client.node)
        await client.patch("Pod", "leaving", {"metadata": {"finalizers": None}})

    run_story(place, story)


def test_a_pods_spec_does_not_move_it(place: Place) -> None:
    async def story(client: TreeClient) -> None:
        await client.create(pod("a"))
        with pytest.raises(failures.Refused):
            await client.patch("Pod", "a", {"spec": {"nodeName": client.node}})
        with pytest.raises(failures.Refused):
            await client.patch("Pod", "a", {"spec": {"nodeSelector": {"x": "y"}}})
        with pytest.raises(failures.Refused):
            await client.patch(
                "Pod", "a", {"spec": {"schedulingGates": [{"name": "dovetail.dev/wait"}]}}
            )

    run_story(place, story)


def test_a_limit_without_a_request_becomes_the_request(place: Place) -> None:
    async def story(client: TreeClient) -> None:
        container = {"name": "main", "image": "none", "resources": {"limits": {"cpu": "2"}}}
        made = await client.create(pod("a", spec={"containers": [container]}))
        assert made["spec"]["containers"][0]["resources"]["requests"] == {"cpu": "2"}
        assert made["spec"]["schedulerName"] == "default-scheduler"
        assert made["spec"]["priority"] == 0

    run_story(place, story)


# Deletion


def test_finalizers_keep_an_object_until_the_last_is_gone(place: Place) -> None:
    async def story(client: TreeClient) -> None:
        await client.create(claim("c", finalizers=["dovetail.dev/one", "dovetail.dev/two"]))
        await client.delete("ResourceClaim", "c")
        kept = await client.get("ResourceClaim", "c")
        assert kept["metadata"]["deletionTimestamp"]
        await client.delete("ResourceClaim", "c")  # again is no failure and changes nothing
        more = [*kept["metadata"]["finalizers"], "dovetail.dev/more"]
        with pytest.raises(failures.Refused):
            await client.patch("ResourceClaim", "c", {"metadata": {"finalizers": more}})
        await client.patch("ResourceClaim", "c", {"metadata": {"finalizers": ["dovetail.dev/one"]}})
        assert (await client.get("ResourceClaim", "c"))["metadata"]["finalizers"] == [
            "dovetail.dev/one"
        ]
        await client.patch("ResourceClaim", "c", {"metadata": {"finalizers": None}})
        with pytest.raises(failures.Missing):
            await client.get("ResourceClaim", "c")

    run_story(place, story)


def test_a_deletion_for_another_uid_or_version_is_a_conflict(place: Place) -> None:
    async def story(client: TreeClient) -> None:
        made = (await client.create(claim("c")))["metadata"]
        with pytest.raises(failures.Conflict):
            await client.delete("ResourceClaim", "c", uid="00000000-0000-4000-8000-000000000000")
        await client.patch("ResourceClaim", "c", {"metadata": {"labels": {"x": "y"}}})
        with pytest.raises(failures.Conflict):
            await client.delete("ResourceClaim", "c", resource_version=made["resourceVersion"])
        await client.delete("ResourceClaim", "c", uid=made["uid"])
        with pytest.raises(failures.Missing):
            await client.get("ResourceClaim", "c")

    run_story(place, story)


def test_a_pod_without_a_node_goes_at_once_and_one_with_a_node_after_its_grace(
    place: Place,
) -> None:
    async def story(client: TreeClient) -> None:
        await client.create(pod("free"))
        await client.delete("Pod", "free")
        with pytest.raises(failures.Missing):
            await client.get("Pod", "free")
        await client.create(pod("bound"))
        await client.bind("bound", client.node)
        await client.delete("Pod", "bound")
        leaving = await client.get("Pod", "bound")
        assert leaving["metadata"]["deletionGracePeriodSeconds"] == 30
        await client.patch("Pod", "bound", {"status": {"phase": "Failed"}}, sub="status")
        await client.delete("Pod", "bound")  # its grace was given before
        assert (await client.get("Pod", "bound"))["metadata"]["deletionGracePeriodSeconds"] == 30
        await client.create(pod("ended"))
        await client.bind("ended", client.node)
        await client.patch("Pod", "ended", {"status": {"phase": "Failed"}}, sub="status")
        await client.delete("Pod", "ended")  # what has ended needs no grace
        with pytest.raises(failures.Missing):
            await client.get("Pod", "ended")

    run_story(place, story)


def test_an_eviction_is_of_one_pod_and_can_be_rehearsed(place: Place) -> None:
    async def story(client: TreeClient) -> None:
        uid = (await client.create(pod("a")))["metadata"]["uid"]
        await client.bind("a", client.node)
        await client.patch(
            "Pod", "a", {"status": {"phase": "Running"}}, sub="status"
        )  # else a real server retries for a long time
        target = client.at("Pod", "a")
        with pytest.raises(failures.Conflict):
            await client.api.evict(target, uid="00000000-0000-4000-8000-000000000000")
        await client.api.evict(target, uid=uid, is_rehearsal=True)
        assert "deletionTimestamp" not in (await client.get("Pod", "a"))["metadata"]
        await client.api.evict(target, uid=uid)
        assert (await client.get("Pod", "a"))["metadata"]["deletionTimestamp"]
        with pytest.raises(failures.Missing):
            await client.api.evict(client.at("Pod", "missing"), uid=uid)

    run_story(place, story)


def test_an_eviction_is_a_deletion(place: Place) -> None:
    async def story(client: TreeClient) -> None:
        await client.create(pod("a"))
        await client.bind("a", client.node)
        body = {
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": {"name": "a"},
            "deleteOptions": {"gracePeriodSeconds": 7},
        }
        await client.api.create(client.at("Pod", "a", "eviction"), encoded(body))
        assert (await client.get("Pod", "a"))["metadata"]["deletionGracePeriodSeconds"] == 7

    run_story(place, story)


# Events


def test_an_event_can_be_created(place: Place) -> None:
    async def story(client: TreeClient) -> None:
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
                "namespace": client.namespace,
                "name": "a",
            },
            "note": "waits",
            "type": "Warning",
        }
        made = await client.create(event)
        assert (made["note"], made["type"]) == ("waits", "Warning")

    run_story(place, story)
