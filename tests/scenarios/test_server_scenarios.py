"""Which scenarios run on a real server, and that their jobs are read there as the scenario means them."""

from __future__ import annotations

import random
import re
from typing import Any

import msgspec
import pytest

from dovetail.kubetypes.workloads import owners
from dovetail.model import gangs
from dovetail.model.workloads import owner_gangs
from dovetail.replay.scenarios import build_scenario, scenario_format, scenario_state
from tests.e2e.batch import asking, choosing
from tests.scenarios import build
from tests.support import shared

KINDS = {"jobs": owners.Job, "pytorchjobs": owners.TrainingJob, "jobsets": owners.JobSet}
NAME = re.compile(r"[a-z0-9]([-a-z0-9.]*[a-z0-9])?")


@pytest.fixture(scope="module")
def documents() -> list[choosing.Document]:
    """All public ones."""
    return list(shared.lines(choosing.PUBLIC))


def test_a_sample_of_each_area_is_chosen_whatever_their_order(
    documents: list[choosing.Document],
) -> None:
    chosen = choosing.choice(documents)
    mixed = random.Random(1).sample(documents, len(documents))
    assert [story.scenario.id for story in choosing.choice(mixed).stories] == [
        story.scenario.id for story in chosen.stories
    ]
    assert len(chosen.stories) + len(chosen.left_out) >= len(documents) / choosing.EVERY
    assert {story.scenario.area for story in chosen.stories} == {
        document["area"] for document in documents
    }
    assert len(chosen.left_out) <= len(chosen.stories) / 20


def test_names_are_such_as_a_server_takes(documents: list[choosing.Document]) -> None:
    for document in documents:
        story = choosing.story_of(document)
        names = [job.name for job in story.scenario.jobs]
        names += [pod.name for job in story.scenario.jobs for pod in job.pods]
        names += [queue.name for queue in story.scenario.queues]
        names += [kind.name for kind in story.scenario.device_classes]
        assert all(NAME.fullmatch(name) for name in names), names
        assert {*story.document["expect"]["jobs"]} <= {job.name for job in story.scenario.jobs}


def test_what_owners_say_is_what_the_scenarios_mean(documents: list[choosing.Document]) -> None:
    for document in documents:
        scenario = choosing.story_of(document).scenario
        if not asking.problem(scenario):
            for job in scenario.jobs:
                assert facts(said(job, scenario)) == facts(meant(job, scenario)), (
                    scenario.id,
                    job.name,
                )


def test_groups_no_owner_has_are_a_problem() -> None:
    optional = [{"name": "a", "kind": "pods", "min": 1}, {"name": "b", "kind": "pods", "min": 1}]
    job = build.job("odd", build.waiting() | {"group": "a"}, groups=optional, min_groups=1)
    assert "odd" in asking.problem(build.scenario(job))
    assert asking.problem(build.scenario(build.job("even", build.waiting()))) == ""


def said(job: scenario_format.Job, scenario: scenario_format.Scenario) -> gangs.Gang:
    """The gang as it is read off the object that owns its pods."""
    (plural, tree), *_ = asking.objects_of(job, scenario).objects
    gang = owner_gangs.gang_of(msgspec.convert(tree, KINDS[plural]))
    assert gang is not None
    return gang


def meant(job: scenario_format.Job, scenario: scenario_format.Scenario) -> gangs.Gang:
    """The gang of a run on paper."""
    objects = build_scenario.objects(scenario, scenario_state.begin(scenario))
    name = build_scenario.gang_ref(job).name
    return next(
        item for item in objects if isinstance(item, gangs.Gang) and item.metadata.name == name
    )


def facts(gang: gangs.Gang) -> dict[str, Any]:
    """What decides about it, names apart: those of groups are the owner's."""
    leaves = [group for group in gang.groups if not group.holds_groups]
    return {
        "queue": gang.queue,
        "is_preemptible": gang.is_preemptible,
        "min_groups": gang.min_groups,
        "topology": gang.topology,
        "leaves": sorted((group.min, str(group.topology)) for group in leaves),
        "inner": sorted(
            (group.min, str(group.topology)) for group in gang.groups if group.holds_groups
        ),
        "problems": gang.problems,
    }
