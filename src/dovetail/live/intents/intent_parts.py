"""Splits a gang's planned writes into Intents small enough for the API server, and joins them again.

Given the members of a gang, or all Intents of a cluster. All parts are written before the first claim: where some are
missing, either no claim of the gang was written, or its binding was over and the parts were being deleted. Never
writes.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from typing import Final, NamedTuple

import msgspec

from dovetail.kubetypes import codec
from dovetail.kubetypes.custom import intents
from dovetail.model import plan

MAX_PART_BYTES: Final = 524_288  # members of one part: a third of etcd's request limit
MAX_PART_MEMBERS: Final = 4096  # of one part, as the CRD limits it


class GangStart(NamedTuple):
    """The stored writes of a gang that was being bound; possibly not all of its parts."""

    gang: plan.GangRef
    parts: tuple[intents.Intent, ...]
    is_whole: bool = True

    @property
    def name(self) -> str:
        """The name of its first Intent, for logs."""
        return self.parts[0].metadata.name

    @property
    def members(self) -> tuple[intents.Member, ...]:
        """Each pod once, the first entry of each, whatever is stored twice."""
        by_uid: dict[str, intents.Member] = {}
        for part in self.parts:
            for member in part.spec.members:
                by_uid.setdefault(member.uid, member)
        return tuple(by_uid.values())


def split(
    spec: intents.IntentSpec, *, most_bytes: int = MAX_PART_BYTES
) -> tuple[intents.IntentSpec, ...]:
    """Parts of at most this many bytes, unless a single member has more; one part if that suffices."""
    portions = list(_portions(spec.members, most_bytes))
    if len(portions) <= 1:
        return (spec,)

    batch = hashlib.sha256(codec.encode_struct(spec)).hexdigest()[:16]
    return tuple(
        msgspec.structs.replace(
            spec, members=tuple(portion), part=number, parts=len(portions), batch=batch
        )
        for number, portion in enumerate(portions, start=1)
    )


def join_parts(stored: Iterable[intents.Intent]) -> list[GangStart]:
    """Each gang's parts together; the count in every part shows whether some are missing."""
    batches: dict[tuple[str, str, str, int], list[intents.Intent]] = {}
    starts: list[GangStart] = []
    for intent in stored:
        spec, namespace = intent.spec, intent.metadata.namespace
        if spec.parts > 1:
            batches.setdefault((namespace, spec.gang, spec.batch, spec.parts), []).append(intent)
        else:
            starts.append(GangStart(plan.GangRef(namespace, spec.gang), (intent,)))

    for (namespace, gang, _, count), parts in batches.items():
        ordered = tuple(sorted(parts, key=_number))
        starts.append(GangStart(plan.GangRef(namespace, gang), ordered, _are_all(parts, count)))
    return starts


def _number(intent: intents.Intent) -> int:
    return intent.spec.part


def _are_all(parts: Sequence[intents.Intent], count: int) -> bool:
    numbers = {part.spec.part for part in parts}
    valid = {number for number in numbers if 1 <= number <= count}
    return len(valid) == count


def _portions(members: Sequence[intents.Member], most_bytes: int) -> Iterator[list[intents.Member]]:
    portion: list[intents.Member] = []
    size = 0
    for member in members:
        length = len(codec.encode_struct(member)) + 1
        if portion and (size + length > most_bytes or len(portion) >= MAX_PART_MEMBERS):
            yield portion
            portion, size = [], 0
        portion.append(member)
        size += length
    if portion:
        yield portion
