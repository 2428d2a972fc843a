"""What was observed about a pod or workload that does not start: the cause, the lines that prove it, fixes.

Plain data and its constructor. Computes nothing.
"""

from __future__ import annotations

from typing import NamedTuple

from dovetail.answer.why.cause_codes import CauseClass, CauseCode
from dovetail.answer.why.why_answer import Cause, Fix


class Observed(NamedTuple):
    """A cause that objects and events reveal."""

    cause: Cause
    evidence: tuple[str, ...]  # one line each: the object, when, its words
    fixes: tuple[Fix, ...]  # carried out as patches; other advice is part of the sentence
    overrides: bool  # it comes before anything the scheduler's rules say
    # Another scheduler with rules of its own refuses the pod: the cause where the engine would start it.
    is_foreign: bool = False


def observed_cause(
    code: CauseCode,
    sentence: str,
    *evidence: str,
    fixes: tuple[Fix, ...] = (),
    overrides: bool = True,
    class_: CauseClass | None = None,
) -> Observed:
    """A cause in its class, unless another class is given, with its evidence."""
    cause = Cause(class_=class_ or code.cause_class, code=code, sentence=sentence)
    return Observed(cause, evidence, fixes, overrides)
