"""Checks workloads: pods without GPUs on GPU nodes, claims missing for pending pods, and exhausted quotas.

Facts in, findings out, one function per check. Never sends a request.
"""

from __future__ import annotations

import datetime
from collections.abc import Iterable, Iterator
from typing import Final

from dovetail.doctor.check_devices import GPU_DRIVERS
from dovetail.doctor.findings import Facts, Finding, Severity, age_seconds, counted, listed, some
from dovetail.kubetypes.core import nodes, pods, resource_quotas
from dovetail.kubetypes.resource import claims
from dovetail.model import gpu_shares, node_pools

# GKE's taint; its admission adds the toleration to pods that request GPUs.
TAINT: Final = "nvidia.com/gpu=present:NoSchedule"
PASSING_TAINTS: Final = "node."  # node.kubernetes.io/not-ready etc. follow the node's state
KEEPING_AWAY: Final = ("NoSchedule", "NoExecute")
SYSTEM: Final = ("kube-system", "gpu-operator", "nvidia-gpu-operator")
MIRROR: Final = "kubernetes.io/config.mirror"  # annotation of the kubelet's static pods
MADE_WITHIN_SECONDS: Final = 30.0  # the claim controller usually needs less than one


def general_pods(facts: Facts) -> Iterator[Finding]:
    """Untainted GPU nodes and the pods without GPUs that run there, with a taint per pool ready to paste."""
    if facts.nodes is None:
        return

    nodes_by_pool: dict[tuple[str, str], list[str]] = {}
    for node in gpu_nodes(facts):
        if not is_tainted(node):
            pool = node_pools.pool_of(node)
            nodes_by_pool.setdefault((pool.name, pool.label), []).append(node.metadata.name)

    general_by_node = _general_pods_by_node(listed(facts.pods))
    for (pool_name, label), node_names in sorted(nodes_by_pool.items()):
        node_names.sort()
        pod_names = sorted(pod for node in node_names for pod in general_by_node.get(node, ()))
        yield _untainted_pool(pool_name, label, node_names=node_names, pod_names=pod_names)


def _general_pods_by_node(all_pods: Iterable[pods.Pod]) -> dict[str, list[str]]:
    names_by_node: dict[str, list[str]] = {}
    for pod in all_pods:
        is_running = pod.spec.node_name and pod.status.phase not in pods.TERMINAL_PHASES
        if is_running and is_general(pod):
            names = names_by_node.setdefault(pod.spec.node_name, [])
            names.append(f"{pod.metadata.namespace}/{pod.metadata.name}")
    return names_by_node


def _untainted_pool(
    pool_name: str, label: str, *, node_names: list[str], pod_names: list[str]
) -> Finding:
    count = counted(len(node_names), "GPU node")
    of_pool = f"of pool {pool_name}" if pool_name else "of no pool"
    target = f"-l {label}={pool_name}" if pool_name else " ".join(node_names[:10])

    severity, consequence = Severity.NOTE, "any pod may run there"
    if pod_names:
        severity = Severity.WARNING
        consequence = f"{counted(len(pod_names), 'pod')} without GPUs run there"

    return Finding(
        severity=severity,
        check="general pods",
        what=f"{count} {of_pool} without a taint: {consequence}",
        where=some(pod_names or node_names),
        next=f"kubectl taint nodes {target} {TAINT}",
    )


def missing_claims(facts: Facts) -> Iterator[Finding]:
    """Pending pods whose claims were not created from their templates, and the quota or template at fault."""
    if facts.pods is None:
        return
    templates = {
        (template.metadata.namespace, template.metadata.name): template
        for template in listed(facts.templates)
    }

    for pod in facts.pods:
        if not _is_overdue(pod, facts.now):
            continue
        for template_name in _pending_templates(pod):
            template = templates.get((pod.metadata.namespace, template_name))
            yield _claim_not_made(pod, template_name, template, facts)


def _is_overdue(pod: pods.Pod, now: datetime.datetime) -> bool:
    """Whether a pending pod is old enough for its claims to exist."""
    if pod.spec.node_name or pod.status.phase in pods.TERMINAL_PHASES:
        return False
    age = age_seconds(pod.metadata.creation_timestamp, now)
    return age is not None and age >= MADE_WITHIN_SECONDS


def _pending_templates(pod: pods.Pod) -> Iterator[str]:
    """The templates from which the pod's status shows no claim yet."""
    reported = {status.name for status in pod.status.resource_claim_statuses}
    for entry in pod.spec.resource_claims:
        if entry.resource_claim_template_name and entry.name not in reported:
            yield entry.resource_claim_template_name


