"""The cost of a scripted week on real parts equals a ledger kept by hand, whatever was killed in the middle."""

from __future__ import annotations

import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from fractions import Fraction as F
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.e2e.cost_week import week_clock, week_lab
from tests.e2e.cost_week.week_lab import WeekLab
from tests.history import whole_history
from tests.support import cluster

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def week(tmp_path_factory: pytest.TempPathFactory) -> Iterator[WeekLab]:
    """The week, played once."""
    folder = tmp_path_factory.mktemp("week")
    # Whole days ago, as no sample may be of the future.
    today = int(time.time() * 1000) // (24 * week_clock.HOUR) * 24 * week_clock.HOUR
    start = today - 8 * 24 * week_clock.HOUR
    with (
        cluster.private_plane() as plane,
        week_lab.running(plane, folder, start) as lab,
    ):
        play(lab)
        yield lab


def play(lab: WeekLab) -> None:
    """What happens, in hours since the week began."""
    for namespace in ("research", "serving", "edge"):
        lab.rest.create("namespaces", {"metadata": {"name": namespace}})
    lab.add_node("a", machine="dgx-h100", gpus=2, mig="dynamic", labels={})
    lab.add_node("b", machine="dgx-a100-40", gpus=1, shares="2", labels=week_lab.SPOT)
    lab.start_prometheus()
    lab.start_recorder()
    lab.watched()

    lab.at(2)
    lab.run("train", "a", "gpu-1", [("research", "train-0")])
    lab.run("eval", "b", "gpu-0", [("research", "eval-0")], is_share=True)
    lab.run("rank", "b", "gpu-0", [("serving", "rank-0")], is_share=True)
    lab.load("a", 1, 80)
    lab.load("b", 0, 45, **{"eval-0": 40, "rank-0": 5})
    lab.measured({"train-0": 0.80, "eval-0": 0.40, "rank-0": 0.05}, nodes=["a", "b"])

    lab.at(26)
    lab.run("llm", "a", "gpu-0-mig-3g40gb-9-0", [("serving", "llm-0")])
    lab.run("notebook", "a", "gpu-0-mig-3g40gb-9-4", [("research", "notebook")])
    lab.load_slices("a", 0, {0: 64, 4: 20})
    lab.measured({"llm-0": 0.64, "notebook": 0.20, "train-0": 0.80}, nodes=["a", "b"])

    lab.at(40)
    lab.kill_agent("a")
    lab.measured({}, nodes=["b"])
    lab.at(41)
    lab.start_agent("a")
    lab.measured({"llm-0": 0.64, "notebook": 0.20, "train-0": 0.80}, nodes=["a", "b"])

    lab.at(50)
    lab.kill("recorder")
    lab.end("train", is_seen=False)
    lab.load("a", 1, 0)
    lab.clock.set(52)
    lab.start_recorder()
    lab.watched()
    lab.settled()

    lab.at(60)
    lab.load_slices("a", 0, {0: 64})  # no MIG device goes while a process is on it
    lab.end("notebook")
    lab.run("cam", "a", "gpu-0-mig-1g10gb-19-4", [("edge", "cam-0")])
    lab.run("scan", "a", "gpu-0-mig-1g10gb-19-5", [("edge", "scan-0")])
    lab.load_slices("a", 0, {0: 64, 4: 100, 5: 0})
    lab.measured({"llm-0": 0.64, "cam-0": 1.0, "scan-0": 0.0}, nodes=["a", "b"])

    lab.at(78)
    lab.lose_node("b")

    lab.at(90)
    lab.kill_api_server()
    lab.clock.set(91)
    lab.start_api_server()

    lab.at(100)
    lab.return_node("b")
    lab.at(101)
    lab.run("pair", "a", "gpu-1", [("research", "left"), ("research", "right")])
    lab.load("a", 1, 40, left=30, right=10)
    lab.measured({"left": 0.30, "right": 0.10, "llm-0": 0.64}, nodes=["a", "b"])

    lab.at(120)
    lab.kill("prometheus")
    lab.at(121)
    lab.start_prometheus()
    lab.measured({"left": 0.30, "right": 0.10, "llm-0": 0.64}, nodes=["a", "b"])

    lab.at(130)
    lab.end_pod("pair", ("research", "right"))
    lab.load("a", 1, 30, left=30)
    lab.measured({"left": 0.30}, nodes=["a", "b"])

    lab.at(140)
    lab.load_slices("a", 0, {0: 64})
    lab.end("cam")
    lab.end("scan")
    lab.measured({"llm-0": 0.64}, nodes=["a", "b"])
    measured_until = lab.clock.now
    lab.at(168)
    lab.fetched(measured_until)


