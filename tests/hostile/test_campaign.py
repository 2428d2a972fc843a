"""Honest tenants keep getting their nodes while another tenant does all that its rights allow."""

from __future__ import annotations

import pytest

from dovetail.boot import kubeparts
from tests.hostile import campaign
from tests.support import live

OLDER, DEFAULT = kubeparts.VERSIONS[-1], kubeparts.DEFAULT


@pytest.mark.slow
@pytest.mark.parametrize(("version", "has_queues"), [(DEFAULT, True), (OLDER, False)], ids=["queues", "priorities"])
def test_a_hostile_tenant_delays_no_honest_pod_beyond_the_bound(version: str, has_queues: bool) -> None:
    with live.private(version, tokens=(campaign.TOKEN,)) as cluster:
        report = campaign.Campaign(cluster, seed=1, has_queues=has_queues).run(campaign.Sizes())
        print(report.line())
        assert not report.verdict.violations, "\n".join(map(str, report.verdict.violations))
        assert len(report.verdict.waits) > 100
        assert report.tenures == 1
