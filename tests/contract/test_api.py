"""What the loops rely on in an API server, checked on the one in memory and on real ones with the same requests.

Versions, names and patches; what a write of the object and a write of its status may change.
"""

from __future__ import annotations

import pytest

from dovetail.ports import failures
from tests.contract.build import allocation, claim, lease, node, pod, user
from tests.contract.places import Place, TreeClient, fresh, run_story

# Versions and identity


def test_a_stale_version_is_a_conflict_and_changes_nothing(place: Place) -> None:
    async def story(client: TreeClient) -> None:
        old = (await client.create(lease("a")))["metadata"]["resourceVersion"]
        new = (await client.patch("Lease", "a", {"spec": {"holderIdentity": "b"}}))["metadata"][
            "resourceVersion"
        ]
        assert new != old
        with pytest.raises(failures.Conflict):
            await client.patch(
                "Lease",
                "a",
                {"metadata": {"resourceVersion": old}, "spec": {"holderIdentity": "c"}},
            )
        assert (await client.get("Lease", "a"))["spec"]["holderIdentity"] == "b"
        await client.patch(
            "Lease", "a", {"metadata": {"resourceVersion": new}, "spec": {"holderIdentity": "d"}}
        )
        assert (await client.get("Lease", "a"))["spec"]["holderIdentity"] == "d"

    run_story(place, story)


def test_a_patch_for_another_uid_changes_nothing(place: Place) -> None:
    async def story(client: TreeClient) -> None:
        await client.create(pod("a"))
        await client.create(claim("a"))
        other = "00000000-0000-4000-8000-000000000000"
        for kind, sub in (
            ("Pod", ""),
            ("Pod", "status"),
            ("ResourceClaim", ""),
            ("ResourceClaim", "status"),
        ):
            with pytest.raises(
                failures.Refused
            ):  # not a conflict: the uid counts as a field that cannot change
                await client.patch(
                    kind, "a", {"metadata": {"uid": other, "labels": {"x": "y"}}}, sub=sub
                )
            assert "labels" not in (await client.get(kind, "a"))["metadata"]

    run_story(place, story)


def test_a_patch_that_changes_nothing_keeps_the_version(place: Place) -> None:
    async def story(client: TreeClient) -> None:
        before = await client.create(lease("a"))
        after = await client.patch("Lease", "a", {"spec": {"holderIdentity": "a"}})
        assert after["metadata"]["resourceVersion"] == before["metadata"]["resourceVersion"]

    run_story(place, story)


def test_a_patch_that_adds_a_condition_leaves_the_others_as_they_are(place: Place) -> None:
    async def story(client: TreeClient) -> None:
        await client.create(pod("a"))
        theirs = {
            "type": "example.com/Warm",
            "status": "False",
            "reason": "Cold",
            "message": "theirs",
        }
        ours = {
            "type": "PodScheduled",
            "status": "False",
            "reason": "Unschedulable",
            "message": "ours",
        }
        await client.patch("Pod", "a", {"status": {"conditions": [theirs]}}, sub="status")
        for message in ("ours", "ours again"):
            change = {"status": {"conditions": [ours | {"message": message}]}}
            await client.patch("Pod", "a", change, sub="status", adds=True)
            found = {
                one["type"]: one for one in (await client.get("Pod", "a"))["status"]["conditions"]
            }
            assert theirs.items() <= found["example.com/Warm"].items()
            assert found["PodScheduled"]["message"] == message

    run_story(place, story)


def test_a_finalizer_is_added_and_nothing_else_changes_if_no_other_write_came_first(
    place: Place,
) -> None:
    async def story(client: TreeClient) -> None:
        made = await client.create(pod("a"))
        at, identity = client.at("Pod", "a"), made["metadata"]
        known = {"uid": identity["uid"], "resource_version": identity["resourceVersion"]}
        for name, value in (("uid", "another"), ("resource_version", "1")):
            with pytest.raises(failures.ApiFailure):
                await client.api.protect(at, "example.com/keep", **(known | {name: value}))
        await client.api.protect(at, "example.com/keep", **known)
        after = await client.get("Pod", "a")
        assert after["metadata"]["finalizers"] == ["example.com/keep"]
        assert after["spec"] == (made["spec"])
        with pytest.raises(failures.ApiFailure):  # the version is another by now
            await client.api.protect(at, "example.com/more", **known)
        await client.patch("Pod", "a", {"metadata": {"finalizers": None}})

    run_story(place, story)


