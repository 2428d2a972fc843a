"""Random clusters whose answers were wrong once: every fix that is shown must make the pod start."""

from __future__ import annotations

import pytest

from tests.answers import random_clusters


@pytest.mark.slow
@pytest.mark.parametrize(
    ("seed", "pod"),
    [
        # A pod without its claims competes as soon as a controller has made them.
        (39, "gang-0"),
        # Between the commands of a fix others start: what makes room for all comes last.
        (60, "wait-0"),
        # A pod that is moved, and the one it moves for, take what a fix would need.
        (88, "wait-2"),
    ],
)
def test_every_fix_helps_in_the_cluster_of_a_seed(seed: int, pod: str) -> None:
    (story,) = [each for each in random_clusters.stories(seed) if f"pod/{pod} " in each.header.ask]
    assert list(random_clusters.faults_of(story)) == []
