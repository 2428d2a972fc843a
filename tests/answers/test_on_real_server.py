"""A tenth of the stories on a real kube-apiserver: the same verdicts, and the same fixes work there."""

from __future__ import annotations

import pytest

from tests.answers import answer_form, asking, real_cluster, story_file
from tests.support import cluster as planes
from tests.support import live, rest

PART = 10


def sample() -> list[story_file.Story]:
    """A tenth of all stories, spread over those that a real server can hold."""
    stories = [story_file.read(name) for name in story_file.names()]
    able = [story for story in stories if real_cluster.can_hold(story)]
    count = len(stories) // PART
    return [able[index * len(able) // count] for index in range(count)]


@pytest.mark.slow
def test_a_real_server_agrees() -> None:
    problems = []
    with live.private() as cluster:
        definitions = [
            item for item in live.installed() if item["kind"] == "CustomResourceDefinition"
        ]
        planes.apply(cluster.plane, definitions)
        cluster.schedule(configuration={"schedulerNames": list(real_cluster.SCHEDULERS)})
        cluster.wait_for("a scheduler that leads", cluster.leads)
        for story in sample():
            problems += _problems(cluster, story)

    assert problems == []


def _problems(cluster: live.Live, story: story_file.Story) -> list[str]:
    problems = []
    with real_cluster.on(cluster, story) as real_story:
        if story.header.verdict == "starts":
            real_story.wait_for_node()
        elif not real_story.wait_for_refusal():
            problems.append(f"{story.name}: starts, although it is blocked in memory")
    answer = answer_form.read(asking.ask(story).json.out)
    for fix in answer.fixes:
        problems += _problems_with(cluster, story, fix)
    return problems


def _problems_with(cluster: live.Live, story: story_file.Story, fix: answer_form.Fix) -> list[str]:
    with real_cluster.on(cluster, story) as real_story:
        real_story.wait_for_refusal()  # the scheduler has seen it as it is
        try:
            real_story.carry_out(fix.patch)
            real_story.wait_for_node()
        except (rest.RefusedError, AssertionError) as error:
            return [f"{story.name}: {fix.title or fix.effect}: {error}"]
    return []
