"""Scenarios with a known answer on a real API server: queues and topologies as objects, gangs by what owns their pods.

Every fifth public scenario of each area is put on one server after the other. It has to end where the same scenario
ends on paper, cycle after cycle; where the scenario itself says how cycles end, as it says.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

from dovetail.kube.auth import client_config
from dovetail.replay.scenarios import run_scenario, scenario_format, scenario_state
from dovetail.replay.scenarios.scenario_format import State
from tests.e2e.batch import choosing, setting, tenure
from tests.scenarios import comparing
from tests.support import cluster as planes
from tests.support import live, rest
from tests.support.live import Live

CYCLES = 6  # of which the last three must change nothing
STABLE = 3
OWNERS = {"PyTorchJob": ("kubeflow.org", "v1"), "JobSet": ("jobset.x-k8s.io", "v1alpha2")}


def definition(kind: str, group: str, version: str) -> dict[str, Any]:
    """As little of the real definition as a server needs."""
    plural = f"{kind.lower()}s"
    names = {"kind": kind, "listKind": f"{kind}List", "plural": plural, "singular": kind.lower()}
    schema = {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}
    notes = {"api-approved.kubernetes.io": "unapproved, a test"}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.{group}", "annotations": notes},
        "spec": {
            "group": group,
            "names": names,
            "scope": "Namespaced",
            "versions": [{"name": version, "served": True, "storage": True, "schema": schema}],
        },
    }


@pytest.fixture(scope="module")
def server() -> Iterator[Live]:
    """A server with our kinds and those that own pods; no nodes, no scheduler."""
    with live.private() as lives:
        result = [item for item in live.installed() if item["kind"] == "CustomResourceDefinition"]
        result += [definition(kind, *where) for kind, where in OWNERS.items()]
        planes.apply(lives.plane, result)
        names = [f"crd/{item['metadata']['name']}" for item in result]
        planes.kubectl(lives.plane, "wait", "--for=condition=Established", *names, "--timeout=60s")
        lives.wait_for("all kinds to be served", lambda: _are_served(lives))
        yield lives


def _are_served(made: Live) -> bool:
    try:
        for plural in (*setting.WIPED, *setting.CLUSTER_WIPED):
            made.rest.list(plural)
    except rest.RefusedError:  # their storage is being made
        return False
    return True


@pytest.mark.slow
def test_a_sample_of_the_scenarios_ends_on_a_real_server_as_on_paper(server: Live) -> None:
    chosen = choosing.chosen()
    deviations: dict[str, list[str]] = {}
    for number, story in enumerate(chosen.stories):
        if names := deviations_of(server, story, is_prompt=number % 2 == 0):
            deviations[story.scenario.id] = names
    messages = "\n".join(f"{id_}: {item}" for id_, found in deviations.items() for item in found)
    print(f"{len(chosen.stories)} played, {len(chosen.left_out)} left out: {chosen.left_out}")
    assert not deviations, f"{len(deviations)} of {len(chosen.stories)} deviate\n{messages}"


def deviations_of(server: Live, story: choosing.Story, *, is_prompt: bool) -> list[str]:
    """What differs between the server and paper, and between the server and what is expected.

    Some controllers recreate a pod when it begins to end, others when it is gone: one story has these, the next those.
    On paper, a pod that is ending as a scenario begins waits again the moment it is gone, as with a prompt controller.
    """
    is_prompt = is_prompt or any(
        pod.state is State.TERMINATING for job in story.scenario.jobs for pod in job.pods
    )
    scheduling = client_config.load(
        str(server.plane.write_kubeconfig("stories", token=server.token))
    )
    playing = client_config.load(str(server.plane.kubeconfig))
    made = setting.Setting(server.rest, story.scenario, is_prompt=is_prompt)
    setting.wipe(server.rest)
    made.put()
    end = tenure.played(made, scheduling, playing)
    result = [
        *end.violations,
        *([end.calm] if end.calm else []),
        *unlike_paper(story.scenario, end.situation),
    ]
    if story.is_judged:
        outcome = run_scenario.Outcome(end.situation, (), (), (), (end.situation,), ())
        result += map(str, comparing.compare(story.document, story.scenario, outcome))
    return result


def unlike_paper(
    scenario: scenario_format.Scenario, live_end: scenario_state.ScenarioState
) -> Iterator[str]:
    """Jobs and groups of which not as many pods run and wait as on paper."""
    cycles = scenario_format.Run(mode="cycles", cycles_until=CYCLES - STABLE, cycles_stable=STABLE)
    paper = run_scenario.run(msgspec.structs.replace(scenario, run=cycles))
    if not paper.is_settled:
        yield "on paper it does not come to rest"
    for job in scenario.jobs:
        for group in dict.fromkeys(pod.group for pod in job.pods):
            members = [pod.name for pod in job.pods if pod.group == group]
            there, here = (
                Counter(_word(item, name) for name in members) for item in (paper.end, live_end)
            )
            if there != here:
                yield f"{job.name}/{group}: {dict(there)} on paper, {dict(here)} on the server"


def _word(situation: scenario_state.ScenarioState, pod: str) -> str:
    entry = situation.pods.get(pod)
    if entry is None:  # it ended and its controller has not made it again yet
        return str(State.PENDING)
    return str(State.RUNNING if entry.state is State.BOUND else entry.state)
