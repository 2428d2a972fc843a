"""What LimitRanges fill in and forbid, checked on the server in memory and on real ones."""

from __future__ import annotations

from typing import Any

import pytest

from dovetail.ports import failures
from tests.contract.build import pod
from tests.contract.places import Place, TreeClient, run_story

Tree = dict[str, Any]


def limits(*items: Tree, name: str = "bounds") -> Tree:
    return {
        "apiVersion": "v1",
        "kind": "LimitRange",
        "metadata": {"name": name},
        "spec": {"limits": list(items)},
    }


def container(name: str = "main", **resources: Tree) -> Tree:
    return {"name": name, "image": "none", "resources": resources}


def volume_claim(storage: str) -> Tree:
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": "data"},
        "spec": {
            "accessModes": ["ReadWriteOnce"],
            "resources": {"requests": {"storage": storage}},
        },
    }


# Every pod of these stories has it, because the bound of the probe asks for it.
PROBE = {"example.com/probe": "1"}


async def limit(place: Place, client: TreeClient, item: Tree) -> None:
    """A bound that is in force: real servers learn of it a moment later, and of the probe after it."""
    await client.create(limits(item))
    await client.create(limits({"type": "Pod", "max": PROBE}, name="probe"))

    async def is_in_force() -> bool:
        try:
            await client.create(pod("probe"))
        except failures.Refused as refused:
            return "example.com/probe" in str(refused)
        await client.delete("Pod", "probe")
        return False

    await place.until(is_in_force)


def probed(**resources: Tree) -> Tree:
    """A container with the resources, and with what the probe's bound wants."""
    given = resources.get("limits") or {}
    return container(**(resources | {"limits": given | PROBE}))


def test_a_range_derives_its_defaults_from_its_bounds(place: Place) -> None:
    async def story(client: TreeClient) -> None:
        stored = await client.create(
            limits(
                {
                    "type": "Container",
                    "max": {"cpu": "2", "memory": "1Gi"},
                    "min": {"cpu": "100m", "ephemeral-storage": "1Mi"},
                    "default": {"cpu": "500m"},
                },
                {"type": "Pod", "max": {"cpu": "4"}},
            )
        )
        assert stored["spec"]["limits"] == [
            {
                "type": "Container",
                "max": {"cpu": "2", "memory": "1Gi"},
                "min": {"cpu": "100m", "ephemeral-storage": "1Mi"},
                "default": {"cpu": "500m", "memory": "1Gi"},
                "defaultRequest": {"cpu": "500m", "memory": "1Gi", "ephemeral-storage": "1Mi"},
            },
            {"type": "Pod", "max": {"cpu": "4"}},
        ]

    run_story(place, story)


def test_a_pod_gets_the_defaults_that_its_containers_leave_open(place: Place) -> None:
    async def story(client: TreeClient) -> None:
        defaults = {"cpu": "500m", "memory": "1Gi"}
        item = {"type": "Container", "default": defaults, "defaultRequest": {"cpu": "100m"}}
        await limit(place, client, item)
        spec = {
            "containers": [
                probed(),
                container("half", limits={"cpu": "2"}),
            ],
            "initContainers": [container("first", requests={"memory": "1Mi"})],
        }
        stored = await client.create(pod("a", spec=spec))
        main, half = (each["resources"] for each in stored["spec"]["containers"])
        (first,) = (each["resources"] for each in stored["spec"]["initContainers"])
        assert main == {
            "limits": defaults | PROBE,
            "requests": {"cpu": "100m", "memory": "1Gi"} | PROBE,
        }
        assert half == {
            "limits": {"cpu": "2", "memory": "1Gi"},
            "requests": {"cpu": "2", "memory": "1Gi"},
        }
        assert first == {"limits": defaults, "requests": {"cpu": "100m", "memory": "1Mi"}}
        note = stored["metadata"]["annotations"]["kubernetes.io/limit-ranger"]
        assert note == (
            "LimitRanger plugin set: cpu, memory request for container main; "
            "cpu, memory limit for container main; memory request for container half; "
            "memory limit for container half; cpu request for init container first; "
            "cpu, memory limit for init container first"
        )

    run_story(place, story)


@pytest.mark.parametrize(
    ("item", "resources", "refusal"),
    [
        (
            {"type": "Container", "min": {"cpu": "100m"}},
            {"requests": {"cpu": "50m"}},
            "minimum cpu usage per Container is 100m, but request is 50m",
        ),
        (
            {"type": "Container", "max": {"cpu": "1"}},
            {"limits": {"cpu": "1500m"}},
            "maximum cpu usage per Container is 1, but limit is 1500m",
        ),
        (
            {"type": "Pod", "max": {"memory": "1Gi"}},
            {"requests": {"memory": "2Gi"}},
            "maximum memory usage per Pod is 1Gi.  No limit is specified",
        ),
        (
            {"type": "Pod", "min": {"memory": "1Gi"}},
            {},
            "minimum memory usage per Pod is 1Gi.  No request is specified",
        ),
        (
            {"type": "Pod", "max": {"cpu": "3"}},
            {"limits": {"cpu": "2"}},
            "maximum cpu usage per Pod is 3, but limit is 4",
        ),
        (
            {"type": "Container", "maxLimitRequestRatio": {"cpu": "2"}},
            {"requests": {"cpu": "1"}, "limits": {"cpu": "4"}},
            "cpu max limit to request ratio per Container is 2, but provided ratio is 4.000000",
        ),
    ],
)
def test_a_pod_beyond_the_bounds_is_forbidden(
    place: Place, item: Tree, resources: Tree, refusal: str
) -> None:
    async def story(client: TreeClient) -> None:
        await limit(place, client, item)
        both = {"containers": [probed(**resources), container("side", **resources)]}
        with pytest.raises(failures.Refused) as refused:
            await client.create(pod("a", spec=both))
        assert (refused.value.status, refused.value.reason) == (403, "Forbidden")
        assert 'pods "a" is forbidden: ' in str(refused.value)
        assert refusal in str(refused.value)

    run_story(place, story)


def test_a_volume_claim_beyond_the_bounds_is_forbidden(place: Place) -> None:
    async def story(client: TreeClient) -> None:
        bounds = {"min": {"storage": "1Gi"}, "max": {"storage": "2Gi"}}
        await limit(place, client, {"type": "PersistentVolumeClaim", **bounds})
        start = 'persistentvolumeclaims "data" is forbidden: '
        large = "maximum storage usage per PersistentVolumeClaim is 2Gi, but request is 3Gi"
        with pytest.raises(failures.Refused, match=start + large):
            await client.create(volume_claim("3Gi"))
        small = "minimum storage usage per PersistentVolumeClaim is 1Gi, but request is 1Mi"
        with pytest.raises(failures.Refused, match=start + small):
            await client.create(volume_claim("1Mi"))
        await client.create(volume_claim("2Gi"))

    run_story(place, story)
