"""The judge: a good answer passes, and each kind of fault is found."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from tests.answers import answer_form, asking, judging, story_file
from tests.cli import running

STORY = story_file.read("aks-sku-gpu")
ROWS = {"UntoleratedTaint": 3, "Busy": 1}
TEXT = """pod default/mnist cannot start: no node tolerates
  fixes, each checked:
    1  you  tolerate sku=gpu
"""
Tree = dict[str, Any]


def toleration(key: str) -> Tree:
    """A suggestion to tolerate a taint."""
    tolerations = STORY.asked_object()["spec"]["tolerations"]
    added = [*tolerations, {"key": key, "operator": "Exists"}]
    reference = {"apiVersion": "v1", "kind": "Pod", "namespace": "default", "name": "mnist"}
    patch = {"object": reference, "merge": {"spec": {"tolerations": added}}}
    return {"who": "user", "patch": [patch], "verified": True, "effect": f"tolerates {key}"}


GOOD: Tree = {
    "schedulable": False,
    "cause": {
        "class": "config",
        "code": "UntoleratedTaint",
        "sentence": "3 nodes with free GPUs have taint sku=gpu:NoSchedule",
    },
    "funnel": [],
    "holders": [],
    "fixes": [toleration("sku")],
}


def judged(answer: Tree, *, code: int = 1, text: str = TEXT) -> list[str]:
    """The checks in which faults were found."""
    replies = asking.Replies(
        json=running.Run(code, msgspec.json.encode(answer).decode(), ""),
        text=running.Run(code, text, ""),
    )
    judgement = judging.judge(STORY, replies, ROWS)
    return sorted({finding.check for finding in judgement.findings})


def test_a_good_answer_has_no_faults() -> None:
    assert judged(GOOD) == []


@pytest.mark.parametrize(
    ("cause", "faults"),
    [
        ({"class": "platform"}, [judging.CAUSE]),
        ({"code": "Busy"}, [judging.CAUSE]),
        ({"code": "Unheard"}, [judging.CAUSE]),
        ({"sentence": "no GPU is free"}, [judging.WORDS]),
    ],
)
def test_a_wrong_cause_is_found(cause: Tree, faults: list[str]) -> None:
    assert judged(GOOD | {"cause": GOOD["cause"] | cause}) == faults


def test_a_wrong_verdict_is_found() -> None:
    assert judging.VERDICT in judged(GOOD | {"schedulable": True}, code=0)


def test_a_fix_that_does_not_help_is_found() -> None:
    useless = toleration("spot")

    assert judged(GOOD | {"fixes": [useless, toleration("sku")]}) == [judging.FIXES]


def test_a_fix_that_the_server_refuses_is_found() -> None:
    refused = toleration("sku")
    refused["patch"][0]["merge"] = {"spec": {"nodeSelector": {"a": "b"}, "schedulerName": "other"}}

    assert judging.FIXES in judged(GOOD | {"fixes": [refused, toleration("sku")]})


def test_a_missing_fix_is_found() -> None:
    assert judged(GOOD | {"fixes": []}) == [judging.WANTED]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "x" * 101,
        "pod default/mnist cannot start\n  fixes, each checked:\n",
        "pod default/mnist cannot start\nholders:\nnext: dovetail when\n",
    ],
)
def test_bad_text_is_found(text: str) -> None:
    assert judged(GOOD, text=text) == [judging.TEXT]


def test_a_wrong_exit_code_is_found() -> None:
    assert judged(GOOD, code=0) == [judging.FORM]


@pytest.mark.parametrize(
    "patch",
    [
        {"object": {"apiVersion": "v1", "kind": "Pod", "name": "a"}},
        {
            "object": {"apiVersion": "v1", "kind": "Pod", "name": "a"},
            "delete": True,
            "merge": {},
        },
        {"object": {"kind": "Pod", "name": "a"}, "delete": True},
    ],
)
def test_a_patch_is_one_change_of_one_object(patch: Tree) -> None:
    answer = GOOD | {"fixes": [toleration("sku") | {"patch": [patch]}]}

    with pytest.raises(msgspec.ValidationError):
        answer_form.read(msgspec.json.encode(answer).decode())
