"""Builds the objects of a scenario: nodes, queues, topologies, gangs, pods, claims; and its policy.

Given a scenario and the state of its pods. Everything is in one namespace, at one point in time. Never decides.
"""

from __future__ import annotations

import datetime
import hashlib
import math
import re
from collections.abc import Iterator
from typing import Final

from dovetail import timestamps
from dovetail.kubetypes import meta, node_selectors
from dovetail.kubetypes.core import namespaces, pods
from dovetail.kubetypes.custom import queues, topologies
from dovetail.kubetypes.resource import claims
from dovetail.model import gangs, plan, policy
from dovetail.quantity import quantity
from dovetail.quantity.quantity import Quantity
from dovetail.replay.scenarios import (
    scenario_claims,
    scenario_format,
    scenario_nodes,
    scenario_state,
)
from dovetail.replay.scenarios.scenario_format import State
from dovetail.world.events import Changed, Object
from dovetail.world.world import World

NOW: Final = datetime.datetime(2030, 1, 1, tzinfo=datetime.UTC)  # no time passes in a scenario
ORDER: Final = "dovetail.dev/order-priority"
MIG_LABEL: Final = "dovetail.dev/scenario-mig"
NOWHERE: Final = "dovetail.dev/scenario-nowhere"  # a label no node has
STUCK: Final = "dovetail.dev/scenario-stuck"
GATE: Final = "dovetail.dev/scenario-gate"
_RESOURCES: Final = ("gpu", "cpu", "memory")
_MIG: Final = re.compile(r"nvidia\.com/mig-([0-9]+)g\..*")
_QUEUE_AGE: Final = 86_400  # seconds since the oldest queue was created
_LABEL: Final = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]{0,61}[A-Za-z0-9])?")
_NO_LABEL: Final = re.compile(r"[^A-Za-z0-9._-]")
_DIGESTED: Final = "sha256-"
_HEAD: Final = 32  # characters before the digest: a label's value has 63 at most
_SPREAD: Final = -1


def world(scenario: scenario_format.Scenario, situation: scenario_state.ScenarioState) -> World:
    """The cluster in the given state."""
    built = World()
    for item in objects(scenario, situation):
        built.apply(Changed(item))
    return built


def objects(
    scenario: scenario_format.Scenario, situation: scenario_state.ScenarioState
) -> Iterator[Object]:
    """All objects of the cluster, referenced objects first."""
    yield namespaces.Namespace(
        api_version="v1", kind="Namespace", metadata=meta.ObjectMeta(name=scenario_claims.NAMESPACE)
    )
    yield from scenario_nodes.objects(scenario)
    yield from (_topology(topology) for topology in scenario.topologies)
    factor = 1000 if any(_has_parts(queue.over_quota_weight) for queue in scenario.queues) else 1
    yield from (_queue(queue, factor=factor) for queue in scenario.queues)
    for claim in scenario.claims:
        yield _shared(claim, situation.claims[claim.name])
    for job in scenario.jobs:
        yield _gang(job)
        for pod in job.pods:
            own = scenario_claims.own(pod, scenario)
            where = situation.pods[pod.name]
            yield from (
                _held(claim, role, pod=pod.name, where=where) for role, claim in own.items()
            )
            yield _pod(pod, job, where, roles=tuple(own))


def policy_of(scenario: scenario_format.Scenario) -> policy.Policy:
    """The policy that the scenario sets."""
    settings = scenario.settings
    default = policy.Weights()
    return policy.Policy(
        weights=policy.Weights(
            tight_fit_per_gpu=_leaning(settings.node_strategy.gpu, default.tight_fit_per_gpu),
            cpu_fit_per_128_cores=_leaning(
                settings.node_strategy.cpu, default.cpu_fit_per_128_cores
            ),
            second_choice=0,  # the GPU sizes of a fraction are not an order of preference
        ),
        allocation=policy.AllocationPolicy(
            whole=_leaning(settings.device_strategy, policy.AllocationPolicy().whole)
        ),
        steps=tuple(policy.Step(action.value) for action in scenario.run.actions),
        batch=policy.Batch(
            enforces_quota=settings.quota_enforced,
            consolidation_victims=settings.consolidation_max_victims,
            reclaim_may_move=settings.reclaim_may_move_victims,
            reclaim_multiplier=settings.reclaim_saturation_multiplier,
            usage_weight=settings.usage_weight_k,
            stale_grace_seconds=_grace(settings.stale_grace_s),
            claims_need_queue=True,
            gpu_prices=_mig_prices(scenario),
        ),
    )


