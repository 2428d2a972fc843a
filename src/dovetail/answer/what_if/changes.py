"""The changes that `what-if` can try, and how people write them: 2xh100, node/a, queue/x.quota=8.

Given the verb and the text of one option, returns a change or raises InputError that says what was expected. Knows
nothing of a cluster: whether a node or queue is there, and what a change amounts to, is decided elsewhere.
"""

from __future__ import annotations

import re
from typing import Final

import msgspec

from dovetail import errors
from dovetail.kubetypes import codec
from dovetail.quantity import quantity

NODE, TYPE, QUEUE, POD = "node", "type", "queue", "pod"
MOST_NODES: Final = 10_000  # added or removed by one change
MOST_REPLICAS: Final = 64  # of one GPU: more is a mistake
MOST_PROFILES: Final = 16  # named in one geometry
LARGEST_PRIORITY: Final = 1_000_000_000  # of user-defined classes, scheduling.k8s.io/v1
LARGEST_WEIGHT: Final = 2**31 - 1

QUEUE_FIELDS: Final = ("quota", "limit", "weight", "priority")
NODE_FIELDS: Final = ("mig", "sharing")
WORK_FIELDS: Final = ("priority",)
TIME_SLICING, MPS, NO_SHARING = "time-slicing", "mps", "none"
STRATEGIES: Final = (TIME_SLICING, MPS, NO_SHARING)

_COUNTED: Final = re.compile(r"(?:(?P<count>-?[0-9]{1,18})x)?(?P<what>.+)", re.ASCII)
_PLACE: Final = re.compile(r"(?P<kind>[a-z][a-z0-9-]*)/(?P<name>.+)", re.ASCII)
_PROFILE: Final = re.compile(r"[1-9]g\.[0-9]{1,3}gb(\+[a-z.]+)?", re.ASCII)


class Selection(msgspec.Struct, frozen=True, kw_only=True):
    """Nodes: by name, by GPU type, or by a label such as rack or pool. With a count, only so many of them."""

    kind: str
    name: str
    count: int | None = None

    def __str__(self) -> str:
        times = "" if self.count is None else f"{self.count}x"
        return f"{times}{self.name}" if self.kind == TYPE else f"{times}{self.kind}/{self.name}"


class Work(msgspec.Struct, frozen=True, kw_only=True):
    """A workload by kind, namespace and name."""

    kind: str
    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.kind}/{self.namespace}/{self.name}"


class AddNodes(msgspec.Struct, frozen=True, kw_only=True):
    """More nodes like one that is there."""

    nodes: Selection


class RemoveNodes(msgspec.Struct, frozen=True, kw_only=True):
    """Nodes that go, with the pods on them."""

    nodes: Selection


class Cordon(msgspec.Struct, frozen=True, kw_only=True):
    """Nodes that take no new pods; `is_drained` lets the present ones go, too."""

    nodes: Selection
    is_drained: bool = False


class Uncordon(msgspec.Struct, frozen=True, kw_only=True):
    """Nodes that take pods again."""

    nodes: Selection


class SetQueue(msgspec.Struct, frozen=True, kw_only=True):
    """Another number of a queue."""

    queue: str
    field: str
    value: str


class SetPriority(msgspec.Struct, frozen=True, kw_only=True):
    """Another priority of a workload's pods."""

    work: Work
    priority: int


class SetPartitions(msgspec.Struct, frozen=True, kw_only=True):
    """MIG partitions that every GPU of some nodes has; none: whole GPUs."""

    nodes: Selection
    profiles: tuple[str, ...]


class SetSharing(msgspec.Struct, frozen=True, kw_only=True):
    """Into how many replicas every GPU of some nodes is shared; 1: not at all."""

    nodes: Selection
    strategy: str
    replicas: int


class EndWork(msgspec.Struct, frozen=True, kw_only=True):
    """A workload that is over."""

    work: Work


class NewWork(msgspec.Struct, frozen=True, kw_only=True):
    """Work that does not exist yet: its objects, with the pods that controllers create for it."""

    file: str
    objects: tuple[codec.Stored, ...]


Change = (
    AddNodes
    | RemoveNodes
    | Cordon
    | Uncordon
    | SetQueue
    | SetPriority
    | SetPartitions
    | SetSharing
    | EndWork
    | NewWork
)


class Stated(msgspec.Struct, frozen=True):
    """A change, and the text it was given as."""

    text: str
    change: Change


def read(verb: str, text: str, *, namespace: str) -> Stated:
    """The change of one option: `--add 2xh100` is verb `add`, text `2xh100`. Raises InputError."""
    try:
        change = _read(verb, text.strip(), namespace)
    except errors.InputError as error:
        raise errors.InputError(f"--{verb} {text}: {error}") from None
    return Stated(f"--{verb} {text}", change)


def _read(verb: str, text: str, namespace: str) -> Change:
    match verb:
        case "add":
            return AddNodes(nodes=_added(text))
        case "remove":
            return RemoveNodes(nodes=_selection(text))
        case "cordon":
            return Cordon(nodes=_selection(text))
        case "drain":
            return Cordon(nodes=_selection(text), is_drained=True)
        case "uncordon":
            return Uncordon(nodes=_selection(text))
        case "end":
            return EndWork(work=_work(text, namespace))
        case "set":
            return _setting(text, namespace)
        case _:
            raise errors.InputError(f'unknown change "{verb}"')


