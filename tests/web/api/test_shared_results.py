"""Results that take long: used again for a while, then renewed beside the answers, which do not wait for that."""

from __future__ import annotations

import datetime
import threading
import time

import msgspec

from dovetail.web import asked
from dovetail.web.api import shared_results
from tests.support import waiting
from tests.web.api import clusters


def _at(seconds: float, name: str) -> asked.Asked:
    """A question about the typical cluster, so many seconds later."""
    frame = clusters.frame_of(clusters.stored(clusters.typical()), name=name)
    later = clusters.NOW + datetime.timedelta(seconds=seconds)
    frame.view = msgspec.structs.replace(frame.view, now=later)
    return asked.Asked(frame, asked.EVERYTHING)


class _Slow:
    """Counts its results. Each takes long enough to be kept, and waits until the test lets it go on."""

    def __init__(self) -> None:
        self.gate = threading.Event()
        self.gate.set()
        self.calls = 0

    def __call__(self) -> int:
        self.calls += 1
        assert self.gate.wait(waiting.GIVE_UP_SECONDS)
        began = time.thread_time()
        while time.thread_time() - began < 1.1 * shared_results.QUICK_SECONDS:
            pass
        return self.calls


def _recent(slow: _Slow, seconds: float, name: str) -> int:
    question = _at(seconds, name)
    return shared_results._recent(question, "slow", slow, is_renewed=True)


def test_a_late_result_is_renewed_while_the_last_one_serves() -> None:
    name, slow = "renewed", _Slow()
    assert _recent(slow, 0, name) == 1
    assert _recent(slow, 1, name) == 1  # as good as new
    slow.gate.clear()
    assert _recent(slow, 70, name) == 1  # does not wait for the next
    assert _recent(slow, 71, name) == 1
    slow.gate.set()
    waiting.wait_until(lambda: _recent(slow, 72, name) == 2, "the renewed result")
    assert slow.calls == 2


def test_a_result_that_is_too_old_is_waited_for() -> None:
    name, slow = "too old", _Slow()
    assert _recent(slow, 0, name) == 1
    assert _recent(slow, 600, name) == 2


def test_memberships_are_made_again_only_when_work_changed() -> None:
    stored = clusters.stored(clusters.typical())
    first = clusters.frame_of(stored, name="members")
    known = shared_results.memberships(asked.Asked(first, asked.EVERYTHING))

    objects = first.view.objects
    same_work = msgspec.structs.replace(
        objects, by_kind=dict(objects.by_kind) | {"Node": dict(objects.by_kind["Node"])}
    )
    second = clusters.Frame(msgspec.structs.replace(first.view, objects=same_work), 2)
    assert shared_results.memberships(asked.Asked(second, asked.EVERYTHING)) is known

    pods = dict(list(objects.by_kind["Pod"].items())[1:])
    fewer = msgspec.structs.replace(objects, by_kind=dict(objects.by_kind) | {"Pod": pods})
    third = clusters.Frame(msgspec.structs.replace(first.view, objects=fewer), 3)
    assert shared_results.memberships(asked.Asked(third, asked.EVERYTHING)) is not known