def _mig_prices(scenario: scenario_format.Scenario) -> dict[str, int]:
    """Prices of MIG resources in thousandths of a GPU slice: 3000 for a 3g profile."""
    names = {name for node in scenario.nodes for name in node.allocatable}
    names |= {name for pod in scenario.pods for name in pod.request.mig}
    prices = {}
    for name in sorted(names):
        if profile := _MIG.fullmatch(name):
            prices[name] = 1000 * int(profile[1])
    return prices


def gang_ref(job: scenario_format.Job) -> plan.GangRef:
    """The name of a job's gang in plans."""
    return plan.GangRef(scenario_claims.NAMESPACE, f"gang/{label_value(job.name)}")


def label_value(text: str) -> str:
    """The text if it is a valid label value, else a distinct one made from it.

    It begins like the text, because names break ties in the order of gangs.
    """
    if _LABEL.fullmatch(text) and _DIGESTED not in text:
        return text
    head = _NO_LABEL.sub("-", text).lstrip("-._")[:_HEAD]
    return head + _DIGESTED + hashlib.sha256(text.encode()).hexdigest()[:24]


def _leaning(strategy: scenario_format.Strategy, weight: int) -> int:
    return {"binpack": weight, "spread": _SPREAD * weight, "none": 0}[strategy]


def _topology(topology: scenario_format.Topology) -> topologies.Topology:
    levels = tuple(topologies.Level(node_label=key) for key in topology.levels)
    return topologies.Topology(
        api_version="dovetail.dev/v1alpha1",
        kind="Topology",
        metadata=meta.ObjectMeta(name=topology.name),
        spec=topologies.TopologySpec(levels=levels),
    )


def _queue(queue: scenario_format.Queue, *, factor: int) -> queues.Queue:
    return queues.Queue(
        api_version="dovetail.dev/v1alpha1",
        kind="Queue",
        metadata=meta.ObjectMeta(
            name=queue.name,
            uid=f"queue/{queue.name}",
            creation_timestamp=_before(_QUEUE_AGE - queue.creation_order),
        ),
        spec=queues.QueueSpec(
            parent=queue.parent or "",
            priority=queue.priority,
            resources={name: _due(queue, name, factor=factor) for name in _RESOURCES},
            namespace_selector=meta.LabelSelector(),
            preempt_min_runtime_seconds=math.ceil(queue.preempt_min_runtime_s) or None,
            reclaim_min_runtime_seconds=math.ceil(queue.reclaim_min_runtime_s) or None,
        ),
    )


def _due(queue: scenario_format.Queue, name: str, *, factor: int) -> queues.Share:
    quota, limit = getattr(queue.quota, name), getattr(queue.limit, name)
    return queues.Share(
        quota=queues.UNLIMITED if quota is None else scenario_nodes.exact(quota),
        limit=None if limit is None else scenario_nodes.exact(limit),
        weight=round(getattr(queue.over_quota_weight, name) * factor),
    )


def _has_parts(weights: scenario_format.Weights) -> bool:
    return any(getattr(weights, name) % 1 for name in _RESOURCES)


def _gang(job: scenario_format.Job) -> gangs.Gang:
    ref = gang_ref(job)
    return gangs.Gang(
        metadata=meta.ObjectMeta(
            namespace=ref.namespace,
            name=ref.name,
            uid=f"job/{job.name}",
            creation_timestamp=_before(job.age_s),
        ),
        queue=job.queue,
        priority=job.priority,
        is_preemptible=job.preemptible,
        min_groups=job.min_groups,
        groups=tuple(
            gangs.Group(
                name=label_value(group.name),
                parent=None if group.parent is None else label_value(group.parent),
                holds_groups=group.kind == "groups",
                min=group.min,
                topology=_wish(group.topology),
            )
            for group in job.groups
        ),
        topology=_wish(job.topology),
        may_evict_after=math.ceil(job.may_evict_after_s),
        stale_grace=None if job.stale_grace_s is None else _grace(job.stale_grace_s),
        stale_since=None if job.stale_for_s is None else _before(job.stale_for_s),
    )


