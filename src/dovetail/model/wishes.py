"""What a workload asks for in labels and annotations: the same on every kind, on the owner or on its pod template.

Given the places where somebody may have written, outermost first: the first that names a thing decides it. Words of
Kueue and KAI are understood where they mean the same. What nobody can read is left out and told as a problem; never
raises.
"""

from __future__ import annotations

import difflib
import functools
import re
from collections.abc import Callable, Mapping
from typing import Final, NamedTuple, TypeVar

import msgspec

from dovetail.model import durations, meta

PREFIX: Final = "dovetail.dev/"
QUEUE: Final = "dovetail.dev/queue"
MIN: Final = "dovetail.dev/gang-min"
MAX: Final = "dovetail.dev/gang-max"
EXPECTED_RUNTIME: Final = "dovetail.dev/expected-runtime"
MAX_RUNTIME: Final = "dovetail.dev/max-runtime"
RUNTIMES: Final = frozenset({EXPECTED_RUNTIME, MAX_RUNTIME})
LAST_CHECKPOINT: Final = "dovetail.dev/last-checkpoint"
PREEMPTIBLE: Final = "dovetail.dev/preemptible"
TOPOLOGY: Final = "dovetail.dev/topology"
TOPOLOGY_REQUIRED: Final = "dovetail.dev/topology-required"
TOPOLOGY_PREFERRED: Final = "dovetail.dev/topology-preferred"
TOPOLOGY_RELAX: Final = "dovetail.dev/topology-relax-after"
TOPOLOGY_SEGMENT: Final = "dovetail.dev/topology-segment"
TOPOLOGY_SPREAD: Final = "dovetail.dev/topology-spread"
MAY_EVICT_AFTER: Final = "dovetail.dev/may-evict-after"
STALE_GRACE: Final = "dovetail.dev/stale-grace"
WHEN_EVICTED: Final = "dovetail.dev/when-evicted"

# Kueue, KEP-2724 and its labels reference; KAI, its pod grouper's constants.
KUEUE_QUEUE: Final = "kueue.x-k8s.io/queue-name"
KUEUE_REQUIRED: Final = "kueue.x-k8s.io/podset-required-topology"
KUEUE_PREFERRED: Final = "kueue.x-k8s.io/podset-preferred-topology"
KUEUE_SLICE_LEVEL: Final = "kueue.x-k8s.io/podset-slice-required-topology"
KUEUE_SLICE_SIZE: Final = "kueue.x-k8s.io/podset-slice-size"
KUEUE_MAX_RUNTIME: Final = "kueue.x-k8s.io/max-exec-time-seconds"
KAI_QUEUE: Final = "kai.scheduler/queue"
KAI_TOPOLOGY: Final = "kai.scheduler/topology"
KAI_REQUIRED: Final = "kai.scheduler/topology-required-placement"
KAI_PREFERRED: Final = "kai.scheduler/topology-preferred-placement"
KAI_SEGMENT_SIZE: Final = "kai.scheduler/segment-size"
KAI_SEGMENT_REQUIRED: Final = "kai.scheduler/segment-topology-required-placement"
KAI_PREEMPTIBILITY: Final = "kai.scheduler/preemptibility"
KAI_DELAY: Final = "kai.scheduler/preemption-delay"
KAI_MIN: Final = "kai.scheduler/batch-min-member"
KAI_MIN_OTHERS: Final = "kai.scheduler/min-member"
# What is asked even of a pod alone, and only decisions about all pods together answer.
TOGETHER: Final = RUNTIMES | {TOPOLOGY_REQUIRED, KUEUE_REQUIRED, KAI_REQUIRED}

ALL: Final = -1  # as many as there are
NEVER: Final = -1  # as a length of time
MOST_PODS: Final = 1_000_000
NEARNESS: Final = 0.72  # of a misspelt key to the one it stands for, by difflib's ratio: max-runtime-seconds passes
SHOWN: Final = 40  # letters of a value that is quoted in a problem

KAI_SHARES: Final = ("gpu-fraction", "gpu-memory")  # annotations without a prefix
_PREFIXES: Final = (PREFIX, "kueue.x-k8s.io/", "kai.scheduler/", *KAI_SHARES)
REMEMBERED: Final = 4096  # ways of saying something
_Said = tuple[tuple[tuple[str, str], ...], tuple[tuple[str, str], ...]]  # by labels and by annotations
_SILENT: Final[_Said] = ((), ())
_TIME: Final = re.compile(meta.TIME_PATTERN)
_YES_OR_NO: Final = {"true": True, "yes": True, "false": False, "no": False}
_KAI_WORDS: Final = {"preemptible": True, "non-preemptible": False}
_ENDS: Final = {"restart": False, "end": True}
T = TypeVar("T")
Place = tuple[Mapping[str, str], Mapping[str, str]]  # labels and annotations of one object


