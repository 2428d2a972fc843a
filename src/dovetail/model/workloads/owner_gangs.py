"""Derives gangs from the objects that own pods: how many pods of which role must start together, and what is requested.

Given an owner, and that owner's own owner where it is known; returns a gang under the key its pods name. An owner whose
pods start one by one yields a loose gang, which still carries its requests. docs/explanation/gangs.md gives the reasons
for each kind. Never reads a pod, never raises on odd numbers.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

import msgspec

from dovetail.kubetypes import meta
from dovetail.kubetypes.workloads import owners
from dovetail.model import gangs, workload_annotations
from dovetail.model.gangs import Gang, Group
from dovetail.model.workloads import kai_gangs
from dovetail.quantity import durations

NEVER_SECONDS: Final = durations.LONGEST_SECONDS
# Jobs of a JobSet that can be one gang: the number is user input, and each Job is a group.
MOST_JOBS: Final = 10_000
HEAD_GROUP: Final = "headgroup"  # KubeRay: the label of the head's pod
IN_ORDER: Final = "InOrder"
LEADER_READY: Final = "LeaderReady"
PARALLEL: Final = "Parallel"
WORKERS_FIRST: Final = "WaitForWorkersReady"
ENDED: Final = frozenset({"Complete", "Failed"})
DISRUPTED: Final = "DisruptionTarget"


def gang_of(owner: owners.Owner, above: meta.ObjectMeta | None = None) -> Gang | None:
    """The gang of an owner; None where it has ended. `above` is the metadata of the owner's owner."""
    match owner:
        case owners.Job():
            return _job(owner, above)
        case owners.StatefulSet():
            return _stateful_set(owner, above)
        case owners.JobSet():
            return _job_set(owner, above)
        case owners.LeaderWorkerSet():
            return _leader_worker_set(owner, above)
        case owners.TrainingJob():
            return _training(owner, above)
        case owners.RayCluster():
            return _ray(owner, above)
        case owners.PodGroup():
            return _pod_group(owner, above)
        case owners.KaiPodGroup():
            return kai_gangs.gang_of(owner)


def _job(job: owners.Job, above: meta.ObjectMeta | None) -> Gang | None:
    conditions = job.status.conditions
    if any(condition.type in ENDED and condition.status == "True" for condition in conditions):
        return None
    spec = job.spec
    options = _options(job.metadata, above, spec.template)
    at_once = _at_once(spec, succeeded=job.status.succeeded)
    gang = _single(job.metadata, gangs.JOB, options=options, present=at_once)
    return msgspec.structs.replace(
        gang,
        max_runtime=_shortest(
            gang.max_runtime,
            spec.active_deadline_seconds,
            spec.template.spec.active_deadline_seconds,
        ),
        counts_failures=_counts_failures(spec),
    )


def _stateful_set(owner: owners.StatefulSet, above: meta.ObjectMeta | None) -> Gang:
    spec = owner.spec
    options = _options(owner.metadata, above, spec.template)
    if _is_gang(options) and spec.pod_management_policy != PARALLEL:
        # Its next pod is created when the one before is ready: a minimum above one would never be reached.
        why = "a StatefulSet creates its pods one by one unless podManagementPolicy is Parallel"
        problems = (*options.problems, f"the gang is ignored: {why}")
        options = options._replace(min=None, topology=None, segments=None, problems=problems)
    present = _count(spec.replicas, 1)
    return _single(owner.metadata, gangs.STATEFUL_SET, options=options, present=present)


def _job_set(owner: owners.JobSet, above: meta.ObjectMeta | None) -> Gang | None:
    if owner.status.terminal_state:
        return None
    jobs = [job for job in owner.spec.replicated_jobs if _count(job.replicas, 1) > 0]
    templates = [job.template.spec.template for job in jobs]
    options, inner = _layers(owner.metadata, above, templates)
    problems = [*options.problems, *inner.problems]
    if options.min is not None:
        problems.append(
            f"{workload_annotations.MIN} is ignored: "
            "on a JobSet it belongs on the pod template of a replicated job"
        )

    job_count = sum(_count(job.replicas, 1) for job in jobs)
    is_loose = job_count > MOST_JOBS
    if is_loose:
        problems.append(
            f"the gang is ignored: a JobSet of more than {MOST_JOBS} Jobs starts pod by pod"
        )
        jobs = []

    succeeded = {status.name: status.succeeded for status in owner.status.replicated_jobs_status}
    groups: list[Group] = []
    for job in jobs:
        groups += _replicated(job, succeeded=succeeded.get(job.name, 0))

    startup = owner.spec.startup_policy
    in_order = startup is not None and startup.startup_policy_order == IN_ORDER
    # A job that is created after others must not be waited for: it starts together once it exists.
    independent_jobs = [job for job in jobs if not job.depends_on]
    first_jobs = 1 if in_order else len(independent_jobs)
    job_specs = [job.template.spec for job in jobs]
    deadlines = [spec.active_deadline_seconds for spec in job_specs]
    gang = Gang(
        metadata=_named(owner.metadata, gangs.JOBSET),
        groups=tuple(groups) or (gangs.LONE_GROUP,),
        min_groups=max(1, first_jobs),
        max_runtime=_shortest(*deadlines),
        counts_failures=any(_counts_failures(spec) for spec in job_specs),
        is_loose=is_loose,
    )
    return _finished(gang, options, inner=inner, problems=problems)


