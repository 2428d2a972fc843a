"""Objects that own pods, with the fields gangs are derived from: how many pods of which role, and what is requested.

Lenient: fields that are not needed here are not modelled, and numbers may be absent. Never fills in a controller's
defaults.
"""

from __future__ import annotations

from typing import Any

import msgspec

from dovetail.kubetypes import meta
from dovetail.kubetypes.core import pods


class PodSpec(
    msgspec.Struct, frozen=True, gc=False, kw_only=True, rename="camel", omit_defaults=True
):
    """What of a template's pods matters to their gang."""

    active_deadline_seconds: int | None = None


class PodTemplate(
    msgspec.Struct, frozen=True, gc=False, kw_only=True, rename="camel", omit_defaults=True
):
    """The pods a controller will create."""

    metadata: meta.ObjectMeta = meta.ObjectMeta()
    spec: PodSpec = PodSpec()


# batch/v1


class PodCondition(
    msgspec.Struct, frozen=True, gc=False, kw_only=True, rename="camel", omit_defaults=True
):
    """A condition of pods that a rule is about."""

    type: str = ""


class FailureRule(
    msgspec.Struct, frozen=True, gc=False, kw_only=True, rename="camel", omit_defaults=True
):
    """What a Job does about a pod that failed."""

    action: str = ""
    on_pod_conditions: tuple[PodCondition, ...] = ()


class FailurePolicy(
    msgspec.Struct, frozen=True, gc=False, kw_only=True, rename="camel", omit_defaults=True
):
    """The rules in their order."""

    rules: tuple[FailureRule, ...] = ()


class JobSpec(
    msgspec.Struct, frozen=True, gc=False, kw_only=True, rename="camel", omit_defaults=True
):
    """How many pods at a time, and how many in all."""

    parallelism: int | None = None
    completions: int | None = None
    active_deadline_seconds: int | None = None
    pod_failure_policy: FailurePolicy | None = None
    template: PodTemplate = PodTemplate()


class JobCondition(
    msgspec.Struct, frozen=True, gc=False, kw_only=True, rename="camel", omit_defaults=True
):
    """One observed aspect of a Job."""

    type: str = ""
    status: str = ""


class JobStatus(
    msgspec.Struct, frozen=True, gc=False, kw_only=True, rename="camel", omit_defaults=True
):
    """How far a Job is."""

    succeeded: int = 0
    conditions: tuple[JobCondition, ...] = ()


class Job(msgspec.Struct, frozen=True, gc=False, kw_only=True, rename="camel", omit_defaults=True):
    """batch/v1 Job."""

    api_version: str = ""
    kind: str = ""
    metadata: meta.ObjectMeta = meta.ObjectMeta()
    spec: JobSpec = JobSpec()
    status: JobStatus = JobStatus()


# apps/v1


class StatefulSetSpec(
    msgspec.Struct, frozen=True, gc=False, kw_only=True, rename="camel", omit_defaults=True
):
    """How many pods, and whether they are made one after the other."""

    replicas: int | None = None
    pod_management_policy: str = ""
    template: PodTemplate = PodTemplate()


class StatefulSet(
    msgspec.Struct, frozen=True, gc=False, kw_only=True, rename="camel", omit_defaults=True
):
    """apps/v1 StatefulSet."""

    api_version: str = ""
    kind: str = ""
    metadata: meta.ObjectMeta = meta.ObjectMeta()
    spec: StatefulSetSpec = StatefulSetSpec()


# jobset.x-k8s.io


class JobTemplate(
    msgspec.Struct, frozen=True, gc=False, kw_only=True, rename="camel", omit_defaults=True
):
    """A Job a controller will create."""

    metadata: meta.ObjectMeta = meta.ObjectMeta()
    spec: JobSpec = JobSpec()


class DependsOn(
    msgspec.Struct, frozen=True, gc=False, kw_only=True, rename="camel", omit_defaults=True
):
    """A replicated job that has to be somewhere first."""

    name: str = ""
    status: str = ""


