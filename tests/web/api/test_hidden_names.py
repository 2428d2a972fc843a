"""What a tenant may not see: names of other namespaces are in no answer, whatever is asked."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from dovetail import errors
from dovetail.answer.why import why_answer
from dovetail.web import api, asked, endpoints, problems
from dovetail.web.api import fleet_resource, hidden_names, why_resource
from tests.web.api import clusters

# Names of work in the namespace that the tenant may not see, and the namespace.
SECRETS = ("secret", "vault", "deep", "hush")
PARAMS: dict[str, dict[str, Any]] = {
    "/nodes/{name}": {"name": "h100-0"},
    "/why/{namespace}/{kind}/{name}": {"namespace": "train", "kind": "pod", "name": "wide-0"},
    "/capacity": {"gpus": 8, "gang": 2, "namespace": "train"},
    "/cost": {"aggregate": "namespace,pod,queue,claim,label:team"},
    "/utilisation": {"aggregate": "namespace,pod,queue,claim,label:team"},
    "/allocation": {"window": "7d", "aggregate": "namespace,pod,claim", "include_idle": True},
    "/allocation/compute": {"window": "7d"},
    "/what-if": {"drain": ("node/h100-1",), "namespace": "train"},
}


def trees() -> list[clusters.Tree]:
    """The typical cluster, where everything that can name hidden work does."""
    wide = clusters.pod("wide-1", where="train", job="wide", gpus=8, minutes=200)
    message = "node h100-1 is held by secret/vault-1 and secret/job/vault; starts by 13:00"
    wide["status"]["conditions"] = [
        {
            "type": "PodScheduled",
            "status": "False",
            "reason": "Unschedulable",
            "message": message,
            "lastTransitionTime": clusters.at(100),
        }
    ]
    evicted = clusters.event(
        "e1",
        where="train",
        pod="llama-0",
        reason="Reclaimed",
        note="yields to secret/job/deep (Reclaimed): queue others is below its share by deep-0",
        minutes=5,
        type="Warning",
    )
    unused = clusters.claim("hush-claim", where="secret", node="h100-2", devices=["gpu-6"])
    promise = {
        "apiVersion": "dovetail.dev/v1alpha1",
        "kind": "Intent",
        "metadata": {"namespace": "train", "name": "i", "creationTimestamp": clusters.at(3)},
        "spec": {
            "gang": "pod/wide-0",
            "promise": {
                "start": clusters.at(-60),
                "movedFrom": clusters.at(-30),
                "cause": "secret/job/vault runs longer than it stated",
            },
        },
    }
    return [*clusters.typical(), wide, evicted, unused, promise, _upgrade()]


def _upgrade() -> clusters.Tree:
    """An upgrade for which a hidden gang leaves a node."""
    node = {"name": "h100-1", "wave": 1, "phase": "Draining", "since": clusters.at(2)}
    node |= {"startedAt": clusters.at(3), "reason": "waits for secret/vault-1: a budget"}
    status = {
        "phase": "Progressing",
        "reason": "secret/job/vault leaves",
        "startedAt": clusters.at(4),
        "nodes": [node],
        "waves": [{"number": 1, "state": "Running", "reason": "waits for vault-1"}],
        "drain": {"gang": "secret/job/vault", "pods": ["a"], "since": clusters.at(2)},
    }
    return {
        "apiVersion": "dovetail.dev/v1alpha1",
        "kind": "StackUpgrade",
        "metadata": {"name": "roll", "creationTimestamp": clusters.at(5)},
        "spec": {"to": {"driver": "595.91.07"}},
        "status": status,
    }


def asked_by(may: asked.Visibility, name: str) -> asked.Asked:
    return clusters.asked_of(trees(), name=name, may=may)


@pytest.mark.parametrize("endpoint", api.ENDPOINTS, ids=lambda each: each.path)
def test_no_answer_names_what_the_tenant_may_not_see(endpoint: endpoints.Endpoint) -> None:
    params = endpoint.params(**PARAMS.get(endpoint.path, {}))
    everything = endpoint.answer(asked_by(asked.EVERYTHING, "all"), params)
    shown = endpoint.answer(asked_by(clusters.TENANT, "all"), params)
    text = msgspec.json.encode(shown).decode()
    assert [name for name in SECRETS if name in text] == []
    if endpoint.is_list:
        assert len(shown.items) <= len(everything.items)


@pytest.mark.parametrize(
    "path",
    [
        "/workloads",
        "/pods",
        "/claims",
        "/why/{namespace}/{kind}/{name}",
        "/what-if",
        "/cost",
        "/utilisation",
        "/allocation",
        "/allocation/compute",
    ],
)
def test_the_same_questions_name_it_to_those_who_may(path: str) -> None:
    """Else the test above would pass whatever is hidden."""
    endpoint = next(each for each in api.ENDPOINTS if each.path == path)
    params = endpoint.params(**PARAMS.get(path, {}))
    answer = endpoint.answer(asked_by(asked.EVERYTHING, "all"), params)
    text = msgspec.json.encode(answer).decode()
    assert any(name in text for name in SECRETS)


def test_hidden_holders_are_one_holder_without_a_name() -> None:
    question = asked_by(clusters.TENANT, "all")
    answer = fleet_resource.answer(question, fleet_resource.FleetParams())
    hidden = [holder for holder in answer.holders if holder.id == 0]
    assert [holder.name for holder in hidden] == ["(hidden)"]
    full = next(node for node in answer.nodes if node.name == "h100-1")
    assert {gpu.holders for gpu in full.gpus} == {(0,)}
    assert {gpu.state for gpu in full.gpus} == {"used"}


def test_work_of_others_looks_as_if_it_did_not_exist() -> None:
    question = asked_by(clusters.TENANT, "all")
    for name in ("deep-0", "no-such-pod"):
        params = why_resource.WhyParams(namespace="secret", kind="pod", name=name)
        with pytest.raises(problems.Refusal) as refusal:
            why_resource.answer(question, params)
        assert refusal.value.problem.status == 404
        assert refusal.value.problem.detail == f"there is no pod secret/{name} that you may see"


def test_a_misspelt_name_does_not_reveal_where_one_like_it_is() -> None:
    question = asked_by(clusters.TENANT, "all")
    params = why_resource.WhyParams(namespace="train", kind="pod", name="deep-0")
    with pytest.raises(problems.Refusal) as refusal:
        why_resource.answer(question, params)
    assert "secret" not in refusal.value.problem.detail


def test_holders_of_an_answer_keep_their_numbers_only() -> None:
    question = asked_by(clusters.TENANT, "all")
    params = why_resource.WhyParams(**PARAMS["/why/{namespace}/{kind}/{name}"])
    answer = why_resource.answer(question, params)
    hidden = [each for each in answer.holders if each.pod == hidden_names.HIDDEN]
    assert hidden
    assert all(each.queue == "" and each.since is None for each in hidden)
    assert any(each.pod == "train/llama-0" for each in answer.holders)


def test_fixes_that_change_work_of_others_are_left_out() -> None:
    hidden = hidden_names.HiddenNames(frozenset({"secret"}), frozenset({"secret", "vault-0"}))
    reference = {"apiVersion": "v1", "kind": "Pod", "namespace": "secret", "name": "vault-0"}
    fix = msgspec.convert(
        {
            "who": "cluster-admin",
            "title": "end it",
            "patch": [{"object": reference, "delete": True}],
        },
        why_answer.Fix,
    )
    assert hidden.without(fix) != fix


@pytest.mark.parametrize(
    ("sentence", "shown"),
    [
        ("held by secret/vault-0.", "held by (hidden)."),
        ("when secret/job/vault and 2 more end", "when (hidden) and 2 more end"),
        ("ends job/secret/vault", "ends (hidden)"),
        ("pod vault-0, pod mine", "pod (hidden), pod mine"),
        ("job/train in train/mine", "job/train in train/mine"),
        ("namespace secret has it", "namespace (hidden) has it"),
        ("the vault-01 is another", "the vault-01 is another"),
        ("nvidia.com/gpu needs 8", "nvidia.com/gpu needs 8"),
    ],
)
def test_sentences_lose_names_and_nothing_else(sentence: str, shown: str) -> None:
    hidden = hidden_names.HiddenNames(
        frozenset({"secret"}), frozenset({"secret", "vault", "vault-0"})
    )
    assert hidden.text(sentence) == shown


def test_a_problem_with_a_question_is_stated_without_names() -> None:
    hidden = hidden_names.HiddenNames(frozenset({"secret"}), frozenset({"secret"}))
    refusal = hidden.refusal(errors.InputError("there is one in namespace secret"))
    assert refusal.problem.detail == "there is one in namespace (hidden)"
