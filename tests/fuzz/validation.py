"""Objects: whether they may be stored, which (type, field) speak against it, and what would be stored."""

from __future__ import annotations

import random
from typing import Any, Final, NamedTuple

from dovetail.admission import admit
from dovetail.cel import selectors
from dovetail.kubetypes import codec, field_errors
from tests.fuzz.findings import AGREE, Finding, Tally, unanswered
from tests.generators import claims, mutations, slices
from tests.support.oracle import Message, Oracle

NOW: Final = "2030-01-01T00:00:00Z"
DECODE: Final = "decoding differs"
VALID: Final = "valid differs"
PROBLEMS: Final = "problems differ"
STORED: Final = "stored differs"
CRASH: Final = "ours crashed"


class Case(NamedTuple):
    """One write to the API."""

    operation: str
    object: dict[str, Any]
    old: dict[str, Any] | None
    has_label: bool


class Verdict(NamedTuple):
    """What a server says of it."""

    is_decoded: bool
    problems: frozenset[tuple[str, str]] = frozenset()
    stored: Any = None
    reason: str = ""


def cases(rng: random.Random, count: int) -> list[Case]:
    """Creates, updates and status updates; about a sixth is left unbent."""
    return [case(rng) for _ in range(count)]


def case(rng: random.Random) -> Case:
    """One write."""
    makers = (
        claims.claim,
        claims.claim,
        claims.template,
        claims.device_class,
        slices.resource_slice,
        slices.resource_slice,
        slices.taint_rule,
    )
    made = rng.choice(makers)(rng)
    has_label = rng.random() < 0.6
    roll = rng.random()
    if made["kind"] == "ResourceClaim" and roll < 0.45:
        old = claims.stored(claims.allocated(made, rng) if rng.random() < 0.5 else made)
        new = (
            claims.stored(claims.allocated(made, rng))
            if "status" not in old or rng.random() < 0.5
            else old
        )
        return Case("updateStatus", _bent(new, rng), old, has_label)
    if roll < 0.25:
        old = claims.stored(made)
        return Case("update", _bent(old, rng), old, has_label)
    return Case("create", _bent(made, rng), None, has_label)


def run(oracle: Oracle, batch: list[Case], *, tally: Tally, seed: int) -> None:
    """Asks both sides, counts, minimises and records what differs."""
    for each, answer in zip(batch, oracle.ask_many(map(request, batch)), strict=True):
        if "failure" in answer:
            tally.counts[unanswered(answer["failure"])] += 1
            continue
        our, their = ours(each), theirs(answer)
        kind = difference(our, their)
        tally.counts[kind] += 1
        if kind != AGREE and tally.wants(kind, our.reason, _spoken(our, their)):
            small = minimised(oracle, each, kind)
            our, their = ours(small), theirs(oracle.ask(request(small)))
            tally.add(
                Finding(
                    what="validation",
                    kind=kind,
                    seed=seed,
                    case=small._asdict(),
                    ours=_shown(our, their),
                    theirs=_shown(their, our),
                )
            )


def request(each: Case) -> Message:
    """The question as the oracle takes it."""
    asked = {
        "op": "validate",
        "object": each.object,
        "operation": each.operation,
        "namespaceHasAdminLabel": each.has_label,
    }
    return asked if each.old is None else {**asked, "oldObject": each.old}


def ours(each: Case) -> Verdict:
    """Our verdict; a crash counts by its reason."""
    try:
        terms = field_errors.Terms(selectors.problem, each.has_label, namespace="default", now=NOW)
        new = codec.decode(each.object).struct
        old = None if each.old is None else codec.decode(each.old).struct
    except codec.DecodeError as error:
        return Verdict(False, reason=str(error))
    try:
        if old is None:
            verdict = admit.create(new, terms)
        elif each.operation == "update":
            verdict = admit.update(new, old, terms=terms)
        else:
            verdict = admit.update_status(new, old, terms=terms)
    except Exception as error:
        return Verdict(True, reason=f"crash: {type(error).__name__}: {error}")
    result = frozenset((problem.type, problem.field) for problem in verdict.problems)
    return Verdict(True, result, None if result else codec.tree_of(verdict.object))


def theirs(answer: Message) -> Verdict:
    """Upstream's verdict."""
    if answer.get("decodeError"):
        return Verdict(False, reason=answer["decodeError"])
    result = frozenset((each["type"], each["field"]) for each in answer["errors"])
    return Verdict(
        True, result, answer.get("stored"), "; ".join(each["message"] for each in answer["errors"])
    )


def difference(our: Verdict, their: Verdict) -> str:
    """What kind of disagreement, if any."""
    if our.reason.startswith("crash"):
        return CRASH
    if our.is_decoded != their.is_decoded:
        return DECODE
    if not our.is_decoded:
        return AGREE
    if bool(our.problems) != bool(their.problems):
        return VALID
    if our.problems != their.problems:
        return PROBLEMS
    if our.stored is None or their.stored is None:
        return AGREE
    return AGREE if _kept(our.stored) == _kept(their.stored) else STORED


def minimised(oracle: Oracle, each: Case, kind: str) -> Case:
    """The smallest object that still differs in the same way: places are removed one by one."""
    budget, shrunk = 250, True
    while shrunk and budget > 0:
        shrunk = False
        for path in mutations.paths(each.object):
            less = each._replace(object=mutations.without(each.object, path))
            if each.old is not None and each.operation != "create":
                less = less._replace(old=_without_if_there(each.old, path))
            budget -= 1
            answer = oracle.ask(request(less))
            if "failure" not in answer and difference(ours(less), theirs(answer)) == kind:
                each, shrunk = less, True
                break
            if budget <= 0:
                break
    return each


def _bent(tree: dict[str, Any], rng: random.Random) -> dict[str, Any]:
    return mutations.mutated(tree, rng) if rng.random() < 0.85 else tree


def _without_if_there(tree: dict[str, Any], path: mutations.Path) -> dict[str, Any]:
    try:
        return mutations.without(tree, path)
    except (KeyError, IndexError, TypeError):
        return tree


def _kept(tree: dict[str, Any]) -> Any:
    """What stays of an object, as a value: absent and empty fields are the same, quantities compare by amount."""
    struct = codec.decode(_sorted(tree)).struct
    return struct.spec, getattr(struct, "status", None)


def _sorted(node: Any) -> Any:
    if isinstance(node, dict):
        return {
            key: _sorted(node[key]) for key in sorted(node)
        }  # opaque parameters are kept as text
    if isinstance(node, list):
        return [_sorted(value) for value in node]
    return NOW if node == "<now>" else node  # how the oracle writes a time the request did not name


def _spoken(our: Verdict, their: Verdict) -> str:
    return (
        " ".join(sorted(f"{kind} {field}" for kind, field in our.problems ^ their.problems))
        or their.reason
    )


def _shown(verdict: Verdict, other: Verdict) -> dict[str, Any]:
    return {
        "decoded": verdict.is_decoded,
        "only": sorted(verdict.problems - other.problems),
        "both": sorted(verdict.problems & other.problems),
        "stored": verdict.stored,
        "reason": verdict.reason[:600],
    }