class ReplicatedJob(
    msgspec.Struct, frozen=True, gc=False, kw_only=True, rename="camel", omit_defaults=True
):
    """So many Jobs of one kind."""

    name: str = ""
    replicas: int | None = None
    template: JobTemplate = JobTemplate()
    depends_on: tuple[DependsOn, ...] = ()


class StartupPolicy(
    msgspec.Struct, frozen=True, gc=False, kw_only=True, rename="camel", omit_defaults=True
):
    """Whether replicated jobs are made one after the other."""

    startup_policy_order: str = ""


class JobSetSpec(
    msgspec.Struct, frozen=True, gc=False, kw_only=True, rename="camel", omit_defaults=True
):
    """The Jobs of a JobSet."""

    replicated_jobs: tuple[ReplicatedJob, ...] = ()
    startup_policy: StartupPolicy | None = None


class ReplicatedJobStatus(
    msgspec.Struct, frozen=True, gc=False, kw_only=True, rename="camel", omit_defaults=True
):
    """How many Jobs of a replicated job ended well."""

    name: str = ""
    succeeded: int = 0


class JobSetStatus(
    msgspec.Struct, frozen=True, gc=False, kw_only=True, rename="camel", omit_defaults=True
):
    """How far a JobSet is."""

    terminal_state: str = ""
    replicated_jobs_status: tuple[ReplicatedJobStatus, ...] = ()


class JobSet(
    msgspec.Struct, frozen=True, gc=False, kw_only=True, rename="camel", omit_defaults=True
):
    """jobset.x-k8s.io JobSet."""

    api_version: str = ""
    kind: str = ""
    metadata: meta.ObjectMeta = meta.ObjectMeta()
    spec: JobSetSpec = JobSetSpec()
    status: JobSetStatus = JobSetStatus()


# leaderworkerset.x-k8s.io


class LeaderWorkerTemplate(
    msgspec.Struct, frozen=True, gc=False, kw_only=True, rename="camel", omit_defaults=True
):
    """One replica: a leader and its workers."""

    size: int | None = None
    leader_template: PodTemplate | None = None
    worker_template: PodTemplate = PodTemplate()


class LeaderWorkerSetSpec(
    msgspec.Struct, frozen=True, gc=False, kw_only=True, rename="camel", omit_defaults=True
):
    """What a replica is and when its workers are made."""

    startup_policy: str = ""
    leader_worker_template: LeaderWorkerTemplate = LeaderWorkerTemplate()


class LeaderWorkerSet(
    msgspec.Struct, frozen=True, gc=False, kw_only=True, rename="camel", omit_defaults=True
):
    """leaderworkerset.x-k8s.io LeaderWorkerSet."""

    api_version: str = ""
    kind: str = ""
    metadata: meta.ObjectMeta = meta.ObjectMeta()
    spec: LeaderWorkerSetSpec = LeaderWorkerSetSpec()


# kubeflow.org


class ReplicaSpec(
    msgspec.Struct, frozen=True, gc=False, kw_only=True, rename="camel", omit_defaults=True
):
    """The pods of one role."""

    replicas: int | None = None
    restart_policy: str = ""
    template: PodTemplate = PodTemplate()


class RolePolicy(
    msgspec.Struct, frozen=True, gc=False, kw_only=True, rename="camel", omit_defaults=True
):
    """How many pods suffice to start."""

    min_available: int | None = None


class RunPolicy(
    msgspec.Struct, frozen=True, gc=False, kw_only=True, rename="camel", omit_defaults=True
):
    """How long a training may take, and how many pods suffice to start."""

    active_deadline_seconds: int | None = None
    scheduling_policy: RolePolicy | None = None


class ElasticPolicy(
    msgspec.Struct, frozen=True, gc=False, kw_only=True, rename="camel", omit_defaults=True
):
    """How many workers a PyTorchJob may have."""

    min_replicas: int | None = None
    max_replicas: int | None = None


