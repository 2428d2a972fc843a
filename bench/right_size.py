"""How often right-sizing is wrong about a later period, and what it saves: several rules on every suitable trace.

`python -m bench right-size [--traces FOLDER]`: the first half of each workload's time gives the memory it needs, the
second half says whether that was enough (a violation: more memory was used than the rule allows). Savings are GPU-hours
on boards of 80 GB with MIG. The parameters of the rule are chosen without the second halves: each fold's workloads are
judged by parameters that the first halves of all other workloads chose, where their first quarter is followed by their
second. Writes bench/results/right-size.json.
"""

from __future__ import annotations

import argparse
import hashlib
import itertools
import math
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec

from bench import right_size_traces as traces
from bench.right_size_traces import Series, Trace
from dovetail.answer.right_size import device_choices, memory_need
from dovetail.answer.right_size.memory_need import HeadroomRule, MemorySeen

ROOT: Final = Path(__file__).resolve().parents[1]
RESULTS: Final = ROOT / "bench" / "results" / "right-size.json"
FOLDER: Final = "DOVETAIL_TRACES"  # where recorded traces are
BOARD: Final = "NVIDIA A100-SXM4-80GB"
BOARD_BYTES: Final = 81920 * 1024**2
GOAL: Final = 5.0  # % of workloads
INNER_GOAL: Final = (
    GOAL / 2
)  # while choosing: a later period differs more than the next quarter does
OTHER_INNER_GOALS: Final = (3.0, 4.0, 5.0)  # shown beside it, never used
FOLDS: Final = 5
SEED: Final = 1


class Training(NamedTuple):
    """What a rule sees of a workload, and what it must not see: the largest memory afterwards."""

    name: str
    samples: tuple[int, ...]  # ascending
    seen: MemorySeen
    hours: float  # of the later period
    later: int


class Outcome(NamedTuple):
    """What a rule made of one workload."""

    is_exceeded: bool  # the bytes that the rule asked for
    is_slice_exceeded: bool  # the device that holds those
    hours: float
    hours_saved: float  # on that device
    bytes_saved: float  # of the board, 0 to 1


Rule = Callable[[Training], int]


def main(arguments: list[str]) -> int:
    """Measures, prints and stores."""
    parser = argparse.ArgumentParser(prog="python -m bench right-size", description=__doc__)
    default = os.environ.get(FOLDER, str(ROOT.parent / "shared" / "traces"))
    parser.add_argument("--traces", type=Path, default=Path(default), help="folder of the traces")
    parser.add_argument("--no-store", action="store_true", help="print only")
    chosen = parser.parse_args(arguments)
    recorded, absent = traces.recorded(chosen.traces)
    for line in absent:
        print(f"missing: {line}", file=sys.stderr)
    for name, why in traces.UNSUITABLE.items():
        print(f"not used: {name}: {why}", file=sys.stderr)
    if not any(trace.origin == "measured" for trace in recorded):
        recorded.append(traces.drawn(SEED))
    halves = {
        trace.name: [training(each, 0, 0.5, 1) for each in trace.series] for trace in recorded
    }
    result = {
        "traces": [_about(trace) for trace in recorded],
        "curve": curve(halves),
        "held_out": held_out(recorded, halves),
    }
    _show(recorded, result)
    if not chosen.no_store:
        RESULTS.write_bytes(msgspec.json.format(msgspec.json.encode(result), indent=2) + b"\n")
    return 0


def training(series: Series, start: float, middle: float, end: float) -> Training:
    """A workload with its time divided: what comes before the middle is seen."""
    first, length = series.times[0], series.times[-1] + 1 - series.times[0]
    places = [(when - first) / length for when in series.times]
    points = list(zip(places, series.memory, strict=True))
    before = [(place, memory) for place, memory in points if start <= place < middle]
    after = [memory for place, memory in points if middle <= place < end]
    parts: dict[int, int] = {}
    for place, memory in before:
        part = int((place - start) / (middle - start) * memory_need.PARTS)
        parts[part] = max(parts.get(part, 0), memory)
    days = length * (middle - start) / 86_400
    seen = MemorySeen(tuple(parts[part] for part in sorted(parts)), days)
    samples = tuple(sorted(memory for _, memory in before))
    return Training(
        series.name, samples, seen, length * (end - middle) / 3600, max(after, default=0)
    )


# Rules