# The ledger, kept by hand: hours, shares and prices, entry by entry. Nothing of it comes from the program.

# Prices of an hour: an H100 costs 3.00, and 2.40 from hour 84.5 on; the A100 is one of four for 9.60, half off.
HIGH, LOW, A100 = F(3), F(24, 10), F(12, 10)
PRICE_CHANGE = 84.5
# GPU 0 of node a, hours 60 to 140: 24.5 hours at the high price and 55.5 at the low one.
CUT_IN_THREE = F(245, 10) * HIGH + F(555, 10) * LOW  # 73.50 + 133.20
SEVENTH = F(143, 1000)  # a 1g.10gb: the ledger counts thousandths of a GPU

COST_OF_POD = {
    "train-0": 48 * HIGH,  # hours 2 to 50: it ended while the recorder was away, from 50 on
    "eval-0": 76 * A100 / 2,  # hours 2 to 78, when its node was lost
    "rank-0": 76 * A100 / 2,
    "llm-0": 34 * HIGH / 2
    + CUT_IN_THREE / 2
    + 28 * LOW / 2,  # 3g.40gb: four of eight memory slices
    "notebook": 34 * HIGH / 2,  # hours 26 to 60
    "cam-0": SEVENTH * CUT_IN_THREE,
    "scan-0": SEVENTH * CUT_IN_THREE,
    "right": 29 * LOW / 2,  # hours 101 to 130: half of the claim it shares
    "left": 29 * LOW / 2 + 38 * LOW,  # and all of it after that
}
UNALLOCATED = {
    "a/gpu-0": 26 * HIGH + (1 - F(1, 2) - 2 * SEVENTH) * CUT_IN_THREE + 28 * LOW / 2,
    "a/gpu-1": 2 * HIGH + F(345, 10) * HIGH + F(165, 10) * LOW,  # hours 0 to 2 and 50 to 101
    "b/gpu-0": 2 * A100 + 68 * A100,  # hours 0 to 2 and 100 to 168; it was lost in between
}
GPUS = 2 * (F(845, 10) * HIGH + F(835, 10) * LOW) + (78 + 68) * A100

# Five measured minutes at a time. Agent a was dead in those of hour 40.
M = F(5, 60)
MEASURED_OF_POD = {  # what the measured minutes cost, and the share of them that was used
    "train-0": (3 * M * HIGH, F(80, 100)),  # from hours 2, 26, 41
    "eval-0": (
        5 * M * A100 / 2,
        F(80, 100),
    ),  # 40 % of the GPU are 80 % of its half; 2, 26, 40, 41, 60
    "rank-0": (5 * M * A100 / 2, F(10, 100)),
    "llm-0": (3 * M * HIGH / 2 + 4 * M * LOW / 2, F(64, 100)),  # 26, 41, 60; 101, 121, 130, 140
    "notebook": (2 * M * HIGH / 2, F(20, 100)),  # 26, 41
    "cam-0": (SEVENTH * (M * HIGH + 3 * M * LOW), F(1)),  # 60; 101, 121, 130
    "scan-0": (SEVENTH * (M * HIGH + 3 * M * LOW), F(0)),
    "right": (2 * M * LOW / 2, F(20, 100)),  # 101, 121
    # 30 % of the GPU: 60 % of its half in hours 101 and 121, 30 % of all of it in hours 130 and 140.
    "left": (2 * M * LOW / 2 + 2 * M * LOW, F(40, 100)),
}
NAMESPACES = {
    "research": ("train-0", "eval-0", "notebook", "left", "right"),
    "serving": ("rank-0", "llm-0"),
    "edge": ("cam-0", "scan-0"),
}
# What the script says of each minute, in millionths: exactly this is expected, as no minute has two loads.
BUSY_MICRO = {
    "train-0": {800_000},
    "eval-0": {800_000},
    "rank-0": {100_000},
    "llm-0": {640_000},
    "notebook": {200_000},
    "cam-0": {1_000_000},
    "scan-0": {0},
    "right": {200_000},
    "left": {600_000, 300_000},
}


