"""Recommends a device for every family of work in a window: the cheapest that holds what was measured, with headroom.

Given records, the window and prices if there are any; with a replica of the cluster also what its pods' programs are.
Memory decides, compute refines. Work on several GPUs at once is left alone, and so is work of which too little was
measured: each with the reason. Never recommends less memory than the largest seen, never changes anything.
"""

from __future__ import annotations

import datetime
from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Any, Final, NamedTuple

import msgspec

from dovetail import timestamps
from dovetail.answer.right_size import (
    back_test,
    compute_need,
    device_choices,
    families,
    measured,
    memory_need,
    preallocation,
    sharing,
)
from dovetail.answer.right_size.device_choices import Choice, gib
from dovetail.answer.right_size.families import Family, FamilyKey
from dovetail.answer.right_size.right_size_answer import (
    Answer,
    Confidence,
    Level,
    Needs,
    Recommendation,
    Verdict,
)
from dovetail.model.accounting import records
from dovetail.model.accounting.records import MICRO_GPU, MILLISECONDS_PER_HOUR, Form, Millis

FEWEST_SAMPLES: Final = 100  # fewer say nothing about a peak
FULL_RUNS: Final = 3  # so many runs count as much as a week
# Work whose pods exchange data between GPUs while they run.
DISTRIBUTED: Final = frozenset(
    {
        "PyTorchJob", "TFJob", "MPIJob", "JAXJob", "XGBoostJob", "PaddleJob", "TrainJob",
        "JobSet", "LeaderWorkerSet", "RayCluster", "RayJob", "RayService", "PodGroup",
    }
)  # fmt: skip

Programs = Mapping[FamilyKey, Sequence[Mapping[str, Any]]]  # pods as trees


class _Case(NamedTuple):
    """A family with its figures, and the device it uses now."""

    family: Family
    seen: measured.Measured
    product: str
    current: Choice


def right_size(
    given: records.Records,
    start: Millis,
    end: Millis,
    *,
    prices: Mapping[str, Fraction] | None = None,
    programs: Programs | None = None,
    rule: memory_need.HeadroomRule = memory_need.DEFAULT,
) -> Answer:
    """The recommendations, largest saving first. Prices are of one GPU-hour, by product in lower case."""
    assets = {asset.asset: asset for asset in given.assets}
    priced = prices or {}
    work = []
    for family in families.families(given, start, end):
        case = _case(family, assets, start, end)
        pods = (programs or {}).get(family.key, ())
        work.append(_priced(_recommendation(case, pods, rule), priced))
    work.sort(key=lambda each: (-each.gpu_hours_saved, each.work))
    unpriced = sorted({each.product for each in work if _price(each.product, priced) is None})
    amounts = [each.money_saved for each in work if each.money_saved is not None]
    return Answer(
        start=_time(start),
        end=_time(end),
        work=tuple(work),
        gpu_hours_held=_rounded(sum(each.gpu_hours_held for each in work)),
        gpu_hours_saved=_rounded(sum(each.gpu_hours_saved for each in work)),
        money_saved=_rounded(sum(amounts)) if amounts else None,
        unpriced=tuple(unpriced) if priced else (),
        is_partial=any(each.confidence.is_partial for each in work),
        back_test=back_test.back_test(given, start, end, rule),
        notes=tuple(_notes(given, work)),
    )


def _notes(given: records.Records, work: Sequence[Recommendation]) -> Sequence[str]:
    if not work:
        return ("no work held a GPU in this window: nothing to recommend",)
    if not given.usage:
        return ("no usage was measured in this window: nothing is recommended",)
    return ()


# One family


def _case(family: Family, assets: Mapping[str, records.Asset], start: Millis, end: Millis) -> _Case:
    latest = family.runs[-1].held[-1].allocation
    asset = assets.get(latest.asset)
    product = asset.product if asset is not None else ""
    return _Case(
        family, measured.measured(family, start, end), product, _current(latest, asset, product)
    )


def _current(allocation: records.Allocation, asset: records.Asset | None, product: str) -> Choice:
    """The device that the latest run used."""
    board = device_choices.board_of(product)
    memory = asset.memory_bytes // max(1, asset.count) if asset is not None else 0
    if board is not None and board.memory_bytes is not None:
        memory = memory or board.memory_bytes.value
    offered = device_choices.choices(product, memory)
    if allocation.form is Form.MIG:
        for choice in offered:
            if choice.profile == allocation.profile:
                return choice
    whole = offered[-1]
    if allocation.micro_gpu >= MICRO_GPU:
        return whole
    part = allocation.micro_gpu
    return Choice(
        form=allocation.form,
        name=f"MIG {allocation.profile}" if allocation.profile else f"{part / MICRO_GPU:.2f} GPU",
        profile=allocation.profile,
        memory_bytes=allocation.memory_bytes or memory * part // MICRO_GPU,
        micro_gpu=part,
        compute_micro=part,
        bandwidth_micro=part,
    )


