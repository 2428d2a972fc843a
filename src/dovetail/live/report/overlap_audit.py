"""Finds devices that are allocated twice, reports them, and releases our newer claim if its pod has no node yet.

Two schedulers can allocate one device: the API server does not check. Given the World, which indexes device use; only
pools that changed are examined. Never touches a claim of another scheduler's pod, nor one whose pod is bound.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import NamedTuple, Protocol

from dovetail.kubetypes.core import pods
from dovetail.kubetypes.resource import claims
from dovetail.live.report import recorder
from dovetail.ports import clock as clocks
from dovetail.ports import meter
from dovetail.world.devices.device_overlaps import Overlap
from dovetail.world.events import ObjectKey
from dovetail.world.world import World

LOG = logging.getLogger("dovetail.audit")


class AuditContext(Protocol):
    """What the audit needs from the scheduler."""

    @property
    def world(self) -> World:
        """The state of the cluster."""
        ...

    @property
    def recorder(self) -> recorder.Recorder:
        """Records events."""
        ...

    def is_ours(self, pod: pods.Pod) -> bool:
        """Whether this scheduler is responsible for the pod."""
        ...

    def release(self, key: ObjectKey, pod_uid: str, *, why: str) -> None:
        """Deallocates a claim."""
        ...


class Finding(NamedTuple):
    """An overlap, and the claim to release with its pod; None where no claim is ours to release."""

    overlap: Overlap
    released_claim: ObjectKey | None
    user_uid: str


class Auditor:
    """Reports each overlap once."""

    def __init__(self, context: AuditContext, meter_: meter.Meter) -> None:
        self._context = context
        self._meter = meter_
        self._reported: set[Overlap] = set()

    async def run(self, clock: clocks.Clock, every_seconds: float) -> None:
        """Audits until cancelled."""
        while True:
            self.audit()
            await clock.sleep(every_seconds)

    def audit(self) -> tuple[Finding, ...]:
        """The overlaps there are now; reports new ones and releases the claims that are ours to release."""
        overlaps = self._context.world.overlaps()
        self._meter.gauge("dovetail_overlaps", len(overlaps))
        findings = tuple(self._finding(overlap) for overlap in overlaps)
        for finding in findings:
            if finding.overlap not in self._reported:
                self._report(finding)
            if finding.released_claim is not None:
                self._meter.count("dovetail_overlap_releases_total")
                self._context.release(
                    finding.released_claim,
                    finding.user_uid,
                    why=f"allocated twice: {finding.overlap}",
                )
        self._reported = set(overlaps)
        return findings

    def _finding(self, overlap: Overlap) -> Finding:
        """The newest claim that may be released, if any."""
        candidates = [self._context.world.claims.get(key) for key in overlap.claims]
        existing = [claim for claim in candidates if claim is not None]
        for claim in sorted(existing, key=_age, reverse=True):
            user = self._unbound_user(claim)
            if user is not None:
                return Finding(overlap, (claim.metadata.namespace, claim.metadata.name), user)
        return Finding(overlap, None, "")

    def _unbound_user(self, claim: claims.ResourceClaim) -> str | None:
        """The only user of a claim, if it is a pod of this scheduler without a node."""
        users = claim.status.reserved_for
        if claim.status.allocation is None or len(users) != 1:
            return None

        pod = self._context.world.pods.get(users[0].uid)
        if pod is None or pod.spec.node_name or not self._context.is_ours(pod):
            return None
        return users[0].uid

    def _report(self, finding: Finding) -> None:
        names = _listed(finding.overlap.claims)
        LOG.error(
            "audit.overlap: allocated twice",
            extra={"what": str(finding.overlap), "claims": names},
        )
        for key in finding.overlap.claims:
            claim = self._context.world.claims.get(key)
            if claim is not None:
                note = f"{finding.overlap} is allocated to more claims than it can serve: {names}"
                self._context.recorder.record_claim_event(
                    key, claim.metadata.uid, reason="DeviceGivenTwice", note=note
                )


def _age(claim: claims.ResourceClaim) -> tuple[str, int]:
    """Newer allocations sort higher."""
    version = claim.metadata.resource_version
    stamp = claim.status.allocation.allocation_timestamp if claim.status.allocation else None
    return stamp or "", int(version) if version.isdigit() else 0


def _listed(keys: Iterable[ObjectKey]) -> str:
    return ", ".join(f"{namespace}/{name}" for namespace, name in keys)
