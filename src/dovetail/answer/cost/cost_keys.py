"""The keys that costs are grouped by: what a row's name is made of.

Given the words of a question. Work has all keys; capacity that no work held has only those of the GPU, and
`__idle__` for the others. Work without a value (no such label, no queue) has `__unallocated__`, as OpenCost calls it.
Never sums.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from dovetail import errors
from dovetail.model.accounting import records

IDLE: Final = "__idle__"
UNALLOCATED: Final = "__unallocated__"
LABEL: Final = "label:"
MOST_KEYS: Final = 8  # ours


class Subject(NamedTuple):
    """What a cost is about: an allocation on a GPU, waiting work (no GPU), or free capacity (no owner)."""

    cluster: str
    asset: records.Asset | None
    owner: records.Owner | None
    allocation: records.Allocation | None = None


Read = Callable[[Subject], str]


def _of_owner(read: Callable[[records.Owner], str]) -> Read:
    return lambda subject: IDLE if subject.owner is None else read(subject.owner)


def _of_asset(read: Callable[[records.Asset], str]) -> Read:
    return lambda subject: "" if subject.asset is None else read(subject.asset)


def _of_allocation(read: Callable[[records.Allocation], str]) -> Read:
    def value(subject: Subject) -> str:
        if subject.allocation is not None:
            return read(subject.allocation)
        return IDLE if subject.owner is None else ""

    return value


def _controller_of(kind: str) -> Read:
    return _of_owner(lambda owner: owner.controller if owner.controller_kind == kind else "")


_READS: Final[dict[str, Read]] = {
    "cluster": lambda subject: subject.cluster,
    "node": _of_asset(lambda asset: asset.node),
    "pool": _of_asset(lambda asset: asset.pool),
    "product": _of_asset(lambda asset: asset.product),
    "gpu": _of_asset(lambda asset: asset.asset),
    "namespace": _of_owner(lambda owner: owner.namespace),
    "controllerKind": _of_owner(lambda owner: owner.controller_kind.lower()),
    "controller": _of_owner(lambda owner: owner.controller),
    "deployment": _controller_of("Deployment"),
    "statefulset": _controller_of("StatefulSet"),
    "daemonset": _controller_of("DaemonSet"),
    "job": _controller_of("Job"),
    "pod": _of_owner(lambda owner: owner.pod),
    "queue": _of_owner(lambda owner: owner.queue),
    "claim": _of_allocation(lambda allocation: allocation.claim),
    "form": _of_allocation(lambda allocation: allocation.form.value),
    "profile": _of_allocation(lambda allocation: allocation.profile),
}
NAMES: Final = (*_READS, "label:NAME")
GPU: Final = "gpu"
ASSET_KEYS: Final = frozenset({"cluster", "node", "pool", "product", "gpu"})


class Keys(NamedTuple):
    """Keys in order, and how each is read."""

    names: tuple[str, ...]
    reads: tuple[Read, ...]
    computed: frozenset[str] = frozenset()  # names of keys made of what other keys and filters read

    def of(self, subject: Subject) -> tuple[str, ...]:
        """The values of the keys."""
        values = [read(subject) or UNALLOCATED for read in self.reads]
        return tuple(values)


def parse(written: str | Sequence[str]) -> Keys:
    """Keys with commas between them, or in a list. Raises InputError for one that is unknown or given twice."""
    texts = [written] if isinstance(written, str) else written
    names = [word.strip() for text in texts for word in text.split(",") if word.strip()]
    if len(names) > MOST_KEYS:
        raise errors.InputError(f"aggregate: {len(names)} keys; at most {MOST_KEYS} are read")
    reads = []
    for index, name in enumerate(names):
        if name in names[:index]:
            raise errors.InputError(f'aggregate: "{name[:80]}" is given twice')
        reads.append(_read(name))
    return Keys(tuple(names), tuple(reads))


def _read(name: str) -> Read:
    label = name.removeprefix(LABEL)
    if name.startswith(LABEL) and label:
        return _of_owner(lambda owner: owner.labels.get(label, ""))
    if name in _READS:
        return _READS[name]
    near = difflib.get_close_matches(name, [*_READS, LABEL], n=1)
    hint = f'; did you mean "{near[0]}"?' if near else ""
    raise errors.InputError(f'aggregate: unknown key "{name[:80]}"{hint} Known: {", ".join(NAMES)}')