def _replicated(job: owners.ReplicatedJob, *, succeeded: int) -> list[Group]:
    """The groups of a replicated job: one for itself, and one for each of its Jobs."""
    template = job.template
    options = workload_annotations.read(
        workload_annotations.labels_and_annotations(template.metadata),
        workload_annotations.labels_and_annotations(template.spec.template.metadata),
    )
    replicas = _count(job.replicas, 1)
    pods_per_job = _at_once(template.spec, succeeded=0)
    fewest, most = _bounds(options, pods_per_job)
    segments = options.segments
    if segments is not None and segments.segment in (None, pods_per_job):
        # A segment as large as a Job: each Job goes into one domain.
        segments = msgspec.structs.replace(segments, segment=None)

    remaining = max(0, replicas - max(0, succeeded))
    whole = Group(name=job.name, holds_groups=True, min=remaining, topology=options.topology)
    each_job = [
        Group(name=f"{job.name}/{index}", parent=job.name, min=fewest, max=most, topology=segments)
        for index in range(replicas)
    ]
    return [whole, *each_job]


def _leader_worker_set(owner: owners.LeaderWorkerSet, above: meta.ObjectMeta | None) -> Gang:
    """The gang of each replica: they are all alike, and one gang each."""
    template = owner.spec.leader_worker_template
    templates = (template.leader_template, template.worker_template)
    options = _options(owner.metadata, above, *(pod for pod in templates if pod is not None))
    problems = [*options.problems]
    if options.min is not None:
        problems.append(
            f"{workload_annotations.MIN} is ignored: spec.leaderWorkerTemplate.size sets it"
        )
    leader, *workers = gangs.leader_and_workers(max(1, _count(template.size, 1)))
    if options.segments is not None:
        workers = [msgspec.structs.replace(group, topology=options.segments) for group in workers]

    # With LeaderReady workers are created after the leader is ready: it must start without them, then they together.
    is_staged = owner.spec.startup_policy == LEADER_READY
    groups = (leader, *workers)
    gang = Gang(
        metadata=meta.ObjectMeta(
            namespace=owner.metadata.namespace, name=f"{gangs.LWS}/{owner.metadata.name}"
        ),
        groups=groups,
        min_groups=1 if is_staged else len(groups),
    )
    return _finished(gang, options, problems=problems)


def _training(owner: owners.TrainingJob, above: meta.ObjectMeta | None) -> Gang:
    spec = owner.spec
    roles = {name.lower(): role for name, role in sorted(spec.roles.items())}
    options, inner = _layers(owner.metadata, above, [role.template for role in roles.values()])
    policy = spec.run_policy.scheduling_policy
    minimum = policy.min_available if policy is not None else None
    elastic = spec.elastic_policy
    if options.min is not None:  # an annotation overrides both policies
        minimum = None if options.min == workload_annotations.ALL else options.min
        elastic = None
    groups = _roles(roles, minimum=minimum, elastic=elastic, segments=options.segments)
    is_staged = spec.launcher_creation_policy == WORKERS_FIRST
    gang = Gang(
        metadata=_named(owner.metadata, gangs.KUBEFLOW.get(owner.kind, owner.kind.lower())),
        groups=groups or (gangs.LONE_GROUP,),
        min_groups=1 if is_staged else max(1, len(groups)),
        max_runtime=_shortest(spec.run_policy.active_deadline_seconds),
        counts_failures=any(role.restart_policy == "Never" for role in roles.values()),
    )
    return _finished(gang, options, inner=inner, problems=[*options.problems, *inner.problems])