def _added(text: str) -> Selection:
    nodes = _selection(text)
    if nodes.kind not in (NODE, TYPE):
        raise errors.InputError(
            f"expected a GPU type or a node to copy, such as 2xh100 or 2xnode/gpu-3, not {nodes.kind}/"
        )
    return msgspec.structs.replace(nodes, count=1 if nodes.count is None else nodes.count)


def _selection(text: str) -> Selection:
    """`node/a`, `rack/r1`, `3xh100`, `type/h100`; a bare name is a GPU type."""
    parts = _COUNTED.fullmatch(text)
    if parts is None:
        raise errors.InputError("expected nodes, such as node/a, rack/r1 or 3xh100")
    count = None if parts["count"] is None else int(parts["count"])
    if count is not None and not 1 <= count <= MOST_NODES:
        raise errors.InputError(f"expected 1 to {MOST_NODES} nodes, got {count}")
    place = _PLACE.fullmatch(parts["what"])
    if place is None:
        return Selection(kind=TYPE, name=parts["what"], count=count)
    return Selection(kind=place["kind"], name=place["name"], count=count)


def _work(text: str, namespace: str) -> Work:
    """`job/ns/x`, or `job/x` in the namespace of the command."""
    parts = text.split("/")
    if len(parts) == 2 and all(parts):
        return Work(kind=parts[0].lower(), namespace=namespace, name=parts[1])
    if len(parts) == 3 and all(parts):
        return Work(kind=parts[0].lower(), namespace=parts[1], name=parts[2])
    raise errors.InputError("expected a workload, such as job/team/train or pod/team/train-0")


def _setting(text: str, namespace: str) -> Change:
    target, is_equation, value = text.partition("=")
    place, _, field = target.rpartition(".")
    if not is_equation or not place or not field or not value:
        raise errors.InputError(
            "expected TARGET.FIELD=VALUE, such as queue/vision.quota=8, job/team/train.priority=100, "
            "node/a.mig=3g.40gb,4g.40gb or node/a.sharing=time-slicing:4"
        )
    if place.startswith(f"{QUEUE}/"):
        return _queue_setting(place.removeprefix(f"{QUEUE}/"), field, value)
    if field in NODE_FIELDS:
        nodes = _selection(place)
        if field == "mig":
            return SetPartitions(nodes=nodes, profiles=_profiles(value))
        strategy, replicas = _sharing(value)
        return SetSharing(nodes=nodes, strategy=strategy, replicas=replicas)
    if field in WORK_FIELDS:
        work = _work(place, namespace)
        return SetPriority(work=work, priority=_whole(value, most=LARGEST_PRIORITY, is_signed=True))
    if place.startswith(f"{NODE}/"):
        raise errors.InputError(
            f'a node has no field "{field}" to set; known: {", ".join(NODE_FIELDS)}'
        )
    raise errors.InputError(
        f'unknown field "{field}"; a queue has {", ".join(QUEUE_FIELDS)}, work has '
        f"{', '.join(WORK_FIELDS)}, nodes have {', '.join(NODE_FIELDS)}"
    )


def _queue_setting(name: str, field: str, value: str) -> SetQueue:
    if field not in QUEUE_FIELDS:
        raise errors.InputError(
            f'a queue has no field "{field}" to set; known: {", ".join(QUEUE_FIELDS)}'
        )
    if field == "priority":
        value = str(_whole(value, most=LARGEST_WEIGHT, is_signed=True))
    elif field == "weight":
        value = str(_whole(value, most=LARGEST_WEIGHT))
    elif field == "limit" and value == "none":
        value = ""
    else:
        amount = quantity.parse(value)
        if amount.sign < 0:
            raise errors.InputError(f"{field} must not be negative, got {value}")
    return SetQueue(queue=name, field=field, value=value)


def _profiles(value: str) -> tuple[str, ...]:
    if value == "none":
        return ()
    profiles = tuple(part.strip() for part in value.split(","))
    for profile in profiles:
        if not _PROFILE.fullmatch(profile):
            raise errors.InputError(
                f'"{profile}" is not a MIG profile; expected names such as 3g.40gb, or none'
            )
    if len(profiles) > MOST_PROFILES:
        raise errors.InputError(f"expected at most {MOST_PROFILES} profiles for one GPU")
    return profiles


def _sharing(value: str) -> tuple[str, int]:
    strategy, _, number = value.partition(":")
    if strategy == NO_SHARING and not number:
        return strategy, 1
    if strategy not in STRATEGIES or not number:
        raise errors.InputError(
            f'"{value}" is not a way to share; expected time-slicing:4, mps:4 or none'
        )
    replicas = _whole(number, most=MOST_REPLICAS)
    if replicas < 2:
        raise errors.InputError(f"expected at least 2 replicas of a GPU, got {replicas}")
    return strategy, replicas


def _whole(text: str, *, most: int, is_signed: bool = False) -> int:
    digits = text.removeprefix("-") if is_signed else text
    if not (digits.isascii() and digits.isdecimal() and len(digits) < 12):
        least = f"-{most}" if is_signed else "0"
        raise errors.InputError(f'expected a whole number from {least} to {most}, got "{text}"')
    number = int(text)
    if abs(number) > most:
        raise errors.InputError(f"expected at most {most}, got {number}")
    return number
