"""`dovetail top`: the GPUs that are held and waited for, in silicon, by whatever one asks for."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.cli import running
from tests.cli.work.test_work_queue import QUEUES

RUN = ("run", "--image", "x", "-y", "-d")


@pytest.fixture
def busy(small: Path) -> Path:
    """Two queues: one holds a whole node, the other slices, and one job waits."""
    running.inside(small, "apply", "-f", "-", stdin=QUEUES)
    running.inside(small, *RUN, "--type", "h100", "--gpus", "8", "-q", "research", "--name", "a")
    running.inside(small, *RUN, "--type", "h100", "--gpus", "4", "-q", "research", "--name", "b")
    running.inside(small, *RUN, "--mig", "3g.40gb", "-q", "product", "--name", "c")
    return small


def rows(state: Path, by: str, *arguments: str) -> dict[str, dict[str, Any]]:
    done = running.inside(state, "top", "--by", by, "-o", "json", *arguments)
    assert done.code == 0, done.err
    return {row["name"]: row for row in json.loads(done.out)["rows"]}


def test_queues_nodes_and_types_hold_the_same_in_silicon(busy: Path) -> None:
    by_queue = rows(busy, "queue")
    assert by_queue["research"]["allocated"] == 8
    assert by_queue["research"]["waiting"] == 4
    assert by_queue["research"]["waitingPods"] == 1
    assert by_queue["product"]["allocated"] == 0.5  # 3g of an H100 takes half of its memory
    assert rows(busy, "namespace")["default"]["allocated"] == 8.5
    by_node, by_type = rows(busy, "node"), rows(busy, "type")
    assert list(by_node) == ["h100-0", "h100-1", "l4-0", "l4-1", "l4-2"]
    assert sum(row["allocated"] for row in by_node.values()) == 8.5
    assert by_type["H100 80GB HBM3"] | {"pods": 0} == {
        "by": "type",
        "name": "H100 80GB HBM3",
        "capacity": 16,
        "allocated": 8.5,
        "free": 7.5,
        "used": None,
        "waiting": None,
        "pods": 0,
        "waitingPods": 0,
    }
    assert rows(busy, "node", "-n", "elsewhere")["h100-0"]["allocated"] == 0
    done = running.inside(busy, "top", "--by", "queue")
    assert set(done.column("USED")) == {"n/a"}
    assert done.column("QUEUE")[:2] == ["research", "product"]
    assert "8.5 of 22 GPUs allocated, 4 waited for" in done.err


def test_a_parent_queue_holds_what_its_children_hold(small: Path) -> None:
    family = QUEUES.replace("name: product}\nspec: {", "name: child}\nspec: {parent: research, ")
    running.inside(small, "apply", "-f", "-", stdin=family)
    running.inside(small, *RUN, "--type", "h100", "--gpus", "2", "-q", "child", "--name", "a")
    by_queue = rows(small, "queue")
    assert by_queue["child"]["allocated"] == by_queue["research"]["allocated"] == 2


def test_a_terminal_shows_it_live_until_q(busy: Path) -> None:
    with running.terminal(busy, "top", "--by", "queue") as terminal:
        terminal.wait_for("8.5 of 22 GPUs allocated")
        running.inside(busy, "cancel", "job/c")
        terminal.wait_for("8 of 22 GPUs allocated")
        terminal.press("q")
        assert terminal.ending() == 0