class TrainingSpec(
    msgspec.Struct, frozen=True, gc=False, kw_only=True, rename="camel", omit_defaults=True
):
    """Roles under the name each kind has for them."""

    run_policy: RunPolicy = RunPolicy()
    elastic_policy: ElasticPolicy | None = None
    launcher_creation_policy: str = ""
    pytorch_replica_specs: dict[str, ReplicaSpec] = {}
    tf_replica_specs: dict[str, ReplicaSpec] = {}
    xgb_replica_specs: dict[str, ReplicaSpec] = {}
    jax_replica_specs: dict[str, ReplicaSpec] = {}
    paddle_replica_specs: dict[str, ReplicaSpec] = {}
    mpi_replica_specs: dict[str, ReplicaSpec] = {}

    @property
    def roles(self) -> dict[str, ReplicaSpec]:
        """Those of the kind it is."""
        return (
            self.pytorch_replica_specs
            or self.tf_replica_specs
            or self.xgb_replica_specs
            or self.jax_replica_specs
            or self.paddle_replica_specs
            or self.mpi_replica_specs
        )


class TrainingJob(
    msgspec.Struct, frozen=True, gc=False, kw_only=True, rename="camel", omit_defaults=True
):
    """PyTorchJob, TFJob, XGBoostJob, JAXJob, PaddleJob and MPIJob of kubeflow.org."""

    api_version: str = ""
    kind: str = ""
    metadata: meta.ObjectMeta = meta.ObjectMeta()
    spec: TrainingSpec = TrainingSpec()


# ray.io


class HeadGroup(
    msgspec.Struct, frozen=True, gc=False, kw_only=True, rename="camel", omit_defaults=True
):
    """The head's pod."""

    template: PodTemplate = PodTemplate()


class WorkerGroup(
    msgspec.Struct, frozen=True, gc=False, kw_only=True, rename="camel", omit_defaults=True
):
    """Workers of one kind."""

    group_name: str = ""
    replicas: int | None = None
    min_replicas: int | None = None
    max_replicas: int | None = None
    num_of_hosts: int | None = None
    suspend: bool | None = None
    template: PodTemplate = PodTemplate()


class RayClusterSpec(
    msgspec.Struct, frozen=True, gc=False, kw_only=True, rename="camel", omit_defaults=True
):
    """A head and groups of workers."""

    enable_in_tree_autoscaling: bool | None = None
    head_group_spec: HeadGroup = HeadGroup()
    worker_group_specs: tuple[WorkerGroup, ...] = ()


class RayCluster(
    msgspec.Struct, frozen=True, gc=False, kw_only=True, rename="camel", omit_defaults=True
):
    """ray.io RayCluster."""

    api_version: str = ""
    kind: str = ""
    metadata: meta.ObjectMeta = meta.ObjectMeta()
    spec: RayClusterSpec = RayClusterSpec()


# What only makes owners of pods: RayJob, RayService, TrainJob


class Parent(
    msgspec.Struct, frozen=True, gc=False, kw_only=True, rename="camel", omit_defaults=True
):
    """An object whose children own pods: what is asked of it is asked of them."""

    api_version: str = ""
    kind: str = ""
    metadata: meta.ObjectMeta = meta.ObjectMeta()


# scheduling.k8s.io


class Count(
    msgspec.Struct, frozen=True, gc=False, kw_only=True, rename="camel", omit_defaults=True
):
    """A number of pods that start together."""

    min_count: int | None = None


class TopologyConstraint(
    msgspec.Struct, frozen=True, gc=False, kw_only=True, rename="camel", omit_defaults=True
):
    """A label of nodes in which all pods have to agree."""

    key: str = ""


class Constraints(
    msgspec.Struct, frozen=True, gc=False, kw_only=True, rename="camel", omit_defaults=True
):
    """Where pods of a native group have to be."""

    topology: tuple[TopologyConstraint, ...] = ()


class SchedulingPolicy(
    msgspec.Struct, frozen=True, gc=False, kw_only=True, rename="camel", omit_defaults=True
):
    """How pods of a native group start: singly, or so many together."""

    basic: dict[str, Any] | None = None
    gang: Count | None = None


