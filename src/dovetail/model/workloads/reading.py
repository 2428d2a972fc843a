"""Makes gangs of the objects that own pods: how many pods of which role have to start together, and what was asked for.

Given an owner, and the owner of that one where it is known; answers a gang under the key its pods name. An owner whose
pods start singly gives a loose gang, which still carries what was asked for. Why each kind is read as it is stands in
docs/explanation/gangs.md. Never reads a pod, never raises on odd numbers.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

import msgspec

from dovetail.model import durations, gangs, meta, wishes
from dovetail.model.gangs import Gang, Group
from dovetail.model.workloads import owners

NEVER_SECONDS: Final = durations.LONGEST_SECONDS
MOST_JOBS: Final = 10_000  # of a JobSet: anybody can write a larger number, and each Job is a group
HEAD_GROUP: Final = "headgroup"  # KubeRay: the label of the head's pod
IN_ORDER: Final = "InOrder"
LEADER_READY: Final = "LeaderReady"
PARALLEL: Final = "Parallel"
WORKERS_FIRST: Final = "WaitForWorkersReady"
ENDED: Final = frozenset({"Complete", "Failed"})
DISRUPTED: Final = "DisruptionTarget"


def gang_of(owner: owners.Owner, above: meta.ObjectMeta | None = None) -> Gang | None:
    """The gang of an owner; None where it has ended. `above` is what made the owner."""
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


def _job(job: owners.Job, above: meta.ObjectMeta | None) -> Gang | None:
    if any(one.type in ENDED and one.status == "True" for one in job.status.conditions):
        return None
    spec = job.spec
    asked = _asked(job.metadata, above, spec.template)
    at_once = _at_once(spec, succeeded=job.status.succeeded)
    gang = _single(job.metadata, gangs.JOB, asked=asked, present=at_once)
    return msgspec.structs.replace(
        gang,
        max_runtime=_least(gang.max_runtime, spec.active_deadline_seconds, spec.template.spec.active_deadline_seconds),
        counts_failures=_counts_failures(spec),
    )


def _stateful_set(owner: owners.StatefulSet, above: meta.ObjectMeta | None) -> Gang:
    spec = owner.spec
    asked = _asked(owner.metadata, above, spec.template)
    if _is_gang(asked) and spec.pod_management_policy != PARALLEL:
        # Its next pod is made when the one before is ready: a minimum above one would never be reached.
        why = "a StatefulSet makes its pods one by one unless podManagementPolicy is Parallel"
        problems = (*asked.problems, f"starting together is left out: {why}")
        asked = asked._replace(min=None, topology=None, segments=None, problems=problems)
    return _single(owner.metadata, gangs.STATEFUL_SET, asked=asked, present=_count(spec.replicas, 1))


def _job_set(owner: owners.JobSet, above: meta.ObjectMeta | None) -> Gang | None:
    if owner.status.terminal_state:
        return None
    jobs = [one for one in owner.spec.replicated_jobs if _count(one.replicas, 1) > 0]
    asked, inner = _layers(owner.metadata, above, [job.template.spec.template for job in jobs])
    problems = [*asked.problems, *inner.problems]
    if asked.min is not None:
        problems.append(f"{wishes.MIN} is left out: on a JobSet it belongs on the pod template of a replicated job")
    is_loose = sum(_count(job.replicas, 1) for job in jobs) > MOST_JOBS
    if is_loose:
        problems.append(f"starting together is left out: a JobSet of more than {MOST_JOBS} Jobs starts pod by pod")
        jobs = []
    ended = {one.name: one.succeeded for one in owner.status.replicated_jobs_status}
    groups = [group for job in jobs for group in _replicated(job, ended=ended.get(job.name, 0))]
    startup = owner.spec.startup_policy
    in_order = startup is not None and startup.startup_policy_order == IN_ORDER
    gang = Gang(
        metadata=_named(owner.metadata, gangs.JOBSET),
        groups=tuple(groups) or (gangs.LONE,),
        # Those that are made after others must not be waited for: each starts together once it is there.
        min_groups=1 if in_order else max(1, sum(not job.depends_on for job in jobs)),
        max_runtime=_least(*(job.template.spec.active_deadline_seconds for job in jobs)),
        counts_failures=any(_counts_failures(job.template.spec) for job in jobs),
        is_loose=is_loose,
    )
    return _finished(gang, asked, inner=inner, problems=problems)


def _replicated(job: owners.ReplicatedJob, *, ended: int) -> list[Group]:
    """The groups of a replicated job: itself, and one per Job of it."""
    asked = wishes.read(wishes.place_of(job.template.metadata), wishes.place_of(job.template.spec.template.metadata))
    replicas, each = _count(job.replicas, 1), _at_once(job.template.spec, succeeded=0)
    smallest, most = _bounds(asked, each)
    lots = asked.segments
    if lots is not None and lots.segment in (None, each):  # each Job in a domain of its own
        lots = msgspec.structs.replace(lots, segment=None)
    needed = max(0, replicas - max(0, ended))
    below = [
        Group(name=f"{job.name}/{index}", parent=job.name, min=smallest, max=most, topology=lots)
        for index in range(replicas)
    ]
    return [Group(name=job.name, holds_groups=True, min=needed, topology=asked.topology), *below]


def _leader_worker_set(owner: owners.LeaderWorkerSet, above: meta.ObjectMeta | None) -> Gang:
    """What each replica is: they are all alike, and one gang each."""
    template = owner.spec.leader_worker_template
    made = [one for one in (template.leader_template, template.worker_template) if one is not None]
    asked = _asked(owner.metadata, above, *made)
    problems = [*asked.problems]
    if asked.min is not None:
        problems.append(f"{wishes.MIN} is left out: spec.leaderWorkerTemplate.size says it")
    groups = gangs.leader_and_workers(max(1, _count(template.size, 1)))
    if asked.segments is not None:
        groups = (groups[0], *(msgspec.structs.replace(one, topology=asked.segments) for one in groups[1:]))
    # Workers are made after the leader is ready: it has to start without them, and then they together.
    is_staged = owner.spec.startup_policy == LEADER_READY
    gang = Gang(
        metadata=meta.ObjectMeta(namespace=owner.metadata.namespace, name=f"{gangs.LWS}/{owner.metadata.name}"),
        groups=groups,
        min_groups=1 if is_staged else len(groups),
    )
    return _finished(gang, asked, problems=problems)


def _training(owner: owners.TrainingJob, above: meta.ObjectMeta | None) -> Gang:
    spec = owner.spec
    roles = {name.lower(): role for name, role in sorted(spec.roles.items())}
    asked, inner = _layers(owner.metadata, above, [role.template for role in roles.values()])
    policy = spec.run_policy.scheduling_policy
    minimum = policy.min_available if policy is not None else None
    if asked.min is not None:
        minimum = None if asked.min == wishes.ALL else asked.min
    elastic = spec.elastic_policy if asked.min is None else None
    groups = _roles(roles, minimum=minimum, elastic=elastic, segments=asked.segments)
    is_staged = spec.launcher_creation_policy == WORKERS_FIRST
    gang = Gang(
        metadata=_named(owner.metadata, gangs.KUBEFLOW.get(owner.kind, owner.kind.lower())),
        groups=groups or (gangs.LONE,),
        min_groups=1 if is_staged else max(1, len(groups)),
        max_runtime=_least(spec.run_policy.active_deadline_seconds),
        counts_failures=any(role.restart_policy == "Never" for role in roles.values()),
    )
    return _finished(gang, asked, inner=inner, problems=[*asked.problems, *inner.problems])


def _roles(
    roles: dict[str, owners.ReplicaSpec],
    *,
    minimum: int | None,
    elastic: owners.ElasticPolicy | None,
    segments: wishes.TopologyWish | None,
) -> tuple[Group, ...]:
    """A group per role. Fewer pods than all means fewer workers: nothing trains without its master or launcher."""
    counts = {name: _count(role.replicas, 1) for name, role in roles.items()}
    others = sum(count for name, count in counts.items() if name != gangs.WORKER)
    made = []
    for name, role in roles.items():
        wish = wishes.read(wishes.place_of(role.template.metadata))
        smallest, most = _bounds(wish, counts[name])
        if name == gangs.WORKER and minimum is not None:
            smallest = min(smallest, max(0, minimum - others))
        elif name == gangs.WORKER and elastic is not None and elastic.min_replicas is not None:
            smallest = min(smallest, max(0, elastic.min_replicas))
            most = _sane(smallest, elastic.max_replicas)
        lots = wish.segments or (segments if name == gangs.WORKER else None)
        made.append(Group(name=name, min=smallest, max=most, topology=lots or wish.topology))
    return tuple(made)


def _ray(owner: owners.RayCluster, above: meta.ObjectMeta | None) -> Gang:
    spec = owner.spec
    head, workers = spec.head_group_spec.template, spec.worker_group_specs
    asked, inner = _layers(owner.metadata, above, [head, *(worker.template for worker in workers)])
    problems = [*asked.problems, *inner.problems]
    if asked.min is not None:
        problems.append(f"{wishes.MIN} is left out: the minReplicas of a worker group say how many it needs")
    groups = [Group(name=HEAD_GROUP, topology=wishes.read(wishes.place_of(head.metadata)).topology)]
    for worker in workers:
        wish = wishes.read(wishes.place_of(worker.template.metadata))
        smallest, most = _workers(worker, is_scaling=bool(spec.enable_in_tree_autoscaling))
        topology = wish.segments or wish.topology
        groups.append(Group(name=worker.group_name, min=smallest, max=most, topology=topology))
    gang = Gang(metadata=_named(owner.metadata, gangs.RAY), groups=tuple(groups), min_groups=len(groups))
    return _finished(gang, asked, inner=inner, problems=problems)


def _workers(worker: owners.WorkerGroup, *, is_scaling: bool) -> tuple[int, int | None]:
    """The fewest pods a worker group is of use with, and the most. An autoscaler makes more when they are needed."""
    if worker.suspend:
        return 0, None
    hosts = max(1, _count(worker.num_of_hosts, 1))
    fewest = _count(worker.min_replicas, 0)
    if not is_scaling and not fewest:
        fewest = _count(worker.replicas, 0)
    most = _sane(fewest, worker.max_replicas) if is_scaling else None
    return fewest * hosts, most * hosts if most is not None else None


def _pod_group(owner: owners.PodGroup, above: meta.ObjectMeta | None) -> Gang:
    spec = owner.spec
    asked = _asked(owner.metadata, above)
    problems = [*asked.problems]
    if asked.min is not None:
        problems.append(f"{wishes.MIN} is left out: spec.schedulingPolicy.gang.minCount says it")
    together = spec.scheduling_policy.gang
    smallest = max(1, _count(together.min_count, 1)) if together is not None else 1
    gang = Gang(
        metadata=_named(owner.metadata, gangs.POD_GROUP),
        priority=spec.priority,
        groups=(
            Group(name=gangs.DEFAULT_GROUP, min=smallest, max=_sane(smallest, asked.max), topology=asked.segments),
        ),
        topology=native_topology(spec.scheduling_constraints),
        may_evict_after=NEVER_SECONDS if spec.preemption_policy == "Never" else 0,
        evicts_whole=is_whole(spec.disruption_mode),
        is_loose=together is None,
        uid=owner.metadata.uid,
        claims=spec.resource_claims,
    )
    return _finished(gang, asked, problems=problems)


def native_topology(constraints: owners.Constraints | None) -> wishes.TopologyWish | None:
    """A label in which all nodes of a native group have to agree; the API allows one."""
    keys = [one.key for one in constraints.topology if one.key] if constraints is not None else []
    return wishes.TopologyWish(topology="", required=keys[0]) if keys else None


def is_whole(mode: Any) -> bool:
    """Whether a native group is disrupted as a whole: v1alpha2 says PodGroup, later versions have a key `all`."""
    return mode == "PodGroup" or (isinstance(mode, dict) and mode.get("all") is not None)


# What kinds have in common


def _single(metadata: meta.ObjectMeta, source: str, *, asked: wishes.Wishes, present: int) -> Gang:
    """An owner with one kind of pods, `present` of them at a time: loose unless somebody asks for more."""
    smallest, most = _bounds(asked, present)
    problems = asked.problems
    if asked.min is not None and asked.min > present > 0:
        problems = (
            *problems,
            f"{wishes.MIN}: {asked.min} is more than the {present} pods there are; taken as {present}",
        )
    gang = Gang(
        metadata=_named(metadata, source),
        groups=(Group(name=gangs.DEFAULT_GROUP, min=smallest, max=most, topology=asked.segments),),
        is_loose=not _is_gang(asked),
    )
    return gangs.asking(gang, asked._replace(problems=problems))


def _is_gang(asked: wishes.Wishes) -> bool:
    """Pods that are to be near each other start together too: the place has to have room for all of them."""
    return asked.min is not None or asked.topology is not None or asked.segments is not None


def _bounds(asked: wishes.Wishes, present: int) -> tuple[int, int | None]:
    """The fewest pods that make sense, and the most."""
    smallest = present if asked.min is None or asked.min == wishes.ALL else min(asked.min, max(1, present))
    return max(0, smallest), _sane(smallest, asked.max)


def _asked(metadata: meta.ObjectMeta, above: meta.ObjectMeta | None, *templates: owners.PodTemplate) -> wishes.Wishes:
    """What is asked for, outermost first."""
    places = [metadata, *(one.metadata for one in templates)]
    if above is not None:
        places.insert(0, above)
    return wishes.read(*(wishes.place_of(one) for one in places))


def _layers(
    metadata: meta.ObjectMeta, above: meta.ObjectMeta | None, templates: Iterable[owners.PodTemplate]
) -> tuple[wishes.Wishes, wishes.Wishes]:
    """What is asked of the whole, and what templates ask of it: sizes and places in a template are its group's."""
    inner = wishes.read(*(wishes.place_of(one.metadata) for one in templates))
    return _asked(metadata, above), inner._replace(min=None, max=None, topology=None, segments=None)