def _wish(wish: scenario_format.TopologyRequest | None) -> gangs.TopologyRequest | None:
    if wish is None or not (wish.topology or wish.required or wish.preferred):
        return None
    return gangs.TopologyRequest(
        topology=wish.topology, required=wish.required, preferred=wish.preferred
    )


def _shared(
    claim: scenario_format.Claim, holding: scenario_state.SharedClaimState
) -> claims.ResourceClaim:
    shared_claim = scenario_claims.shared(claim)
    users = [_user(name) for name in holding.users]
    users += [_user(f"other-{claim.name}-{number}") for number in range(claim.other_consumers)]
    return _with_status(shared_claim, holding.allocation, tuple(users))


def _held(
    claim: claims.ResourceClaim, role: str, *, pod: str, where: scenario_state.PodState
) -> claims.ResourceClaim:
    allocation = where.held.get(role)
    return _with_status(claim, allocation, (_user(pod),) if allocation is not None else ())


def _with_status(
    claim: claims.ResourceClaim,
    allocation: claims.AllocationResult | None,
    users: tuple[claims.ResourceClaimConsumerReference, ...],
) -> claims.ResourceClaim:
    return claims.ResourceClaim(
        api_version=claim.api_version,
        kind=claim.kind,
        metadata=claim.metadata,
        spec=claim.spec,
        status=claims.ResourceClaimStatus(allocation=allocation, reserved_for=users),
    )


def _user(pod: str) -> claims.ResourceClaimConsumerReference:
    return claims.ResourceClaimConsumerReference(
        resource="pods", name=pod, uid=scenario_claims.uid(pod)
    )


def _pod(
    pod: scenario_format.Pod,
    job: scenario_format.Job,
    where: scenario_state.PodState,
    *,
    roles: tuple[str, ...],
) -> pods.Pod:
    labels = pod.labels | {
        gangs.GANG_LABEL: label_value(job.name),
        gangs.GROUP_LABEL: label_value(pod.group),
    }
    if pod.request.mig:
        labels[MIG_LABEL] = "true"
    return pods.Pod(
        api_version="v1",
        kind="Pod",
        metadata=meta.ObjectMeta(
            namespace=scenario_claims.NAMESPACE,
            name=pod.name,
            uid=scenario_claims.uid(pod.name),
            creation_timestamp=_before(job.age_s),
            deletion_timestamp=_before(0)
            if where.state in (State.TERMINATING, State.STUCK)
            else None,
            labels=labels,
            annotations={} if pod.order_priority is None else {ORDER: str(pod.order_priority)},
            finalizers=(STUCK,) if where.state is State.STUCK else meta.NO_ITEMS,
        ),
        spec=_pod_spec(pod, job, where, roles=roles),
        status=pods.PodStatus(
            phase=_phase(where.state),
            nominated_node_name=where.node if where.state is State.NOMINATED else "",
            start_time=_started(where),
            resource_claim_statuses=tuple(
                pods.PodResourceClaimStatus(
                    name=role, resource_claim_name=scenario_claims.own_name(pod.name, role)
                )
                for role in roles
            ),
        ),
    )


def _pod_spec(
    pod: scenario_format.Pod,
    job: scenario_format.Job,
    where: scenario_state.PodState,
    *,
    roles: tuple[str, ...],
) -> pods.PodSpec:
    named_claims = tuple(
        pods.PodResourceClaim(
            name=f"shared-{number}", resource_claim_name=scenario_claims.shared_name(name)
        )
        for number, name in enumerate(pod.claims)
    )
    own_claims = tuple(
        pods.PodResourceClaim(name=role, resource_claim_template_name=role) for role in roles
    )
    is_waiting = where.state in (State.PENDING, State.GATED, State.NOMINATED)
    return pods.PodSpec(
        node_name="" if is_waiting else where.node,
        containers=(pods.Container(name="main", resources=_resources(pod)),),
        resource_claims=(*own_claims, *named_claims),
        affinity=_affinity(pod),
        node_selector={NOWHERE: "true"} if pod.legacy_mig and is_waiting else {},
        scheduling_gates=(pods.PodSchedulingGate(name=GATE),) if where.state is State.GATED else (),
        volumes=_volumes(pod),
        priority=job.priority,
    )


