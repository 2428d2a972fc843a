"""Who is next: priority, then age, then uid."""

from __future__ import annotations

import itertools

from dovetail.schedule import pod_order
from tests.schedule import build


def test_priority_then_age_then_uid_whatever_the_order_they_came_in() -> None:
    given = [
        build.pod("important", priority=10, created="2026-03-01T00:00:00Z"),
        build.pod("old", created="2026-01-01T00:00:00Z"),
        build.pod("new", created="2026-02-01T00:00:00Z"),
        build.pod("new-twin", created="2026-02-01T00:00:00Z"),
        build.pod("unborn", metadata={"creationTimestamp": None}),
        build.pod("humble", priority=-5, created="2025-01-01T00:00:00Z"),
    ]
    expected = ["important", "old", "new", "new-twin", "unborn", "humble"]
    for shuffled in itertools.permutations(given):
        assert [pod.metadata.name for pod in pod_order.waiting(shuffled)] == expected


def test_age_is_a_moment_not_a_text() -> None:
    later = build.pod("later", created="2026-01-01T00:30:00Z")
    earlier = build.pod("earlier", created="2026-01-01T01:00:00+01:00")
    assert [pod.metadata.name for pod in pod_order.waiting([later, earlier])] == [
        "earlier",
        "later",
    ]


def test_pods_on_their_way_out_do_not_wait() -> None:
    leaving = build.pod("leaving", metadata={"deletionTimestamp": "2026-01-01T00:00:00Z"})
    assert pod_order.waiting([leaving, build.pod("stays")]) == [build.pod("stays")]


def test_only_pods_of_the_named_schedulers_count() -> None:
    ours, theirs = (
        build.pod("ours", schedulerName="dovetail"),
        build.pod("theirs", schedulerName="default-scheduler"),
    )
    assert pod_order.waiting([ours, theirs], scheduler_names=("dovetail",)) == [ours]
    assert len(pod_order.waiting([ours, theirs])) == 2
