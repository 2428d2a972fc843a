"""What a ResourceQuota refuses and counts, checked on the server in memory and on real ones."""

from __future__ import annotations

from typing import Any

import pytest

from dovetail.ports import failures
from tests.contract.build import claim, pod
from tests.contract.places import Place, TreeClient, run_story
from tests.contract.test_controllers import template, using

Tree = dict[str, Any]
DEVICES = "gpu.example.com.deviceclass.resource.k8s.io/devices"


def quota(name: str = "team", **spec: Any) -> Tree:
    return {
        "apiVersion": "v1",
        "kind": "ResourceQuota",
        "metadata": {"name": name},
        "spec": spec,
    }


def asking(requests: Tree, **spec: Any) -> Tree:
    """The spec of a pod with one container that has these limits, which are its requests, too."""
    container = {"name": "main", "image": "none", "resources": {"limits": requests}}
    return {"containers": [container], **spec}


async def limit(place: Place, client: TreeClient, name: str = "team", **spec: Any) -> None:
    """A quota that is in force: its status is complete, and the server admits objects by it."""
    await fill_in(place, client, quota(name, **spec))
    await admission_reads(place, client, f"later-than-{name}")


async def fill_in(place: Place, client: TreeClient, tree: Tree) -> None:
    """Creates a quota and waits until its status has every amount."""
    await client.create(tree)
    name, hard = tree["metadata"]["name"], set(tree["spec"]["hard"])

    async def is_filled_in() -> bool:
        status = (await client.get("ResourceQuota", name)).get("status") or {}
        return hard == set(status.get("hard", ())) == set(status.get("used", ()))

    await place.until(is_filled_in)


async def admission_reads(place: Place, client: TreeClient, name: str) -> None:
    """Waits until the server admits by every quota whose status is complete now.

    A real server admits by quotas that it watches, a little behind what a client reads. It sees
    them in the order they were written: once a later quota refuses, the earlier ones are in force.
    """
    defaults = {
        "apiVersion": "v1",
        "kind": "LimitRange",
        "metadata": {"name": name},
        "spec": {"limits": []},
    }
    await fill_in(place, client, quota(name, hard={"count/limitranges": "0"}))

    async def is_refused() -> bool:
        try:
            await client.create(defaults)
        except failures.Refused as refused:
            return f"exceeded quota: {name}," in str(refused)
        await client.delete("LimitRange", name)
        return False

    await place.until(is_refused)
    await client.delete("ResourceQuota", name)


async def used_becomes(place: Place, client: TreeClient, amounts: Tree, name: str = "team") -> None:
    """Waits until the quota's status says this."""

    async def is_so() -> bool:
        status = (await client.get("ResourceQuota", name))["status"]
        return bool(status["used"] == amounts)

    await place.until(is_so)


async def refusal(client: TreeClient, tree: Tree) -> str:
    """The server's message when it forbids an object."""
    with pytest.raises(failures.Refused) as refused:
        await client.create(tree)
    assert (refused.value.status, refused.value.reason) == (403, "Forbidden")
    return str(refused.value)


def test_a_pod_above_the_count_is_forbidden_until_another_one_is_gone(place: Place) -> None:
    async def story(client: TreeClient) -> None:
        await limit(place, client, hard={"pods": "1", "count/pods": "5"})
        await client.create(pod("a"))
        message = await refusal(client, pod("b"))
        assert (
            'pods "b" is forbidden: exceeded quota: team, '
            "requested: pods=1, used: pods=1, limited: pods=1" in message
        )
        await used_becomes(place, client, {"pods": "1", "count/pods": "1"})
        await client.delete("Pod", "a")
        await used_becomes(place, client, {"pods": "0", "count/pods": "0"})
        await client.create(pod("b"))

    run_story(place, story)


def test_a_pod_that_ended_takes_no_compute_but_still_counts_as_an_object(place: Place) -> None:
    async def story(client: TreeClient) -> None:
        await limit(place, client, hard={"requests.cpu": "1", "count/pods": "9"})
        await client.create(pod("a", spec=asking({"cpu": "1"}, restartPolicy="Never")))
        await used_becomes(place, client, {"requests.cpu": "1", "count/pods": "1"})
        await client.bind("a", client.node)
        await client.patch("Pod", "a", {"status": {"phase": "Succeeded"}}, sub="status")
        await used_becomes(place, client, {"requests.cpu": "0", "count/pods": "1"})
        await client.create(pod("b", spec=asking({"cpu": "1"})))

    run_story(place, story)


def test_compute_and_extended_resources_are_added_up_and_refused_in_numbers(place: Place) -> None:
    async def story(client: TreeClient) -> None:
        hard = {
            "requests.cpu": "2",
            "limits.memory": "3Gi",
            "requests.nvidia.com/gpu": "4",
        }
        await limit(place, client, hard=hard)
        resources = {"cpu": "1500m", "memory": "1Gi", "nvidia.com/gpu": "3"}
        await client.create(pod("a", spec=asking(resources)))
        message = await refusal(client, pod("b", spec=asking(resources)))
        assert (
            "exceeded quota: team, requested: requests.cpu=1500m,requests.nvidia.com/gpu=3, "
            "used: requests.cpu=1500m,requests.nvidia.com/gpu=3, "
            "limited: requests.cpu=2,requests.nvidia.com/gpu=4" in message
        )
        used = {
            "requests.cpu": "1500m",
            "limits.memory": "1Gi",
            "requests.nvidia.com/gpu": "3",
        }
        await used_becomes(place, client, used)

    run_story(place, story)


