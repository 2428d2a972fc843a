"""Records for stories about right-sizing: work that ran for some days, with what was measured of it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from dovetail.answer.right_size import right_size
from dovetail.answer.right_size.right_size_answer import Answer, Recommendation
from dovetail.model.accounting import records
from dovetail.model.accounting.records import MICRO_GPU, Form, Records

GIB = 1024**3
MIB = 1024**2
HOUR = 3_600_000
DAY = 24 * HOUR
H100 = "NVIDIA H100 80GB HBM3"
H100_BYTES = 81559 * MIB
BUSY = 50_000  # millionths: 5 %


def owner(pod: str, kind: str = "ReplicaSet", name: str = "chat-abc12", **labels: str) -> Any:
    hashes = {"pod-template-hash": "abc12"} if kind == "ReplicaSet" else {}
    return records.Owner("team", pod, f"uid-{pod}", kind, name, "", hashes | labels)


def work(
    pod: str = "chat-abc12-x",
    *,
    memory: Sequence[int | None] | Callable[[int], int | None] = lambda _: 8 * GIB,
    busy: int | None = BUSY,
    days: float = 8,
    micro_gpu: int = MICRO_GPU,
    form: Form = Form.WHOLE,
    profile: str = "",
    owner_: records.Owner | None = None,
    gpus: int = 1,
    per_hour: int = 1,
    product: str = H100,
    start: int = 0,
    **metrics: Any,
) -> Records:
    """One pod, measured so often an hour from the start on."""
    held_by = owner_ or owner(pod)
    end = start + int(days * DAY)
    step = HOUR // per_hour
    assets, allocations, usage = [], [], []
    for number in range(gpus):
        asset = f"GPU-{pod}-{number}"
        assets.append(records.Asset(asset, "node-1", product, 0, memory_bytes=H100_BYTES))
        allocation = f"claim-{pod}-{number}"
        allocations.append(
            records.Allocation(
                allocation, asset, "node-1", micro_gpu, form, held_by, start, end, profile
            )
        )
        for index, when in enumerate(range(start, end, step)):
            seen = memory(index) if callable(memory) else memory[index % len(memory)]
            usage.append(records.Usage(asset, allocation, when, when + step, busy, seen, **metrics))
    return Records(tuple(assets), tuple(allocations), tuple(usage))


def together(*parts: Records, **more: Any) -> Records:
    """Records of several pods."""
    fields = [name for name in Records.__struct_fields__ if name not in more]
    joined = {
        name: tuple(each for part in parts for each in getattr(part, name)) for name in fields
    }
    return Records(**joined, **more)


def answer(given: Records, *, days: float = 30, **options: Any) -> Answer:
    return right_size.right_size(given, 0, int(days * DAY), **options)


def only(given: Records, **options: Any) -> Recommendation:
    """The recommendation about the one family there is."""
    (recommendation,) = answer(given, **options).work
    return recommendation


def with_field(given: Records, **changes: Any) -> Records:
    return msgspec.structs.replace(given, **changes)
