"""The scheduler survives hundreds of faults of every kind without harm; one without its fence does not."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import pytest

from dovetail.devcluster import kube_binaries
from tests.faults import campaign, campaign_cluster, instances
from tests.support import cluster
from tests.support.lengths import length

LEAST_FAULTS = length(short=200, full=500)
# Every kind of fault comes several times, and the phases with mild faults add more than as many again. What a longer
# storm finds, it finds with other seeds: `make chaos` goes on with new ones.
SHORT = campaign.Sizes(
    storm_faults=100,
    kills=10,
    gang_kills=6,
    restarts=1,
    stops=1,
    replica_kills=2,
    rival_writes=80,
    clock_writes=80,
)
FULL = campaign.Sizes(storm_faults=240, kills=18, gang_kills=10)


@pytest.mark.slow
def test_no_fault_does_harm(tmp_path: Path) -> None:
    report = fought(tmp_path, length(short=SHORT, full=FULL), seed=1)
    assert not report.violations, "\n".join(map(str, report.violations))
    assert report.fault_count >= LEAST_FAULTS
    assert set(report.faults) == set(campaign.KINDS)
    assert report.pods_placed > 100


@pytest.mark.slow
@pytest.mark.skew
@pytest.mark.long
def test_no_fault_does_harm_on_the_older_version(tmp_path: Path) -> None:
    report = fought(tmp_path, SHORT, seed=2, version=cluster.OLDER)
    assert not report.violations, "\n".join(map(str, report.violations))
    assert report.pods_placed > 20


# It renews late, by what it believes to have left: two lead side by side for several seconds. A longer time would only
# make the test wait for the next renewal.
UNFENCED = """
from dovetail.live.election import leader_election as election
init = election.Fence.__init__
def unfenced(self, clock, *, tenure, until):
    init(self, clock, tenure=tenure, until=until)
    self.believed = 5 * max(1.0, until - clock.monotonic())
election.Fence.__init__ = unfenced
election.Fence.remaining = lambda self: self.believed  # whatever the lease says
election.Fence.check = lambda self: None
import runpy
runpy.run_module("dovetail.boot.scheduler", run_name="__main__")
"""


def unfenced(files: instances.Files) -> list[str]:
    """A scheduler that never stops writing."""
    _, _, _, *arguments = instances.ours(files)
    return [sys.executable, "-c", UNFENCED, *arguments]


@pytest.mark.slow
def test_a_scheduler_without_its_fence_is_caught(tmp_path: Path) -> None:
    sizes = campaign.Sizes(
        storm_faults=0,
        kills=0,
        gang_kills=0,
        restarts=0,
        stops=2,  # each shows dozens of writes beside the leader's
        replica_kills=0,
        rival_writes=0,
        clock_writes=0,
    )
    report = fought(tmp_path, sizes, seed=1, command=unfenced)
    assert "two leaders" in {violation.rule for violation in report.violations}


def fought(
    directory: Path,
    sizes: campaign.Sizes,
    *,
    seed: int,
    command: instances.Command = instances.ours,
    version: str = kube_binaries.DEFAULT,
) -> campaign.Report:
    with cluster.private_plane(version, **campaign_cluster.options(directory)) as plane:
        return asyncio.run(
            campaign.Campaign(plane, directory, seed=seed, command=command).run(sizes)
        )
