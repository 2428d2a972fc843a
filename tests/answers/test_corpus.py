"""The stories themselves: they are complete, and cover the field."""

from __future__ import annotations

import functools
from collections import Counter

from tests.answers import story_file

NAMES = story_file.names()
ROWS = 25  # of the list of causes that the field knows


@functools.cache
def stories() -> dict[str, story_file.Story]:
    """All of them, by name."""
    return {name: story_file.read(name) for name in NAMES}


def test_stories_ask_about_objects_they_have() -> None:
    for name, story in stories().items():
        assert story.asked_object()["metadata"]["name"] == story.question.name
        assert (story.header.cause is None) == (story.header.verdict == "starts"), name


def test_blocked_stories_say_what_a_good_answer_has() -> None:
    blocked = [story for story in stories().values() if story.header.cause is not None]

    assert [story.name for story in blocked if not story.header.says] == []
    assert [story.name for story in blocked if not story.header.who] == []


def test_every_known_cause_has_a_story() -> None:
    rows: set[int] = set()
    for story in stories().values():
        if story.header.cause is not None:
            rows |= {*story.header.cause.numbers}

    assert rows >= set(range(1, ROWS + 1))


def test_the_corpus_is_large_and_mixed() -> None:
    classes = Counter(
        story.header.cause.class_ for story in stories().values() if story.header.cause is not None
    )
    starting = [story for story in stories().values() if story.header.verdict == "starts"]
    plain = [
        name for name in NAMES if "managedFields" in _text(name) and "Repeat" not in _text(name)
    ]

    assert len(NAMES) >= 130
    assert len(starting) >= 24
    assert len(plain) >= 40
    assert set(classes) == set(story_file.CLASSES)
    assert min(classes.values()) >= 10


def test_large_and_small_clusters_have_stories() -> None:
    sizes = {sum(tree["kind"] == "Node" for tree in story.objects) for story in stories().values()}

    assert min(sizes) <= 3
    assert max(sizes) >= 60


def _text(name: str) -> str:
    return (story_file.DIRECTORY / f"{name}.yaml").read_text()
