"""Random clusters through our allocator and upstream's: the same feasibility everywhere, and valid results.

Where ours finds an allocation and upstream does not, the checker has to call it valid, and the world has to hold
what upstream is known to stumble over: admin access, counters overdrawn by history, all devices under a constraint.
"""

from __future__ import annotations

import random

import pytest

from tests.allocate import agreeing, fresh
from tests.generators import clusters, worlds
from tests.support import oracle as upstream

pytestmark = pytest.mark.slow

SEED = 20261
COUNT = 700


def test_random_clusters_agree(oracle: upstream.Oracle) -> None:
    rng = random.Random(SEED)
    tally = fresh.compared((clusters.world(rng, number) for number in range(COUNT)), oracle)
    _settle("clusters", tally)
    assert tally.outcomes["allocated/allocated"] > COUNT / 5
    assert tally.outcomes["none/none"] > COUNT / 5


def test_random_worlds_agree(oracle: upstream.Oracle) -> None:
    rng = random.Random(SEED)
    tally = fresh.compared(({"id": number, **worlds.world(rng)} for number in range(COUNT)), oracle)
    _settle("worlds", tally)


def _settle(what: str, tally: agreeing.Tally) -> None:
    print(tally.report(what))
    assert not tally.disagreements, tally.report(what)