def _recommendation(
    case: _Case, pods: Sequence[Mapping[str, Any]], rule: memory_need.HeadroomRule
) -> Recommendation:
    seen = case.seen
    if reason := _exclusion(case):
        return _unchanged(case, Verdict.EXCLUDED, reason)
    if seen.memory is None:
        return _unchanged(case, Verdict.UNKNOWN, "no memory was measured: nothing is recommended")
    compute = compute_need.need(seen, case.current.compute_micro)
    needs = _needs(seen, seen.memory, compute, rule)
    if seen.samples < FEWEST_SAMPLES:
        reason = f"{seen.samples} samples; at least {FEWEST_SAMPLES} are needed to know a peak"
        return _unchanged(case, Verdict.UNKNOWN, reason, needs)
    setting = preallocation.by_program(pods)
    if not setting and not seen.memory.out_of_memory:  # flat at the limit may be too little
        setting = preallocation.by_line(seen.memory_samples, case.current.memory_bytes)
    if setting:
        reason = (
            f"{setting}: measured memory is a setting, not a need; the program's own metrics say "
            "how much of it is used"
        )
        return _unchanged(case, Verdict.SETTING, reason, needs)
    if compute is None:
        reason = "busy time was not measured: how much compute it needs is not known"
        return _unchanged(case, Verdict.UNKNOWN, reason, needs)
    return _chosen(case, needs, compute)


def _exclusion(case: _Case) -> str:
    """Why no smaller device can serve such work; empty where one may."""
    most = max(run.most_at_once for run in case.family.runs)
    if most > MICRO_GPU:
        gpus = f"{most / MICRO_GPU:g}"
        return (
            f"a pod holds {gpus} GPUs at once: slices and shares have neither NVLink nor "
            "peer-to-peer access between them"
        )
    if case.family.key.kind in DISTRIBUTED and len(case.family.runs) > 1:
        return (
            f"pods of a {case.family.key.kind} exchange data between GPUs: slices and shares have "
            "neither NVLink nor peer-to-peer access between them"
        )
    if not case.product:
        return "the GPU that it used is not among the recorded assets: its board is not known"
    return ""


def _needs(
    seen: measured.Measured,
    memory: memory_need.MemorySeen,
    compute: compute_need.ComputeNeed | None,
    rule: memory_need.HeadroomRule,
) -> Needs:
    return Needs(
        largest_memory_bytes=memory.largest,
        memory_bytes=memory_need.need(memory, rule),
        headroom=memory_need.headroom(memory, rule),
        out_of_memory=memory.out_of_memory,
        busy_quantile=compute.quantile if compute is not None else None,
        busy_micro=compute.busy_micro if compute is not None else None,
        compute_micro=compute.micro_gpu if compute is not None else None,
        bandwidth_micro=compute.bandwidth_micro_gpu if compute is not None and seen.dram else None,
        bound_by=compute.bound_by if compute is not None else "",
    )


def _chosen(case: _Case, needs: Needs, compute: compute_need.ComputeNeed) -> Recommendation:
    current = case.current
    joint = {
        count: sharing.collisions(case.family, count)
        for count in range(2, sharing.MOST_SHARING + 1)
    }
    requirement = device_choices.Requirement(needs.memory_bytes, compute, joint)
    offered = device_choices.choices(case.product, _board_memory(case))
    chosen = device_choices.cheapest(offered, requirement)
    next_smaller = _next_smaller(chosen.refused, current)
    if chosen.choice is not None and chosen.choice.micro_gpu < current.micro_gpu:
        words = (
            f"needs {gib(needs.memory_bytes)} (largest seen {gib(needs.largest_memory_bytes)} "
            f"+ {100 * needs.headroom.total:.0f} %) and {device_choices.percent(compute.micro_gpu)} of the "
            f"compute"
        )
        return _with(case, Verdict.SHRINK, words, needs, next_smaller, chosen.choice)
    is_starved = needs.out_of_memory and needs.memory_bytes > current.memory_bytes
    if is_starved:
        larger = [
            choice
            for choice in offered
            if choice.micro_gpu > current.micro_gpu
            and choice.memory_bytes > current.memory_bytes
            and not device_choices.lack(choice, requirement)
        ]
        words = (
            f"ran out of memory {needs.out_of_memory} times with {gib(current.memory_bytes)}; "
            f"needs {gib(needs.memory_bytes)}"
        )
        if larger:
            return _with(case, Verdict.GROW, words, needs, next_smaller, larger[0])
        return _with(case, Verdict.KEEP, f"{words}, which this board does not have", needs, "")
    words = f"needs {gib(needs.memory_bytes)} and has {gib(current.memory_bytes)}"
    return _with(case, Verdict.KEEP, words, needs, next_smaller)


