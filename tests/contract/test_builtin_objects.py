"""What every cluster has from the start, and what it does with priorities, checked on every server."""

from __future__ import annotations

import pytest

from dovetail.ports import failures
from tests.contract.build import pod
from tests.contract.places import Place, TreeClient, fresh, run_story


def test_a_namespace_has_its_default_service_account_also_after_it_is_deleted(place: Place) -> None:
    async def story(client: TreeClient) -> None:
        async def is_there() -> bool:
            return await client.find("ServiceAccount", "default") is not None

        await place.until(is_there)
        old = (await client.get("ServiceAccount", "default"))["metadata"]["uid"]
        await client.delete("ServiceAccount", "default")

        async def is_back() -> bool:
            account = await client.find("ServiceAccount", "default")
            return account is not None and account["metadata"]["uid"] != old

        await place.until(is_back)

    run_story(place, story)


def test_the_priority_classes_of_the_system_are_there(place: Place) -> None:
    async def story(client: TreeClient) -> None:
        for name, value in (
            ("system-node-critical", 2_000_001_000),
            ("system-cluster-critical", 2_000_000_000),
        ):
            assert (await client.get("PriorityClass", name))["value"] == value

    run_story(place, story)


def test_a_pod_may_not_state_another_priority_than_its_class_gives_it(place: Place) -> None:
    async def story(client: TreeClient) -> None:
        with pytest.raises(failures.Refused) as refused:
            await client.create(pod("a", spec={"priority": 7}))
        assert refused.value.status == 403
        assert (
            'pods "a" is forbidden: the integer value of priority (7) must not be provided in pod '
            "spec; priority admission controller computed 0 from the given PriorityClass name"
            in str(refused.value)
        )
        policy = {"preemptionPolicy": "Never"}
        with pytest.raises(failures.Refused, match=r"string value of PreemptionPolicy \(Never\)"):
            await client.create(pod("a", spec=policy))
        with pytest.raises(failures.Refused, match="no PriorityClass with name"):
            await client.create(pod("a", spec={"priorityClassName": fresh("unknown")}))

        plain = await client.create(pod("a", spec={"priority": 0}))
        assert (plain["spec"]["priority"], plain["spec"]["preemptionPolicy"]) == (
            0,
            "PreemptLowerPriority",
        )
        critical = await client.create(pod("b", spec={"priorityClassName": "system-node-critical"}))
        assert critical["spec"]["priority"] == 2_000_001_000

    run_story(place, story)
