"""The history of a watch: duplicates, late events and reused names never take an object back in time."""

from __future__ import annotations

import random

from hypothesis import given
from hypothesis import strategies as st

from dovetail.kube.watching import watch_history
from dovetail.kubetypes import meta


def about(name: str, version: int | str, uid: str = "") -> meta.ObjectMeta:
    return meta.ObjectMeta(
        name=name, namespace="n", uid=uid or f"uid-{name}", resource_version=str(version)
    )


def test_nothing_up_to_the_list_is_news() -> None:
    history = watch_history.History("100")
    assert not history.takes_change(about("a", 100))
    assert not history.takes_deletion(about("a", 99))
    assert history.takes_change(about("a", 101))


def test_a_change_counts_once_and_never_backwards() -> None:
    history = watch_history.History("0")
    assert history.takes_change(about("a", 5))
    assert not history.takes_change(about("a", 5))
    assert not history.takes_change(about("a", 4))
    assert history.takes_change(about("b", 3))  # another object's lower version is news


def test_what_is_gone_stays_gone() -> None:
    history = watch_history.History("0")
    history.takes_change(about("a", 5))
    assert history.takes_deletion(about("a", 8))
    assert not history.takes_deletion(about("a", 8))
    assert not history.takes_change(about("a", 7))
    assert history.takes_change(about("a", 9, uid="second"))
    assert history.uid_of(about("a", 0)) == "second"


def test_a_deletion_that_overtook_the_creation_wins() -> None:
    history = watch_history.History("0")
    assert history.takes_deletion(about("a", 8))
    assert not history.takes_change(about("a", 5))


def test_the_deletion_of_a_former_bearer_of_the_name_is_old() -> None:
    history = watch_history.History("0")
    history.takes_change(about("a", 5, uid="first"))
    history.takes_change(about("a", 9, uid="second"))
    assert not history.takes_deletion(about("a", 8, uid="first"))
    assert history.uid_of(about("a", 0)) == "second"


def test_tombstones_are_bounded() -> None:
    history = watch_history.History("0")
    for number in range(1, watch_history.TOMBSTONES + 101):
        history.takes_deletion(about(f"p{number}", number))
    assert len(history._gone) == watch_history.TOMBSTONES
    assert not history.takes_change(about(f"p{watch_history.TOMBSTONES}", 1))


def test_versions_that_are_not_numbers_are_always_news() -> None:
    history = watch_history.History("abc")
    assert history.takes_change(about("a", "x"))
    assert history.takes_change(about("a", "x"))
    assert history.takes_deletion(about("a", "w"))


def test_a_lost_watch_goes_on_some_events_before_its_last() -> None:
    history = watch_history.History("10")
    for version in range(11, 11 + watch_history.REPLAYED_EVENTS):
        history.takes_change(about("a", version))
    assert history.resume_at == "10"
    history.takes_change(about("a", 1000))
    assert history.resume_at == "11"


def test_a_bookmark_moves_the_point_to_go_on_from() -> None:
    history = watch_history.History("10")
    history.takes_change(about("a", 12))
    assert history.takes_bookmark("15")
    assert history.resume_at == "15"
    assert not history.takes_bookmark("14"), "the server's versions went back"


@given(st.integers(min_value=0, max_value=2**32), st.integers(min_value=1, max_value=60))
def test_any_order_with_repetitions_ends_at_the_truth(seed: int, count: int) -> None:
    chance = random.Random(seed)
    truth: dict[str, tuple[int, str]] = {}
    events: list[tuple[str, meta.ObjectMeta]] = []
    for version in range(1, count + 1):
        name = chance.choice("abc")
        if name in truth and chance.random() < 0.4:
            uid = truth.pop(name)[1]
            events.append(("gone", about(name, version, uid)))
        else:
            uid = truth[name][1] if name in truth else f"{name}{version}"
            truth[name] = (version, uid)
            events.append(("there", about(name, version, uid)))
    events += chance.choices(events, k=count)
    chance.shuffle(events)

    history = watch_history.History("0")
    seen: dict[str, tuple[int, str]] = {}
    for what, metadata in events:
        if what == "there" and history.takes_change(metadata):
            seen[metadata.name] = (int(metadata.resource_version), metadata.uid)
        elif what == "gone" and history.takes_deletion(metadata):
            seen.pop(metadata.name, None)
    assert seen == truth
