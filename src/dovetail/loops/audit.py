"""Looks for devices given out twice, by whomever; says so, and takes back our younger claim if its pod has no node yet.

Two schedulers can allocate one device: the API server does not look. Given the World, which knows who uses what; asks
only about pools that changed. Never touches a claim of somebody else's pod, nor one whose pod is bound.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import NamedTuple, Protocol

from dovetail.loops import tell
from dovetail.model import claims, pods
from dovetail.ports import clock as clocks
from dovetail.ports import meter
from dovetail.world.events import ObjectKey
from dovetail.world.overlaps import Overlap
from dovetail.world.world import World

LOG = logging.getLogger("dovetail.audit")


class Desk(Protocol):
    """What the audit needs of the scheduler."""

    @property
    def world(self) -> World:
        """The picture."""
        ...

    @property
    def teller(self) -> tell.Teller:
        """Who tells owners."""
        ...

    def is_ours(self, pod: pods.Pod) -> bool:
        """Whether we schedule the pod."""
        ...

    def release(self, key: ObjectKey, pod_uid: str, *, why: str) -> None:
        """Takes a claim's devices back."""
        ...


class Finding(NamedTuple):
    """What was given out twice, and the claim to take back, with its user; none if it is not ours to take."""

    overlap: Overlap
    yields: ObjectKey | None
    user_uid: str


class Auditor:
    """Remembers what it has said."""

    def __init__(self, desk: Desk, meter_: meter.Meter) -> None:
        self._desk = desk
        self._meter = meter_
        self._said: set[Overlap] = set()

    async def run(self, clock: clocks.Clock, every_seconds: float) -> None:
        """Audits for ever."""
        while True:
            self.look()
            await clock.sleep(every_seconds)

    def look(self) -> tuple[Finding, ...]:
        """What is given out twice now; tells it once and takes back what is ours to take."""
        found = self._desk.world.overlaps()
        self._meter.gauge("dovetail_overlaps", len(found))
        findings = tuple(self._judged(overlap) for overlap in found)
        for finding in findings:
            if finding.overlap not in self._said:
                self._say(finding)
            if finding.yields is not None:
                self._meter.count("dovetail_overlap_releases_total")
                self._desk.release(finding.yields, finding.user_uid, why=f"given out twice: {finding.overlap}")
        self._said = set(found)
        return findings

    def _judged(self, overlap: Overlap) -> Finding:
        held = [claim for key in overlap.claims if (claim := self._desk.world.claims.get(key)) is not None]
        for claim in sorted(held, key=_age, reverse=True):
            user = self._idle_user(claim)
            if user is not None:
                return Finding(overlap, (claim.metadata.namespace, claim.metadata.name), user)
        return Finding(overlap, None, "")

    def _idle_user(self, claim: claims.ResourceClaim) -> str | None:
        """The one user of a claim, if it is a pod of ours that has no node."""
        users = claim.status.reserved_for
        if claim.status.allocation is None or len(users) != 1:
            return None
        pod = self._desk.world.pods.get(users[0].uid)
        if pod is None or pod.spec.node_name or not self._desk.is_ours(pod):
            return None
        return users[0].uid

    def _say(self, finding: Finding) -> None:
        names = _listed(finding.overlap.claims)
        LOG.error("given out twice", extra={"what": str(finding.overlap), "claims": names})
        for key in finding.overlap.claims:
            claim = self._desk.world.claims.get(key)
            if claim is not None:
                note = f"{finding.overlap} is given to more than it can serve: {names}"
                self._desk.teller.about_claim(key, claim.metadata.uid, reason="DeviceGivenTwice", note=note)


def _age(claim: claims.ResourceClaim) -> tuple[str, int]:
    """Younger allocations are greater."""
    version = claim.metadata.resource_version
    stamp = claim.status.allocation.allocation_timestamp if claim.status.allocation else None
    return stamp or "", int(version) if version.isdigit() else 0


def _listed(keys: Iterable[ObjectKey]) -> str:
    return ", ".join(f"{namespace}/{name}" for namespace, name in keys)
