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
HEAL_REQUEST: Final = "dovetail.dev/heal-request"  # what the healer asks of the node
HEAL_RESPONSE: Final = "dovetail.dev/heal-response"  # the word of the agent, or of a person

OK: Final = "ok"
REFUSED: Final = "refused"
DONE: Final = "done"
FAILED: Final = "failed"


class Rehearsal(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """What came of planning a claim for one device of the node."""

    id: str
    result: str  # ok | refused
    device: str = ""
    message: str = ""


class HealRequest(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """A remedy that the node is asked for, and the GPUs it is for."""

    id: str
    action: str
    gpus: tuple[str, ...]


class HealResponse(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """What became of a remedy: done, failed, or refused, which means that it was not tried."""

    id: str
    result: str
    message: str = ""


def heal_response_of(annotations: Mapping[str, str]) -> HealResponse | None:
    """The word about a remedy; None where there is none that can be read."""
    try:
        return msgspec.json.decode(annotations.get(HEAL_RESPONSE, ""), type=HealResponse)
    except msgspec.MsgspecError:
        return None


def open_heal_request(annotations: Mapping[str, str]) -> HealRequest | None:
    """The remedy that is asked for and has no answer yet."""
    try:
        request = msgspec.json.decode(annotations.get(HEAL_REQUEST, ""), type=HealRequest)
    except msgspec.MsgspecError:
        return None
    response = heal_response_of(annotations)
    return None if response is not None and response.id == request.id else request


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