def rules() -> dict[str, Rule]:
    """The rules of the curve: fixed factors, quantiles, ours, and ours with less and more headroom."""
    fixed: dict[str, Rule] = {
        "max": _times(1.0),
        "max x 1.15": _times(1.15),
        "max x 1.25": _times(1.25),
        "max x 1.5": _times(1.5),
        "max x 2": _times(2.0),
        "p99": _quantile(0.99, 1.0),
        "p99 x 1.15": _quantile(0.99, 1.15),
        "p95 x 1.15": _quantile(0.95, 1.15),
    }
    adapted = {
        f"adapted x {scale:g}" if scale != 1 else "adapted (default)": _adapted(scaled(scale))
        for scale in (0.5, 1.0, 1.5, 2.0)
    }
    return fixed | adapted


def scaled(scale: float) -> HeadroomRule:
    """The default rule with other headroom."""
    rule = memory_need.DEFAULT
    return msgspec.structs.replace(
        rule,
        floor=rule.floor * scale,
        per_spread=rule.per_spread * scale,
        per_rarity=rule.per_rarity * scale,
    )


def _times(factor: float) -> Rule:
    return lambda case: math.ceil(case.samples[-1] * factor)


def _quantile(share: float, factor: float) -> Rule:
    def need(case: Training) -> int:
        place = min(len(case.samples) - 1, int(share * len(case.samples)))
        return math.ceil(case.samples[place] * factor)

    return need


def _adapted(rule: HeadroomRule) -> Rule:
    return lambda case: memory_need.need(case.seen, rule)


# Outcomes


_CHOICES: Final = [
    choice
    for choice in device_choices.choices(BOARD, BOARD_BYTES)
    if choice.shared_by == 1 and choice.compute_micro  # shares need joint samples
]


def outcome(case: Training, need: int) -> Outcome:
    """What came of a rule's need. The whole GPU, which the workload has already, is never too small."""
    fitting = (choice for choice in _CHOICES if choice.memory_bytes >= need)
    device = next(fitting, _CHOICES[-1])
    is_whole = device is _CHOICES[-1]
    return Outcome(
        case.later > need,
        case.later > device.memory_bytes and not is_whole,
        case.hours,
        case.hours * (1 - device.micro_gpu / 1_000_000),
        1 - min(need, BOARD_BYTES) / BOARD_BYTES,
    )


def figures(outcomes: Sequence[Outcome]) -> dict[str, float]:
    """Percentages over workloads, and of their GPU-hours."""
    count = max(1, len(outcomes))
    hours = sum(each.hours for each in outcomes) or 1.0
    return {
        "workloads": len(outcomes),
        "violations": _percent(sum(each.is_exceeded for each in outcomes) / count),
        "violations_of_device": _percent(sum(each.is_slice_exceeded for each in outcomes) / count),
        "gpu_hours_saved": _percent(sum(each.hours_saved for each in outcomes) / hours),
        "memory_saved": _percent(sum(each.bytes_saved for each in outcomes) / count),
    }


def curve(halves: dict[str, list[Training]]) -> dict[str, dict[str, dict[str, float]]]:
    """Every rule on every trace, and their plain mean over traces."""
    table: dict[str, dict[str, dict[str, float]]] = {}
    for name, rule in rules().items():
        by_trace = {
            trace: figures([outcome(case, rule(case)) for case in cases])
            for trace, cases in halves.items()
        }
        table[name] = by_trace | {"mean": _mean(list(by_trace.values()))}
    return table


def _mean(rows: Sequence[dict[str, float]]) -> dict[str, float]:
    return {key: round(sum(row[key] for row in rows) / len(rows), 1) for key in rows[0]}


def _percent(share: float) -> float:
    return round(100 * share, 1)


# Choosing by cross-validation


def candidates() -> list[HeadroomRule]:
    """The parameters that are tried."""
    return [
        HeadroomRule(floor=floor, per_spread=spread, per_rarity=rarity, shortness=shortness)
        for floor, spread, rarity, shortness in itertools.product(
            (0.05, 0.1, 0.15), (0.0, 1.0, 2.0, 3.0, 4.0), (0.0, 0.1, 0.2, 0.3), (0.0, 0.1, 0.2, 0.3)
        )
    ]


