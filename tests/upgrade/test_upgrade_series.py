"""Series about upgrades: where each is, how long its nodes have been in their phase, and how long they may."""

from __future__ import annotations

import datetime
from typing import Any

import msgspec

from dovetail.kubetypes.custom.stack_upgrades import StackUpgrade
from dovetail.model import exposition
from dovetail.upgrade import upgrade_series
from tests.upgrade.simulated_upgrade import SimulatedUpgrade

NOW = datetime.datetime(2026, 5, 1, 12, 0, 0, tzinfo=datetime.UTC)
HALF_PAST = "2026-05-01T11:30:00Z"


def upgrade(*nodes: dict[str, Any], **spec: Any) -> StackUpgrade:
    tree = {
        "metadata": {"name": "roll"},
        "spec": {"to": {"driver": "2"}, **spec},
        "status": {
            "phase": "Progressing",
            "nodes": list(nodes),
            "conditions": [
                {"type": "Progressing", "status": "True"},
                {"type": "Degraded", "status": "False"},
            ],
        },
    }
    return msgspec.convert(tree, StackUpgrade)


def node(phase: str, **fields: Any) -> dict[str, Any]:
    return {"name": f"node-{phase.lower()}", "phase": phase, "since": HALF_PAST, **fields}


def shown(*upgrades: StackUpgrade) -> dict[tuple[str, ...], float]:
    """Values by name without its prefix and by label values, the upgrade's name left out."""
    return {
        (name.removeprefix("dovetail_lifecycle_"), *list(labels.values())[1:]): value
        for name, labels, value in upgrade_series.series(upgrades, NOW)
    }


def test_phases_and_conditions_are_shown_and_nodes_are_counted() -> None:
    values = shown(upgrade(node("Draining"), node("Done")))
    assert values["upgrade_phase", "Progressing"] == 1
    assert values["upgrade_condition", "Progressing"] == 1
    assert values["upgrade_condition", "Degraded"] == 0
    assert (values["nodes", "Draining"], values["nodes", "Done"], values["nodes", "Failed"]) == (
        1,
        1,
        0,
    )


def test_nodes_under_way_have_a_duration_and_others_none() -> None:
    values = shown(upgrade(*map(node, ("Waiting", "Draining", "Applying", "Done", "Failed"))))
    durations = {key[1]: value for key, value in values.items() if key[0] == "node_phase_seconds"}
    assert durations == {"node-draining": 1800, "node-applying": 1800}


def test_a_limit_is_that_of_the_rules() -> None:
    nodes = [node("Fencing"), node("Draining"), node("Applying"), node("Validating")]
    drain = {"mode": "EvictAfterTimeout", "timeoutSeconds": 600}
    rules = {"applySeconds": 50, "validateSeconds": 60}
    values = shown(upgrade(*nodes, drain=drain, stop=rules))
    limits = {key[2]: value for key, value in values.items() if "limit" in key[0]}
    assert limits == {"Fencing": 300, "Draining": 1200, "Applying": 50, "Validating": 60}


def test_where_a_person_is_awaited_or_the_upgrade_is_paused_there_is_no_limit() -> None:
    by_hand = upgrade(node("Applying", byHand=["reboot it"]))
    paused = upgrade(node("Draining"), paused=True)
    for each in (by_hand, paused):
        assert [key for key in shown(each) if "limit" in key[0]] == []


def test_all_of_it_is_text_that_prometheus_reads() -> None:
    rig = SimulatedUpgrade(nodes=3)
    rig.run(passes=6)
    lines = upgrade_series.series([rig.upgrade], NOW)
    text = exposition.text(upgrade_series.FAMILIES, lines)
    assert 'dovetail_lifecycle_upgrade_condition{upgrade="roll",condition="Progressing"} 1' in text
    assert {line.split("{")[0] for line in text.splitlines() if "{" in line} <= {
        family.name for family in upgrade_series.FAMILIES
    }