def _finished(
    gang: Gang, asked: wishes.Wishes, *, inner: wishes.Wishes = wishes.NOTHING, problems: Iterable[str]
) -> Gang:
    """The gang with what was asked for, of the owner before its templates."""
    gang = gangs.asking(gangs.asking(gang, inner), asked)
    return msgspec.structs.replace(gang, problems=tuple(dict.fromkeys(problems)))


def _named(metadata: meta.ObjectMeta, source: str) -> meta.ObjectMeta:
    return meta.ObjectMeta(
        namespace=metadata.namespace,
        name=f"{source}/{metadata.name}",
        creation_timestamp=metadata.creation_timestamp,
    )


def _at_once(spec: owners.JobSpec, *, succeeded: int) -> int:
    """How many pods a Job has at a time: parallelism, and never more than are left to do."""
    parallelism = _count(spec.parallelism, 1)
    if spec.completions is None:
        return parallelism
    return min(parallelism, max(1, spec.completions - max(0, succeeded)))


def _counts_failures(spec: owners.JobSpec) -> bool:
    """Whether a pod that was evicted counts against backoffLimit: unless the first rule about that ignores it."""
    policy = spec.pod_failure_policy
    for rule in policy.rules if policy is not None else ():
        if any(one.type == DISRUPTED for one in rule.on_pod_conditions):
            return rule.action != "Ignore"
    return True


def _sane(smallest: int, most: int | None) -> int | None:
    """The most pods, unless that contradicts the fewest."""
    return most if most is not None and most >= smallest else None


def _count(number: int | None, otherwise: int) -> int:
    return otherwise if number is None else max(0, number)


def _least(*numbers: int | None) -> int | None:
    """The smallest of these numbers of seconds that are given, and no more than anybody means."""
    said = [number for number in numbers if number is not None]
    return durations.at_most(min(said)) if said else None
