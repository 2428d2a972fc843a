"""The cluster in memory: state in, state out; all objects or none; what a server stamps, and what it refuses."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from dovetail.kubetypes import field_errors
from dovetail.sim.local import local_cluster
from dovetail.sim.server import merge

NOON = "2026-03-01T12:00:00Z"
LATER = "2026-03-01T13:00:00Z"
EMPTY = local_cluster.Cluster("test")


def no_objection(expression: str) -> field_errors.ExpressionFault | None:
    return field_errors.ExpressionFault("does not compile") if expression == "broken" else None


def put(
    cluster: local_cluster.Cluster,
    *trees: dict[str, Any],
    now: str = NOON,
    namespace: str = "default",
) -> local_cluster.Applied | local_cluster.Refused:
    given = [local_cluster.Given(tree, f"file:{index}") for index, tree in enumerate(trees)]
    return local_cluster.apply(
        cluster, given, now=now, check_selector=no_objection, namespace=namespace
    )


def taken(outcome: local_cluster.Applied | local_cluster.Refused) -> local_cluster.Cluster:
    assert isinstance(outcome, local_cluster.Applied), outcome
    return outcome.cluster


def outcomes(outcome: local_cluster.Applied | local_cluster.Refused) -> list[str]:
    assert isinstance(outcome, local_cluster.Applied), outcome
    return [change.outcome for change in outcome.changes]


def refusals(outcome: local_cluster.Applied | local_cluster.Refused) -> list[tuple[str, str]]:
    assert isinstance(outcome, local_cluster.Refused), outcome
    return [(problem.subject, problem.field) for problem in outcome.problems]


def namespace(name: str, **labels: str) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}}


def claim(name: str, *, device_class: str = "gpu.nvidia.com", **metadata: Any) -> dict[str, Any]:
    request = {"name": "gpu", "exactly": {"deviceClassName": device_class}}
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {"name": name, **metadata},
        "spec": {"devices": {"requests": [request]}},
    }


def device_class(name: str, *expressions: str) -> dict[str, Any]:
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "DeviceClass",
        "metadata": {"name": name},
        "spec": {"selectors": [{"cel": {"expression": expression}} for expression in expressions]},
    }


def tree_of(
    cluster: local_cluster.Cluster, kind: str, name: str, *, space: str = "default"
) -> dict[str, Any]:
    found = local_cluster.get(cluster, local_cluster.Key(kind, space, name))
    assert found is not None
    return found.tree


READY = taken(put(EMPTY, namespace("default")))


def test_a_created_object_gets_what_a_server_gives_it() -> None:
    cluster = taken(put(READY, claim("a")))
    stored = tree_of(cluster, "ResourceClaim", "a")
    metadata = stored["metadata"]
    assert metadata["namespace"] == "default"
    assert metadata["creationTimestamp"] == NOON
    assert metadata["resourceVersion"] == str(cluster.revision) == "2"
    assert len(metadata["uid"]) == 36
    assert stored["spec"]["devices"]["requests"][0]["exactly"]["count"] == 1
    assert stored["spec"]["devices"]["requests"][0]["exactly"]["allocationMode"] == "ExactCount"


def test_the_old_cluster_stays_as_it_was() -> None:
    before = dict(READY.records)
    put(READY, claim("a"))
    assert READY.records == before
    assert READY.revision == 1


def test_applying_again_changes_nothing_whatever_the_time() -> None:
    once = taken(put(READY, claim("a")))
    again = put(once, claim("a"), now=LATER)
    assert outcomes(again) == ["unchanged"]
    assert taken(again) == once


def test_a_changed_label_configures_keeps_identity_and_counts_on() -> None:
    once = taken(put(READY, claim("a", labels={"team": "red"})))
    twice = put(once, claim("a", labels={"team": "blue"}), now=LATER)
    assert outcomes(twice) == ["configured"]
    old, new = (tree_of(one, "ResourceClaim", "a")["metadata"] for one in (once, taken(twice)))
    assert new["labels"] == {"team": "blue"}
    assert (new["uid"], new["creationTimestamp"]) == (old["uid"], NOON)
    assert int(new["resourceVersion"]) > int(old["resourceVersion"])
    assert new["generation"] == old["generation"]


def test_a_changed_spec_counts_a_generation() -> None:
    once = taken(put(READY, device_class("fast", "true")))
    twice = taken(put(once, device_class("fast", "false")))
    assert tree_of(once, "DeviceClass", "fast", space="")["metadata"]["generation"] == 1
    assert tree_of(twice, "DeviceClass", "fast", space="")["metadata"]["generation"] == 2


def test_the_spec_of_a_claim_cannot_change() -> None:
    once = taken(put(READY, claim("a")))
    assert refusals(put(once, claim("a", device_class="mig.nvidia.com"))) == [
        ("ResourceClaim default/a", "spec")
    ]


def test_a_recreated_object_is_another_one() -> None:
    once = taken(put(READY, claim("a")))
    gone = local_cluster.delete(once, local_cluster.Key("ResourceClaim", "default", "a"))
    assert gone is not None
    again = taken(put(gone, claim("a")))
    old, new = (tree_of(one, "ResourceClaim", "a")["metadata"]["uid"] for one in (once, again))
    assert old != new


def test_deleting_what_is_not_there_says_so() -> None:
    assert local_cluster.delete(READY, local_cluster.Key("Pod", "default", "nope")) is None


def test_one_bad_object_keeps_all_others_out_and_every_problem_is_named() -> None:
    outcome = put(
        READY,
        claim("good"),
        claim("bad", device_class="Not A Name"),
        device_class("odd", "broken"),
        {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "UPPER"}},
    )
    assert refusals(outcome) == [
        ("ResourceClaim default/bad", "spec.devices.requests[0].exactly.deviceClassName"),
        ("DeviceClass odd", "spec.selectors[0].cel.expression"),
        ("Node UPPER", "metadata.name"),
    ]
    assert isinstance(outcome, local_cluster.Refused)
    assert str(outcome.problems[0]).startswith("file:1: ResourceClaim default/bad: spec.devices")


def test_a_namespace_must_exist_or_come_along() -> None:
    elsewhere = claim("a", namespace="train")
    assert refusals(put(READY, elsewhere)) == [("ResourceClaim train/a", "metadata.namespace")]
    assert outcomes(put(READY, elsewhere, namespace("train"))) == ["created", "created"]


def test_objects_without_a_namespace_go_where_the_caller_says() -> None:
    outcome = put(READY, namespace("train"), claim("a"), namespace="train")
    assert local_cluster.get(taken(outcome), local_cluster.Key("ResourceClaim", "train", "a"))


def test_admin_access_needs_the_label_of_the_namespace() -> None:
    wanted = claim("a", namespace="ops")
    wanted["spec"]["devices"]["requests"][0]["exactly"]["adminAccess"] = True
    [(subject, field)] = refusals(put(READY, namespace("ops"), wanted))
    assert (subject, field.rpartition(".")[2]) == ("ResourceClaim ops/a", "adminAccess")
    labelled = namespace("ops", **{"resource.kubernetes.io/admin-access": "true"})
    outcome = put(READY, wanted, labelled)  # the order in a file does not matter
    assert outcomes(outcome) == ["created", "created"]
    assert isinstance(outcome, local_cluster.Applied)
    assert [change.key.kind for change in outcome.changes] == ["ResourceClaim", "Namespace"]


def test_the_same_object_twice_is_refused() -> None:
    assert refusals(put(READY, claim("a"), claim("a"))) == [
        ("ResourceClaim default/a", "metadata.name")
    ]


def test_an_object_needs_a_name_of_its_own() -> None:
    nameless = claim("")
    nameless["metadata"] = {"generateName": "a-"}
    assert refusals(put(READY, nameless)) == [("ResourceClaim default/<unnamed>", "metadata.name")]


def test_another_version_of_a_known_kind_does_not_take_its_place() -> None:
    old = claim("a") | {"apiVersion": "resource.k8s.io/v1beta1"}
    assert refusals(put(READY, old)) == [("ResourceClaim default/a", "apiVersion")]


def test_a_field_of_the_wrong_type_is_a_problem_and_no_crash() -> None:
    wrong = claim("a")
    wrong["spec"] = {"devices": {"requests": "all of them"}}
    assert refusals(put(READY, wrong)) == [("ResourceClaim default/a", "spec.devices.requests")]
    for metadata in (None, [], "text", 5):
        assert refusals(put(READY, claim("a") | {"metadata": metadata}))


def test_kinds_nobody_reads_are_kept_whole() -> None:
    deployment = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "web"},
        "spec": {"replicas": 3, "template": {"anything": [1, {"x": None}]}},
    }
    cluster = taken(put(READY, deployment))
    assert tree_of(cluster, "Deployment", "web")["spec"] == deployment["spec"]
    storage = {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "StorageClass",
        "metadata": {"name": "fast"},
    }
    assert local_cluster.get(
        taken(put(cluster, storage)), local_cluster.Key("StorageClass", "", "fast")
    )


def test_a_manifest_cannot_write_a_claims_status_nor_wipe_it() -> None:
    written = claim("a") | {
        "status": {"reservedFor": [{"resource": "pods", "name": "x", "uid": "u"}]}
    }
    cluster = taken(put(READY, written))
    assert not tree_of(cluster, "ResourceClaim", "a").get("status")
    held = with_status(cluster, {"reservedFor": [{"resource": "pods", "name": "p", "uid": "1"}]})
    after = taken(put(held, claim("a", labels={"x": "y"})))
    assert tree_of(after, "ResourceClaim", "a")["status"]["reservedFor"][0]["name"] == "p"


def with_status(cluster: local_cluster.Cluster, status: dict[str, Any]) -> local_cluster.Cluster:
    """The cluster after somebody else, such as a scheduler, wrote claim a's status."""
    key = local_cluster.Key("ResourceClaim", "default", "a")
    tree = tree_of(cluster, "ResourceClaim", "a") | {"status": status}
    record = msgspec.structs.replace(
        cluster.records[key], document=msgspec.Raw(msgspec.json.encode(tree))
    )
    return msgspec.structs.replace(cluster, records=cluster.records | {key: record})