def _resources(pod: scenario_format.Pod) -> pods.ResourceRequirements:
    requests: dict[str, Quantity] = {
        "cpu": scenario_nodes.exact(pod.request.cpu),
        "memory": scenario_nodes.exact(pod.request.memory),
    }
    for name, count in pod.request.mig.items():
        if count:
            requests[name] = quantity.Quantity.from_int(count)
    limits = dict(requests) if pod.qos == scenario_claims.GUARANTEED else {}
    return pods.ResourceRequirements(requests=requests, limits=limits)


def _volumes(pod: scenario_format.Pod) -> tuple[pods.Volume, ...]:
    """Volumes whose claims do not exist."""
    names = pod.missing_volume_claims
    if not isinstance(names, tuple):
        names = tuple(f"missing-{number}" for number in range(int(names)))
    return tuple(
        pods.Volume(
            name=f"volume-{at}",
            persistent_volume_claim=pods.PersistentVolumeClaimVolumeSource(claim_name=name),
        )
        for at, name in enumerate(names)
    )


def _affinity(pod: scenario_format.Pod) -> pods.Affinity | None:
    apart = [] if pod.anti_affinity is None else [_term(pod.anti_affinity)]
    if pod.legacy_mig:
        # Its cut GPUs are not counted, so no pod with a MIG request may run on the same node.
        mig_pods = scenario_format.PodTerm(
            topology_key=scenario_nodes.NODE_LABEL, match_labels={MIG_LABEL: "true"}
        )
        apart.append(_term(mig_pods))

    near = None if pod.affinity is None else _required((_term(pod.affinity),))
    nodes = None if pod.allowed_nodes is None else _only_on(pod.allowed_nodes)
    if near is None and nodes is None and not apart:
        return None
    return pods.Affinity(
        node_affinity=nodes,
        pod_affinity=near,
        pod_anti_affinity=_required(tuple(apart)) if apart else None,
    )


def _required(terms: tuple[pods.PodAffinityTerm, ...]) -> pods.PodAffinity:
    return pods.PodAffinity(required_during_scheduling_ignored_during_execution=terms)


def _only_on(names: tuple[str, ...]) -> pods.NodeAffinity:
    """One term per node, because the field takes a single name."""
    terms = tuple(
        node_selectors.NodeSelectorTerm(
            match_fields=(
                node_selectors.NodeSelectorRequirement(
                    key=node_selectors.FIELD_NODE_NAME, operator="In", values=(name,)
                ),
            )
        )
        for name in names
    )
    return pods.NodeAffinity(
        required_during_scheduling_ignored_during_execution=node_selectors.NodeSelector(
            node_selector_terms=terms
        )
    )


def _term(term: scenario_format.PodTerm) -> pods.PodAffinityTerm:
    return pods.PodAffinityTerm(
        label_selector=meta.LabelSelector(match_labels=term.match_labels),
        topology_key=term.topology_key,
    )


def _phase(state: State) -> str:
    match state:
        case State.RUNNING | State.TERMINATING | State.STUCK:
            return "Running"
        case State.SUCCEEDED:
            return "Succeeded"
        case State.FAILED:
            return "Failed"
        case _:
            return "Pending"


def _started(where: scenario_state.PodState) -> str | None:
    if where.started_s_ago is None:
        return None
    has_started = where.state in (*scenario_format.HOLDING, State.SUCCEEDED, State.FAILED)
    return _before(where.started_s_ago) if has_started else None


def _grace(seconds: float) -> int:
    """Whole seconds, rounded up; -1 for any negative number."""
    return math.ceil(seconds) if seconds >= 0 else -1


def _before(seconds: float) -> str:
    return timestamps.to_exact_text(NOW - datetime.timedelta(seconds=seconds))