class PodGroupSpec(
    msgspec.Struct, frozen=True, gc=False, kw_only=True, rename="camel", omit_defaults=True
):
    """A native gang. The disruption mode is a word in v1alpha2 and an object with one key later."""

    scheduling_policy: SchedulingPolicy = SchedulingPolicy()
    scheduling_constraints: Constraints | None = None
    disruption_mode: Any = None  # a word, or an object with one key
    priority: int | None = None
    preemption_policy: str | None = None
    parent_composite_pod_group_name: str | None = None
    resource_claims: tuple[pods.PodResourceClaim, ...] = ()  # in the words of a pod


class PodGroup(
    msgspec.Struct, frozen=True, gc=False, kw_only=True, rename="camel", omit_defaults=True
):
    """scheduling.k8s.io PodGroup."""

    api_version: str = ""
    kind: str = ""
    metadata: meta.ObjectMeta = meta.ObjectMeta()
    spec: PodGroupSpec = PodGroupSpec()


class GroupCount(
    msgspec.Struct, frozen=True, gc=False, kw_only=True, rename="camel", omit_defaults=True
):
    """A number of groups that start together."""

    min_group_count: int | None = None


class CompositePolicy(
    msgspec.Struct, frozen=True, gc=False, kw_only=True, rename="camel", omit_defaults=True
):
    """How the groups of a composite start: each for itself, or so many together."""

    basic: dict[str, Any] | None = None
    gang: GroupCount | None = None


class CompositePodGroupSpec(
    msgspec.Struct, frozen=True, gc=False, kw_only=True, rename="camel", omit_defaults=True
):
    """A native group of groups, which name it as their parent."""

    parent_composite_pod_group_name: str | None = None
    scheduling_policy: CompositePolicy = CompositePolicy()
    scheduling_constraints: Constraints | None = None
    disruption_mode: dict[str, Any] | None = None  # an object with one key
    priority: int | None = None
    preemption_policy: str | None = None


class CompositePodGroup(
    msgspec.Struct, frozen=True, gc=False, kw_only=True, rename="camel", omit_defaults=True
):
    """scheduling.k8s.io CompositePodGroup."""

    api_version: str = ""
    kind: str = ""
    metadata: meta.ObjectMeta = meta.ObjectMeta()
    spec: CompositePodGroupSpec = CompositePodGroupSpec()


# scheduling.run.ai, KAI's groups


class KaiTopologyConstraint(
    msgspec.Struct, frozen=True, gc=False, kw_only=True, rename="camel", omit_defaults=True
):
    """Where the pods of a group or a subgroup should be together."""

    topology: str = ""
    required_topology_level: str = ""
    preferred_topology_level: str = ""


class KaiSubGroup(
    msgspec.Struct, frozen=True, gc=False, kw_only=True, rename="camel", omit_defaults=True
):
    """A part of a group: of pods, or of further subgroups that name it as their parent."""

    name: str = ""
    parent: str | None = None
    min_member: int | None = None
    min_sub_group: int | None = None
    topology_constraint: KaiTopologyConstraint | None = None


class KaiPodGroupSpec(
    msgspec.Struct, frozen=True, gc=False, kw_only=True, rename="camel", omit_defaults=True
):
    """A gang as KAI's pod grouper, or a user, describes it. Durations are text such as 5m0s."""

    min_member: int | None = None
    min_sub_group: int | None = None
    queue: str = ""
    priority_class_name: str = ""
    preemptibility: str = ""
    topology_constraint: KaiTopologyConstraint | None = None
    sub_groups: tuple[KaiSubGroup, ...] = ()
    preemption_delay: str | None = None
    staleness_grace_period: str | None = None


class KaiPodGroup(
    msgspec.Struct, frozen=True, gc=False, kw_only=True, rename="camel", omit_defaults=True
):
    """scheduling.run.ai PodGroup, which pods name in an annotation."""

    api_version: str = ""
    kind: str = ""
    metadata: meta.ObjectMeta = meta.ObjectMeta()
    spec: KaiPodGroupSpec = KaiPodGroupSpec()


Owner = (
    Job | StatefulSet | JobSet | LeaderWorkerSet | TrainingJob | RayCluster | PodGroup | KaiPodGroup
)
