"""Lives through many random clusters and tells what went wrong: `python -m tests.batch --seeds 0:300 --size medium`.

Prints a line for every cluster in which something did, and the sums at the end. Exit 1 if there was any.
"""

from __future__ import annotations

import argparse
import collections
import sys
from typing import Final

from tests.batch import plan_checks, random_clusters
from tests.batch.simulated_cluster import Cluster
from tests.batch.test_long_runs import ranks, yielding

SIZES: Final = {
    "small": random_clusters.SMALL,
    "medium": random_clusters.MEDIUM,
    "long": random_clusters.LONG,
}


def fault(cluster: Cluster, *, is_static: bool) -> str | None:
    """What goes wrong while the cluster lives, if anything does."""
    cluster.judge = plan_checks.faults
    try:
        cluster.live(most=1000)
        if is_static:
            ranks(yielding(cluster.evictions))
    except Exception as error:  # a crash is a finding, and the campaign goes on
        return f"at {cluster.second} s: {type(error).__name__}: {str(error)[:300]}"
    return None


def main() -> int:
    """Runs the clusters asked for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", default="0:100", help="first and beyond the last")
    parser.add_argument("--size", choices=sorted(SIZES), default="small")
    asked = parser.parse_args()
    first, last = map(int, asked.seeds.split(":"))
    size = SIZES[asked.size]
    sums: collections.Counter[str] = collections.Counter()
    for seed in range(first, last):
        cluster = random_clusters.seeded(seed, size)
        wrong = fault(cluster, is_static=not size.ends)
        sums["clusters"] += 1
        sums["decisions"] += cluster.turn
        sums["evictions"] += len(cluster.evictions)
        sums["of them moves"] += sum(eviction.is_move for eviction in cluster.evictions)
        if wrong is not None:
            sums["faults"] += 1
            print(f"seed {seed}, {wrong}", flush=True)
    print(
        ", ".join(
            f"{sums[name]} {name}"
            for name in ("clusters", "decisions", "evictions", "of them moves", "faults")
        )
    )
    return 1 if sums["faults"] else 0


if __name__ == "__main__":
    sys.exit(main())
