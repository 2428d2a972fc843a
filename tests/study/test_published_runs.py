"""The published allocation of FGD's paper, column by column, for the first part of some runs."""

from __future__ import annotations

import csv
import gzip

import pytest

from dovetail.study import openb_files, placement_run
from tests.support import shared

FOLDER = "traces"
EXPECTED = f"{FOLDER}/fgd_expected_alloc_pct.csv.gz"
pytestmark = pytest.mark.slow

RUNS = [
    # Typed pods begin to fail at 16 % of demand: order, ties and rounding all count.
    ("gpuspec20", 42, "fgd", "06-FGD", 4_000),
    ("multigpu50", 43, "best-fit", "05-BestFit", 6_361),
    ("multigpu50", 43, "gpu-packing", "04-GpuPacking", 3_000),
    ("multigpu50", 43, "gpu-clustering", "03-GpuClustering", 3_000),
    ("multigpu50", 43, "dot-product", "02-DotProd", 3_000),
]


@pytest.mark.parametrize(("trace", "seed", "policy", "published", "arrivals"), RUNS)
def test_a_policy_allocates_what_was_published(
    trace: str, seed: int, policy: str, published: str, arrivals: int
) -> None:
    with gzip.open(shared.data(EXPECTED), "rt", encoding="utf-8") as text:
        row = next(
            row
            for row in csv.DictReader(text)
            if (row["workload"], row["sc_policy"], row["seed"]) == (trace, published, str(seed))
        )
    work = openb_files.read(shared.data(FOLDER), trace=trace, seed=seed)
    result = placement_run.run(work, policy=policy, first_arrivals=arrivals)

    percents = list(result.allocation_pct)
    if arrivals < len(work.arrivals):
        percents = percents[
            :-2
        ]  # the last percent is not complete, the one after it only a neighbour
    assert len(percents) > 30
    assert {percent: result.allocation_pct[percent] for percent in percents} == {
        percent: float(row[percent]) for percent in percents
    }
