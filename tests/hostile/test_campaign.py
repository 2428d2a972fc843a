"""Honest tenants keep getting their nodes while another tenant does all that its rights allow."""

from __future__ import annotations

import pytest

from tests.hostile import campaign
from tests.support import cluster as planes
from tests.support import live
from tests.support.lengths import length

# Every attack alone, in both. A mixture costs as much as six attacks and differs with each seed: one in a full run,
# more in each round of `make chaos`; on the older version none, where only the server's side of an attack can differ.
WITH_QUEUES = pytest.param(planes.NEWEST, True, length(short=0, full=1), id="queues")
WITH_PRIORITIES_ALONE = pytest.param(
    planes.OLDER, False, 0, id="priorities", marks=pytest.mark.skew
)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("version", "has_queues", "mixtures"), [WITH_QUEUES, WITH_PRIORITIES_ALONE]
)
def test_a_hostile_tenant_delays_no_honest_pod_beyond_the_bound(
    version: str, has_queues: bool, mixtures: int
) -> None:
    sizes = campaign.Sizes(mixtures=mixtures)
    with live.private(version, tokens=(campaign.TOKEN,)) as cluster:
        report = campaign.Campaign(cluster, seed=1, has_queues=has_queues).run(sizes)
        print(report.line())
        assert not report.verdict.violations, "\n".join(map(str, report.verdict.violations))
        assert len(report.verdict.waits) > 100
        assert report.tenures == 1