def test_what_is_missing_is_missing_for_every_verb(place: Place) -> None:
    async def story(client: TreeClient) -> None:
        with pytest.raises(failures.Missing):
            await client.get("Pod", "missing")
        with pytest.raises(failures.Missing):
            await client.patch("Pod", "missing", {"metadata": {"labels": {"x": "y"}}})
        with pytest.raises(failures.Missing):
            await client.delete("Pod", "missing")
        with pytest.raises(failures.Missing):
            await client.bind("missing", client.node)
        lost = TreeClient(client.api, "no-such-namespace")
        with pytest.raises(failures.Missing):
            await lost.create(claim("a"))

    run_story(place, story)


def test_a_name_can_be_taken_once(place: Place) -> None:
    async def story(client: TreeClient) -> None:
        first = await client.create(claim("a"))
        with pytest.raises(failures.AlreadyThere):
            await client.create(claim("a"))
        assert (await client.get("ResourceClaim", "a"))["metadata"]["uid"] == first["metadata"][
            "uid"
        ]
        await client.delete("ResourceClaim", "a")
        assert (await client.create(claim("a")))["metadata"]["uid"] != first["metadata"]["uid"]

    run_story(place, story)


def test_a_prefix_becomes_a_name(place: Place) -> None:
    async def story(client: TreeClient) -> None:
        names = set()
        for _ in range(3):
            given = claim("")
            given["metadata"] = {"generateName": "worker-gpu-"}
            made = await client.create(given)
            assert made["metadata"]["generateName"] == "worker-gpu-"
            names.add(made["metadata"]["name"])
        assert len(names) == 3
        assert all(
            name.startswith("worker-gpu-") and len(name) == len("worker-gpu-") + 5 for name in names
        )
        long = claim("")
        long["metadata"] = {"generateName": "x" * 70 + "-"}
        assert (await client.create(long))["metadata"]["name"].startswith("x" * 58)
        nameless = claim("")
        nameless["metadata"] = {}
        with pytest.raises(failures.Refused):
            await client.create(nameless)

    run_story(place, story)


def test_a_writer_cannot_bring_a_version_a_uid_or_another_kind(place: Place) -> None:
    async def story(client: TreeClient) -> None:
        with pytest.raises(failures.Unavailable):  # a real server takes this for a fault of its own
            await client.create(lease("a", resourceVersion="5"))
        made = await client.create(lease("b", uid="00000000-0000-4000-8000-000000000000"))
        assert made["metadata"]["uid"] != "00000000-0000-4000-8000-000000000000"
        with pytest.raises(failures.Refused):
            await client.api.create(
                client.at("Lease", ""), b'{"apiVersion":"v1","kind":"Pod","metadata":{"name":"c"}}'
            )
        with pytest.raises(failures.Refused):
            await client.api.create(client.at("Lease", ""), b"{")
        with pytest.raises(failures.Refused):
            await client.patch("Lease", "b", {"metadata": {"name": "c"}})

    run_story(place, story)


def test_brief_answers_carry_the_metadata_and_nothing_else(place: Place) -> None:
    async def story(client: TreeClient) -> None:
        made = await client.create(lease("a"), brief=True)
        changed = await client.patch("Lease", "a", {"spec": {"holderIdentity": "b"}}, brief=True)
        for answer in (made, changed):
            assert answer["kind"] == "PartialObjectMetadata"
            assert answer["metadata"]["name"] == "a"
            assert answer["metadata"]["resourceVersion"]
            assert "spec" not in answer
        assert changed["metadata"]["resourceVersion"] != made["metadata"]["resourceVersion"]
        whole = await client.get("Lease", "a")
        assert whole["metadata"]["resourceVersion"] == changed["metadata"]["resourceVersion"]

    run_story(place, story)


