"""What happened, as it is shown: one entry per thing that happened to a piece of work, a node or a queue. Data only."""

from __future__ import annotations

import datetime
import hashlib
from typing import Final

import msgspec

STARTED, ENDED, FAILED = "started", "ended", "failed"
EVICTED, MOVED, WAITING = "evicted", "moved", "waiting"
PROMISED, PROMISE_MOVED = "promised", "promiseMoved"
NODE, QUEUE = "node", "queue"
KINDS: Final = (
    STARTED,
    EVICTED,
    PROMISED,
    PROMISE_MOVED,
    MOVED,
    WAITING,
    ENDED,
    FAILED,
    NODE,
    QUEUE,
)


class Subject(msgspec.Struct, frozen=True, gc=False, kw_only=True, order=True):
    """The object that something happened to."""

    kind: str
    namespace: str = ""
    name: str = ""


class TimelineEntry(msgspec.Struct, frozen=True, gc=False, kw_only=True, rename="camel"):
    """Something that happened. What happened to several pods of one workload at once is one entry about it."""

    id: str
    time: datetime.datetime
    kind: str
    subject: Subject
    work: str = ""  # job/train, gang/llama, pod/notebook
    node: str = ""
    queue: str = ""
    rule: str = ""  # by which a pod was evicted
    beneficiary: str = ""  # for which work
    detail: str = ""
    pods: int = 0


class Happening(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """One source's word about something. Happenings with the same key are the same thing, from two sources."""

    key: tuple[str, ...]
    time: datetime.datetime
    kind: str
    subject: Subject
    work: str = ""
    node: str = ""
    queue: str = ""
    rule: str = ""
    beneficiary: str = ""
    detail: str = ""


def stable_id(*parts: str) -> str:
    """A short name that is the same whenever these parts are."""
    return hashlib.blake2b("\n".join(parts).encode(errors="replace"), digest_size=8).hexdigest()


def subject_of_work(namespace: str, work: str) -> Subject:
    """The workload itself as what something happened to: job/train is the Job train."""
    kind, _, name = work.partition("/")
    return Subject(kind=kind.capitalize(), namespace=namespace, name=name)
