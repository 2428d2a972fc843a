"""The picture of all GPUs as it is sent: nodes with their GPUs and parts, and the holders these refer to by number.

Plain data, camelCase on the wire. Every GPU has exactly one state, that of its tile in `dovetail get gpus`. Computes
nothing.
"""

from __future__ import annotations

from typing import Final

import msgspec

HIDDEN_NAME: Final = "(hidden)"  # instead of what the user may not list
HIDDEN_HOLDER: Final = 0  # the number that stands for all holders whose names the user may not see
USED, FREE = "used", "free"
HEALTHY: Final = "ok"


class FleetHolder(msgspec.Struct, frozen=True, gc=False, kw_only=True, rename="camel"):
    """What holds GPUs or parts of them: a pod, or a claim that no pod uses. Its number stays while it holds any."""

    id: int
    name: str
    namespace: str = ""
    kind: str = ""  # pod, claim, or the resource of another user of a claim
    work: str = ""  # job/train, gang/llama, pod/notebook
    queue: str = ""
    priority: int = 0
    user: str = ""
    since: str | None = None
    until: str | None = None  # by the runtime it states; null where it states none


class GpuPart(msgspec.Struct, frozen=True, gc=False, kw_only=True, rename="camel"):
    """A slice or share of a GPU. The profile of a share is its memory."""

    profile: str
    state: str  # used or free
    holder: int | None = None


class FleetGpu(msgspec.Struct, frozen=True, gc=False, kw_only=True, rename="camel"):
    """One GPU. Parts: every slice that exists, or only those in use where the GPU is cut as needed."""

    index: int
    uuid: str
    state: str
    health: str = HEALTHY  # else its taints
    holders: tuple[int, ...] = ()
    utilisation: float | None = None
    parts: tuple[GpuPart, ...] = ()


class FleetNode(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A node and its GPUs. Memory is that of one GPU."""

    name: str
    rack: str
    pool: str
    type: str
    memory_bytes: int
    domain: str  # NVLink domain that reaches beyond the node
    clique: str  # the part of the domain in which GPUs see each other
    state: str
    reason: str
    gpus: tuple[FleetGpu, ...]


HIDDEN: Final = FleetHolder(id=HIDDEN_HOLDER, name=HIDDEN_NAME)
