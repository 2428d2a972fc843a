"""What a workload requests in labels and annotations: the same keys on every kind, on the owner or on its pod template.

Given the labels and annotations of several objects, outermost first: the first object that has a key decides it. Keys
of Kueue and KAI count where they mean the same. A value that cannot be read is ignored and reported as a problem; never
raises.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Mapping
from typing import Final, NamedTuple, TypeVar

import msgspec

from dovetail import cache
from dovetail.kubetypes import meta
from dovetail.model import gpu_annotations
from dovetail.quantity import durations

PREFIX: Final = "dovetail.dev/"
QUEUE: Final = "dovetail.dev/queue"
USER_LABEL: Final = "dovetail.dev/user"  # who submitted it; `dovetail queue --me` selects by it
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
CUDA: Final = "dovetail.dev/cuda"  # the CUDA that the images of a pod need

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
KAI_STALE_GRACE: Final = "kai.scheduler/staleness-grace-period"
KAI_MIN: Final = "kai.scheduler/batch-min-member"
KAI_MIN_OTHERS: Final = "kai.scheduler/min-member"
# Keys that matter even to a pod alone, and that only a decision about all pods together can honour.
TOGETHER: Final = RUNTIMES | {TOPOLOGY_REQUIRED, KUEUE_REQUIRED, KAI_REQUIRED}

ALL: Final = -1  # as many as there are
NEVER: Final = -1  # as a length of time
MOST_PODS: Final = 1_000_000
# difflib's ratio from which a misspelt key counts as one of ours: max-runtime-seconds passes.
NEARNESS: Final = 0.72
SHOWN: Final = 40  # characters of a value quoted in a problem

_PREFIXES: Final = (PREFIX, "kueue.x-k8s.io/", "kai.scheduler/", *gpu_annotations.KEYS)
REMEMBERED: Final = 4096  # distinct requests whose reading is cached
Entries = tuple[tuple[str, str], ...]  # keys and values
_PlaceEntries = tuple[Entries, Entries]  # of labels and of annotations
_NO_ENTRIES: Final[_PlaceEntries] = ((), ())
_TIME: Final = re.compile(meta.TIME_PATTERN)
_YES_OR_NO: Final = {"true": True, "yes": True, "false": False, "no": False}
_KAI_WORDS: Final = {"preemptible": True, "non-preemptible": False}
_ENDS: Final = {"restart": False, "end": True}
T = TypeVar("T")
Place = tuple[Mapping[str, str], Mapping[str, str]]  # labels and annotations of one object


class TopologyRequest(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """Where pods should be together: levels by label key or alias."""

    topology: str  # empty: any that has the level, or the label key itself
    required: str | None = None
    preferred: str | None = None
    relax_after_seconds: int | None = None  # after so long pending, required becomes preferred
    spread: bool = False  # rather over many domains than in one
    segment: int | None = None  # pods per segment; each segment is in one domain of that level


class WorkloadOptions(NamedTuple):
    """What a workload requests; None where it does not."""

    queue: str = ""
    labels: Mapping[str, str] = {}  # queue labels of other schedulers
    min: int | None = None  # pods, or ALL
    max: int | None = None
    expected_runtime: int | None = None
    max_runtime: int | None = None
    last_checkpoint: str | None = None
    is_preemptible: bool | None = None
    topology: TopologyRequest | None = None
    segments: TopologyRequest | None = None  # parts of the gang that should be closer still
    may_evict_after: int | None = None
    stale_grace: int | None = None
    may_be_lost: bool | None = None  # False: some controller creates evicted pods again
    problems: tuple[str, ...] = ()


NO_OPTIONS: Final = WorkloadOptions()


def read(*places: Place) -> WorkloadOptions:
    """What these objects request; the first that has a key decides it. Cheap where none has any."""
    entries = [
        (scheduler_entries(labels), scheduler_entries(annotations))
        for labels, annotations in places
    ]
    present = tuple(place for place in entries if place != _NO_ENTRIES)
    return _read(present) if present else NO_OPTIONS


@cache.remembered(REMEMBERED)
def _read(places: tuple[_PlaceEntries, ...]) -> WorkloadOptions:
    """Cached: pods of one workload have the same labels and annotations."""
    reader = _Reader([(dict(labels), dict(annotations)) for labels, annotations in places])
    reader.note_misspelt_keys()
    topology, segments = _topology(reader)
    queue_labels = {key: value for key in _QUEUE_LABELS if (value := reader.text(key))}
    return WorkloadOptions(
        queue=reader.text(QUEUE) or "",
        labels=queue_labels,
        min=reader.first((MIN, _count_or_all), (KAI_MIN, _count), (KAI_MIN_OTHERS, _count)),
        max=reader.first((MAX, _count)),
        expected_runtime=reader.first((EXPECTED_RUNTIME, durations.seconds)),
        max_runtime=reader.first(
            (MAX_RUNTIME, durations.seconds), (KUEUE_MAX_RUNTIME, durations.seconds)
        ),
        last_checkpoint=reader.first((LAST_CHECKPOINT, _time)),
        is_preemptible=reader.first(
            (PREEMPTIBLE, _YES_OR_NO.get), (KAI_PREEMPTIBILITY, _KAI_WORDS.get)
        ),
        topology=topology,
        segments=segments,
        may_evict_after=reader.first(
            (MAY_EVICT_AFTER, durations.seconds), (KAI_DELAY, durations.seconds)
        ),
        stale_grace=reader.first(
            (STALE_GRACE, _duration_or_never), (KAI_STALE_GRACE, kai_grace_seconds)
        ),
        may_be_lost=reader.first((WHEN_EVICTED, _ENDS.get)),
        problems=tuple(reader.problems),
    )


def labels_and_annotations(metadata: meta.ObjectMeta) -> Place:
    """The labels and annotations of one object."""
    return metadata.labels, metadata.annotations


class _Reader:
    """Looks keys up in several objects and collects the problems of what cannot be read."""

    def __init__(self, places: list[Place]) -> None:
        self._places = places
        self.problems: list[str] = []

    def text(self, key: str) -> str | None:
        """The value of a key: an annotation before a label of the same object."""
        for own_labels, own_annotations in self._places:
            if key in own_annotations:
                return own_annotations[key]
            if key in own_labels:
                return own_labels[key]
        return None

    def first(self, *choices: tuple[str, Callable[[str], T | None]]) -> T | None:
        """The value of the first of these keys that is present; the others stay unread."""
        for key, parse in choices:
            text = self.text(key)
            if text is None:
                continue
            value = parse(text)
            if value is None:
                self._note_unreadable(key, text)
            return value
        return None

    def _note_unreadable(self, key: str, text: str) -> None:
        quoted = text if len(text) <= SHOWN else f"{text[:SHOWN]}..."
        expected = _EXPECTED.get(key, "not understood")
        self.problems.append(f'{key}: "{quoted}" is ignored: {expected}')

    def note_misspelt_keys(self) -> None:
        """Unknown keys of ours that look like a known one: a slip that would go unnoticed."""
        written = {key for place in self._places for entries in place for key in entries}
        ours = {key for key in written if key.startswith(PREFIX)}
        for key in sorted(ours - _KNOWN_KEYS):
            name = key.removeprefix(PREFIX)
            for near in difflib.get_close_matches(name, _NAMES, n=1, cutoff=NEARNESS):
                self.problems.append(f"{key} is ignored: unknown key; did you mean {PREFIX}{near}?")

    def note_ignored(self, key: str, why: str) -> None:
        """A key that has no effect, if it is present."""
        if self.text(key) is not None:
            self.problems.append(f"{key} is ignored: {why}")


def _topology(reader: _Reader) -> tuple[TopologyRequest | None, TopologyRequest | None]:
    """The request for the whole gang and the one for its segments, in the keys of one scheduler only, ours first."""
    if any(reader.text(key) is not None for key in _OWN_TOPOLOGY):
        return _own_topology(reader), None

    name = reader.text(KAI_TOPOLOGY) or ""
    required, preferred = reader.text(KAI_REQUIRED), reader.text(KAI_PREFERRED)
    level, size = reader.text(KAI_SEGMENT_REQUIRED), reader.first((KAI_SEGMENT_SIZE, _count))
    is_kai = required or preferred or level
    if not is_kai:
        name = ""
        required, preferred = reader.text(KUEUE_REQUIRED), reader.text(KUEUE_PREFERRED)
        level, size = reader.text(KUEUE_SLICE_LEVEL), reader.first((KUEUE_SLICE_SIZE, _count))

    whole: TopologyRequest | None = None
    if required or preferred:
        whole = TopologyRequest(
            topology=name, required=required or None, preferred=preferred or None
        )
    segments: TopologyRequest | None = None
    if level:
        segments = TopologyRequest(topology=name, required=level, segment=size)
    return whole, segments


def _own_topology(reader: _Reader) -> TopologyRequest | None:
    required = reader.text(TOPOLOGY_REQUIRED) or None
    preferred = reader.text(TOPOLOGY_PREFERRED) or None
    spread = bool(reader.first((TOPOLOGY_SPREAD, _YES_OR_NO.get)))
    if required is None and preferred is None:
        why = f"{TOPOLOGY_REQUIRED} or {TOPOLOGY_PREFERRED} must name a level"
        for key in _OWN_TOPOLOGY:
            reader.note_ignored(key, why)
        return None
    if required is None:
        reader.note_ignored(TOPOLOGY_RELAX, f"{TOPOLOGY_REQUIRED} is not set, so nothing relaxes")
        reader.note_ignored(TOPOLOGY_SEGMENT, f"{TOPOLOGY_REQUIRED} must name the segment's level")
    return TopologyRequest(
        topology=reader.text(TOPOLOGY) or "",
        required=required,
        preferred=preferred,
        relax_after_seconds=reader.first((TOPOLOGY_RELAX, durations.seconds)) if required else None,
        spread=spread,
        segment=reader.first((TOPOLOGY_SEGMENT, _count)) if required else None,
    )


def scheduler_entries(entries: Mapping[str, str]) -> Entries:
    """The labels or annotations that are meant for a scheduler."""
    return tuple([entry for entry in entries.items() if entry[0].startswith(_PREFIXES)])


def _count(text: str) -> int | None:
    if not (text.isascii() and text.isdecimal() and len(text) < 10):
        return None
    number = int(text)
    return number if 1 <= number <= MOST_PODS else None


def _count_or_all(text: str) -> int | None:
    return ALL if text == "all" else _count(text)


def _duration_or_never(text: str) -> int | None:
    return NEVER if text == "never" else durations.seconds(text)


def kai_grace_seconds(text: str) -> int | None:
    """As KAI writes it: a negative duration means never."""
    return NEVER if text.startswith("-") else durations.seconds(text)


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
_QUEUE_LABELS: Final = (KUEUE_QUEUE, KAI_QUEUE)
_KNOWN_KEYS: Final = frozenset(
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
        CUDA,
        f"{PREFIX}gang",  # these two are read from pods: model/gangs
        f"{PREFIX}gang-group",
    }
)
_NAMES: Final = sorted(key.removeprefix(PREFIX) for key in _KNOWN_KEYS)
_DURATION: Final = "expected a duration such as 90s, 10m, 2h or 1:30:00"
_NUMBER: Final = f"expected a number of pods, 1 to {MOST_PODS}"
_SWITCH: Final = "expected true or false"
_EXPECTED: Final[Mapping[str, str]] = {
    MIN: f"{_NUMBER}, or all",
    MAX: _NUMBER,
    KAI_MIN: _NUMBER,
    KAI_MIN_OTHERS: _NUMBER,
    TOPOLOGY_SEGMENT: _NUMBER,
    KAI_SEGMENT_SIZE: _NUMBER,
    KUEUE_SLICE_SIZE: _NUMBER,
    EXPECTED_RUNTIME: _DURATION,
    MAX_RUNTIME: _DURATION,
    KUEUE_MAX_RUNTIME: _DURATION,
    TOPOLOGY_RELAX: _DURATION,
    MAY_EVICT_AFTER: _DURATION,
    KAI_DELAY: _DURATION,
    STALE_GRACE: f"{_DURATION}, or never",
    KAI_STALE_GRACE: f"{_DURATION}; negative means never",
    LAST_CHECKPOINT: "expected a time such as 2026-05-01T12:00:00Z",
    PREEMPTIBLE: _SWITCH,
    TOPOLOGY_SPREAD: _SWITCH,
    KAI_PREEMPTIBILITY: "expected preemptible or non-preemptible",
    WHEN_EVICTED: "expected restart or end",
}
