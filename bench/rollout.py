"""How long the plan of a roll-out takes: the waves of a nearly full cluster in two orders, and without a roll-out.

`python -m bench rollout` prints for every number of nodes the processor seconds, the waves, and what the chosen order
loses beside the order by name. Nineteen of twenty nodes are full of work that ends at different times. With `--trace`
the cluster is that of a recorded trace at several times (`bench/rollout_trace.py`).
"""

from __future__ import annotations

import argparse
import datetime
import time
from pathlib import Path
from typing import Any, Final

from bench import rollout_trace, what_if
from dovetail.answer.drain import drain_filters
from dovetail.answer.replica.replica import Replica
from dovetail.answer.rollout import rollout, rollout_policy
from dovetail.kubetypes import codec, object_set
from dovetail.model import policy

SIZES: Final = (125, 250, 500)
HOUR: Final = 3600
TRACE_NODES: Final = 352  # of Philly, eight GPUs each
MOMENTS: Final = ("2017-10-03T12:00", "2017-10-10T12:00", "2017-10-17T12:00", "2017-10-24T12:00")
Tree = dict[str, Any]
TIMES: Final = rollout_policy.Durations(1800, 3000, "bench")


def main(arguments: list[str]) -> int:
    """Measures and prints."""
    parser = argparse.ArgumentParser(prog="python -m bench rollout", description=__doc__)
    parser.add_argument("--sizes", type=int, nargs="+", default=SIZES, help="numbers of nodes")
    parser.add_argument("--together", choices=rollout_policy.TOGETHER, default="rack")
    parser.add_argument(
        "--trace", type=Path, help="jobs of a trace: est_submit, est_duration_s, num_gpus"
    )
    parser.add_argument("--at", nargs="+", default=MOMENTS, help="times of the trace")
    parser.add_argument("--unstated", action="store_true", help="no job states its runtime")
    parser.add_argument("--patience-hours", type=float, default=0.0, help="longer it may take")
    parser.add_argument("--checkpoint-hours", type=float, help="evicted work loses at most this")
    chosen = parser.parse_args(arguments)
    checkpoint = chosen.checkpoint_hours
    rules = rollout_policy.Policy(
        durations=TIMES,
        together=chosen.together,
        patience_seconds=int(chosen.patience_hours * HOUR),
        checkpoint_seconds=None if checkpoint is None else int(checkpoint * HOUR),
    )
    if chosen.trace is not None:
        for text in chosen.at:
            at = datetime.datetime.fromisoformat(text).replace(tzinfo=datetime.UTC)
            jobs = rollout_trace.jobs_at(chosen.trace, at)
            trees = rollout_trace.cluster_of(jobs, TRACE_NODES, states_runtime=not chosen.unstated)
            _measure(f"{text}  {len(jobs)} jobs", trees, at, rules)
        return 0
    for size in chosen.sizes:
        _measure(f"{size:5} nodes", what_if.cluster_of(size), what_if.NOW, rules)
    return 0


def _measure(
    title: str, trees: list[Tree], now: datetime.datetime, rules: rollout_policy.Policy
) -> None:
    objects = object_set.of("bench", [codec.decode(tree) for tree in trees])
    replica = Replica(objects, policy.DEFAULT, now)
    wish = rollout.Wish(
        to={"driver": "580.95.05"},
        nodes=sorted(replica.world.nodes),
        skipped=(),
        begin=now,
        horizon_seconds=what_if.DAY,
        prices={},
    )
    began = time.process_time()
    plan = rollout.planned(replica, wish, rules, drain_filters.DaemonSets(None))
    seconds = time.process_time() - began
    losses = ", ".join(
        f"{loss.total:g} ({loss.thrown_away:g} redone, {loss.displaced} displaced)"
        for loss in (plan.chosen, *plan.compared)
    )
    print(
        f"{title}  plan {seconds:6.2f} s  {len(plan.waves)} waves  "
        f"GPU-hours lost {losses}  saved {plan.saved_percent} %  "
        f"blockers {len(plan.blockers)}  ends {plan.end}",
        flush=True,
    )