def _board_memory(case: _Case) -> int:
    board = device_choices.board_of(case.product)
    if board is not None and board.memory_bytes is not None:
        return board.memory_bytes.value
    return case.current.memory_bytes * MICRO_GPU // max(1, case.current.micro_gpu)


def _next_smaller(refused: Sequence[device_choices.Refused], current: Choice) -> str:
    """What the most expensive of the cheaper choices lacks: a MIG slice before a share, which few clusters offer."""
    cheaper = [each for each in refused if each.choice.micro_gpu < current.micro_gpu]
    if not cheaper:
        return "there is nothing smaller on this board"
    slices = [each for each in cheaper if each.choice.shared_by == 1]
    last = (slices or cheaper)[-1]
    return f"{last.choice.name} {last.why}"


def _unchanged(
    case: _Case, verdict: Verdict, why: str, needs: Needs | None = None
) -> Recommendation:
    return _with(case, verdict, why, needs, "")


def _with(
    case: _Case,
    verdict: Verdict,
    why: str,
    needs: Needs | None,
    why_not_smaller: str,
    choice: Choice | None = None,
) -> Recommendation:
    seen = case.seen
    held = seen.micro_gpu_milliseconds / MICRO_GPU / MILLISECONDS_PER_HOUR
    new = case.current.micro_gpu if choice is None else choice.micro_gpu
    # Runs before the latest may have used other devices: what they would save is counted from theirs.
    hours = seen.held_milliseconds / MILLISECONDS_PER_HOUR
    saved = held - hours * new / MICRO_GPU if choice is not None else 0.0
    return Recommendation(
        work=str(case.family.key),
        verdict=verdict,
        product=case.product,
        current=case.current,
        recommended=choice,
        why=why,
        why_not_smaller=why_not_smaller,
        confidence=_confidence(seen),
        needs=needs,
        gpu_hours_held=_rounded(held),
        gpu_hours_saved=_rounded(saved),
        money_saved=None,
    )


def _confidence(seen: measured.Measured) -> Confidence:
    """A week or several runs, with hardly a gap, is high; less than a day of one or two runs is low."""
    is_long = seen.days >= memory_need.WEEK_DAYS
    has_runs = seen.runs_measured >= FULL_RUNS
    level = Level.LOW
    if is_long or (has_runs and seen.days >= 1):
        level = Level.MEDIUM if seen.missing else Level.HIGH
    elif has_runs or seen.days >= 1:
        level = Level.MEDIUM
    if seen.samples < FEWEST_SAMPLES:
        level = Level.LOW
    return Confidence(
        level=level,
        days=_rounded(seen.days),
        runs=seen.runs,
        runs_measured=seen.runs_measured,
        samples=seen.samples,
        is_partial=bool(seen.missing) or not seen.samples,
        missing=seen.missing if seen.samples else ("no samples",),
    )


# Money and times


def _priced(recommendation: Recommendation, prices: Mapping[str, Fraction]) -> Recommendation:
    price = _price(recommendation.product, prices)
    if price is None:
        return recommendation
    money = _rounded(float(price) * recommendation.gpu_hours_saved)
    return msgspec.structs.replace(recommendation, money_saved=money)


def _price(product: str, prices: Mapping[str, Fraction]) -> Fraction | None:
    """By the product, or by a word of it that a price names: h100."""
    words = product.lower().replace("-", " ").split()
    for name, price in sorted(prices.items(), key=lambda item: (-len(item[0]), item[0])):
        wanted = name.lower().replace("-", " ").split()
        if wanted and all(word in words for word in wanted):
            return price
    return None


def _rounded(amount: float) -> float:
    return round(amount, 3)


def _time(when: Millis) -> str:
    return timestamps.to_text(datetime.datetime.fromtimestamp(when / 1000, datetime.UTC))
