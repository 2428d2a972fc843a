"""Objects of Kueue and KAI become queues: by structure for the examples, and no field is lost for anything at all."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from dovetail.admission import admit
from dovetail.kubetypes import codec, field_errors
from dovetail.kubetypes.custom import queues
from dovetail.manifest import manifests
from dovetail.migrate import field_notes, from_kai, from_kueue
from dovetail.migrate.field_notes import Fate
from dovetail.model.queue import queue_tree

EXAMPLES = Path(__file__).resolve().parents[2] / "examples" / "migrate"
RIVALS = Path(__file__).resolve().parent / "rivals"  # objects with every field there is
TERMS = field_errors.Terms(check_selector=lambda expression: None, now="2026-01-01T00:00:00Z")
Convert = Callable[[Sequence[dict[str, Any]]], field_notes.Conversion]
CONVERTERS: dict[str, Convert] = {"kueue": from_kueue.convert, "kai": from_kai.convert}


def example(name: str) -> list[dict[str, Any]]:
    return list(yaml.safe_load_all((EXAMPLES / f"{name}.yaml").read_text(encoding="utf-8")))


def whole(name: str) -> list[dict[str, Any]]:
    return list(yaml.safe_load_all((RIVALS / f"{name}.yaml").read_text(encoding="utf-8")))


def specs(conversion: field_notes.Conversion, kind: str = "Queue") -> dict[str, Any]:
    return {
        item["metadata"]["name"]: item["spec"]
        for item in conversion.objects
        if item["kind"] == kind
    }


def fate(conversion: field_notes.Conversion, subject: str, field: str) -> field_notes.Note:
    (note,) = [item for item in conversion.notes if item.object == subject and item.field == field]
    return note


def cluster_queue(name: str, quotas: dict[str, dict[str, Any]], **spec: Any) -> dict[str, Any]:
    flavors = [
        {
            "name": flavor,
            "resources": [{"name": resource, **amounts} for resource, amounts in resources.items()],
        }
        for flavor, resources in quotas.items()
    ]
    covered = sorted({resource for resources in quotas.values() for resource in resources})
    groups = [{"coveredResources": covered, "flavors": flavors}]
    head = {
        "apiVersion": "kueue.x-k8s.io/v1beta2",
        "kind": "ClusterQueue",
        "metadata": {"name": name},
    }
    return head | {"spec": {"resourceGroups": groups, **spec}}


@pytest.mark.parametrize("name", CONVERTERS)
def test_the_examples_become_objects_that_are_accepted_and_a_tree_without_problems(
    name: str,
) -> None:
    result = CONVERTERS[name](example(name))
    ours = [codec.decode(item).struct for item in result.objects]
    assert [problem for struct in ours for problem in admit.create(struct, TERMS).problems] == []
    known = {struct.metadata.name: struct for struct in ours if isinstance(struct, queues.Queue)}
    assert len(known) == 3
    assert queue_tree.problems(known) == {}


@pytest.mark.parametrize("name", CONVERTERS)
def test_no_field_that_is_documented_is_unknown_and_what_comes_out_is_accepted(name: str) -> None:
    result = CONVERTERS[name](whole(name))
    assert [
        (note.object, note.field) for note in result.notes if note.why == field_notes.UNKNOWN
    ] == []
    ours = [codec.decode(item).struct for item in result.objects]
    assert [problem for struct in ours for problem in admit.create(struct, TERMS).problems] == []
    known = {struct.metadata.name: struct for struct in ours if isinstance(struct, queues.Queue)}
    assert queue_tree.problems(known) == {}


@pytest.mark.parametrize("name", CONVERTERS)
def test_what_is_given_twice_is_made_once_and_said(name: str) -> None:
    once, twice = CONVERTERS[name](whole(name)), CONVERTERS[name](whole(name) * 2)
    assert twice.objects == once.objects
    again = [note.object for note in twice.notes if note.why == field_notes.DUPLICATE]
    assert len(again) == len(whole(name))
    assert twice.count(Fate.DROPPED) == once.count(Fate.DROPPED), "nothing is lost by it"


def test_marks_of_tools_stay_where_they_are() -> None:
    """Argo CD prunes what carries its mark and is not in its repository."""
    conversion = from_kueue.convert(whole("kueue"))
    (made,) = [item for item in conversion.objects if item["metadata"]["name"] == "team-a-ml"]
    assert made["metadata"] == {"name": "team-a-ml", "labels": {"cost-centre": "4711"}}
    subject = "ClusterQueue team-a.ml"
    for field in ("metadata.labels[argocd.argoproj.io/instance]", "metadata.finalizers"):
        assert fate(conversion, subject, field).fate is Fate.LEFT_OUT


def test_a_queue_has_a_maximum_of_aliases_and_the_rest_are_reported() -> None:
    head = {
        "apiVersion": "kueue.x-k8s.io/v1beta2",
        "kind": "LocalQueue",
        "spec": {"clusterQueue": "a"},
    }
    local = [
        head | {"metadata": {"namespace": f"team-{index}", "name": "user-queue"}}
        for index in range(257)
    ]
    conversion = from_kueue.convert([cluster_queue("a", {}), *local])
    assert len(specs(conversion)["a"]["aliases"]) == from_kueue.MAX_ALIASES
    assert fate(conversion, "LocalQueue team-256/user-queue", "").fate is Fate.DROPPED


def test_a_priority_class_does_not_have_a_name_kubernetes_keeps_for_itself() -> None:
    conversion = from_kueue.convert(whole("kueue"))
    classes = {
        item["metadata"]["name"]: item["value"]
        for item in conversion.objects
        if item["kind"] == "PriorityClass"
    }
    assert classes == {"production": 10000, "training": 1_000_000_000}
    assert (
        "begin with system-"
        in fate(conversion, "WorkloadPriorityClass system-training", "metadata.name").why
    )


def test_what_kai_never_evicts_becomes_a_note_about_the_configuration() -> None:
    (messages,) = [note for note in from_kai.convert(whole("kai")).notes if note.fate is Fate.ADDED]
    assert (messages.object, messages.to) == (
        "the scheduler's configuration",
        "queues.preemptibleBelow: 100",
    )
    assert not from_kai.convert([]).notes


def test_a_node_pool_of_kai_gets_a_note_that_it_has_no_effect() -> None:
    conversion = from_kai.convert(whole("kai"))
    label = fate(conversion, "Queue default-parent-queue", f"metadata.labels[{from_kai.NODE_POOL}]")
    assert (label.fate, label.to) == (Fate.APPROXIMATED, "a label without effect")
    assert (
        fate(conversion, "PodGroup team-a/pg-train-6d0c", "spec.preemptibility").to
        == "dovetail.dev/preemptible: false"
    )


def test_a_cohort_is_due_what_its_members_are_and_its_own_pool_and_no_more() -> None:
    research = specs(from_kueue.convert(example("kueue")))["research"]
    assert research["resources"]["nvidia.com/gpu"] == {
        "quota": 24,
        "limit": 24,
    }  # 12 and 8 of the members, 4 of its own
    assert research["resources"]["memory"] == {"quota": "768Gi", "limit": "768Gi"}
    assert "namespaceSelector" not in research, "only queues without children take work"


def test_flavors_add_up_and_products_are_kept_apart() -> None:
    tree = specs(from_kueue.convert(example("kueue")))
    vision, speech = tree["vision"]["resources"], tree["speech"]["resources"]
    assert vision["nvidia.com/gpu"] == {"quota": 12, "limit": 16, "weight": 2}
    assert vision["gpu/product.NVIDIA-H100-80GB-HBM3"] == {"quota": 8, "limit": 12, "weight": 2}
    assert vision["gpu/product.NVIDIA-A100-SXM4-80GB"] == {"quota": 4, "limit": 4, "weight": 2}
    assert speech["gpu/product.NVIDIA-A100-SXM4-80GB"] == {"quota": 0, "limit": 0}, (
        "it does not list that flavor"
    )
    assert "limit" not in speech["nvidia.com/gpu"], "it borrows without a bound"
    assert tree["vision"]["aliases"] == ["vision-dev/user-queue"]
    assert tree["vision"]["namespaceSelector"] == {"matchLabels": {"team": "vision"}}


def test_without_a_cohort_nothing_is_borrowed() -> None:
    conversion = from_kueue.convert(
        [cluster_queue("alone", {"any": {"cpu": {"nominalQuota": "1500m"}}})]
    )
    assert specs(conversion)["alone"] == {
        "resources": {"cpu": {"quota": "1500m", "limit": "1500m"}}
    }


def test_a_cohort_that_is_only_named_is_made_and_said() -> None:
    conversion = from_kueue.convert(
        [cluster_queue("a", {"any": {"cpu": {"nominalQuota": 4}}}, cohortName="a")]
    )
    assert specs(conversion).keys() == {"a", "a-cohort"}, "a name can be had once"
    assert specs(conversion)["a"]["parent"] == "a-cohort"
    assert specs(conversion)["a-cohort"]["resources"] == {"cpu": {"quota": 4, "limit": 4}}
    assert [note.object for note in conversion.notes if note.fate is Fate.ADDED] == ["Cohort a"]


def test_cohorts_in_cohorts_add_up_and_borrow_up_to_their_limit() -> None:
    amounts = {
        "resources": [{"name": "cpu", "nominalQuota": 1, "borrowingLimit": 2}],
        "name": "any",
    }
    inner = {
        "apiVersion": "kueue.x-k8s.io/v1beta1",
        "kind": "Cohort",
        "metadata": {"name": "inner"},
        "spec": {
            "parentName": "outer",
            "resourceGroups": [{"coveredResources": ["cpu"], "flavors": [amounts]}],
        },
    }
    tree = specs(
        from_kueue.convert(
            [inner, cluster_queue("a", {"any": {"cpu": {"nominalQuota": 4}}}, cohort="inner")]
        )
    )
    assert tree["inner"] == {"parent": "outer", "resources": {"cpu": {"quota": 5, "limit": 7}}}
    assert tree["outer"]["resources"] == {"cpu": {"quota": 5, "limit": 5}}


def test_a_circle_of_cohorts_ends() -> None:
    made = [
        {
            "apiVersion": "kueue.x-k8s.io/v1beta2",
            "kind": "Cohort",
            "metadata": {"name": name},
            "spec": {"parentName": to},
        }
        for name, to in (("a", "b"), ("b", "a"))
    ]
    tree = specs(
        from_kueue.convert(
            [*made, cluster_queue("q", {"any": {"cpu": {"nominalQuota": 1}}}, cohortName="a")]
        )
    )
    assert (tree["a"]["parent"], tree["b"]["parent"]) == ("b", "a")


def test_what_not_all_members_count_is_not_counted_for_them_together() -> None:
    members = [
        cluster_queue("a", {"any": {"cpu": {"nominalQuota": 4}}}, cohortName="c"),
        cluster_queue("b", {"any": {"memory": {"nominalQuota": 4}}}, cohortName="c"),
    ]
    assert specs(from_kueue.convert(members))["c"] == {}


def test_weights_with_fractions_are_counted_in_thousandths_everywhere() -> None:
    quotas = {"any": {"cpu": {"nominalQuota": 1}}}
    tree = specs(
        from_kueue.convert(
            [
                cluster_queue("a", quotas, cohortName="c", fairSharing={"weight": "500m"}),
                cluster_queue("b", quotas, cohortName="c"),
            ]
        )
    )
    assert [tree[name]["resources"]["cpu"]["weight"] for name in ("a", "b")] == [500, 1000]


def test_a_stopped_queue_is_open_to_no_namespace() -> None:
    stopped = cluster_queue("a", {}, stopPolicy="Hold", namespaceSelector={})
    local = {"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "LocalQueue"}
    held = local | {
        "metadata": {"namespace": "n", "name": "held"},
        "spec": {"clusterQueue": "a", "stopPolicy": "HoldAndDrain"},
    }
    conversion = from_kueue.convert([stopped, held])
    assert specs(conversion)["a"] == {}
    assert fate(conversion, "ClusterQueue a", "spec.stopPolicy").fate is Fate.APPROXIMATED
    assert fate(conversion, "LocalQueue n/held", "spec.stopPolicy").to == "no alias"


def test_what_cannot_be_converted_is_reported_with_a_reason() -> None:
    spec = {
        "admissionChecks": ["x"],
        "flavorFungibility": {"whenCanBorrow": "TryNextFlavor"},
        "newThing": {"a": [1]},
    }
    conversion = from_kueue.convert(
        [cluster_queue("a", {"any": {"cpu": {"nominalQuota": -1}}}, **spec)]
    )
    assert fate(conversion, "ClusterQueue a", "spec.admissionChecks").fate is Fate.DROPPED
    assert fate(conversion, "ClusterQueue a", "spec.flavorFungibility").fate is Fate.DROPPED
    assert fate(conversion, "ClusterQueue a", "spec.newThing.a[0]").why == field_notes.UNKNOWN
    quota = "spec.resourceGroups[0].flavors[0].resources[0].nominalQuota"
    assert fate(conversion, "ClusterQueue a", quota).why == "not a quantity, or below zero"
    strange = from_kueue.convert(
        [{"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "j"}}]
    )
    assert fate(strange, "Job j", "").why == "objects of batch, kind Job, are not converted"


def test_kai_units_bounds_and_times_are_those_of_kai() -> None:
    tree = specs(from_kai.convert(example("kai")))
    assert tree["vision"] == {
        "parent": "research",
        "priority": 200,
        "resources": {
            "gpu": {"quota": "10500m", "limit": 12, "weight": 2},
            "cpu": {"quota": 64, "weight": 1},
            "memory": {"quota": "512G", "weight": 1},
        },
        "namespaceSelector": {},
        "preemptMinRuntimeSeconds": 600,
        "reclaimMinRuntimeSeconds": 5400,
    }
    assert tree["research"]["resources"]["cpu"] == {"quota": "1E", "weight": 1}
    assert "namespaceSelector" not in tree["research"]
    assert tree["speech-night"]["aliases"] == ["speech.night"]
    assert tree["speech-night"]["resources"] == {"gpu": {"quota": 4, "limit": 4, "weight": 1}}


@pytest.mark.parametrize(
    ("given", "made"),
    [
        ({"quota": 4, "limit": 8}, {"quota": 4, "limit": 8}),
        ({"quota": 8, "limit": 4}, {"quota": 4, "limit": 4}),
        ({"quota": -1, "limit": 4}, {"quota": 4, "limit": 4}),
        ({"quota": 4, "limit": -1}, {"quota": 4}),
        ({"quota": 4}, {"quota": 4, "limit": 4}),
        ({"quota": 4, "limit": 0}, {"quota": 4, "limit": 4}),
    ],
)
def test_a_limit_of_kai_holds_whatever_the_quota_is(
    given: dict[str, int], made: dict[str, int]
) -> None:
    """Nothing of a queue starts beyond its limit there, be its quota larger or without a bound."""
    head = {"apiVersion": "scheduling.run.ai/v2", "kind": "Queue", "metadata": {"name": "q"}}
    conversion = from_kai.convert([head | {"spec": {"resources": {"gpu": given}}}])
    assert specs(conversion)["q"]["resources"]["gpu"] == made | {"weight": 0}
    if (quota := given["quota"]) > made["quota"] or quota < 0:
        assert fate(conversion, "Queue q", "spec.resources.gpu.quota").fate is Fate.APPROXIMATED


def test_pod_groups_are_reported_in_the_terms_of_workload_annotations() -> None:
    conversion = from_kai.convert(example("kai"))
    subject = "PodGroup vision-dev/pg-train"
    assert fate(conversion, subject, "spec.minMember").to == "dovetail.dev/gang-min: 8"
    level = fate(conversion, subject, "spec.topologyConstraint.requiredTopologyLevel")
    assert level.to == "dovetail.dev/topology-required: example.com/rack"
    assert not [item for item in conversion.objects if item["kind"] == "PodGroup"]


WORDS = st.sampled_from(["a", "b", "cpu", "nvidia.com/gpu", "Never", "Any", "Hold", "", "x.y/z"])
VALUES: st.SearchStrategy[Any] = st.recursive(
    st.one_of(
        st.none(),
        st.booleans(),
        st.integers(-3, 9),
        st.floats(allow_nan=False),
        WORDS,
        st.just("10m"),
    ),
    lambda inner: st.one_of(
        st.lists(inner, max_size=2),
        st.dictionaries(st.sampled_from(["name", "resources", "weight", "odd"]), inner),
    ),
    max_leaves=4,
)


@pytest.mark.parametrize("name", CONVERTERS)
@given(data=st.data())
def test_every_field_of_whatever_is_given_is_accounted_for(name: str, data: st.DataObject) -> None:
    trees = copy.deepcopy(example(name))
    for _ in range(data.draw(st.integers(0, 6))):
        _spoil(data.draw(st.sampled_from(trees)), data)
    result = CONVERTERS[name](trees)
    messages = {
        item.object: {note.field for note in result.notes if note.object == item.object}
        for item in result.notes
    }
    for tree in trees:
        subject = field_notes.Source(tree).subject
        for path in field_notes.leaves(tree):
            if path[0] not in ("apiVersion", "kind"):
                around = {field_notes.written(path[:length]) for length in range(len(path) + 1)}
                assert around & messages[subject], f"{subject}: {field_notes.written(path)} is lost"


def _spoil(tree: dict[str, Any], data: st.DataObject) -> None:
    """Puts anything anywhere: over a field, beside it, or in place of what is around it."""
    paths = list(field_notes.leaves(tree)) or [("spec",)]
    path = data.draw(st.sampled_from(paths))
    path = path[: data.draw(st.integers(1, len(path)))]
    place: Any = tree
    for step in path[:-1]:
        place = place[step]
    if isinstance(place, dict) and data.draw(st.booleans()):
        place[data.draw(WORDS)] = data.draw(VALUES)
    else:
        place[path[-1]] = data.draw(VALUES)


def test_the_kinds_that_manifests_call_convertible_are_those_that_are_converted() -> None:
    kueue = {(from_kueue.GROUP, kind) for kind in from_kueue.KINDS}
    kai = {from_kai.QUEUES, from_kai.TOPOLOGIES}
    assert set(manifests.CONVERTED) == kueue | kai
    for (group, kind), scheduler in manifests.CONVERTED.items():
        assert manifests.CONVERTIBLE[group] == scheduler, kind
