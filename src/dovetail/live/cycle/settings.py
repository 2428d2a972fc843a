"""What an operator can set about the live scheduler, and the defaults. Data only."""

from __future__ import annotations

from typing import NamedTuple

from dovetail.live.intents import intent_parts
from dovetail.live.report import recorder
from dovetail.model import policy as policies


class Settings(NamedTuple):
    """What an operator can set about the live scheduler."""

    policy: policies.Policy = policies.DEFAULT
    budget: policies.Budget = policies.LIVE
    loop_bound_seconds: float = 0.05  # batches are sized to hold the event loop no longer
    batch_pods: int = 0  # 0: sized by how long the last batches took
    in_flight_pods: int = 64
    stir_seconds: float = 0.5  # parked pods are retried no more often
    net_seconds: float = 300.0  # parked pods are retried at least so often; 0: only after events
    conditions_timeout_seconds: float = 600.0
    volumes_timeout_seconds: float = 600.0  # as kube-scheduler's bindTimeoutSeconds
    quarantine_slack_seconds: float = 5.0
    quarantine_most_seconds: float = 300.0
    is_quarantining: bool = True
    creates_share_templates: bool = (
        False  # claim templates for shares that KAI's annotations request
    )
    audit_seconds: float = 2.0  # 0: no audit
    records_scheduled: bool = True
    scales_from_zero: bool = True  # an autoscaler may add kinds of nodes of which none exists now
    events_per_second: float = 50.0
    # Obstacles that usually pass are reported after so long.
    transient_seconds: float = recorder.TRANSIENT_SECONDS
    controller: str = "dovetail"
    instance: str = "dovetail"
    whole_pause_seconds: float = 0.1  # between two cycles about all waiting pods
    slot_seconds: float = 300.0  # how long the room of a moved pod is kept
    owner_seconds: float = 0.0  # how much later than a pod its owner's event may arrive
    intent_part_bytes: int = intent_parts.MAX_PART_BYTES  # of one object of a gang's intent
    drain_seconds: float = 0.0  # how long a stopping scheduler waits for answers to its writes

    @property
    def start_seconds(self) -> float:
        """How long the start of a gang may take before it succeeded or failed."""
        return self.conditions_timeout_seconds + self.volumes_timeout_seconds

    def is_ours(self, scheduler_name: str) -> bool:
        """Whether a pod that names this scheduler is ours to schedule."""
        names = self.policy.scheduler_names
        return not names or scheduler_name in names
