"""`dovetail queue`: the order of the scheduler, why work waits and when it starts; on a cluster and a snapshot."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from dovetail.cli.work.explaining import reason_texts
from tests.cli import running

RUN = ("run", "--image", "x", "--type", "h100", "-y", "-d")
QUEUES = """
apiVersion: dovetail.dev/v1alpha1
kind: Queue
metadata: {name: research}
spec: {namespaceSelector: {}, resources: {gpu: {quota: 8, limit: 8}}}
---
apiVersion: dovetail.dev/v1alpha1
kind: Queue
metadata: {name: product}
spec: {namespaceSelector: {}, resources: {gpu: {quota: 8}}}
"""


@pytest.fixture
def full(small: Path) -> Path:
    """All H100s run `first` for two hours; `second` and then `third` wait for them."""
    running.inside(small, *RUN, "--gpus", "8", "--nodes", "2", "--time", "2h", "--name", "first")
    running.inside(small, *RUN, "--gpus", "8", "--time", "1h", "--name", "second")
    running.inside(small, *RUN, "--gpus", "4", "--name", "third")
    return small


def test_what_waits_comes_first_by_turn_with_its_start_and_reason(full: Path) -> None:
    done = running.inside(full, "queue")
    assert done.column("NAME") == ["job/second", "job/third", "job/first"]
    assert done.column("POSITION") == ["1", "2", "-"]
    assert done.column("GPUS") == ["8", "4", "16"]
    assert done.column("STATE") == ["Pending", "Pending", "Running"]
    assert done.column("REASON") == ["DevicesInUse", "DevicesInUse", "-"]
    assert done.column("START")[0].endswith("!")  # promised
    assert done.err.splitlines()[-1] == "next: dovetail why job/second"
    wide = running.inside(full, "queue", "-o", "wide")
    assert wide.column("AHEAD") == ["-", "default/job/second", "-"]
    assert wide.column("PODS") == ["0/1", "0/1", "2/2"]
    assert set(done.column("REASON")) - {"-"} <= reason_texts.ALL.keys()

    rows = json.loads(running.inside(full, "queue", "-o", "json").out)["items"]
    starts = {f"{row['namespace']}/{row['name']}": row["start"] for row in rows}
    for each in json.loads(running.inside(full, "when", "-o", "json").out):
        name = f"{each['gang']['namespace']}/{each['gang']['name']}"
        assert each["start"][:19] == starts[name][:19]


def test_one_queue_one_job_or_what_labels_select_also_of_a_snapshot(
    full: Path, tmp_path: Path
) -> None:
    assert running.inside(full, "queue", "third", "-o", "name").out == "job/third\n"
    assert running.inside(full, "queue", "job/third", "-o", "name").out == "job/third\n"
    pending = running.inside(full, "queue", "--pending", "--sort-by", ".gpus", "-o", "name")
    assert pending.out == "job/third\njob/second\n"
    mine = running.inside(full, "queue", "--me", "--no-headers")
    assert len(mine.lines) == 3
    assert running.inside(full, "queue", "-l", "no=such").out == ""
    assert running.inside(full, "queue", "-n", "elsewhere", "-o", "name").out == ""
    columns = running.inside(full, "queue", "-o", "custom-columns=N:.name,G:.gpus")
    assert columns.lines[1].split() == ["job/second", "8.0"]
    saved = str(tmp_path / "saved")
    assert running.inside(full, "snapshot", "save", saved).code == 0
    kept = running.inside(tmp_path / "none", "queue", "--pending", "--snapshot", saved)
    assert kept.column("NAME") == ["job/second", "job/third"]
    watched = running.inside(tmp_path / "none", "queue", "-w", "--snapshot", saved)
    assert watched.code == 2
    unknown = running.inside(full, "queue", "nothing")
    assert (unknown.code, unknown.out) == (2, "")
    assert 'no queue "nothing"' in unknown.err


def test_a_queue_at_its_limit_is_the_reason(small: Path) -> None:
    running.inside(small, "apply", "-f", "-", stdin=QUEUES)
    for name in ("a", "b"):
        running.inside(small, *RUN, "--gpus", "8", "--queue", "research", "--name", name)
    running.inside(small, *RUN, "--gpus", "2", "--queue", "product", "--name", "c")
    done = running.inside(small, "queue", "research")
    assert done.column("NAME") == ["job/b", "job/a"]
    assert done.column("QUEUE") == ["research", "research"]
    assert done.column("REASON")[0] == "QueueLimitReached"


def test_changes_are_followed(full: Path) -> None:
    with running.terminal(full, "queue", "-w", columns=160) as terminal:
        terminal.wait_for("job/third")
        running.inside(full, "cancel", "job/first")
        terminal.wait_for("deleted")
        terminal.press("\x03")
        assert terminal.ending() == 130


def test_an_empty_cluster_says_so(small: Path) -> None:
    done = running.inside(small, "queue")
    assert (done.code, done.out) == (0, "")
    assert "nothing waits or runs" in done.err
