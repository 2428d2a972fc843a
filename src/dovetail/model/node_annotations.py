"""The annotations by which lifecycle work and a node agent, or a person, speak to each other on a Node.

Keys and what stands in them. A request has an id; a response repeats it, so that an old one is never taken for a new
one. What cannot be read counts as absent. Never reads a cluster.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import msgspec

BASELINE: Final = "dovetail.dev/validation-baseline"  # the node before its upgrade
CORDON: Final = "dovetail.dev/stack-upgrade-cordon"  # the upgrade that fences the node by a cordon
WAS_CORDONED: Final = "dovetail.dev/stack-upgrade-was-cordoned"  # by others, before that
REHEARSE: Final = (
    "dovetail.dev/prepare-rehearsal"  # an id: the agent is to plan a claim, without writing
)
REHEARSED: Final = "dovetail.dev/prepare-rehearsed"  # the agent's answer

OK: Final = "ok"
REFUSED: Final = "refused"


class Rehearsal(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """What came of planning a claim for one device of the node."""

    id: str
    result: str  # ok | refused
    device: str = ""
    message: str = ""


def rehearsal_of(annotations: Mapping[str, str]) -> Rehearsal | None:
    """The answer to the request that stands on the Node; None where there is no request, or no answer to it."""
    request = annotations.get(REHEARSE, "")
    try:
        answer = msgspec.json.decode(annotations.get(REHEARSED, ""), type=Rehearsal)
    except msgspec.MsgspecError:
        return None
    return answer if request and answer.id == request else None


def is_rehearsal_open(annotations: Mapping[str, str]) -> bool:
    """Whether the agent has something to answer."""
    return bool(annotations.get(REHEARSE)) and rehearsal_of(annotations) is None