def exhausted_quotas(facts: Facts) -> Iterator[Finding]:
    """Quotas on devices and claims that are used up."""
    for quota in listed(facts.quotas):
        namespace, name = quota.metadata.namespace, quota.metadata.name
        for key, limit in sorted(quota.status.hard.items()):
            if not resource_quotas.is_about_devices(key):
                continue
            used = quota.status.used.get(key)
            if used is None or used < limit or limit.sign <= 0:
                continue
            yield Finding(
                severity=Severity.NOTE,
                check="quotas",
                what=f"quota {name} is used up: {used} of {limit} {resource_quotas.words_of(key)}",
                where=f"namespace {namespace}",
                next=f"kubectl -n {namespace} describe resourcequota {name}",
            )


def gpu_nodes(facts: Facts) -> tuple[nodes.Node, ...]:
    """Nodes with GPUs according to their labels, a device plugin's count, or a driver's slices."""
    driver_nodes = {
        slice_.spec.node_name
        for slice_ in listed(facts.slices)
        if slice_.spec.driver in GPU_DRIVERS
    }

    def has_gpus(node: nodes.Node) -> bool:
        if node.metadata.name in driver_nodes or node_pools.plugin_gpus(node):
            return True
        return node_pools.pool_of(node).has_gpus

    return tuple(filter(has_gpus, listed(facts.nodes)))


def is_tainted(node: nodes.Node) -> bool:
    """Whether a lasting taint keeps general pods away, under any key: AKS' examples use sku=gpu."""
    return any(
        taint.effect in KEEPING_AWAY and not taint.key.startswith(PASSING_TAINTS)
        for taint in node.spec.taints
    )


def is_general(pod: pods.Pod) -> bool:
    """Whether a pod requests no devices and is not part of the node's own equipment."""
    metadata = pod.metadata
    if metadata.namespace in SYSTEM or MIRROR in metadata.annotations:
        return False
    if any(owner.kind in ("DaemonSet", "Node") for owner in metadata.owner_references):
        return False
    if pod.spec.resource_claims:
        return False

    containers = (*pod.spec.containers, *pod.spec.init_containers)
    return not any(_requests_extended_resource(container.resources) for container in containers)


def _requests_extended_resource(resources: pods.ResourceRequirements) -> bool:
    """Whether a container requests GPUs of a device plugin or the like: names with a slash."""
    amounts = (*resources.limits.items(), *resources.requests.items())
    return any("/" in name and amount.sign > 0 for name, amount in amounts)


def _claim_not_made(
    pod: pods.Pod, template_name: str, template: claims.ResourceClaimTemplate | None, facts: Facts
) -> Finding:
    namespace = pod.metadata.namespace
    is_unknown = template is None and facts.templates is not None
    if is_unknown and gpu_shares.of_template(template_name) is not None:
        what = (
            f"template {template_name} was not created: the scheduler does so if kaiShares is on in its "
            "configuration and a GPU offers shares of its memory"
        )
        command = f"kubectl -n {namespace} describe pod {pod.metadata.name}"
    elif is_unknown:
        what = f"template {template_name} does not exist, so no claim can be created for the pod"
        command = f"kubectl -n {namespace} get resourceclaimtemplates"
    elif template is not None and (exceeded := _exceeded_quota(template, namespace, facts)):
        what = f"no claim can be created for the pod: {exceeded.message_for(namespace)}"
        command = f"kubectl -n {namespace} describe resourcequota {exceeded.quota}"
    else:
        what = (
            f"no claim was created from template {template_name}; "
            "if a controller tried, the pod's events say why it failed"
        )
        command = f"kubectl -n {namespace} describe pod {pod.metadata.name}"

    where = f"pod {namespace}/{pod.metadata.name}"
    return Finding(severity=Severity.ERROR, check="claims", what=what, where=where, next=command)


def _exceeded_quota(
    template: claims.ResourceClaimTemplate, namespace: str, facts: Facts
) -> resource_quotas.Exceeded | None:
    """The first quota of the namespace that a claim from the template would exceed."""
    charged = resource_quotas.charge(template.spec.spec.devices)
    for quota in listed(facts.quotas):
        if quota.metadata.namespace != namespace:
            continue
        if shortages := resource_quotas.shortages(charged, quota):
            return resource_quotas.Exceeded(quota.metadata.name, shortages)
    return None
