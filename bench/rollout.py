"""How long the plan of a roll-out takes: the waves of a nearly full cluster in two orders, and without a roll-out.

`python -m bench rollout` prints for every number of nodes the processor seconds, the waves, and what the chosen order
loses beside the order by name. Nineteen of twenty nodes are full of work that ends at different times.
"""

from __future__ import annotations

import argparse
import time
from typing import Final

from bench import what_if
from dovetail.answer.drain import drain_filters
from dovetail.answer.replica.replica import Replica
from dovetail.answer.rollout import rollout, rollout_policy
from dovetail.kubetypes import codec, object_set
from dovetail.model import policy

SIZES: Final = (125, 250, 500)
TIMES: Final = rollout_policy.Durations(1800, 3000, "bench")


def main(arguments: list[str]) -> int:
    """Measures and prints."""
    parser = argparse.ArgumentParser(prog="python -m bench rollout", description=__doc__)
    parser.add_argument("--sizes", type=int, nargs="+", default=SIZES, help="numbers of nodes")
    parser.add_argument("--together", choices=rollout_policy.TOGETHER, default="rack")
    chosen = parser.parse_args(arguments)
    for size in chosen.sizes:
        objects = object_set.of("bench", [codec.decode(tree) for tree in what_if.cluster_of(size)])
        replica = Replica(objects, policy.DEFAULT, what_if.NOW)
        wish = rollout.Wish(
            to={"driver": "580.95.05"},
            nodes=sorted(replica.world.nodes),
            skipped=(),
            begin=what_if.NOW,
            horizon_seconds=what_if.DAY,
            prices={},
        )
        rules = rollout_policy.Policy(durations=TIMES, together=chosen.together)
        began = time.process_time()
        plan = rollout.planned(replica, wish, rules, drain_filters.DaemonSets(None))
        seconds = time.process_time() - began
        losses = ", ".join(f"{loss.total:g}" for loss in (plan.chosen, *plan.compared))
        print(
            f"{size:5} nodes  plan {seconds:6.2f} s  {len(plan.waves)} waves  "
            f"GPU-hours lost {losses}  saved {plan.saved_percent} %  "
            f"blockers {len(plan.blockers)}",
            flush=True,
        )
    return 0
