"""Judges what runs and waits: general pods on GPU nodes, claims that are not made, quotas that keep them from it.

Facts in, findings out, one function per check. Never asks a cluster.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from dovetail.model import claims, nodes, pods, pools, quotas
from dovetail.model.health.facts import Facts, Finding, Severity, age_seconds, counted, some
from dovetail.model.health.hardware import GPU_DRIVERS

TAINT: Final = "nvidia.com/gpu=present:NoSchedule"  # GKE's own; admission tolerates it for pods with that resource
PASSING_TAINTS: Final = "node."  # node.kubernetes.io/not-ready and the like come and go with the node's state
KEEPING_AWAY: Final = ("NoSchedule", "NoExecute")
SYSTEM: Final = ("kube-system", "gpu-operator", "nvidia-gpu-operator")
MIRROR: Final = "kubernetes.io/config.mirror"  # annotation of a pod the kubelet itself started
TERMINAL: Final = ("Succeeded", "Failed")
MADE_WITHIN_SECONDS: Final = 30.0  # a claim from a template is usually there within one


def general_pods(facts: Facts) -> Iterator[Finding]:
    """GPU nodes that keep nobody away, and the pods without GPUs that run there: a taint per pool, ready to paste."""
    if facts.nodes is None:
        return
    guests: dict[str, list[str]] = {}
    for pod in facts.pods or ():
        if pod.spec.node_name and pod.status.phase not in TERMINAL and is_general(pod):
            guests.setdefault(pod.spec.node_name, []).append(f"{pod.metadata.namespace}/{pod.metadata.name}")
    by_pool: dict[tuple[str, str], list[nodes.Node]] = {}
    for node in gpu_nodes(facts):
        if not is_tainted(node):
            pool = pools.of(node)
            by_pool.setdefault((pool.name, pool.label), []).append(node)
    for (name, label), members in sorted(by_pool.items()):
        names = sorted(node.metadata.name for node in members)
        inside = sorted(guest for node in names for guest in guests.get(node, ()))
        chosen = f"-l {label}={name}" if name else " ".join(names[:10])
        severity = Severity.WARNING if inside else Severity.NOTE
        running = f"{counted(len(inside), 'pod')} without GPUs run there" if inside else "any pod may run there"
        of_pool = f"of pool {name}" if name else "of no pool"
        what = f"{counted(len(members), 'GPU node')} {of_pool} without a taint: {running}"
        yield Finding(
            severity=severity,
            check="general pods",
            what=what,
            where=some(inside or names),
            next=f"kubectl taint nodes {chosen} {TAINT}",
        )


def claims_not_made(facts: Facts) -> Iterator[Finding]:
    """Pods whose claims were not made from their templates, and the quota or template that is to blame."""
    if facts.pods is None:
        return
    templates = {(one.metadata.namespace, one.metadata.name): one for one in facts.templates or ()}
    for pod in facts.pods:
        if pod.spec.node_name or pod.status.phase in TERMINAL:
            continue
        if (age_seconds(pod.metadata.creation_timestamp, facts.now) or 0) < MADE_WITHIN_SECONDS:
            continue
        told = {status.name for status in pod.status.resource_claim_statuses}
        for entry in pod.spec.resource_claims:
            if entry.resource_claim_template_name and entry.name not in told:
                template = templates.get((pod.metadata.namespace, entry.resource_claim_template_name))
                yield _not_made(pod, entry.resource_claim_template_name, template, facts)


def used_up(facts: Facts) -> Iterator[Finding]:
    """Quotas on devices and claims that are used up."""
    for quota in facts.quotas or ():
        namespace, name = quota.metadata.namespace, quota.metadata.name
        for key, limit in sorted(quota.status.hard.items()):
            used = quota.status.used.get(key)
            if quotas.is_about_devices(key) and used is not None and used >= limit and limit.sign > 0:
                yield Finding(
                    severity=Severity.NOTE,
                    check="quotas",
                    what=f"quota {name} is used up: {used} of {limit} {quotas.words_of(key)}",
                    where=f"namespace {namespace}",
                    next=f"kubectl -n {namespace} describe resourcequota {name}",
                )


def gpu_nodes(facts: Facts) -> tuple[nodes.Node, ...]:
    """Nodes with GPUs: by labels, by a device plugin's count, or by a driver's slices."""
    by_driver = {one.spec.node_name for one in facts.slices or () if one.spec.driver in GPU_DRIVERS}
    return tuple(
        node
        for node in facts.nodes or ()
        if node.metadata.name in by_driver or pools.plugin_gpus(node) or pools.of(node).has_gpus
    )


def is_tainted(node: nodes.Node) -> bool:
    """Whether a lasting taint keeps general pods away, whatever it is called: AKS' examples say sku=gpu."""
    return any(taint.effect in KEEPING_AWAY and not taint.key.startswith(PASSING_TAINTS) for taint in node.spec.taints)


def is_general(pod: pods.Pod) -> bool:
    """Whether a pod asks for no devices and is no part of the node's own equipment."""
    metadata = pod.metadata
    if metadata.namespace in SYSTEM or MIRROR in metadata.annotations or pod.spec.resource_claims:
        return False
    if any(owner.kind in ("DaemonSet", "Node") for owner in metadata.owner_references):
        return False
    return not any(
        "/" in name and amount.sign > 0
        for container in (*pod.spec.containers, *pod.spec.init_containers)
        for name, amount in (*container.resources.limits.items(), *container.resources.requests.items())
    )


def _not_made(
    pod: pods.Pod, template_name: str, template: claims.ResourceClaimTemplate | None, facts: Facts
) -> Finding:
    namespace = pod.metadata.namespace
    where = f"pod {namespace}/{pod.metadata.name}"
    command = f"kubectl -n {namespace} describe pod {pod.metadata.name}"
    if template is None and facts.templates is not None:
        what = f"template {template_name} does not exist, so no claim can be made for the pod"
        command = f"kubectl -n {namespace} get resourceclaimtemplates"
        return Finding(severity=Severity.ERROR, check="claims", what=what, where=where, next=command)
    asked = quotas.charge(template.spec.spec.devices) if template is not None else {}
    for quota in facts.quotas or ():
        if quota.metadata.namespace == namespace and (short := quotas.shortages(asked, quota)):
            over = quotas.Exceeded(quota.metadata.name, short)
            command = f"kubectl -n {namespace} describe resourcequota {quota.metadata.name}"
            what = f"no claim can be made for the pod: {over.told(namespace)}"
            return Finding(severity=Severity.ERROR, check="claims", what=what, where=where, next=command)
    what = f"no claim was made from template {template_name}; the pod's events say why, if a controller tried"
    return Finding(severity=Severity.ERROR, check="claims", what=what, where=where, next=command)
