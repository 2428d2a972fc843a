"""The prediction of a drain for people: a sentence, the pods in order, what blocks, who holds GPUs.

Given the prediction; returns lines. Never prints.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Final

from dovetail.answer.drain import drain_answer as answers
from dovetail.tables import text

HEADERS: Final = ("pod", "action", "owner", "gpus", "grace", "budget", "why")
SHOWN_PODS: Final = 4  # of one blocker


def lines(answer: answers.Prediction, *, is_wide: bool = False) -> list[str]:
    """All of it; with notes where it is wide."""
    shown = [sentence(answer)]
    if answer.pods:
        shown += ["", *text.table(HEADERS, [_row(fate) for fate in answer.pods])]
    notes = [f"  {fate.pod}: {note}" for fate in answer.pods for note in fate.notes]
    if is_wide and notes:
        shown += ["", "what goes with the pods:", *notes]
    if answer.blockers:
        shown += ["", "blocks the drain:", *_blockers(answer)]
    if answer.holders:
        shown += ["", "holds GPUs without a request, or stays on them:", *_holders(answer)]
    if answer.unknown:
        shown += ["", *(f"unknown: {problem}" for problem in answer.unknown)]
    return shown


def sentence(answer: answers.Prediction) -> str:
    """The answer in one line."""
    actions = Counter(fate.action for fate in answer.pods)
    ending = actions[answers.EVICT] + actions[answers.DELETE]
    counts = [
        f"{ending} leave",
        f"{actions[answers.SKIP]} stay",
        f"{actions[answers.REFUSE]} refused",
    ]
    verdict = "can be drained" if answer.can_drain else "cannot be drained"
    judged = ", evictions judged by the server" if answer.server else ""
    return (
        f"node {answer.node} {verdict}: of {text.counted(len(answer.pods), 'pod')} "
        f"{', '.join(counts)}{judged}"
    )


def _row(fate: answers.PodFate) -> tuple[str, ...]:
    return (
        fate.pod,
        fate.action,
        fate.owner,
        f"{fate.gpus:g}" if fate.gpus else "",
        f"{fate.grace_seconds}s" if fate.grace_seconds is not None else "",
        fate.budget,
        _why(fate),
    )


def _why(fate: answers.PodFate) -> str:
    if fate.waits:
        return f"waits: {fate.waits}"
    if fate.message:
        return fate.message
    return {"StaticPod": "static pod", "Ending": "has been ending for long"}.get(fate.filter, "")


def _blockers(answer: answers.Prediction) -> Iterable[str]:
    for blocker in answer.blockers:
        names = ", ".join(blocker.pods[:SHOWN_PODS])
        more = len(blocker.pods) - SHOWN_PODS
        rest = f" and {more} more" if more > 0 else ""
        yield f"  {blocker.message}: {names}{rest}"
        yield f"    {blocker.next}"


def _holders(answer: answers.Prediction) -> Iterable[str]:
    for holder in answer.holders:
        stays = "leaves" if holder.leaves else "stays"
        sure = "" if holder.is_certain else "possibly, "
        yield f"  {holder.pod} ({stays}): {sure}{'; '.join(holder.signs)}"
