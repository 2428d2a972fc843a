"""Generated quantities, versions and objects: our model gives upstream's answers."""

from __future__ import annotations

import random
from typing import Any

import pytest

from tests.fuzz import findings, quantities, validation, versions
from tests.generators import claims, slices, worlds
from tests.support.oracle import Oracle

pytestmark = pytest.mark.slow


@pytest.mark.parametrize(
    ("what", "subject"),
    [("quantity", quantities), ("semver", versions), ("validation", validation)],
    ids=lambda each: str(each)[:10],
)
def test_random_cases_are_judged_as_upstream_judges_them(
    oracle: Oracle, what: str, subject: Any
) -> None:
    tally = findings.Tally(what, folder=None)
    subject.run(oracle, subject.cases(random.Random(8001), 400), tally=tally, seed=8001)
    assert tally.counts[findings.AGREE] + tally.disagreements >= 300, tally.counts
    assert not tally.disagreements, "\n".join(
        f"{finding.kind}: {finding.case}\n  ours {finding.ours}\n  theirs {finding.theirs}"
        for finding in tally.findings
    )


@pytest.mark.parametrize(
    "make",
    [claims.claim, claims.template, claims.device_class, slices.resource_slice, slices.taint_rule],
)
def test_generated_objects_are_valid_before_they_are_bent(oracle: Oracle, make: Any) -> None:
    made = [make(random.Random(seed)) for seed in range(40)]
    answers = oracle.ask_many(
        {"op": "validate", "object": each, "namespaceHasAdminLabel": True} for each in made
    )
    refused = [
        (each, answer)
        for each, answer in zip(made, answers, strict=True)
        if not answer.get("valid")
    ]
    assert not refused, refused[0]


def test_generated_worlds_are_worlds_the_allocator_answers(oracle: Oracle) -> None:
    made = [worlds.world(random.Random(seed)) for seed in range(30)]
    outcomes = []
    for answer in oracle.ask_many({"op": "allocate", **worlds.question(each)} for each in made):
        assert "failure" not in answer, answer
        outcomes += [messages["outcome"] for messages in answer["answers"].values()]
    assert {"allocated", "none"} <= set(outcomes), outcomes
    assert outcomes.count("error") < len(outcomes) / 4, outcomes
