"""The pods that use a claim, from its status.reservedFor: read once, and again only for a reason.

Given claims that are prepared on this node. A claim is read when it is new, while no pod has reserved it, when a
process of an unknown pod uses its GPU, and now and then if several pods share it; never more often than once in half a
minute, and never many at once: every node of a cluster does this. What cannot be read keeps its last answer. Never
writes.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from dovetail import errors
from dovetail.kubetypes import codec, registry
from dovetail.kubetypes.resource import claims
from dovetail.node.claims import checkpoint
from dovetail.node.metering.device_holders import HolderPod
from dovetail.ports import failures
from dovetail.ports.api import Api, Target
from dovetail.ports.clock import Clock

LOG = logging.getLogger("dovetail.node.metering")
AGAIN_SECONDS: Final = 30.0
SHARED_SECONDS: Final = 300.0  # pods that share a claim come and go without a call of the kubelet
MOST_READS: Final = 8
_PODS: Final = "pods"


class _Answer(NamedTuple):
    pods: tuple[HolderPod, ...]
    at: float


class ClaimConsumers:
    """Remembers the pods of each claim."""

    def __init__(self, api: Api, clock: Clock) -> None:
        self._api = api
        self._clock = clock
        self._answers: dict[str, _Answer] = {}

    async def pods_of(
        self, prepared: Sequence[checkpoint.Claim], *, doubtful: Sequence[str] = ()
    ) -> Mapping[str, Sequence[HolderPod]]:
        """By claim uid. `doubtful` are uids of claims whose GPUs a process of an unknown pod uses."""
        known = {claim.uid for claim in prepared}
        self._answers = {uid: answer for uid, answer in self._answers.items() if uid in known}
        due = [claim for claim in prepared if self._is_due(claim, doubtful)]
        for claim in due[:MOST_READS]:
            self._answers[claim.uid] = _Answer(await self._read(claim), self._clock.monotonic())
        return {uid: answer.pods for uid, answer in self._answers.items()}

    def _is_due(self, claim: checkpoint.Claim, doubtful: Sequence[str]) -> bool:
        if not claim.name:
            return False  # recorded by a version that did not note names
        answer = self._answers.get(claim.uid)
        if answer is None:
            return True
        age = self._clock.monotonic() - answer.at
        if not answer.pods or claim.uid in doubtful:
            return age >= AGAIN_SECONDS
        return len(answer.pods) > 1 and age >= SHARED_SECONDS

    async def _read(self, claim: checkpoint.Claim) -> tuple[HolderPod, ...]:
        before = self._answers.get(claim.uid)
        try:
            target = Target(registry.CLAIM, claim.namespace, claim.name)
            current = codec.decode_struct(claims.ResourceClaim, await self._api.get(target))
        except (failures.ApiFailure, errors.InputError, OSError) as error:
            LOG.info("metering.claim_not_read", extra={"claim": str(claim), "why": str(error)})
            return before.pods if before is not None else ()
        if current.metadata.uid != claim.uid:
            return ()
        pods = [
            HolderPod(consumer.name, consumer.uid)
            for consumer in current.status.reserved_for
            if consumer.resource == _PODS
        ]
        return tuple(pods)
