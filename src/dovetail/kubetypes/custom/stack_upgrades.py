"""StackUpgrade of dovetail.dev/v1alpha1: an upgrade of the GPU stack over the nodes of a cluster, in waves.

The spec is written by people, the status by the lifecycle process alone: what it needs to go on after a crash stands
there and on the nodes. Given wire data, holds it frozen. Never decides what comes next.
"""

from __future__ import annotations

import enum

import msgspec

from dovetail.kubetypes import meta

FINALIZER = "dovetail.dev/stack-upgrade"
MIG_CONFIG = "migConfig"  # the part of a node's versions that names its configuration
WHOLE = "whole"  # GPUs without partitions, among profiles


class Phase(enum.StrEnum):
    """How far an upgrade is."""

    PENDING = "Pending"  # not begun: checked, or waiting for another upgrade
    PROGRESSING = "Progressing"
    PAUSED = "Paused"  # no node begins and no work is evicted; nodes being installed finish
    ROLLING_BACK = "RollingBack"
    ABORTING = "Aborting"
    COMPLETED = "Completed"
    STOPPED = "Stopped"  # by a stop rule; the reason says which
    ABORTED = "Aborted"
    REFUSED = "Refused"  # the spec cannot be carried out; nothing was touched


class NodePhase(enum.StrEnum):
    """How far one node is."""

    WAITING = "Waiting"
    FENCING = "Fencing"
    DRAINING = "Draining"
    APPLYING = "Applying"
    VALIDATING = "Validating"
    UNFENCING = "Unfencing"
    DONE = "Done"
    ROLLED_BACK = "RolledBack"
    FAILED = "Failed"  # stays fenced, unless it was given back
    SKIPPED = "Skipped"  # nothing was applied


class WaveState(enum.StrEnum):
    """How far a wave is."""

    WAITING = "Waiting"
    RUNNING = "Running"
    WATCHING = "Watching"  # the canary is done and is observed for a while
    DONE = "Done"
    STOPPED = "Stopped"  # by failed nodes; the rest of it was skipped


class DrainMode(enum.StrEnum):
    """What happens to pods that have to leave."""

    EVICT = "Evict"
    WAIT = "AllowCompletion"  # until they end by themselves
    EVICT_LATER = "EvictAfterTimeout"  # the same, and evicted after the timeout


class Rollback(enum.StrEnum):
    """Which nodes get their earlier versions back when something fails."""

    NEVER = "Never"
    FAILED = "FailedNodes"
    ALL = "AllNodes"  # also those that were done, once a stop rule has stopped the upgrade


class PlannedWave(
    msgspec.Struct, frozen=True, gc=False, kw_only=True, rename="camel", omit_defaults=True
):
    """Nodes that a plan put into one wave."""

    nodes: tuple[str, ...] = ()


class WavePolicy(
    msgspec.Struct, frozen=True, gc=False, kw_only=True, rename="camel", omit_defaults=True
):
    """Which nodes go together, how many at once, and when."""

    canary: meta.Int32 = 1  # nodes of the first wave; 0: no canary
    watch_canary_seconds: meta.Int64 = 0
    parallel: meta.Int32 = 0  # nodes of a wave; 0: as many as may be unavailable
    max_unavailable: str = "10%"
    together: str = "node"  # node, rack, nvlink, pool
    windows: tuple[str, ...] = ()  # in UTC: Sat,Sun 22:00-06:00
    node_seconds: meta.Int64 = 3000  # that a node takes, so that a wave fits into its window
    planned: tuple[PlannedWave, ...] = ()  # empty: by name


class DrainPolicy(
    msgspec.Struct, frozen=True, gc=False, kw_only=True, rename="camel", omit_defaults=True
):
    """How work leaves a node: gang by gang."""

    mode: DrainMode = DrainMode.EVICT
    timeout_seconds: meta.Int64 = 3600  # for all pods of a node; then the node fails
    checkpoint_signal: bool = True  # asks a gang for a checkpoint before it is evicted
    checkpoint_grace_seconds: meta.Int64 = 300  # and waits for it no longer
    grace_seconds: meta.Int64 | None = None  # None: each pod's own
    force: bool = False  # also pods without a controller, which do not come back
    delete_empty_dir_data: bool = True


class StopRules(
    msgspec.Struct, frozen=True, gc=False, kw_only=True, rename="camel", omit_defaults=True
):
    """When an upgrade stops by itself."""

    wave_failures: meta.Int32 = 1  # failed nodes that stop their wave
    failures: meta.Int32 = 2  # failed nodes that stop the upgrade; one of the canary always does
    xids: tuple[meta.Int32, ...] = (48, 62, 64, 74, 79, 95, 119, 120, 140)
    apply_seconds: meta.Int64 = 3600  # a node that is not applied by then has failed
    validate_seconds: meta.Int64 = 900  # a node that is not valid by then has failed
    total_seconds: meta.Int64 = 0  # 0: no limit