def test_a_container_has_to_state_what_the_quota_counts(place: Place) -> None:
    async def story(client: TreeClient) -> None:
        await limit(place, client, hard={"requests.cpu": "2", "limits.memory": "3Gi"})
        message = await refusal(client, pod("a"))
        assert (
            'pods "a" is forbidden: failed quota: team: must specify '
            "limits.memory for: main; requests.cpu for: main" in message
        )

    run_story(place, story)


def test_a_quota_with_scopes_counts_only_pods_in_them(place: Place) -> None:
    async def story(client: TreeClient) -> None:
        await limit(place, client, "brief", hard={"pods": "1"}, scopes=["Terminating"])
        await limit(place, client, "effortless", hard={"pods": "2"}, scopes=["BestEffort"])
        by_class = {
            "scopeName": "PriorityClass",
            "operator": "In",
            "values": ["system-node-critical"],
        }
        selector = {"matchExpressions": [by_class]}
        await limit(place, client, "critical", hard={"pods": "0"}, scopeSelector=selector)

        await client.create(pod("a", spec=asking({"cpu": "1"}, activeDeadlineSeconds=60)))
        late = pod("b", spec=asking({"cpu": "1"}, activeDeadlineSeconds=60))
        assert "exceeded quota: brief" in await refusal(client, late)
        await client.create(pod("b", spec=asking({"cpu": "1"})))

        await client.create(pod("c"))
        await client.create(pod("d"))
        assert "exceeded quota: effortless" in await refusal(client, pod("e"))

        critical = asking({"cpu": "1"}, priorityClassName="system-node-critical")
        assert "exceeded quota: critical" in await refusal(client, pod("e", spec=critical))

    run_story(place, story)


def test_claims_are_charged_by_class_and_count_when_they_are_created(place: Place) -> None:
    async def story(client: TreeClient) -> None:
        count = "count/resourceclaims.resource.k8s.io"
        await limit(place, client, hard={DEVICES: "1", count: "5"})
        await client.create(claim("a"))
        message = await refusal(client, claim("b"))
        assert (
            'resourceclaims.resource.k8s.io "b" is forbidden: exceeded quota: team, '
            f"requested: {DEVICES}=1, used: {DEVICES}=1, limited: {DEVICES}=1" in message
        )
        await used_becomes(place, client, {DEVICES: "1", count: "1"})

    run_story(place, story)


def test_a_claim_of_a_template_waits_for_the_quota_and_an_event_says_so(place: Place) -> None:
    async def story(client: TreeClient) -> None:
        await limit(place, client, hard={DEVICES: "0"})
        await client.create(template("t"))
        await client.create(pod("a", spec=using(resourceClaimTemplateName="t")))
        await used_becomes(place, client, {DEVICES: "0"})

        async def has_claim() -> bool:
            status = (await client.get("Pod", "a"))["status"]
            return bool(status.get("resourceClaimStatuses"))

        assert not await has_claim()
        await client.patch("ResourceQuota", "team", {"spec": {"hard": {DEVICES: "1"}}})
        await place.until(has_claim)
        await used_becomes(place, client, {DEVICES: "1"})

    run_story(place, story)


def test_storage_is_counted_in_all_and_by_class(place: Place) -> None:
    async def story(client: TreeClient) -> None:
        by_class = "fast.storageclass.storage.k8s.io/requests.storage"
        hard = {"persistentvolumeclaims": "5", "requests.storage": "3Gi", by_class: "1Gi"}
        await limit(place, client, hard=hard)
        await client.create(volume_claim("a", "2Gi", "slow"))
        message = await refusal(client, volume_claim("b", "2Gi", "fast"))
        assert (
            'persistentvolumeclaims "b" is forbidden: exceeded quota: team, requested: '
            f"{by_class}=2Gi,requests.storage=2Gi, used: {by_class}=0,requests.storage=2Gi, "
            f"limited: {by_class}=1Gi,requests.storage=3Gi" in message
        )
        await client.create(volume_claim("b", "1Gi", "fast"))
        used = {"persistentvolumeclaims": "2", "requests.storage": "3Gi", by_class: "1Gi"}
        await used_becomes(place, client, used)

    run_story(place, story)


def test_objects_older_than_the_quota_count_too_and_none_is_taken_away(place: Place) -> None:
    async def story(client: TreeClient) -> None:
        await client.create(pod("a"))
        await client.create(pod("b"))
        await limit(place, client, hard={"pods": "1"})
        await used_becomes(place, client, {"pods": "2"})
        await admission_reads(place, client, "later-than-the-count")
        assert "used: pods=2, limited: pods=1" in await refusal(client, pod("c"))
        await client.patch("Pod", "a", {"metadata": {"labels": {"still": "changeable"}}})

    run_story(place, story)


def test_objects_of_any_kind_are_counted(place: Place) -> None:
    async def story(client: TreeClient) -> None:
        key = "count/leases.coordination.k8s.io"
        await limit(place, client, hard={key: "0"})
        lease = {
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": {"name": "a"},
            "spec": {},
        }
        message = await refusal(client, lease)
        assert f"requested: {key}=1, used: {key}=0, limited: {key}=0" in message

    run_story(place, story)


def volume_claim(name: str, size: str, storage_class: str) -> Tree:
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": name},
        "spec": {
            "accessModes": ["ReadWriteOnce"],
            "storageClassName": storage_class,
            "resources": {"requests": {"storage": size}},
        },
    }
