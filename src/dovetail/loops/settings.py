"""What an operator can set about the live scheduler, with what holds where nothing is set. Data only."""

from __future__ import annotations

from typing import NamedTuple

from dovetail.loops import parts
from dovetail.model import policy as policies


class Settings(NamedTuple):
    """What an operator can set about the loop."""

    policy: policies.Policy = policies.DEFAULT
    budget: policies.Budget = policies.LIVE
    loop_bound_seconds: float = 0.05  # a batch is sized to hold the event loop no longer
    batch_pods: int = 0  # 0: sized by what the last ones took
    in_flight_pods: int = 64
    stir_seconds: float = 0.5  # parked pods are asked about again no more often
    net_seconds: float = 300.0  # parked pods are asked about after so long in any case; 0: only after news
    conditions_timeout_seconds: float = 600.0
    volumes_timeout_seconds: float = 600.0  # as kube-scheduler's bindTimeoutSeconds
    quarantine_slack_seconds: float = 5.0
    quarantine_most_seconds: float = 300.0
    is_quarantining: bool = True
    audit_seconds: float = 2.0  # 0: no audit
    tells_scheduled: bool = True
    scales_from_zero: bool = True  # there may be kinds of nodes of which none is there now
    events_per_second: float = 50.0
    controller: str = "dovetail"
    instance: str = "dovetail"
    whole_pause_seconds: float = 0.1  # between two turns about everybody who waits
    slot_seconds: float = 300.0  # for how long the place of a pod that was moved is kept
    owner_seconds: float = 0.0  # how long news of a pod's owner may lag behind those of the pod
    intent_part_bytes: int = parts.MOST_BYTES  # of what is put down about a gang in one object
    drain_seconds: float = 0.0  # how long writes under way may take to be answered when told to stop

    @property
    def start_seconds(self) -> float:
        """How long a gang's start may take before it is over one way or the other."""
        return self.conditions_timeout_seconds + self.volumes_timeout_seconds
