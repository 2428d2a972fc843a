"""Versions: which texts are versions, with and without normalising, and how two of them compare."""

from __future__ import annotations

import random
from typing import Any, NamedTuple

from dovetail.errors import SemverError
from dovetail.quantity import semver
from tests.fuzz.findings import AGREE, Finding, Tally, unanswered
from tests.generators import versions
from tests.support.oracle import Message, Oracle


class Case(NamedTuple):
    """One text, or two."""

    a: str
    b: str | None


def cases(rng: random.Random, count: int) -> list[Case]:
    """Single texts and pairs, half and half."""
    return [
        Case(*versions.pair(rng)) if rng.random() < 0.5 else Case(versions.version(rng), None)
        for _ in range(count)
    ]


def run(oracle: Oracle, batch: list[Case], *, tally: Tally, seed: int) -> None:
    """Asks both sides, counts and records what differs."""
    for case, answer in zip(batch, oracle.ask_many(map(request, batch)), strict=True):
        if "failure" in answer:
            tally.counts[unanswered(answer["failure"])] += 1
            continue
        wrong = {name: value for name, value in ours(case).items() if value != answer.get(name)}
        kind = AGREE if not wrong else f"{', '.join(sorted(wrong))} differ"
        tally.counts[kind] += 1
        if wrong and tally.wants(kind):
            messages = {name: answer.get(name) for name in wrong}
            small = minimised(oracle, case)
            tally.add(
                Finding(
                    what="semver",
                    kind=kind,
                    seed=seed,
                    case=small._asdict(),
                    ours=wrong,
                    theirs=messages,
                    original=case,
                )
            )


def request(case: Case) -> Message:
    """The question as the oracle takes it."""
    return {"op": "semver", "a": case.a, **({} if case.b is None else {"b": case.b})}


def ours(case: Case) -> dict[str, Any]:
    """What we say, under the oracle's names."""
    if case.b is not None:
        a, b = semver.parse(case.a), semver.parse(case.b)
        return {
            "compareTo": a.compare(b),
            "isLessThan": a < b,
            "isGreaterThan": a > b,
            "celEqual": a == b,
        }
    read: dict[str, Any] = {
        "strictOk": semver.is_semver(case.a),
        "celIsSemver": semver.is_semver(case.a),
        "celIsSemverNormalized": semver.is_semver(case.a, normalize=True),
    }
    try:
        normal = semver.parse(case.a, normalize=True)
    except SemverError:
        return read
    parts = {
        "normalizedMajor": normal.major,
        "normalizedMinor": normal.minor,
        "normalizedPatch": normal.patch,
    }
    return read | {
        name: number for name, number in parts.items() if number < 1 << 63
    }  # CEL's ints end there


def minimised(oracle: Oracle, case: Case) -> Case:
    """The shortest text that still differs; pairs stay as they are."""
    shrunk = case.b is None
    while shrunk:
        shrunk = False
        for at in range(len(case.a)):
            less = Case(case.a[:at] + case.a[at + 1 :], None)
            answer = oracle.ask(request(less))
            if "failure" not in answer and any(
                value != answer.get(name) for name, value in ours(less).items()
            ):
                case, shrunk = less, True
                break
    return case