class TopologyWish(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """Where pods want to be together: levels by label key or alias."""

    topology: str  # empty: any that has the level, or the label key itself
    required: str | None = None
    preferred: str | None = None
    relax_after_seconds: int | None = None  # from then on, since it waits, what was required is only preferred
    spread: bool = False  # rather over many domains than in one
    segment: int | None = None  # pods come in so many, each lot in one domain of the required level


class Wishes(NamedTuple):
    """What was asked for; None where nothing was said."""

    queue: str = ""
    labels: Mapping[str, str] = {}  # queue labels of other schedulers
    min: int | None = None  # pods, or ALL
    max: int | None = None
    expected_runtime: int | None = None
    max_runtime: int | None = None
    last_checkpoint: str | None = None
    is_preemptible: bool | None = None
    topology: TopologyWish | None = None
    segments: TopologyWish | None = None  # within the topology, lots of pods that want to be closer still
    may_evict_after: int | None = None
    stale_grace: int | None = None
    may_be_lost: bool | None = None  # False: something makes the pods anew, whoever that is
    problems: tuple[str, ...] = ()


NOTHING: Final = Wishes()


def read(*places: Place) -> Wishes:
    """What these places ask for, the first that names a thing deciding it. Cheap where nobody asks for anything."""
    said = tuple(one for labels, notes in places if (one := (spoken(labels), spoken(notes))) != _SILENT)
    return _read(said) if said else NOTHING


@functools.lru_cache(maxsize=REMEMBERED)
def _read(said: tuple[_Said, ...]) -> Wishes:
    """The same for pods of one kind, which say the same."""
    reader = _Reader([(dict(labels), dict(notes)) for labels, notes in said])
    reader.misspelt()
    reader.shares()
    topology, segments = _topology(reader)
    return Wishes(
        queue=reader.word(QUEUE) or "",
        labels={key: value for key in (KUEUE_QUEUE, KAI_QUEUE) if (value := reader.word(key))},
        min=reader.first((MIN, _count_or_all), (KAI_MIN, _count), (KAI_MIN_OTHERS, _count)),
        max=reader.first((MAX, _count)),
        expected_runtime=reader.first((EXPECTED_RUNTIME, durations.seconds)),
        max_runtime=reader.first((MAX_RUNTIME, durations.seconds), (KUEUE_MAX_RUNTIME, durations.seconds)),
        last_checkpoint=reader.first((LAST_CHECKPOINT, _time)),
        is_preemptible=reader.first((PREEMPTIBLE, _YES_OR_NO.get), (KAI_PREEMPTIBILITY, _KAI_WORDS.get)),
        topology=topology,
        segments=segments,
        may_evict_after=reader.first((MAY_EVICT_AFTER, durations.seconds), (KAI_DELAY, durations.seconds)),
        stale_grace=reader.first((STALE_GRACE, _length_or_never)),
        may_be_lost=reader.first((WHEN_EVICTED, _ENDS.get)),
        problems=tuple(reader.problems),
    )


def place_of(metadata: meta.ObjectMeta) -> Place:
    """What an object says of itself."""
    return metadata.labels, metadata.annotations


class _Reader:
    """Looks words up and remembers what could not be read."""

    def __init__(self, places: list[Place]) -> None:
        self._places = places
        self.problems: list[str] = []

    def word(self, key: str) -> str | None:
        """The text under a key: an annotation before a label of the same object."""
        for labels, notes in self._places:
            for found in (notes, labels):
                if key in found:
                    return found[key]
        return None

    def first(self, *choices: tuple[str, Callable[[str], T | None]]) -> T | None:
        """The first of these keys that is named, read; the others stay unread."""
        for key, reading in choices:
            text = self.word(key)
            if text is None:
                continue
            value = reading(text)
            if value is None:
                self.problem(key, text)
            return value
        return None

    def problem(self, key: str, text: str) -> None:
        """Somebody wrote something that cannot be read."""
        quoted = text if len(text) <= SHOWN else f"{text[:SHOWN]}..."
        self.problems.append(f'{key}: "{quoted}" is left out: {_MEANT.get(key, "it is not understood")}')

    def misspelt(self) -> None:
        """Keys of ours that nobody knows and that look like one: a slip that would go unnoticed."""
        written = {key for place in self._places for found in place for key in found if key.startswith(PREFIX)}
        for key in sorted(written - _WORDS):
            name = key.removeprefix(PREFIX)
            for near in difflib.get_close_matches(name, _NAMES, n=1, cutoff=NEARNESS):
                self.problems.append(f"{key} is left out: it is not known; did you mean {PREFIX}{near}?")

    def shares(self) -> None:
        """Shares of a GPU in KAI's words: the pod would start without any."""
        for key in KAI_SHARES:
            if any(key in notes for _, notes in self._places):
                self.problems.append(f"{key} is left out: a share of a GPU is asked for by a claim")

    def useless(self, key: str, why: str) -> None:
        """Something that would need something else."""
        if self.word(key) is not None:
            self.problems.append(f"{key} is left out: {why}")


def _topology(reader: _Reader) -> tuple[TopologyWish | None, TopologyWish | None]:
    """The wish for the whole and the one for lots in it; the words of one scheduler only, ours first."""
    if any(reader.word(key) is not None for key in _OWN_TOPOLOGY):
        return _own_topology(reader), None
    name = reader.word(KAI_TOPOLOGY) or ""
    required, preferred = reader.word(KAI_REQUIRED), reader.word(KAI_PREFERRED)
    level, size = reader.word(KAI_SEGMENT_REQUIRED), reader.first((KAI_SEGMENT_SIZE, _count))
    if not (required or preferred or level):
        name = ""
        required, preferred = reader.word(KUEUE_REQUIRED), reader.word(KUEUE_PREFERRED)
        level, size = reader.word(KUEUE_SLICE_LEVEL), reader.first((KUEUE_SLICE_SIZE, _count))
    whole = TopologyWish(topology=name, required=required or None, preferred=preferred or None)
    lots = TopologyWish(topology=name, required=level, segment=size) if level else None
    return (whole if required or preferred else None), lots


def _own_topology(reader: _Reader) -> TopologyWish | None:
    required, preferred = reader.word(TOPOLOGY_REQUIRED) or None, reader.word(TOPOLOGY_PREFERRED) or None
    spread = bool(reader.first((TOPOLOGY_SPREAD, _YES_OR_NO.get)))
    if required is None and preferred is None:
        needs = f"{TOPOLOGY_REQUIRED} or {TOPOLOGY_PREFERRED} has to name a level"
        for key in _OWN_TOPOLOGY:
            reader.useless(key, needs)
        return None
    if required is None:
        reader.useless(TOPOLOGY_RELAX, f"without {TOPOLOGY_REQUIRED} nothing is to be relaxed")
        reader.useless(TOPOLOGY_SEGMENT, f"{TOPOLOGY_REQUIRED} has to name the level of a segment")
    return TopologyWish(
        topology=reader.word(TOPOLOGY) or "",
        required=required,
        preferred=preferred,
        relax_after_seconds=reader.first((TOPOLOGY_RELAX, durations.seconds)) if required else None,
        spread=spread,
        segment=reader.first((TOPOLOGY_SEGMENT, _count)) if required else None,
    )


def spoken(found: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    """What labels or annotations say that is meant for a scheduler."""
    return tuple((key, value) for key, value in found.items() if key.startswith(_PREFIXES))


def _count(text: str) -> int | None:
    if not (text.isascii() and text.isdecimal() and len(text) < 10):
        return None
    return number if 1 <= (number := int(text)) <= MOST_PODS else None


def _count_or_all(text: str) -> int | None:
    return ALL if text == "all" else _count(text)


def _length_or_never(text: str) -> int | None:
    return NEVER if text == "never" else durations.seconds(text)


def _time(text: str) -> str | None:
    return text if _TIME.match(text) else None


_OWN_TOPOLOGY: Final = (
    TOPOLOGY,
    TOPOLOGY_REQUIRED,
    TOPOLOGY_PREFERRED,
    TOPOLOGY_RELAX,
    TOPOLOGY_SEGMENT,
    TOPOLOGY_SPREAD,
)
_WORDS: Final = frozenset(
    {
        QUEUE,
        MIN,
        MAX,
        EXPECTED_RUNTIME,
        MAX_RUNTIME,
        LAST_CHECKPOINT,
        PREEMPTIBLE,
        *_OWN_TOPOLOGY,
        MAY_EVICT_AFTER,
        STALE_GRACE,
        WHEN_EVICTED,
        f"{PREFIX}gang",  # these two are read off pods: model/gangs
        f"{PREFIX}gang-group",
    }
)
_NAMES: Final = sorted(word.removeprefix(PREFIX) for word in _WORDS)
_LENGTH: Final = "a length of time is written 90s, 10m, 2h or 1:30:00"
_NUMBER: Final = f"a number of pods is written 1 to {MOST_PODS}"
_SWITCH: Final = "it is true or false"
_MEANT: Final[Mapping[str, str]] = {
    MIN: f"{_NUMBER}, or all",
    MAX: _NUMBER,
    KAI_MIN: _NUMBER,
    KAI_MIN_OTHERS: _NUMBER,
    TOPOLOGY_SEGMENT: _NUMBER,
    KAI_SEGMENT_SIZE: _NUMBER,
    KUEUE_SLICE_SIZE: _NUMBER,
    EXPECTED_RUNTIME: _LENGTH,
    MAX_RUNTIME: _LENGTH,
    KUEUE_MAX_RUNTIME: _LENGTH,
    TOPOLOGY_RELAX: _LENGTH,
    MAY_EVICT_AFTER: _LENGTH,
    KAI_DELAY: _LENGTH,
    STALE_GRACE: f"{_LENGTH}, or never",
    LAST_CHECKPOINT: "a point in time is written 2026-05-01T12:00:00Z",
    PREEMPTIBLE: _SWITCH,
    TOPOLOGY_SPREAD: _SWITCH,
    KAI_PREEMPTIBILITY: "it is preemptible or non-preemptible",
    WHEN_EVICTED: "it is restart or end",
}