def test_null_deletes_a_key_and_lists_are_whole(place: Place) -> None:
    async def story(client: TreeClient) -> None:
        await client.create(
            pod(
                "a",
                labels={"x": "1", "y": "2"},
                finalizers=["dovetail.dev/one", "dovetail.dev/two"],
            )
        )
        after = await client.patch(
            "Pod", "a", {"metadata": {"labels": {"x": None}, "finalizers": ["dovetail.dev/two"]}}
        )
        assert after["metadata"]["labels"] == {"y": "2"}
        assert after["metadata"]["finalizers"] == ["dovetail.dev/two"]
        await client.patch("Pod", "a", {"metadata": {"labels": None, "finalizers": None}})
        assert "labels" not in (await client.get("Pod", "a"))["metadata"]

    run_story(place, story)


# Status and main


def test_a_write_of_the_object_leaves_its_status(place: Place) -> None:
    async def story(client: TreeClient) -> None:
        await client.create(pod("a") | {"status": {"phase": "Running"}})
        assert (await client.get("Pod", "a"))["status"]["phase"] == "Pending"
        after = await client.patch(
            "Pod", "a", {"metadata": {"labels": {"x": "y"}}, "status": {"phase": "Failed"}}
        )
        assert (after["status"]["phase"], after["metadata"]["labels"]) == ("Pending", {"x": "y"})
        await client.create(
            claim("c") | {"status": {"allocation": allocation(), "reservedFor": [user()]}}
        )
        assert not (await client.get("ResourceClaim", "c")).get("status")
        after = await client.patch("ResourceClaim", "c", {"status": {"allocation": allocation()}})
        assert not after.get("status")

    run_story(place, story)


def test_a_write_of_the_status_leaves_the_object(place: Place) -> None:
    async def story(client: TreeClient) -> None:
        await client.create(claim("c", labels={"x": "1"}))
        change = {
            "metadata": {
                "labels": {"x": "2"},
                "finalizers": ["resource.kubernetes.io/delete-protection"],
            },
            "spec": {"devices": {"requests": []}},
            "status": {"allocation": allocation()},
        }
        after = await client.patch("ResourceClaim", "c", change, sub="status")
        assert after["metadata"]["labels"] == {"x": "1"}
        assert "finalizers" not in after["metadata"]
        assert after["spec"]["devices"]["requests"][0]["name"] == "gpu"
        assert after["status"]["allocation"]["devices"]["results"][0]["device"] == "gpu-0"
        await client.create(pod("a"))
        change = {"spec": {"nodeName": client.node}, "status": {"phase": "Running"}}
        after = await client.patch("Pod", "a", change, sub="status")
        assert after["status"]["phase"] == "Running"
        assert "nodeName" not in after["spec"]
        owner = {"apiVersion": "v1", "kind": "Pod", "name": "a", "uid": after["metadata"]["uid"]}
        change = {"metadata": {"labels": {"x": "y"}, "ownerReferences": [owner]}}
        after = await client.patch(
            "Pod", "a", change, sub="status"
        )  # of pods, labels pass here and owners do not
        assert after["metadata"]["labels"] == {"x": "y"}
        assert "ownerReferences" not in after["metadata"]

    run_story(place, story)


def test_a_new_node_brings_its_status_and_later_changes_it_beside_the_object(place: Place) -> None:
    async def story(client: TreeClient) -> None:
        name = fresh("node")
        amounts = {"cpu": "4", "memory": "8Gi", "pods": "110"}
        made = await client.create(node(name, status={"capacity": amounts, "allocatable": amounts}))
        try:
            assert made["status"]["allocatable"]["pods"] == "110"
            after = await client.patch("Node", name, {"status": {"allocatable": {"pods": "5"}}})
            assert after["status"]["allocatable"]["pods"] == "110"
            change = {"spec": {"unschedulable": True}, "status": {"allocatable": {"pods": "5"}}}
            after = await client.patch("Node", name, change, sub="status")
            assert after["status"]["allocatable"] == amounts | {"pods": "5"}
            assert "unschedulable" not in after["spec"]
        finally:
            await client.delete("Node", name)

    run_story(place, story)


def test_a_kind_without_a_status_has_no_such_path(place: Place) -> None:
    async def story(client: TreeClient) -> None:
        await client.create(lease("a"))
        with pytest.raises(failures.Missing):
            await client.patch("Lease", "a", {"status": {}}, sub="status")

    run_story(place, story)
