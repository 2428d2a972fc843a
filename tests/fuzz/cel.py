"""Expressions: compile errors, verdicts, costs and estimates, ours beside upstream's."""

from __future__ import annotations

import random
from typing import Any, Final, NamedTuple

import msgspec

from dovetail.cel import device_views, selectors
from dovetail.cel.evaluate import program
from dovetail.cel.evaluate.frame import COST_LIMIT, DeviceView
from dovetail.errors import ExpressionError
from dovetail.kubetypes.resource import slices
from dovetail.quantity import quantity
from tests.fuzz.findings import AGREE, VARIES, Finding, Tally, unanswered
from tests.generators import devices, expressions, tree
from tests.support.oracle import Message, Oracle

DEVICES_EACH: Final = 2
_REPEATS: Final = (
    16  # Go walks maps in random order: this often is asked before a difference counts
)

COMPILE: Final = "compile-error vs compiled"
BOOLEAN: Final = "wrong boolean"
ERROR: Final = "error vs value"
COST: Final = "cost differs"
ESTIMATE: Final = "estimate differs"
CRASH: Final = "ours crashed"
UNTRACKED: Final = "tracked and untracked differ"
ADMISSION: Final = "refused vs accepted when new"


class Answer(NamedTuple):
    """One expression on one device. `outcome` is compile-error, match, no-match, error."""

    outcome: str
    cost: int | None = None
    estimate: int | None = None
    reason: str = ""

    @property
    def compared(self) -> tuple[str, int | None, int | None]:
        return self[:3]


class Case(NamedTuple):
    """A question before it is asked."""

    piece: tree.Piece
    devices: tuple[dict[str, Any], ...]


def cases(rng: random.Random, count: int) -> list[Case]:
    """Expressions, each with devices to try it on."""
    return [
        Case(expressions.expression(rng), tuple(devices.device(rng) for _ in range(DEVICES_EACH)))
        for _ in range(count)
    ]


def run(oracle: Oracle, batch: list[Case], *, tally: Tally, seed: int) -> None:
    """Asks both sides, counts, minimises and records what differs."""
    answers = oracle.ask_many(request(str(case.piece), case.devices) for case in batch)
    for case, answer in zip(batch, answers, strict=True):
        if "failure" in answer:
            tally.counts[unanswered(answer["failure"])] += 1
            continue
        mine = ours(str(case.piece), case.devices)
        for device, our, their in zip(
            case.devices, mine, theirs(answer, len(case.devices)), strict=True
        ):
            kind = difference(our, their)
            if kind != AGREE and _varies(oracle, str(case.piece), device, our):
                kind = VARIES
            tally.counts[kind] += 1
            if kind not in (AGREE, VARIES) and tally.wants(kind, our.reason, their.reason):
                tally.add(minimised(oracle, case.piece, device, kind=kind, seed=seed))
    _run_new(oracle, batch, tally=tally, seed=seed)


def _run_new(oracle: Oracle, batch: list[Case], *, tally: Tally, seed: int) -> None:
    """The same expressions in a new object: would the API server take them?"""
    answers = oracle.ask_many(new_request(str(case.piece)) for case in batch)
    for case, answer in zip(batch, answers, strict=True):
        if "failure" in answer:
            continue
        our, their = our_admission(str(case.piece)), their_admission(answer)
        kind = AGREE if our[0] == their[0] else ADMISSION
        tally.counts[kind] += 1
        if kind != AGREE and tally.wants(kind, our[1], their[1]):
            tally.add(_minimised_new(oracle, case.piece, seed))


def new_request(expression: str) -> Message:
    """Whether validation compiles it, and at what estimate."""
    return {"op": "cel", "expression": expression, "env": "new"}


def our_admission(expression: str) -> tuple[str, str]:
    """Our verdict on a new expression, and why."""
    fault = selectors.problem(expression)
    if fault is None:
        return ("accepted", "")
    return ("too costly" if fault.is_too_costly else "refused", fault.message)


def their_admission(answer: Message) -> tuple[str, str]:
    """Upstream's verdict on a new expression, and why."""
    if "compileError" in answer:
        return ("refused", answer["compileError"])
    return (
        "accepted" if int(answer["estimatedCost"]) <= COST_LIMIT else "too costly",
        answer["estimatedCost"],
    )


def _minimised_new(oracle: Oracle, piece: tree.Piece, seed: int) -> Finding:
    def differs(expression: str) -> bool:
        answer = oracle.ask(new_request(expression))
        return (
            "failure" not in answer and our_admission(expression)[0] != their_admission(answer)[0]
        )

    small = str(tree.minimal(piece, differs, expressions.simplest))
    ours, theirs = our_admission(small), their_admission(oracle.ask(new_request(small)))
    return Finding(
        what="cel", kind=ADMISSION, seed=seed, case={"expression": small}, ours=ours, theirs=theirs
    )


