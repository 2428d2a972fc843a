"""How changes are written, and what is said about those that cannot be."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dovetail import errors
from dovetail.answer.what_if import changes


def read(verb: str, text: str) -> changes.Change:
    return changes.read(verb, text, namespace="team").change


def nodes(kind: str, name: str, count: int | None = None) -> changes.Selection:
    return changes.Selection(kind=kind, name=name, count=count)


@pytest.mark.parametrize(
    ("verb", "text", "expected"),
    [
        ("add", "2xh100", changes.AddNodes(nodes=nodes("type", "h100", 2))),
        ("add", "h100", changes.AddNodes(nodes=nodes("type", "h100", 1))),
        ("add", "2xnode/gpu-3", changes.AddNodes(nodes=nodes("node", "gpu-3", 2))),
        ("remove", "node/a", changes.RemoveNodes(nodes=nodes("node", "a"))),
        ("remove", "rack/r1", changes.RemoveNodes(nodes=nodes("rack", "r1"))),
        ("remove", "3xh100", changes.RemoveNodes(nodes=nodes("type", "h100", 3))),
        ("drain", "node/a", changes.Cordon(nodes=nodes("node", "a"), is_drained=True)),
        ("uncordon", "node/a", changes.Uncordon(nodes=nodes("node", "a"))),
        (
            "set",
            "queue/x.quota=8",
            changes.SetQueue(queue="x", field="quota", value="8"),
        ),
        (
            "set",
            "queue/x.limit=none",
            changes.SetQueue(queue="x", field="limit", value=""),
        ),
        (
            "set",
            "node/ip-10-0-0-1.ec2.internal.mig=3g.40gb,4g.40gb",
            changes.SetPartitions(
                nodes=nodes("node", "ip-10-0-0-1.ec2.internal"), profiles=("3g.40gb", "4g.40gb")
            ),
        ),
        (
            "set",
            "type/a100.mig=none",
            changes.SetPartitions(nodes=nodes("type", "a100"), profiles=()),
        ),
        (
            "set",
            "node/a.sharing=mps:4",
            changes.SetSharing(nodes=nodes("node", "a"), strategy="mps", replicas=4),
        ),
        (
            "set",
            "pod/ns/x.priority=-5",
            changes.SetPriority(
                work=changes.Work(kind="pod", namespace="ns", name="x"), priority=-5
            ),
        ),
        (
            "end",
            "job/train",
            changes.EndWork(work=changes.Work(kind="job", namespace="team", name="train")),
        ),
    ],
)
def test_what_people_write(verb: str, text: str, expected: changes.Change) -> None:
    assert read(verb, text) == expected


@pytest.mark.parametrize(
    ("verb", "text", "message"),
    [
        ("add", "0xh100", "expected 1 to 10000 nodes, got 0"),
        ("add", "2xrack/r1", "expected a GPU type or a node to copy"),
        ("set", "queue/x.quota=-1", "quota must not be negative, got -1"),
        ("set", "queue/x.quota=lots", "lots"),
        ("set", "queue/x.colour=red", 'a queue has no field "colour" to set; known: quota'),
        ("set", "queue/x", "expected TARGET.FIELD=VALUE"),
        ("set", "node/a.mig=3g", '"3g" is not a MIG profile'),
        ("set", "node/a.sharing=mps", "expected time-slicing:4, mps:4 or none"),
        ("set", "node/a.sharing=mps:1", "expected at least 2 replicas of a GPU, got 1"),
        ("set", "job/ns/x.priority=high", "expected a whole number"),
        ("end", "train", "expected a workload, such as job/team/train"),
    ],
)
def test_what_cannot_be_is_said_with_what_was_expected(verb: str, text: str, message: str) -> None:
    with pytest.raises(errors.InputError) as caught:
        read(verb, text)
    assert str(caught.value).startswith(f"--{verb} {text}: ")
    assert message in str(caught.value)


@given(
    st.sampled_from(("add", "remove", "cordon", "drain", "uncordon", "set", "end")),
    st.text(max_size=30)
    | st.from_regex(r"[0-9]*x?[a-z]*/?[a-z0-9.]*=?[a-z0-9:,.]*", fullmatch=True),
)
def test_any_text_is_a_change_or_an_error_that_says_so(verb: str, text: str) -> None:
    try:
        stated = changes.read(verb, text, namespace="team")
    except errors.InputError:
        return
    assert stated.text == f"--{verb} {text}"


@pytest.mark.parametrize(
    ("verb", "text", "message"),
    [
        ("add", "-1xh100", "--add -1xh100: expected 1 to 10000 nodes, got -1"),
        ("add", "99999999xh100", "expected 1 to 10000 nodes, got 99999999"),
        ("set", "node/a.color=red", 'a node has no field "color" to set; known: mig, sharing'),
    ],
)
def test_a_change_that_cannot_be_read_names_what_was_expected(
    verb: str, text: str, message: str
) -> None:
    with pytest.raises(errors.InputError, match=re.escape(message)):
        changes.read(verb, text, namespace="default")