def _roles(
    roles: dict[str, owners.ReplicaSpec],
    *,
    minimum: int | None,
    elastic: owners.ElasticPolicy | None,
    segments: workload_annotations.TopologyRequest | None,
) -> tuple[Group, ...]:
    """A group per role. A minimum below all pods means fewer workers: no job trains without master or launcher."""
    counts = {name: _count(role.replicas, 1) for name, role in roles.items()}
    without_workers = sum(counts.values()) - counts.get(gangs.WORKER, 0)
    groups = []
    for name, role in roles.items():
        options = workload_annotations.read(
            workload_annotations.labels_and_annotations(role.template.metadata)
        )
        fewest, most = _bounds(options, counts[name])
        role_segments = options.segments
        if name == gangs.WORKER:
            role_segments = role_segments or segments
            if minimum is not None:
                fewest = min(fewest, max(0, minimum - without_workers))
            elif elastic is not None and elastic.min_replicas is not None:
                fewest = min(fewest, max(0, elastic.min_replicas))
                most = _consistent_max(fewest, elastic.max_replicas)
        topology = role_segments or options.topology
        groups.append(Group(name=name, min=fewest, max=most, topology=topology))
    return tuple(groups)


def _ray(owner: owners.RayCluster, above: meta.ObjectMeta | None) -> Gang:
    spec = owner.spec
    head, workers = spec.head_group_spec.template, spec.worker_group_specs
    options, inner = _layers(
        owner.metadata, above, [head, *(worker.template for worker in workers)]
    )
    problems = [*options.problems, *inner.problems]
    if options.min is not None:
        problems.append(
            f"{workload_annotations.MIN} is ignored: the minReplicas of a worker group set it"
        )

    of_head = workload_annotations.read(workload_annotations.labels_and_annotations(head.metadata))
    groups = [Group(name=HEAD_GROUP, topology=of_head.topology)]
    for worker in workers:
        of_worker = workload_annotations.read(
            workload_annotations.labels_and_annotations(worker.template.metadata)
        )
        fewest, most = _workers(worker, is_scaling=bool(spec.enable_in_tree_autoscaling))
        topology = of_worker.segments or of_worker.topology
        groups.append(Group(name=worker.group_name, min=fewest, max=most, topology=topology))
    gang = Gang(
        metadata=_named(owner.metadata, gangs.RAY), groups=tuple(groups), min_groups=len(groups)
    )
    return _finished(gang, options, inner=inner, problems=problems)


def _workers(worker: owners.WorkerGroup, *, is_scaling: bool) -> tuple[int, int | None]:
    """The fewest pods a worker group needs, and the most. An autoscaler creates more when they are needed."""
    if worker.suspend:
        return 0, None
    hosts = max(1, _count(worker.num_of_hosts, 1))
    fewest = _count(worker.min_replicas, 0)
    if not is_scaling and not fewest:
        fewest = _count(worker.replicas, 0)
    most = _consistent_max(fewest, worker.max_replicas) if is_scaling else None
    return fewest * hosts, most * hosts if most is not None else None


def _pod_group(owner: owners.PodGroup, above: meta.ObjectMeta | None) -> Gang:
    spec = owner.spec
    options = _options(owner.metadata, above)
    problems = [*options.problems]
    if options.min is not None:
        problems.append(
            f"{workload_annotations.MIN} is ignored: spec.schedulingPolicy.gang.minCount sets it"
        )
    gang_policy = spec.scheduling_policy.gang
    fewest = 1 if gang_policy is None else max(1, _count(gang_policy.min_count, 1))
    group = Group(
        name=gangs.DEFAULT_GROUP,
        min=fewest,
        max=_consistent_max(fewest, options.max),
        topology=options.segments,
    )
    gang = Gang(
        metadata=_named(owner.metadata, gangs.POD_GROUP),
        priority=spec.priority,
        groups=(group,),
        topology=native_topology(spec.scheduling_constraints),
        may_evict_after=NEVER_SECONDS if spec.preemption_policy == "Never" else 0,
        evicts_whole=is_whole(spec.disruption_mode),
        is_loose=gang_policy is None,
        uid=owner.metadata.uid,
        claims=spec.resource_claims,
    )
    return _finished(gang, options, problems=problems)


def native_topology(
    constraints: owners.Constraints | None,
) -> workload_annotations.TopologyRequest | None:
    """The node label whose value all nodes of a native group must share; the API allows one."""
    if constraints is None:
        return None
    keys = [constraint.key for constraint in constraints.topology if constraint.key]
    return workload_annotations.TopologyRequest(topology="", required=keys[0]) if keys else None


def is_whole(mode: Any) -> bool:
    """Whether a native group is disrupted as a whole: `PodGroup` in v1alpha2, a key `all` in later versions."""
    return mode == "PodGroup" or (isinstance(mode, dict) and mode.get("all") is not None)