class NodeGeometry(
    msgspec.Struct, frozen=True, gc=False, kw_only=True, rename="camel", omit_defaults=True
):
    """The partitions that the MIG manager makes on one node."""

    node: str = ""
    config: str = ""  # name of a configuration in the file of the MIG manager
    partitions: dict[str, meta.Int32] = {}  # of all GPUs of the node, by profile; `whole` for GPUs


class Acceptance(
    msgspec.Struct, frozen=True, gc=False, kw_only=True, rename="camel", omit_defaults=True
):
    """The pods that waited for GPUs when the geometry was planned."""

    before: meta.Int32 = 0  # of them would have started as things were
    after: meta.Int32 = 0  # start with the geometry, by the plan
    pods: tuple[str, ...] = ()  # namespace/name


class MigTarget(
    msgspec.Struct, frozen=True, gc=False, kw_only=True, rename="camel", omit_defaults=True
):
    """A MIG geometry for each node, and what it is for."""

    nodes: tuple[NodeGeometry, ...] = ()
    acceptance: Acceptance = Acceptance()


class StackUpgradeSpec(
    msgspec.Struct, frozen=True, gc=False, kw_only=True, rename="camel", omit_defaults=True
):
    """What is rolled out, where, and by which rules: versions of parts, or partitions of GPUs."""

    to: dict[str, str] = {}  # versions by part: driver, operator, toolkit, ...
    mig: MigTarget | None = None
    adapter: str = ""  # who installs; empty: the one that fits the cluster
    node_selector: meta.LabelSelector | None = None  # None: all nodes with GPUs
    waves: WavePolicy = WavePolicy()
    drain: DrainPolicy = DrainPolicy()
    stop: StopRules = StopRules()
    rollback: Rollback = Rollback.NEVER
    paused: bool = False
    aborted: bool = False

    def versions_of(self, node: str) -> dict[str, str]:
        """What one node is to have."""
        geometries = self.mig.nodes if self.mig is not None else ()
        wanted = next((each.config for each in geometries if each.node == node), "")
        return {MIG_CONFIG: wanted} if wanted else self.to


class NodeStatus(
    msgspec.Struct, frozen=True, gc=False, kw_only=True, rename="camel", omit_defaults=True
):
    """One node of the upgrade."""

    name: str = ""
    wave: meta.Int32 = 0
    phase: NodePhase = NodePhase.WAITING
    since: meta.Time = ""  # of the phase
    # Phase=seconds of those that are over, the last of which ended at `since`. Texts, because thousands of nodes share
    # one object.
    passed: tuple[str, ...] = ()
    reason: str = ""  # for people: what it waits for, or why it failed
    started_at: meta.Time = ""  # of its fence
    finished_at: meta.Time = ""
    is_going_back: bool = False  # to `previous`
    failure: str = ""  # why it goes back; a node that goes back because others failed has none
    is_given_back: bool = False  # nothing was applied, so its fence goes without a validation
    previous: dict[str, str] = {}  # versions before the upgrade, as far as they are known
    by_hand: tuple[str, ...] = ()  # steps that a person has to carry out


class WaveStatus(
    msgspec.Struct, frozen=True, gc=False, kw_only=True, rename="camel", omit_defaults=True
):
    """One wave. Its nodes name it."""

    number: meta.Int32 = 0
    is_canary: bool = False
    state: WaveState = WaveState.WAITING
    reason: str = ""
    started_at: meta.Time = ""
    finished_at: meta.Time = ""


class DrainStatus(
    msgspec.Struct, frozen=True, gc=False, kw_only=True, rename="camel", omit_defaults=True
):
    """The one gang that is leaving. No other is touched before it has left."""

    gang: str = ""  # namespace/name
    pods: tuple[str, ...] = ()  # uids of all its pods that go, also on other nodes
    since: meta.Time = ""  # when it was chosen and asked for a checkpoint
    is_evicting: bool = False  # from then on its pods are evicted


class StackUpgradeStatus(
    msgspec.Struct, frozen=True, gc=False, kw_only=True, rename="camel", omit_defaults=True
):
    """What the lifecycle process says, and what it goes on from."""

    observed_generation: meta.Int64 = 0
    phase: Phase = Phase.PENDING
    reason: str = ""
    adapter: str = ""
    is_reversible: bool | None = None  # decided before the first node begins
    reversibility: str = ""  # why
    started_at: meta.Time = ""
    finished_at: meta.Time = ""
    updated_at: meta.Time = ""  # no later time counts as earlier, whatever clocks do
    progress: str = ""  # done/all, for tables
    nodes: tuple[NodeStatus, ...] = ()
    waves: tuple[WaveStatus, ...] = ()
    drain: DrainStatus | None = None
    conditions: tuple[meta.Condition, ...] = ()


class StackUpgrade(
    msgspec.Struct, frozen=True, gc=False, kw_only=True, rename="camel", omit_defaults=True
):
    """An upgrade, cluster-scoped."""

    api_version: str = ""
    kind: str = ""
    metadata: meta.ObjectMeta = meta.ObjectMeta()
    spec: StackUpgradeSpec = StackUpgradeSpec()
    status: StackUpgradeStatus = StackUpgradeStatus()
