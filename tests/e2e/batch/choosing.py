"""Which scenarios are played on a real server: a sample of each area, by a rule that never asks how they end.

Given the shared scenarios. Names a server would refuse are replaced by ones it takes, in the scenario and in what is
expected of it alike. Never runs anything.
"""

from __future__ import annotations

import hashlib
import re
from typing import Any, NamedTuple

import msgspec

from dovetail.replay.scenarios import scenario_format
from tests.e2e.batch import asking
from tests.support import shared
from tests.support.lengths import length

PUBLIC = "scenarios/kai_public.jsonl.gz"
EVERY = length(short=10, full=5)  # of so many scenarios, one
UNFIT = re.compile(r"[^a-z0-9.-]")
Document = dict[str, Any]


class Story(NamedTuple):
    """A scenario that a server can run, and what is expected of it."""

    scenario: scenario_format.Scenario
    document: Document

    @property
    def is_judged(self) -> bool:
        """Whether what is expected is meant for cycle after cycle, as a live scheduler works."""
        return self.scenario.run.mode == "cycles"


class Choice(NamedTuple):
    """What is played, and what was chosen and cannot run on a server: its id, and why."""

    stories: list[Story]
    left_out: dict[str, str]


def chosen() -> Choice:
    """One of `EVERY` scenarios of each area, in the order of a digest of their ids."""
    return choice(list(shared.lines(PUBLIC)))


def choice(documents: list[Document]) -> Choice:
    """The same among given ones."""
    areas: dict[str, list[Document]] = {}
    for document in sorted(
        documents, key=lambda item: hashlib.sha256(item["id"].encode()).hexdigest()
    ):
        areas.setdefault(document["area"], []).append(document)
    stories = [story_of(item) for area in sorted(areas) for item in areas[area][::EVERY]]
    problems = {
        story.scenario.id: problem
        for story in stories
        if (problem := asking.problem(story.scenario))
    }
    return Choice([story for story in stories if story.scenario.id not in problems], problems)


def story_of(document: Document) -> Story:
    """The scenario under names a server takes."""
    document = dict(document)
    jobs = document["jobs"]
    words = _names([job["name"] for job in jobs]) | _names(
        [pod["name"] for job in jobs for pod in job["pods"]]
    )
    words |= _names([queue["name"] for queue in document["queues"]])
    for part in ("queues", "jobs", "claims", "expect"):
        document[part] = _said(document.get(part, []), words)
    document["claims"] = [
        item | {"device_class": _fit(item["device_class"])} for item in document["claims"]
    ]
    document["device_classes"] = [
        item | {"name": _fit(item["name"])} for item in document.get("device_classes", ())
    ]
    scenario = scenario_format.read(msgspec.json.encode(document), place=document["id"])
    return Story(scenario, document)


def _names(names: list[str]) -> dict[str, str]:
    result = {name: _fit(name) for name in names}
    assert len(set(result.values())) == len(result), f"two of these become one: {sorted(result)}"
    return result


def _fit(name: str) -> str:
    return UNFIT.sub("-", name.lower())


def _said(tree: Any, words: dict[str, str]) -> Any:
    match tree:
        case dict():
            return {_said(key, words): _said(value, words) for key, value in tree.items()}
        case list():
            return [_said(item, words) for item in tree]
        case str():
            return words.get(tree, tree)
        case _:
            return tree
