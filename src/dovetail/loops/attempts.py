"""Decides when a write that fails again and again is given up: the server answers, and never takes this one.

Given each failure of one write, and when writes of others last succeeded. A server that cannot be reached, is
overloaded or asks to wait refuses nothing: while no other write succeeds there, this one is repeated, and should that
last, the lease runs out and ends the tenure. Never writes, never reads a clock.

Giving up is safe although a write without an answer may have happened. The caller waits QUIET_SECONDS after its last
try, longer than a server works on a request that its client has left, and reads the object once more: what is not there
then does not come any more.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from dovetail.ports import failures

SAME_ANSWERS: Final = 8  # so often the same, word by word,
SAME_SECONDS: Final = 60.0  # over so long, is an answer for good
LONGEST_SECONDS: Final = 300.0  # whatever the answers were
QUIET_SECONDS: Final = 10.0  # as long as a write may take at the most: the time a lease is good for
PASSING: Final = frozenset({0, 401, 408, 429, 502, 503, 504})  # says something about the server, not about the object


class _Answer(NamedTuple):
    status: int
    text: str


class Attempts:
    """The failures of one write so far."""

    def __init__(self) -> None:
        self._began: float | None = None
        self._last: _Answer | None = None
        self._since = 0.0  # since when the answer has been the last one
        self._same = 0
        self._count = 0

    def failed(self, failure: failures.ApiFailure, now: float) -> None:
        """The write failed once more."""
        answer = _Answer(failure.status, str(failure))
        if self._began is None:
            self._began = now
        if answer != self._last:
            self._last, self._since, self._same = answer, now, 0
        self._same += 1
        self._count += 1

    def are_over(self, now: float, *, others_succeeded_at: float) -> bool:
        """Whether it is to be given up; another write succeeded last at that time."""
        if self._began is None or self._last is None:
            return False
        is_about_object = self._last.status not in PASSING
        is_same = self._same >= SAME_ANSWERS and now - self._since >= SAME_SECONDS
        if is_same and is_about_object and others_succeeded_at >= self._since:
            return True
        is_long = now - self._began >= LONGEST_SECONDS
        return is_long and (is_about_object or others_succeeded_at >= self._began)

    def verdict(self, now: float) -> failures.Futile:
        """What the caller tells about it."""
        answer = self._last or _Answer(0, "no answer")
        seconds = now - (self._began if self._began is not None else now)
        said = f"tried {self._count} times in {seconds:.0f} s, the last answer: {answer.text}"
        return failures.Futile(said, status=answer.status)
