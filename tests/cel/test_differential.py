"""Generated expressions on generated devices: our engine gives upstream's answers."""

from __future__ import annotations

import random

import pytest

from tests.fuzz import cel, findings
from tests.generators.tree import Piece
from tests.support.oracle import Oracle

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("seed", range(7001, 7007))
def test_random_expressions_mean_what_they_mean_upstream(oracle: Oracle, seed: int) -> None:
    tally = findings.Tally("cel", folder=None)
    cel.run(oracle, cel.cases(random.Random(seed), 250), tally=tally, seed=seed)
    compared = sum(tally.counts.values())
    assert tally.counts[findings.AGREE] > 0.9 * compared, tally.counts
    assert not tally.disagreements, "\n".join(map(describe, tally.findings))


def test_the_generator_writes_mostly_expressions_that_compile_and_evaluate(oracle: Oracle) -> None:
    cases = cel.cases(random.Random(7000), 400)
    answers = oracle.ask_many(cel.request(str(case.piece), case.devices) for case in cases)
    outcomes = [
        response.outcome
        for answer in answers
        if "failure" not in answer
        for response in cel.theirs(answer, 2)
    ]
    share = {outcome: outcomes.count(outcome) / len(outcomes) for outcome in set(outcomes)}
    assert min(share["match"], share["no-match"], share["error"]) > 0.1, share
    assert 0.02 < share["compile-error"] < 0.4, share


def test_a_disagreement_is_cut_down_to_what_causes_it(
    oracle: Oracle, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An engine that thinks nothing of `startsWith` is caught, and the rest of the expression falls away."""
    honest = cel.ours

    def broken(expression: str, given: tuple[dict[str, object], ...]) -> list[cel.Answer]:
        answers = honest(expression, given)
        swap = {"match": "no-match", "no-match": "match"}
        if "startsWith" not in expression:
            return answers
        return [
            answer._replace(outcome=swap.get(answer.outcome, answer.outcome)) for answer in answers
        ]

    monkeypatch.setattr(cel, "ours", broken)
    guilty = Piece(("bool",), Piece(("string",), "device.driver"), '.startsWith("', 'gpu")')
    listed = Piece(("bool",), "[1, 2].exists(x, ", Piece(("bool",), "x > 1"), ")")
    whole = Piece(("bool",), "(", guilty, " && ", listed, ") || ", Piece(("bool",), "false"))
    device = {
        "driver": "gpu.example.com",
        "attributes": {"index": {"int": 1}},
        "capacity": {"memory": {"value": "1Gi"}},
    }
    tally = findings.Tally("cel", folder=None)
    cel.run(oracle, [cel.Case(whole, (device,))], tally=tally, seed=7)
    (result,) = tally.findings
    assert result.kind == cel.BOOLEAN
    assert result.case == {
        "expression": '"".startsWith("gpu")',
        "device": {"driver": "gpu.example.com"},
    }


def describe(finding: findings.Finding) -> str:
    device = f"\n  on {finding.case['device']}" if "device" in finding.case else ""
    return f"{finding.kind}: {finding.case['expression']}{device}\n  ours {finding.ours}\n  theirs {finding.theirs}"