class Chosen(NamedTuple):
    """The outcomes of first quarters, under every candidate."""

    tried: list[HeadroomRule]
    folds: dict[str, list[int]]  # of each workload
    outcomes: dict[str, list[list[Outcome]]]  # by trace, workload and candidate

    def best(self, goal: float, *, without: int | None = None) -> HeadroomRule:
        """What saves most memory, as a mean over traces, of the candidates with few violations in every trace."""
        best, most = self.tried[0], -1.0
        for index, rule in enumerate(self.tried):
            rows = [
                figures(
                    [
                        own[index]
                        for own, fold in zip(outcomes, self.folds[trace], strict=True)
                        if fold != without
                    ]
                )
                for trace, outcomes in self.outcomes.items()
            ]
            # One violation in a small trace is no more than chance.
            is_safe = all(
                row["violations"] <= goal or row["violations"] * row["workloads"] < 150
                for row in rows
            )
            saved = _mean(rows)["memory_saved"]
            if is_safe and saved > most:
                best, most = rule, saved
        return best


def held_out(recorded: Sequence[Trace], halves: dict[str, list[Training]]) -> dict[str, Any]:
    """Each fold judged by the parameters that the others chose on their first halves."""
    quarters = {
        trace.name: [
            case
            for case in (training(each, 0, 0.25, 0.5) for each in trace.series)
            if case.samples and case.later
        ]
        for trace in recorded
    }
    tried = candidates()
    outcomes = {
        trace: [
            [outcome(case, memory_need.need(case.seen, rule)) for rule in tried] for case in cases
        ]
        for trace, cases in quarters.items()
    }
    folds = {trace: [_fold(case.name) for case in cases] for trace, cases in quarters.items()}
    chosen = Chosen(tried, folds, outcomes)
    everything = chosen.best(INNER_GOAL)
    return {
        **_judged(chosen, halves, INNER_GOAL),
        "chosen_by_all": msgspec.to_builtins(everything),
        "is_default": everything == memory_need.DEFAULT,
        "with_other_inner_goals": {
            f"{goal:g} %": _judged(chosen, halves, goal)["by_trace"] for goal in OTHER_INNER_GOALS
        },
    }


def _judged(chosen: Chosen, halves: dict[str, list[Training]], goal: float) -> dict[str, Any]:
    by_trace: dict[str, list[Outcome]] = {trace: [] for trace in halves}
    rules_by_fold = []
    for fold in range(FOLDS):
        rule = chosen.best(goal, without=fold)
        rules_by_fold.append(msgspec.to_builtins(rule))
        for trace, cases in halves.items():
            judged = [case for case in cases if _fold(case.name) == fold]
            by_trace[trace] += [outcome(case, memory_need.need(case.seen, rule)) for case in judged]
    rows = {trace: figures(outcomes) for trace, outcomes in by_trace.items()}
    return {
        "by_trace": rows | {"mean": _mean(list(rows.values()))},
        "chosen_by_fold": rules_by_fold,
    }


def _fold(name: str) -> int:
    return hashlib.sha256(name.encode()).digest()[0] % FOLDS


# Showing


def _about(trace: Trace) -> dict[str, Any]:
    spans = [(each.times[-1] - each.times[0]) / 86_400 for each in trace.series]
    return {
        "name": trace.name,
        "origin": trace.origin,
        "law": trace.law,
        "workloads": len(trace.series),
        "days": round(max(spans, default=0), 2),
    }


def _show(recorded: Sequence[Trace], result: dict[str, Any]) -> None:
    for about in result["traces"]:
        print(
            f"{about['name']}: {about['workloads']} workloads, {about['days']} days, "
            f"{about['origin']}: {about['law']}"
        )
    names = [trace.name for trace in recorded] + ["mean"]
    print("\nviolations of bytes % / of the MIG slice % / GPU-hours saved %")
    print(f"{'rule':22}" + "".join(f"{name:>26}" for name in names))
    judged = result["held_out"]
    shown = {**result["curve"], "held out": judged["by_trace"]}
    for goal, rows in judged["with_other_inner_goals"].items():
        shown[f"held out, {goal}"] = rows
    for rule, rows in shown.items():
        cells = [
            f"{row['violations']:.1f} / {row['violations_of_device']:.1f} / {row['gpu_hours_saved']:.1f}"
            for row in (rows[name] for name in names)
        ]
        print(f"{rule:22}" + "".join(f"{cell:>26}" for cell in cells))
    print(f"\nchosen by all first halves: {result['held_out']['chosen_by_all']}")
    print(f"that is the default: {result['held_out']['is_default']}; goal: {GOAL:g} % violations")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
