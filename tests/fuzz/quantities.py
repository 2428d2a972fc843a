"""Quantities: every reading of one text, and sums, differences and comparisons of two.

Upstream prints a few values wrongly and wraps integers that are too large; those readings are left out by rule.
"""

from __future__ import annotations

import random
from fractions import Fraction
from typing import Any, Final, NamedTuple

from dovetail.errors import QuantityError
from dovetail.quantity import quantity, quantity_text
from tests.fuzz.findings import AGREE, Finding, Tally, unanswered
from tests.generators import quantities
from tests.support.oracle import Message, Oracle

_INT64_MAX: Final = (1 << 63) - 1
_SEPTILLION: Final = 10**21 * quantity_text.NANOS


class Case(NamedTuple):
    """One text, or two."""

    a: str
    b: str | None


def cases(rng: random.Random, count: int) -> list[Case]:
    """Single texts and pairs, half and half."""
    return [
        Case(*quantities.pair(rng)) if rng.random() < 0.5 else Case(quantities.text(rng), None)
        for _ in range(count)
    ]


def run(oracle: Oracle, batch: list[Case], *, tally: Tally, seed: int) -> None:
    """Asks both sides, counts and records what differs."""
    for case, answer in zip(batch, oracle.ask_many(map(request, batch)), strict=True):
        if "failure" in answer:
            tally.counts[unanswered(answer["failure"])] += 1
            continue
        mine = ours(case)
        wrong = {name: value for name, value in mine.items() if value != _theirs(answer, name)}
        kind = AGREE if not wrong else f"{', '.join(sorted(wrong))} differ"
        tally.counts[kind] += 1
        if wrong and tally.wants(kind):
            small = minimised(oracle, case)
            messages = {name: _theirs(answer, name) for name in wrong}
            tally.add(
                Finding(
                    what="quantity",
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
    return {"op": "quantity", "a": case.a, **({} if case.b is None else {"b": case.b})}


def ours(case: Case) -> dict[str, Any]:
    """What we say, under the oracle's names; readings upstream gets wrong are left out."""
    if case.b is not None:
        return _pair(quantity.parse(case.a), quantity.parse(case.b))
    try:
        return _single(quantity.parse(case.a))
    except QuantityError:
        return {"ok": False, "celIsQuantity": quantity.is_quantity(case.a)}


def differs(oracle: Oracle, case: Case) -> bool:
    """Whether the two sides disagree on a case."""
    answer = oracle.ask(request(case))
    if "failure" in answer:
        return False
    try:
        return any(value != _theirs(answer, name) for name, value in ours(case).items())
    except QuantityError:
        return True


def minimised(oracle: Oracle, case: Case) -> Case:
    """The shortest texts that still differ, letter by letter."""
    shrunk = True
    while shrunk:
        shrunk = False
        for less in _shorter(case):
            if differs(oracle, less):
                case, shrunk = less, True
                break
    return case


def _shorter(case: Case) -> list[Case]:
    texts = [Case(case.a[:at] + case.a[at + 1 :], case.b) for at in range(len(case.a))]
    if case.b is not None:
        texts += [Case(case.a, case.b[:at] + case.b[at + 1 :]) for at in range(len(case.b))]
    return texts


def _single(q: quantity.Quantity) -> dict[str, Any]:
    whole = q.as_int64()
    read: dict[str, Any] = {
        "ok": True,
        "celIsQuantity": True,
        "exactDecimal": Fraction(q.nanos, quantity_text.NANOS),
        "format": str(q.format),
        "sign": q.sign,
        "asInt64Ok": whole is not None,
        "asInt64": None if whole is None else str(whole),
        "celIsInteger": q.is_integer(),
        "approxFloat": q.approx_float(),
        "celAsApproximateFloat": q.approx_float(),
    }
    for name, exact in (("value", q.value()), ("milliValue", q.milli_value())):
        if -_INT64_MAX - 1 <= exact <= _INT64_MAX and not (q.is_big and q.sign < 0):
            read[name] = str(exact)
    if not is_misprinted(q):
        read |= {"canonical": str(q), "string": q.text}
    return read


def _pair(a: quantity.Quantity, b: quantity.Quantity) -> dict[str, Any]:
    read: dict[str, Any] = {"cmp": a.compare(b), "celEqual": a == b}
    for name, result in (("add", a.add(b)), ("sub", a.sub(b))):
        if not is_misprinted(result):
            read[name] = str(result)
    return read


def is_misprinted(q: quantity.Quantity) -> bool:
    """Whether upstream has no right way to print the value: no suffix beyond E, binary ones capped at int64."""
    if q.format is quantity.Format.BINARY_SI and abs(q.nanos) > _INT64_MAX * quantity_text.NANOS:
        return True
    return (
        q.nanos != 0
        and q.nanos % _SEPTILLION == 0
        and q.format is not quantity.Format.DECIMAL_EXPONENT
    )


def _theirs(answer: Message, name: str) -> Any:
    messages = answer.get(name)
    if name == "exactDecimal" and messages is not None:
        return Fraction(messages)
    return float(messages) if "Float" in name and messages is not None else messages
