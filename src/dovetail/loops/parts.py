"""Puts what is about to be written for a gang into intents that a server can store, and reads them as one again.

Given the members of a gang, or whatever intents are found. All parts are written before the first claim is: where some
are missing, either the gang was never begun, or it was over and its parts were being removed. Never writes.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from typing import Final, NamedTuple

import msgspec

from dovetail.model import intents, objects, plan

MOST_BYTES: Final = 524_288  # of the members of one part: a third of what etcd takes in one request
MOST_MEMBERS: Final = 4096  # of one part, by the definition of intents


class Begun(NamedTuple):
    """What was put down before a gang's first write, as far as it is there."""

    gang: plan.GangRef
    parts: tuple[intents.Intent, ...]
    is_whole: bool = True

    @property
    def name(self) -> str:
        """Of one of its intents, for people."""
        return self.parts[0].metadata.name

    @property
    def members(self) -> tuple[intents.Member, ...]:
        """Each pod once, whatever is written twice."""
        named = {member.uid: member for part in reversed(self.parts) for member in reversed(part.spec.members)}
        return tuple(reversed(named.values()))


def split(spec: intents.IntentSpec, *, most_bytes: int = MOST_BYTES) -> tuple[intents.IntentSpec, ...]:
    """The same in parts of so many bytes each, or more where a single member has more; one part if that suffices."""
    portions = list(_portions(spec.members, most_bytes))
    if len(portions) <= 1:
        return (spec,)
    batch = hashlib.sha256(objects.encode_struct(spec)).hexdigest()[:16]
    return tuple(
        msgspec.structs.replace(spec, members=tuple(portion), part=number, parts=len(portions), batch=batch)
        for number, portion in enumerate(portions, start=1)
    )


def joined(found: Iterable[intents.Intent]) -> list[Begun]:
    """What was begun, each gang's parts together. Which of them are missing is seen by how many there should be."""
    batches: dict[tuple[str, str, str, int], list[intents.Intent]] = {}
    single: list[Begun] = []
    for intent in found:
        spec, namespace = intent.spec, intent.metadata.namespace
        if spec.parts > 1:
            batches.setdefault((namespace, spec.gang, spec.batch, spec.parts), []).append(intent)
        else:
            single.append(Begun(plan.GangRef(namespace, spec.gang), (intent,)))
    together = [
        Begun(plan.GangRef(namespace, gang), tuple(sorted(parts, key=_number)), _are_all(parts, count))
        for (namespace, gang, _, count), parts in batches.items()
    ]
    return single + together


def _number(intent: intents.Intent) -> int:
    return intent.spec.part


def _are_all(parts: Sequence[intents.Intent], count: int) -> bool:
    numbers = {one.spec.part for one in parts if 1 <= one.spec.part <= count}
    return len(numbers) == count


def _portions(members: Sequence[intents.Member], most_bytes: int) -> Iterator[list[intents.Member]]:
    portion: list[intents.Member] = []
    size = 0
    for member in members:
        length = len(objects.encode_struct(member)) + 1
        if portion and (size + length > most_bytes or len(portion) >= MOST_MEMBERS):
            yield portion
            portion, size = [], 0
        portion.append(member)
        size += length
    if portion:
        yield portion
