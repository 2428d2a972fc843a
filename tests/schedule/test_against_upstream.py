"""Every constraint a pod can carry, judged by us and by kube-scheduler's own filter plugins, node by node."""

from __future__ import annotations

import random
from typing import Final

import pytest

from tests.generators import constraints
from tests.schedule import upstream
from tests.support import oracle

pytestmark = pytest.mark.slow

ONE_BY_ONE: Final = range(1, 31)  # seeds of stories of 40 pods
AT_ONCE: Final = range(31, 41)


def test_we_agree_with_upstream_about_every_node() -> None:
    tally = upstream.Tally()
    for seed in ONE_BY_ONE:
        upstream.tell(_story(seed), oracle.session(), tally)
        assert not tally.disagreements, _describe(seed, tally)
    assert tally.pods > 1100
    assert tally.placed > 400
    assert tally.refused_by_the_api < tally.pods / 20
    for kind in upstream.PLUGINS:
        assert tally.carried[kind] > 10, f"the stories hold hardly any pod with {kind}"
        assert tally.refused[kind] > 0, f"no pod was kept off a node by its {kind}"


def test_what_one_decision_assumes_of_its_first_pods_is_true_of_its_last_ones() -> None:
    tally = upstream.Tally()
    for seed in AT_ONCE:
        upstream.tell_at_once(_story(seed), oracle.session(), tally)
        assert not tally.disagreements, _describe(seed, tally)
    assert tally.placed > 100


def test_a_pod_only_one_side_knows_is_noticed() -> None:
    """The comparison itself: only upstream knows of pods that hold ports and room."""
    story = _story(1)
    tally = upstream.Tally()
    both = upstream.Both(oracle.session(), story.objects)
    unknown = [
        item for item in story.objects if item["kind"] == "Pod" and item["spec"].get("nodeName")
    ]
    assert unknown
    both.forget(unknown)
    for step in story.steps:
        upstream.compare(both, step.pod or {}, tally)
    assert {disagreement.why.split(",")[0] for disagreement in tally.disagreements} >= {
        "we accept",
        "we place where upstream refuses",
    }


def _story(seed: int) -> constraints.Story:
    return constraints.story(random.Random(seed), upstream.admit(oracle.session()))


def _describe(seed: int, tally: upstream.Tally) -> str:
    result = tally.disagreements[0]
    return f"seed {seed}: {result.why}: node {result.node}: ours {result.ours}, theirs {result.theirs}: {result.pod}"