# What the kinds have in common


def _single(
    metadata: meta.ObjectMeta,
    source: str,
    *,
    options: workload_annotations.WorkloadOptions,
    present: int,
) -> Gang:
    """An owner with one kind of pods, `present` of them at a time: loose unless the workload requests a gang."""
    fewest, most = _bounds(options, present)
    problems = options.problems
    if options.min is not None and options.min > present > 0:
        too_many = f"{workload_annotations.MIN}: {options.min} is more than the {present} pods of the workload"
        problems = (*problems, f"{too_many}; taken as {present}")
    group = Group(name=gangs.DEFAULT_GROUP, min=fewest, max=most, topology=options.segments)
    gang = Gang(metadata=_named(metadata, source), groups=(group,), is_loose=not _is_gang(options))
    return gangs.with_options(gang, options._replace(problems=problems))


def _is_gang(options: workload_annotations.WorkloadOptions) -> bool:
    """Pods that should be near each other start together, too: the place must have room for all of them."""
    return options.min is not None or options.topology is not None or options.segments is not None


def _bounds(options: workload_annotations.WorkloadOptions, present: int) -> tuple[int, int | None]:
    """The fewest pods that are of use, and the most."""
    fewest = present
    if options.min is not None and options.min != workload_annotations.ALL:
        fewest = min(options.min, max(1, present))
    return max(0, fewest), _consistent_max(fewest, options.max)


def _options(
    metadata: meta.ObjectMeta, above: meta.ObjectMeta | None, *templates: owners.PodTemplate
) -> workload_annotations.WorkloadOptions:
    """What the owner's owner, the owner and its templates request, outermost first."""
    objects = [metadata, *(template.metadata for template in templates)]
    if above is not None:
        objects.insert(0, above)
    return workload_annotations.read(*map(workload_annotations.labels_and_annotations, objects))


def _layers(
    metadata: meta.ObjectMeta,
    above: meta.ObjectMeta | None,
    templates: Iterable[owners.PodTemplate],
) -> tuple[workload_annotations.WorkloadOptions, workload_annotations.WorkloadOptions]:
    """What the owner requests, and what its templates request for the whole gang.

    Sizes and topologies of a template are left out of the latter: they apply to the template's group.
    """
    places = [
        workload_annotations.labels_and_annotations(template.metadata) for template in templates
    ]
    inner = workload_annotations.read(*places)
    of_whole = inner._replace(min=None, max=None, topology=None, segments=None)
    return _options(metadata, above), of_whole


def _finished(
    gang: Gang,
    options: workload_annotations.WorkloadOptions,
    *,
    inner: workload_annotations.WorkloadOptions = workload_annotations.NO_OPTIONS,
    problems: Iterable[str],
) -> Gang:
    """The gang with its requests applied; the owner's override those of its templates."""
    gang = gangs.with_options(gangs.with_options(gang, inner), options)
    return msgspec.structs.replace(gang, problems=tuple(dict.fromkeys(problems)))


def _named(metadata: meta.ObjectMeta, source: str) -> meta.ObjectMeta:
    return meta.ObjectMeta(
        namespace=metadata.namespace,
        name=f"{source}/{metadata.name}",
        creation_timestamp=metadata.creation_timestamp,
    )


def _at_once(spec: owners.JobSpec, *, succeeded: int) -> int:
    """How many pods a Job has at a time: parallelism, but never more than remain to complete."""
    parallelism = _count(spec.parallelism, 1)
    if spec.completions is None:
        return parallelism
    return min(parallelism, max(1, spec.completions - max(0, succeeded)))


def _counts_failures(spec: owners.JobSpec) -> bool:
    """Whether an evicted pod counts against backoffLimit: unless the first rule about disruptions ignores it."""
    if spec.pod_failure_policy is None:
        return True
    for rule in spec.pod_failure_policy.rules:
        if any(condition.type == DISRUPTED for condition in rule.on_pod_conditions):
            return rule.action != "Ignore"
    return True


def _consistent_max(fewest: int, most: int | None) -> int | None:
    """The most pods, unless that contradicts the fewest."""
    return most if most is not None and most >= fewest else None


def _count(number: int | None, otherwise: int) -> int:
    return otherwise if number is None else max(0, number)


def _shortest(*seconds: int | None) -> int | None:
    """The shortest of these durations, capped at a hundred years."""
    limits = [number for number in seconds if number is not None]
    return durations.at_most(min(limits)) if limits else None