def request(expression: str, given: tuple[dict[str, Any], ...]) -> Message:
    """The question as the oracle takes it."""
    return {"op": "cel", "expression": expression, "devices": given}


def theirs(answer: Message, count: int = 1) -> list[Answer]:
    """Upstream's answers, one per device."""
    if "compileError" in answer:
        return [Answer("compile-error", reason=answer["compileError"])] * count
    estimate = int(answer["estimatedCost"])
    return [_their_result(result, estimate) for result in answer["results"]]


def ours(expression: str, given: tuple[dict[str, Any], ...]) -> list[Answer]:
    """Our answers, one per device; a crash is an answer too."""
    try:
        compiled = program.compile_stored(expression)
    except ExpressionError as error:
        return [Answer("compile-error", reason=str(error))] * len(given)
    except Exception as error:
        return [Answer("crash", reason=f"{type(error).__name__}: {error}")] * len(given)
    return [_our_result(compiled, view(device)) for device in given]


def view(device: dict[str, Any]) -> DeviceView:
    """The device as our engine takes it."""
    fields = {name: value for name, value in device.items() if name != "driver"}
    return device_views.view(
        device["driver"], msgspec.convert(fields, slices.Device, dec_hook=quantity.decode_hook)
    )


def difference(our: Answer, their: Answer) -> str:
    """What kind of disagreement, if any."""
    if our.outcome == "crash":
        return CRASH
    if our.outcome == "untracked":
        return UNTRACKED
    if our.outcome != their.outcome:
        pair = {our.outcome, their.outcome}
        return COMPILE if "compile-error" in pair else ERROR if "error" in pair else BOOLEAN
    if our.estimate != their.estimate:
        return ESTIMATE
    return AGREE if our.cost == their.cost else COST


def minimised(
    oracle: Oracle, piece: tree.Piece, device: dict[str, Any], *, kind: str, seed: int
) -> Finding:
    """The smallest expression and device that still differ in the same way."""

    def differs(expression: str, given: dict[str, Any]) -> bool:
        answer = oracle.ask(request(expression, (given,)))
        if "failure" in answer:
            return False
        our, their = ours(expression, (given,))[0], theirs(answer)[0]
        return difference(our, their) == kind and not _varies(oracle, expression, given, our)

    original = str(piece)
    small = str(tree.minimal(piece, lambda text: differs(text, device), expressions.simplest))
    shrunk = True
    while shrunk:
        shrunk = False
        for less in devices.smaller(device):
            if differs(small, less):
                device, shrunk = less, True
                break
    our = ours(small, (device,))[0]
    their = theirs(oracle.ask(request(small, (device,))))[0]
    case = {"expression": small, "device": device}
    return Finding(
        what="cel",
        kind=kind,
        seed=seed,
        case=case,
        ours=our._asdict(),
        theirs=their._asdict(),
        original=original,
    )


def _varies(oracle: Oracle, expression: str, device: dict[str, Any], our: Answer) -> bool:
    """Whether upstream's answer changes from run to run and ours is one of them, or changes beyond counting."""
    if our.outcome in ("crash", "untracked"):
        return False
    answers = oracle.ask_many([request(expression, (device,))] * _REPEATS)
    seen = {theirs(answer)[0].compared for answer in answers if "failure" not in answer}
    if our.compared in seen:
        return True
    outcomes = {outcome for outcome, _, _ in seen}
    return (
        len(seen) > 2
        and our.outcome in outcomes
        and our.estimate in {estimate for _, _, estimate in seen}
    )


def _their_result(result: Message, estimate: int) -> Answer:
    if "matchError" in result:
        return Answer("error", result.get("actualCost"), estimate, result["matchError"])
    return Answer("match" if result["match"] else "no-match", result["actualCost"], estimate)


def _our_result(compiled: program.Program, device: DeviceView) -> Answer:
    try:
        result, quick = compiled.evaluate(device), compiled.outcome(device)
    except Exception as error:
        return Answer("crash", None, compiled.estimated_cost, f"{type(error).__name__}: {error}")
    if quick != result.outcome:
        return Answer(
            "untracked",
            result.cost,
            compiled.estimated_cost,
            f"{quick} without counting, {result.outcome} with",
        )
    return Answer(str(result.outcome), result.cost, compiled.estimated_cost, result.reason)