def test_listing_goes_by_namespace_and_name() -> None:
    cluster = taken(put(READY, namespace("b"), claim("z"), claim("a"), claim("m", namespace="b")))
    everywhere = [
        one.struct.metadata.name for one in local_cluster.listed(cluster, "ResourceClaim")
    ]
    assert everywhere == ["m", "a", "z"]
    here = [
        one.struct.metadata.name
        for one in local_cluster.listed(cluster, "ResourceClaim", namespace="default")
    ]
    assert here == ["a", "z"]


# Three-way merge --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("live", "before", "applied", "after"),
    [
        ({"a": 1, "b": 2}, {}, {"a": 3}, {"a": 3, "b": 2}),  # others' fields stay
        ({"a": 1, "b": 2}, {"a": 1, "b": 2}, {"a": 1}, {"a": 1}),  # ours, no longer said, goes
        ({"x": {"a": 1, "c": 9}}, {"x": {"a": 1}}, {"x": {"b": 2}}, {"x": {"b": 2, "c": 9}}),
        (
            {"l": [1, 2]},
            {"l": [1]},
            {"l": [1]},
            {"l": [1, 2]},
        ),  # an unchanged list keeps what was filled in
        ({"l": [1, 2]}, {"l": [1]}, {"l": [3]}, {"l": [3]}),
        ({"l": [1]}, {}, {"l": {"a": 1}}, {"l": {"a": 1}}),
        ({}, {"gone": 1}, {}, {}),
    ],
)
def test_what_the_manifest_says_wins_and_what_others_wrote_stays(
    live: dict[str, Any], before: dict[str, Any], applied: dict[str, Any], after: dict[str, Any]
) -> None:
    copies = [msgspec.json.encode(tree) for tree in (live, before, applied)]
    assert merge.merged(live, applied, before=before) == after
    assert [msgspec.json.encode(tree) for tree in (live, before, applied)] == copies
