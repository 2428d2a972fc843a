"""Every kind is shown by its own right: what a user may not list is in no answer, whatever else they may list.

The cluster has an object of each kind that answers quote, with words that stand nowhere else.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import msgspec
import pytest

from dovetail.kubetypes import codec, object_set
from dovetail.web import api, asked, endpoints, problems
from dovetail.web.api import hidden_names, read_kinds, timeline_resource, why_resource
from dovetail.web.source import watched_kinds
from tests.web.api import clusters

ROOT: Final = Path(__file__).resolve().parents[3]
WHY: Final = "/why/{namespace}/{kind}/{name}"
# Words that only objects of one group have. h100-1 has no pod of the tenant.
CANARIES: Final[dict[str, tuple[str, ...]]] = {
    "owners": ("canary-deployment", "canary-job"),
    "queues": ("canary-queue",),
    "nodes": ("h100-1",),
    "claims": ("canary-claim",),
    "events": ("canary-note", "canary-refusal"),
    "intents": ("canary-promise",),
    "budgets": ("canary-budget",),
    "quotas": ("canary-quota",),
    "topologies": ("canary-topology",),
    "config maps": ("canary-config",),
    "upgrades": ("canary-upgrade",),
    "platform": ("canary-policy",),
}
ASKED_WITH: Final = (
    *("/nodes/{name}", WHY, "/capacity", "/what-if"),
    *("/allocation", "/allocation/compute"),
)  # parameters
QUESTIONS: Final[tuple[tuple[str, dict[str, Any]], ...]] = (
    *((each.path, {}) for each in api.ENDPOINTS if each.path not in ASKED_WITH),
    ("/allocation", {"window": "7d"}),
    ("/allocation/compute", {"window": "7d"}),
    ("/nodes/{name}", {"name": "h100-0"}),
    ("/nodes/{name}", {"name": "h100-1"}),
    (WHY, {"namespace": "train", "kind": "pod", "name": "web-0"}),
    (WHY, {"namespace": "train", "kind": "pod", "name": "picky"}),
    (WHY, {"namespace": "train", "kind": "pod", "name": "unlucky"}),
    (WHY, {"namespace": "train", "kind": "job", "name": "canary-job"}),
    ("/capacity", {"gpus": 8, "gang": 2, "namespace": "train"}),
    ("/what-if", {"drain": ("node/h100-1",), "namespace": "train"}),
    ("/what-if", {"set": ("queue/canary-queue.quota=2",), "namespace": "train"}),
)


def _named(api_version: str, kind: str, name: str, **more: Any) -> clusters.Tree:
    metadata = {
        "namespace": "train",
        "name": name,
        "uid": f"{kind}-{name}",
        "creationTimestamp": clusters.at(30),
    } | more.pop("metadata", {})
    return {"apiVersion": api_version, "kind": kind, "metadata": metadata} | more


def _owner(kind: str, name: str) -> clusters.Tree:
    owner = {"apiVersion": "apps/v1", "kind": kind, "name": name, "uid": f"{kind}-{name}"}
    return owner | {"controller": True}


def _owners() -> list[clusters.Tree]:
    """A Deployment above a pod that waits, and a Job whose pods a quota refuses."""
    template = {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "main"}]}}
    selector = {"matchLabels": {"a": "b"}}
    web = clusters.pod("web-0", where="train", gpus=8)
    web["metadata"]["ownerReferences"] = [_owner("ReplicaSet", "web-rs")]
    above = {"ownerReferences": [_owner("Deployment", "canary-deployment")]}
    spec = {"replicas": 1, "selector": selector, "template": template}
    note = (
        'canary-refusal: Error creating: pods "canary-job-x1" is forbidden: exceeded quota: '
        "canary-quota, requested: pods=1, used: pods=4, limited: pods=4"
    )
    refused = clusters.event(
        "refused", where="train", pod="", reason="FailedCreate", note=note, minutes=1
    )
    refused["regarding"] = {"kind": "Job", "namespace": "train", "name": "canary-job"}
    refused["type"] = "Warning"
    quota = {"spec": {"hard": {"pods": "4"}}, "status": {"hard": {"pods": "4"}}}
    quota["status"]["used"] = {"pods": "4"}
    return [
        web,
        _named("apps/v1", "ReplicaSet", "web-rs", metadata=above, spec=spec),
        _named("apps/v1", "Deployment", "canary-deployment", spec=spec),
        _named("batch/v1", "Job", "canary-job", spec={"template": template, "parallelism": 1}),
        refused,
        _named("v1", "ResourceQuota", "canary-quota", **quota),
    ]


def _picky() -> list[clusters.Tree]:
    """A pod whose claim no device meets."""
    expression = "device.attributes['gpu.nvidia.com'].productName == 'canary-selector'"
    selectors = [{"cel": {"expression": expression}}]
    exactly = {"deviceClassName": clusters.DRIVER, "selectors": selectors}
    exactly |= {"allocationMode": "ExactCount", "count": 1}
    devices = {"requests": [{"name": "gpus", "exactly": exactly}]}
    entry = {"resourceClaims": [{"name": "gpus", "resourceClaimName": "picky-gpus"}]}
    pod = clusters.pod("picky", where="train", spec=entry)
    return [
        pod,
        _named("resource.k8s.io/v1", "ResourceClaim", "picky-gpus", spec={"devices": devices}),
        clusters.claim("canary-claim", where="train", node="h100-2", devices=["gpu-7"]),
    ]


def _others() -> list[clusters.Tree]:
    note = "0/5 nodes are available: canary-note"
    waits = clusters.event(
        "waits", where="train", pod="unlucky", reason="FailedScheduling", note=note, minutes=3
    )
    promise = {"start": clusters.at(-60), "movedFrom": clusters.at(-30), "cause": "canary-promise"}
    budget = {"minAvailable": 9, "selector": {}}
    zero = {"disruptionsAllowed": 0, "currentHealthy": 2, "desiredHealthy": 9, "expectedPods": 2}
    topology = _named("dovetail.dev/v1alpha1", "Topology", "canary-topology")
    topology["spec"] = {"levels": [{"nodeLabel": "topology.kubernetes.io/rack"}]}
    del topology["metadata"]["namespace"]
    settings = {"apiVersion": "dovetail.dev/v1alpha1", "kind": "SchedulerConfiguration"}
    upgrade = _named("dovetail.dev/v1alpha1", "StackUpgrade", "canary-upgrade")
    upgrade |= {
        "spec": {"to": {"driver": "595"}},
        "status": {
            "phase": "Progressing",
            "nodes": [{"name": "h100-1", "wave": 1, "phase": "Waiting"}],
            "waves": [{"number": 1, "state": "Waiting", "reason": "h100-1 is next"}],
        },
    }
    operator = _named("nvidia.com/v1", "ClusterPolicy", "canary-policy", spec={})
    for without_namespace in (upgrade, operator):
        del without_namespace["metadata"]["namespace"]
    data = {"data": {"scheduler.yaml": msgspec.json.encode(settings).decode()}}
    return [
        clusters.pod("unlucky", where="train", gpus=1, spec={"schedulerName": "another"}),
        waits | {"type": "Warning"},
        _named(
            "dovetail.dev/v1alpha1", "Intent", "i", spec={"gang": "job/wide", "promise": promise}
        ),
        _named("policy/v1", "PodDisruptionBudget", "canary-budget", spec=budget, status=zero),
        topology,
        upgrade,
        operator,
        clusters.queue("canary-queue"),
        _named("v1", "ConfigMap", "canary-config", **data),
    ]


def _trees() -> list[clusters.Tree]:
    trees = [*clusters.typical(), *_owners(), *_picky(), *_others()]
    for tree in trees:
        if tree["kind"] == "Node" and tree["metadata"]["name"] == "h100-1":
            taint = {"key": "canary-taint", "effect": "NoSchedule", "timeAdded": clusters.at(9)}
            tree["spec"] = tree.get("spec", {}) | {"taints": [taint]}
    return trees


@pytest.fixture(scope="module")
def frame() -> clusters.Frame:
    return clusters.frame_of(clusters.stored(_trees()), name="rights by kind")


def _answers(frame: clusters.Frame, may: asked.Visibility) -> Iterator[tuple[str, str]]:
    """The path and the text of every answer; of what is refused, the refusal."""
    by_path = {each.path: each for each in api.ENDPOINTS}
    for path, params in QUESTIONS:
        endpoint = by_path[path]
        try:
            answer = endpoint.answer(asked.Asked(frame, may), endpoint.params(**params))
        except problems.Refusal as refusal:
            # What the question itself names may be repeated.
            detail = refusal.problem.detail
            for word in map(str, params.values()):
                detail = detail.replace(word, "")
            yield path, detail
            continue
        text = msgspec.json.encode(answer).decode()
        if path == WHY:
            subject = msgspec.json.encode(answer.subject).decode()
            text = text.replace(subject, "")
        yield path, text


def _all_kinds() -> frozenset[str]:
    kinds = [read.kind for read in watched_kinds.READS]
    return frozenset(object_set.unique_kind(kind.api_version, kind.name) for kind in kinds)


def _without(*groups: read_kinds.Group) -> asked.Visibility:
    """A user who may list everything of one namespace, and kinds without namespaces, but not these."""
    hidden = {kind for group in groups for kind in group.kinds}
    kinds = (_all_kinds() | {"ConfigMap"}) - hidden
    return asked.Visibility(
        everywhere=kinds - clusters.NAMESPACED - {"ConfigMap"},
        in_namespaces=frozenset((kind, "train") for kind in kinds),
    )


@pytest.mark.parametrize(
    "groups",
    [
        (read_kinds.OWNERS, read_kinds.EVENTS, read_kinds.INTENTS, read_kinds.BUDGETS),
        (
            read_kinds.QUEUES,
            read_kinds.NODES,
            read_kinds.SLICES,  # they name nodes
            read_kinds.CLAIMS,
            read_kinds.QUOTAS,
        ),
        (read_kinds.TOPOLOGIES, read_kinds.CONFIG_MAPS, read_kinds.EVENTS, read_kinds.QUOTAS),
        (read_kinds.UPGRADES, read_kinds.PLATFORM),
    ],
    ids=lambda each: each[0].name,
)
def test_without_the_right_to_list_a_kind_no_answer_shows_it(
    frame: clusters.Frame, groups: tuple[read_kinds.Group, ...]
) -> None:
    words = [word for group in groups for word in CANARIES.get(group.name, ())]
    answers = list(_answers(frame, _without(*groups)))
    assert [(path, word) for path, text in answers for word in words if word in text] == []


def test_all_of_it_is_shown_to_users_who_may_list_everything(frame: clusters.Frame) -> None:
    """Else the test above would pass whatever is hidden."""
    text = "\n".join(text for _, text in _answers(frame, asked.EVERYTHING))
    words = [word for each in CANARIES.values() for word in each]
    assert [word for word in words if word not in text] == []


def test_the_right_to_list_pods_alone_shows_pods_and_nothing_else(frame: clusters.Frame) -> None:
    may = asked.Visibility(in_namespaces=frozenset({("Pod", "train")}))
    words = [word for each in CANARIES.values() for word in each]
    answers = list(_answers(frame, may))
    assert [(path, word) for path, text in answers for word in words if word in text] == []
    pods = next(text for path, text in answers if path == "/pods")
    assert "llama-0" in pods
    timeline = next(text for path, text in answers if path == "/timeline")
    assert "job/llama" in timeline  # the pod itself names its owner


def test_a_user_without_rights_sees_no_name_at_all(frame: clusters.Frame) -> None:
    words = [*(word for each in CANARIES.values() for word in each), "llama", "vault", "h100"]
    shown = [
        (path, word)
        for path, text in _answers(frame, clusters.STRANGER)
        for word in words
        if word in text
    ]
    assert shown == []


# What is left of an answer


def _why(frame: clusters.Frame, may: asked.Visibility, name: str, kind: str = "pod") -> Any:
    params = why_resource.WhyParams(namespace="train", kind=kind, name=name)
    return why_resource.answer(asked.Asked(frame, may), params)


def test_a_cause_that_events_show_is_not_quoted_without_the_right(frame: clusters.Frame) -> None:
    assert any("canary-note" in line for line in _why(frame, asked.EVERYTHING, "unlucky").evidence)
    lines = _why(frame, _without(read_kinds.EVENTS), "unlucky").evidence
    assert [line for line in lines if "canary" in line or "FailedScheduling" in line] == []


def test_a_job_that_may_not_be_listed_does_not_exist(frame: clusters.Frame) -> None:
    assert _why(frame, asked.EVERYTHING, "canary-job", "job").cause is not None
    with pytest.raises(problems.Refusal) as refusal:
        _why(frame, _without(read_kinds.OWNERS), "canary-job", "job")
    assert refusal.value.problem.status == 404


def test_what_claims_ask_for_needs_the_right_to_list_claims(frame: clusters.Frame) -> None:
    whole = _why(frame, asked.EVERYTHING, "picky")
    assert "canary-selector" in msgspec.json.encode(whole).decode()
    hidden = _why(frame, _without(read_kinds.CLAIMS), "picky")
    assert hidden.cause.code == whole.cause.code
    assert "may list resourceclaims in namespace train" in hidden.cause.sentence
    assert {step.of for step in hidden.funnel} <= {"nodes"}
    assert "canary-selector" not in msgspec.json.encode(hidden).decode()


def test_fixes_change_only_what_the_user_may_list(frame: clusters.Frame) -> None:
    changed = {
        patch.object.kind
        for fix in _why(frame, asked.EVERYTHING, "web-0").fixes
        for patch in fix.patch
    }
    assert "Deployment" in changed
    fixes = _why(frame, _without(read_kinds.OWNERS), "web-0").fixes
    assert "Deployment" not in {patch.object.kind for fix in fixes for patch in fix.patch}


def test_without_events_the_timeline_says_what_objects_show(frame: clusters.Frame) -> None:
    def kinds(may: asked.Visibility) -> set[tuple[str, str]]:
        entries = timeline_resource.visible(asked.Asked(frame, may))
        return {(entry.kind, entry.subject.name) for entry in entries}

    whole, without = kinds(asked.EVERYTHING), kinds(_without(read_kinds.EVENTS))
    assert ("waiting", "unlucky") in whole - without
    assert ("started", "llama-0") in without


def test_names_in_closed_fields_stay() -> None:
    """A hidden priority class called "high" changes no severity."""
    hidden = hidden_names.HiddenNames(frozenset(), frozenset({"high"}))

    class Note(msgspec.Struct, frozen=True):
        severity: str
        title: str

    shown = hidden.without(Note("high", "class high"))
    assert shown == Note("high", "class (hidden)")


# The table


class _Recorded(Mapping[str, Mapping[object_set.Key, codec.Stored]]):
    """Tables of objects that note which kinds are asked for by name."""

    def __init__(self, tables: Mapping[str, Mapping[object_set.Key, codec.Stored]]) -> None:
        self._tables = tables
        self.kinds: set[str] = set()

    def __getitem__(self, kind: str) -> Mapping[object_set.Key, codec.Stored]:
        if kind not in self._tables:
            self.kinds.add(kind)
            raise KeyError(kind)
        self.kinds.add(kind)
        return self._tables[kind]

    def items(self) -> Any:
        """All tables: what is chosen among them is not known here."""
        return self._tables.items()

    def values(self) -> Any:
        return self._tables.values()

    def __iter__(self) -> Iterator[str]:
        return iter(self._tables)

    def __len__(self) -> int:
        return len(self._tables)


@pytest.mark.parametrize("endpoint", api.ENDPOINTS, ids=lambda each: each.path)
def test_endpoints_read_only_kinds_of_their_groups(endpoint: endpoints.Endpoint) -> None:
    declared = {kind for group in endpoint.reads for kind in group.kinds}
    for path, params in QUESTIONS:
        if path != endpoint.path:
            continue
        frame = clusters.frame_of(clusters.stored(_trees()), name=f"reads of {path}")
        replica = frame.replica()
        recorded = _Recorded(frame.view.objects.by_kind)
        objects = msgspec.structs.replace(frame.view.objects, by_kind=recorded)
        frame.view = msgspec.structs.replace(frame.view, objects=objects)

        def note(key: object_set.Key, recorded: _Recorded = recorded) -> bool:
            recorded.kinds.add(key.kind)
            return True

        with replica.quoting(note):
            question = asked.Asked(
                frame, asked.EVERYTHING, accounting=clusters.Accounted(clusters.RECORDED)
            )
            answer = endpoint.answer(question, endpoint.params(**params))
        assert recorded.kinds - declared == set()
        text = msgspec.json.encode(answer).decode()
        names = {group.name for group in endpoint.reads}
        shown = {
            name for name, words in CANARIES.items() for word in words if word in text
        } - _named_by_subject(params)
        assert shown - names == set()


def _named_by_subject(params: dict[str, Any]) -> set[str]:
    return {"owners"} if params.get("name") == "canary-job" else set()


def test_every_kind_that_is_watched_has_a_group() -> None:
    grouped = {kind for group in read_kinds.ALL for kind in group.kinds}
    assert _all_kinds() - grouped == set()


def test_the_table_of_the_reference_is_that_of_the_endpoints() -> None:
    text = (ROOT / "docs" / "reference" / "dashboard.md").read_text(encoding="utf-8")
    for endpoint in api.ENDPOINTS:
        groups = ", ".join(group.name for group in endpoint.reads)
        assert f"| `{endpoint.method} {endpoint.path}` | {groups} |" in text
