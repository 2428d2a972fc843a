"""The blockers that `stack plan` names before the start are those that the upgrade then meets on a real API server."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest

from tests.cli import running
from tests.support import lengths
from tests.upgrade.driver_player import driver_image
from tests.upgrade.fleet.fleet_story import Fleet, fleet
from tests.upgrade.fleet.upgrade_history import WORK
from tests.upgrade.operator_story import NEW, OLD

pytestmark = pytest.mark.slow
CHOSEN = (
    "example.com/chosen"  # label of the nodes of the upgrade; the others are where pods come back
)
NODES = "abcde"
HOUR = 3600
KINDS = ("gang", "guarded gang", "lone", "returning", "guarded", "volume", "bare", "daemon")


@pytest.mark.parametrize("seed", range(lengths.length(short=1, full=12)))
def test_what_a_plan_names_is_what_stays(seed: int, tmp_path: Path) -> None:
    with fleet(len(NODES) + 2, has_slices=False, autoUpgrade=False) as story:
        for node in NODES:
            story.scene.label(node, {CHOSEN: "true"})
        put_work(story, random.Random(seed))
        predicted = planned(story, tmp_path)

        drain = {"deleteEmptyDirData": False, "timeoutSeconds": HOUR, "checkpointSignal": False}
        stop = {"failures": 99, "waveFailures": 99}
        waves = {"canary": 0, "maxUnavailable": "100%"}
        selector = {"matchLabels": {CHOSEN: "true"}}
        story.upgrade(waves=waves, drain=drain, stop=stop, nodeSelector=selector)
        story.lives.begin()
        story.wait(lambda: is_still(story, predicted), f"all but {predicted} to leave")

        # An hour passes between two lives: nodes that are not empty by now never are.
        story.lives.stop()
        story.lives.set_clock(HOUR + 60)
        story.lives.begin()
        status = story.wait_ended()
        assert status["phase"] == "Completed", status
        assert present(story) == predicted
        failed = {node for node, phase in story.phases().items() if phase == "Failed"}
        assert failed == {node for node in NODES if staying(story, node)}
        for node in NODES:
            version = OLD if node in failed else NEW
            assert story.scene.driver(node)[1] == driver_image(version)
            assert (node in failed) == ("stays: " in story.reason(node))
        print(f"seed {seed}: {len(predicted)} blockers, all predicted: {sorted(predicted)}")


def put_work(story: Fleet, chance: random.Random) -> None:
    """One work of each kind that was drawn, on nodes that were drawn."""
    for number, kind in enumerate(chance.sample(KINDS, 6)):
        name = f"{kind.replace(' ', '-')}-{number}"
        nodes = "".join(chance.sample(NODES, 2))
        match kind:
            case "gang":
                story.gang(name, nodes)
            case "guarded gang":
                story.gang(name, nodes)
                story.budget(name, maxUnavailable=1)
            case "lone":
                story.lone(name, nodes)
            case "returning":
                story.lone(name, nodes)
                story.budget(name, maxUnavailable=1)
            case "guarded":
                story.lone(name, nodes)
                story.budget(name, maxUnavailable=0)
            case "volume":
                story.lone(name, nodes, has_volume=True)
            case "bare":
                story.bare(name, nodes[0], gpus=1)
            case _:
                label = f"example.com/{name}"
                story.scene.label(nodes[0], {label: "true"})
                story.daemon(name, only=label, gpus=1)
    story.wait_work()


def planned(story: Fleet, directory: Path) -> set[str]:
    """The work that the plan names, by the command."""
    options = ["--nodes", f"{CHOSEN}=true", "--canary", "0", "--max-unavailable", "100%"]
    options += ["--keep-emptydir", "-o", "json", "--kubeconfig", str(story.kubeconfig)]
    done = running.inside(directory / "none", "stack", "plan", "--to", f"driver={NEW}", *options)
    assert done.code in (0, 1), done.err
    names = {
        f"{pod['metadata']['namespace']}/{pod['metadata']['name']}": pod["metadata"]["labels"]
        for pod in story.api.list("pods", story.namespace)
    }
    plan: dict[str, Any] = json.loads(done.out)
    return {
        names[subject][WORK]
        for blocker in plan["blockers"]
        if blocker["code"] != "NeverFits"
        for subject in blocker["subjects"]
    }


def staying(story: Fleet, node: str) -> list[str]:
    """Pods of work on a node."""
    return [
        pod["metadata"]["labels"][WORK]
        for pod in story.api.list("pods", story.namespace, labelSelector=WORK)
        if pod["spec"].get("nodeName") == story.name(node)
    ]


def present(story: Fleet) -> set[str]:
    """The work that is left on the nodes of the upgrade."""
    return {work for node in NODES for work in staying(story, node)}


def is_still(story: Fleet, predicted: set[str]) -> bool:
    """Whether nothing but what was predicted is left, and every node is drained or waits for it."""
    waits = {node for node in NODES if staying(story, node)}
    return present(story) <= predicted and story.moving() <= waits