def cost(lab: WeekLab, aggregate: str) -> Any:
    """What the command prints of the week, as JSON."""
    prices = lab.folder / "prices.yaml"
    change = lab.text(PRICE_CHANGE)
    entries = [
        {"product": "*H100*", "perHour": 3, "until": change},
        {"product": "*H100*", "perHour": 2.4, "from": change},
        {"product": "*A100*", "spot": True, "perHour": 9.6, "gpus": 4, "discountPercent": 50},
    ]
    prices.write_bytes(msgspec.json.encode({"currency": "USD", "prices": entries}))
    program = str(Path(sys.executable).with_name("dovetail"))
    command = [program, "cost", "--history", lab.store]
    command += ["--prices", str(prices), "--window", f"{lab.text(0)},{lab.text(168)}"]
    command += ["--aggregate", aggregate, "--at", lab.text(168), "-o", "json"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return msgspec.json.decode(done.stdout)


def rows(answer: Any) -> dict[str, Any]:
    (step,) = answer["steps"]
    return {row["name"]: row for row in step["rows"]}


def is_to_the_cent(printed: float, by_hand: F) -> bool:
    return abs(F(round(printed * 100), 100) - by_hand) < F(1, 100)


def test_the_ledger_closes() -> None:
    assert sum(COST_OF_POD.values()) + sum(UNALLOCATED.values()) == GPUS == F("1083.00")


def test_the_week_costs_what_the_ledger_says(week: WeekLab) -> None:
    answer = cost(week, "namespace")
    by_hand = {
        namespace: sum((COST_OF_POD[pod] for pod in pods), F(0))
        for namespace, pods in NAMESPACES.items()
    }
    by_hand["__idle__"] = sum(UNALLOCATED.values(), F(0))
    printed = rows(answer)
    assert printed.keys() == by_hand.keys()
    for name, amount in by_hand.items():
        assert is_to_the_cent(printed[name]["cost"]["total"], amount), name
        assert abs(F(printed[name]["exactCost"]) - amount) < F(1, 10**6), name
    assert answer["total"]["cost"]["total"] == 1083.00
    assert answer["assetCost"] == "1083.000000000"
    codes = Counter(note["code"] for note in answer["notes"])
    assert codes["api-gap"] == 2
    assert codes.keys() == {"api-gap", "metrics-gap"}  # hours are measured for five minutes each


def test_each_pod_used_and_left_idle_what_the_script_says(week: WeekLab) -> None:
    printed = rows(cost(week, "pod"))
    assert printed.keys() == {*COST_OF_POD, "__idle__"}
    for pod, whole in COST_OF_POD.items():
        lines = printed[pod]["cost"]
        measured, share = MEASURED_OF_POD[pod]
        assert is_to_the_cent(lines["used"], measured * share), pod
        assert is_to_the_cent(lines["idle"], measured * (1 - share)), pod
        assert is_to_the_cent(lines["unmeasured"], whole - measured), pod
        assert is_to_the_cent(lines["total"], whole), pod


def test_what_is_stored_of_each_measured_minute_is_the_script(week: WeekLab) -> None:
    records = week.records()
    pod_of = {each.allocation: each.owner.pod for each in records.allocations}
    busy: dict[str, set[int | None]] = {}
    minutes: dict[str, int] = {}
    for usage in records.usage:
        if usage.allocation:
            pod = pod_of[usage.allocation]
            busy.setdefault(pod, set()).add(usage.busy_micro)
            minutes[pod] = minutes.get(pod, 0) + (usage.end - usage.start) // week_clock.MINUTE
    assert busy == BUSY_MICRO
    assert minutes == {
        "train-0": 15,
        "eval-0": 25,
        "rank-0": 25,
        "llm-0": 35,
        "notebook": 10,
        "cam-0": 20,
        "scan-0": 20,
        "right": 10,
        "left": 20,
    }


def test_gaps_are_the_times_without_recorder_and_api_server(week: WeekLab) -> None:
    assert week.gaps() == [(50, 52), (90, 91)]
    assert whole_history.problems(week.records()) == []
    assert "Traceback" not in (week.folder / "recorder.log").read_text()
