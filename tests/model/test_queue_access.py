"""Which queue a workload may use: labels name one, the queue's selector opens it, and every no says what to do."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dovetail.kubetypes import codec, meta
from dovetail.kubetypes.core import namespaces
from dovetail.kubetypes.custom import queues
from dovetail.model.queue import queue_access

OWN, KUEUE, KAI = "dovetail.dev/queue", queue_access.KUEUE_LABEL, queue_access.KAI_LABEL
Verdict = queue_access.Verdict


def queue(name: str, **spec: Any) -> queues.Queue:
    return codec.decode_struct(
        queues.Queue, codec.encode_tree({"metadata": {"name": name}, "spec": spec})
    )


def space(name: str, **labels: str) -> namespaces.Namespace:
    return namespaces.Namespace(metadata=meta.ObjectMeta(name=name, labels=labels))


def team(name: str) -> dict[str, Any]:
    return {"matchLabels": {"team": name}}


KNOWN = {
    item.metadata.name: item
    for item in (
        queue("research"),
        queue(
            "vision",
            parent="research",
            namespaceSelector=team("vision"),
            aliases=["see/user", "eyes"],
        ),
        queue("speech", parent="research", namespaceSelector=team("speech"), aliases=["both"]),
        queue(
            "speech-night", parent="research", namespaceSelector=team("speech"), aliases=["both"]
        ),
        queue("closed", parent="gone", namespaceSelector={}),
        queue("nobody"),
    )
}
SPACES = {
    item.metadata.name: item for item in (space("see", team="vision"), space("hear", team="speech"))
}


def asked(namespace: str, **labels: str) -> queue_access.Resolved:
    expected = {
        {"own": OWN, "kueue": KUEUE, "kai": KAI}[key]: value for key, value in labels.items()
    }
    return queue_access.resolve(expected, namespace, spaces=SPACES, all_queues=KNOWN)


@pytest.mark.parametrize(
    ("namespace", "labels", "queue_name"),
    [
        ("see", {"own": "vision"}, "vision"),
        ("see", {"kueue": "user"}, "vision"),  # alias with the namespace, as a LocalQueue is known
        ("see", {"kueue": "eyes"}, "vision"),
        ("see", {"kai": "eyes"}, "vision"),
        ("see", {"kai": "vision"}, "vision"),  # a queue answers to its own name
        (
            "hear",
            {"own": "speech-night", "kueue": "user", "kai": "eyes"},
            "speech-night",
        ),  # ours outranks theirs
    ],
)
def test_a_label_names_the_queue_and_its_selector_opens_it(
    namespace: str, labels: dict[str, str], queue_name: str
) -> None:
    assert asked(namespace, **labels) == queue_access.Resolved(
        queue_name, requested_queue=queue_name
    )


@pytest.mark.parametrize(
    ("namespace", "labels", "verdict", "words"),
    [
        (
            "hear",
            {"own": "vision"},
            Verdict.REFUSED,
            "does not take namespace hear: its namespaceSelector asks team=vision",
        ),
        ("hear", {"kueue": "eyes"}, Verdict.REFUSED, "queue vision does not take namespace hear"),
        ("hear", {"kueue": "user"}, Verdict.UNKNOWN, "no queue has the alias hear/user"),
        (
            "hear",
            {"kai": "both"},
            Verdict.CLOSED,
            "queues speech, speech-night all have the alias both",
        ),
        (
            "see",
            {"own": "eyes"},
            Verdict.UNKNOWN,
            "queue eyes (label dovetail.dev/queue) does not exist",
        ),
        (
            "see",
            {"own": "research"},
            Verdict.PARENT,
            "name one of them: speech, speech-night, vision",
        ),
        (
            "see",
            {"own": "closed"},
            Verdict.CLOSED,
            "queue closed is not usable: parent gone does not exist",
        ),
        ("see", {"own": "nobody"}, Verdict.REFUSED, "it has no namespaceSelector"),
    ],
)
def test_a_label_alone_opens_nothing_and_every_no_says_what_to_do(
    namespace: str, labels: dict[str, str], verdict: Verdict, words: str
) -> None:
    resolved = asked(namespace, **labels)
    assert resolved.queue is None
    assert resolved.verdict is verdict
    assert words in resolved.reason


def test_without_a_label_the_only_queue_that_takes_the_namespace_is_used() -> None:
    known = {name: one for name, one in KNOWN.items() if name != "closed"}
    doors = queue_access.QueueAccess(known, SPACES)
    assert doors.resolve({}, "see").queue == "vision"
    several = doors.resolve({}, "hear")
    assert several.verdict is Verdict.SEVERAL
    assert several.reason == (
        "namespace hear may use 2 queues (speech, speech-night); name one by label dovetail.dev/queue"
    )
    none = doors.resolve({}, "elsewhere")
    assert none.verdict is Verdict.NONE
    assert "no queue takes namespace elsewhere" in none.reason


def test_a_queue_out_of_order_still_counts_so_that_a_repair_moves_no_work() -> None:
    assert (
        asked("see").verdict is Verdict.SEVERAL
    )  # vision, and the broken one that takes every namespace


def test_a_namespace_may_name_its_queue_itself() -> None:
    spaces = {"hear": space("hear", team="speech", **{OWN: "speech-night"})}
    doors = queue_access.QueueAccess(KNOWN, spaces)
    assert doors.resolve({}, "hear").queue == "speech-night"
    assert doors.resolve({OWN: "speech"}, "hear").queue == "speech"
    assert "label dovetail.dev/queue of the namespace" in (
        queue_access.QueueAccess({}, spaces).resolve({}, "hear").reason
    )


def test_a_namespace_is_known_by_its_name_even_before_it_is_seen() -> None:
    by_name = {
        "matchExpressions": [
            {"key": queue_access.NAME_LABEL, "operator": "In", "values": ["train"]}
        ]
    }
    doors = queue_access.QueueAccess({"a": queue("a", namespaceSelector=by_name)}, {})
    assert doors.resolve({}, "train").queue == "a"
    assert doors.resolve({OWN: "a"}, "other").reason == (
        "queue a does not take namespace other: its namespaceSelector asks kubernetes.io/metadata.name in (train); "
        "have the namespace labelled so, or name another queue"
    )


def test_what_an_owner_says_counts_like_the_label() -> None:
    assert (
        queue_access.QueueAccess(KNOWN, SPACES)
        .resolve({OWN: "speech"}, "see", named="vision")
        .queue
        == "vision"
    )


def test_refused_work_still_shows_which_queue_it_names() -> None:
    assert asked("hear", own="vision").requested_queue == "vision"


NAMES = st.sampled_from(["a", "b", "c", "see", "see/b", ""])
SPECS = st.fixed_dictionaries(
    {},
    optional={
        "parent": NAMES,
        "aliases": st.lists(NAMES, max_size=3),
        "namespaceSelector": st.sampled_from(
            [{}, team("vision"), {"matchExpressions": [{"operator": "Odd"}]}]
        ),
    },
)


@given(
    st.dictionaries(st.sampled_from(["a", "b", "c"]), SPECS, max_size=3),
    st.dictionaries(st.sampled_from([OWN, KUEUE, KAI]), NAMES),
    st.sampled_from(["see", "hear", "gone"]),
)
def test_any_workload_gets_a_leaf_that_takes_it_or_a_reason(
    specs: dict[str, dict[str, Any]], pod_labels: dict[str, str], namespace: str
) -> None:
    known = {name: queue(name, **spec) for name, spec in specs.items()}
    doors = queue_access.QueueAccess(known, SPACES)
    result = doors.resolve(pod_labels, namespace)
    assert doors.resolve(pod_labels, namespace) is result
    if result.queue is None:
        assert result.reason
        assert result.verdict is not Verdict.GIVEN
        return
    spec = known[result.queue].spec
    assert all(item.spec.parent != result.queue for item in known.values())
    assert spec.namespace_selector is not None
    assert spec.namespace_selector == meta.LabelSelector() or namespace == "see"
