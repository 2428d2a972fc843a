"""Checks the schedulers of a cluster: which ones run, which pods none of them serves, which nodes and devices are ours.

A scheduler runs if it renews a Lease, if a pod of it runs, or if it is ours; what it placed in the past proves nothing.
Facts in, findings out, one function per check. Never sends a request.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Final

from dovetail.doctor import leader_leases
from dovetail.doctor.findings import Facts, Finding, Ours, Severity, counted, listed, some
from dovetail.hollow import node_marks
from dovetail.kubetypes.core import pods

DEFAULT_SCHEDULER: Final = "default-scheduler"
# The program that serves a scheduler name, where it is called differently.
PROGRAMS: Final = {DEFAULT_SCHEDULER: "kube-scheduler"}
# Labels by which charts and static pods name a program; kubeadm uses `component`.
NAME_LABELS: Final = ("app", "component", "app.kubernetes.io/name", "app.kubernetes.io/component")


def schedulers(facts: Facts) -> Iterator[Finding]:
    """Which other schedulers work here, whom none serves, and whether two could allocate the same device."""
    if facts.pods is None:
        return

    live_pods = [pod for pod in facts.pods if pod.status.phase not in pods.TERMINAL_PHASES]
    pods_by_scheduler = Counter(scheduler_of(pod) for pod in live_pods)
    if pods_by_scheduler:
        census = ", ".join(f"{name} {count}" for name, count in pods_by_scheduler.most_common())
        yield _note(f"pods by scheduler: {census}")

    other_leaders = [
        f"{lease.metadata.namespace}/{lease.metadata.name}"
        for lease in leader_leases.live_leases(facts)
        if "scheduler" in lease.metadata.name and not leader_leases.is_ours(lease, facts)
    ]
    if other_leaders:
        yield _note(f"other schedulers lead here: {some(other_leaders)}")

    yield from _shared_devices(facts.pods, facts.ours)
    if not facts.is_embedded:
        yield from _unserved_pods(live_pods, facts)


def ownership(facts: Facts) -> Iterator[Finding]:
    """Whether any node carries the labels and the taint that the configuration calls ours."""
    if facts.nodes is None:
        return
    ours = facts.ours

    our_labels = ours.node_labels.items()
    all_labels = [node.metadata.labels.items() for node in facts.nodes]
    if our_labels and not any(our_labels <= labels for labels in all_labels):
        selector = ",".join(f"{key}={value}" for key, value in sorted(our_labels))
        yield Finding(
            severity=Severity.ERROR,
            check="ownership",
            what=f"no node carries the labels of our nodes ({selector}): every pod of ours waits",
            next=f"kubectl label node NAME {selector.replace(',', ' ')}",
        )

    taint_keys = {taint.key for node in facts.nodes for taint in node.spec.taints}
    if ours.node_taint and ours.node_taint not in taint_keys:
        yield Finding(
            severity=Severity.ERROR,
            check="ownership",
            what=f"no node carries the taint of our nodes ({ours.node_taint}): every pod of ours waits",
            next=f"kubectl taint node NAME {ours.node_taint}=:NoSchedule",
        )


def scheduler_of(pod: pods.Pod) -> str:
    """The scheduler the pod names, or the default one."""
    return pod.spec.scheduler_name or DEFAULT_SCHEDULER


def _shared_devices(all_pods: Iterable[pods.Pod], ours: Ours) -> Iterator[Finding]:
    """Warns when we and another scheduler both allocate devices with no boundary between us."""
    device_pods = [pod for pod in all_pods if pod.spec.node_name and _uses_devices(pod)]
    pods_by_scheduler = Counter(scheduler_of(pod) for pod in device_pods)

    we_allocate = any(name in pods_by_scheduler for name in ours.names)
    rivals = sorted(pods_by_scheduler.keys() - set(ours.names))
    if not rivals or not we_allocate or ours.is_bounded:
        return

    pods_by_rival = ", ".join(f"{name} {pods_by_scheduler[name]}" for name in rivals)
    what = (
        f"other schedulers allocate devices too ({pods_by_rival}), and no configuration says "
        "which nodes are ours: a device can be allocated twice"
    )
    yield _warning(
        what, next="set ownership in the scheduler's configuration; pass it to doctor with --config"
    )


def _unserved_pods(live_pods: Iterable[pods.Pod], facts: Facts) -> Iterator[Finding]:
    """Pods without a node that name a scheduler which does not run."""
    pods_by_scheduler: dict[str, list[str]] = {}
    for pod in live_pods:
        if not pod.spec.node_name:
            pod_name = f"{pod.metadata.namespace}/{pod.metadata.name}"
            pods_by_scheduler.setdefault(scheduler_of(pod), []).append(pod_name)

    absent = [name for name in sorted(pods_by_scheduler) if not _is_running(name, facts)]
    for name in absent:
        pod_names = sorted(pods_by_scheduler[name])
        if facts.leases is None:
            yield _note(_unknown(name, len(pod_names)))
        else:
            yield _unserved(name, pod_names, facts.ours)


def _unserved(name: str, pod_names: list[str], ours: Ours) -> Finding:
    program = f" ({PROGRAMS[name]})" if name in PROGRAMS else ""
    what = (
        f'{_waiting(len(pod_names))} for scheduler "{name}"{program}, which does not run here: '
        "it renews no Lease, and no pod of it runs"
    )
    listing = f"kubectl get pods -A --field-selector spec.schedulerName={name},status.phase=Pending"
    step = f"start it, or create the pods with schedulerName: {ours.names[0]}; {listing}"
    return _warning(what, where=some(pod_names), next=step)


def _unknown(name: str, pod_count: int) -> str:
    return (
        f"{_waiting(pod_count)} for {name}; whether it runs was not checked, "
        "because leases could not be read"
    )


def _waiting(pod_count: int) -> str:
    return f"{counted(pod_count, 'pod')} {'waits' if pod_count == 1 else 'wait'}"


def _is_running(name: str, facts: Facts) -> bool:
    """Whether there is evidence of the scheduler at work now."""
    if name in facts.ours.names:
        return True  # another check is about our own leader

    program = PROGRAMS.get(name, name)
    renewed_names = [lease.metadata.name for lease in leader_leases.live_leases(facts)]
    if any(_is_named_after(lease_name, program) for lease_name in renewed_names):
        return True

    hollow_nodes = {
        node.metadata.name for node in listed(facts.nodes) if node_marks.is_hollow(node)
    }
    # On a hollow node no container runs, whatever the status of a pod says.
    running_pods = [
        pod
        for pod in listed(facts.pods)
        if pod.status.phase == "Running" and pod.spec.node_name not in hollow_nodes
    ]
    return any(_is_pod_of(program, pod) for pod in running_pods)


def _is_pod_of(program: str, pod: pods.Pod) -> bool:
    metadata = pod.metadata
    names = [metadata.name, *(metadata.labels.get(key, "") for key in NAME_LABELS)]
    if any(_is_named_after(name, program) for name in names):
        return True
    # KAI's first charts call the Deployment just `scheduler`, in a namespace named after the scheduler.
    return metadata.namespace == program and metadata.name.startswith("scheduler")


def _is_named_after(name: str, program: str) -> bool:
    """Whether a Lease, pod or label is the program's: `volcano-scheduler-5d`, `vgpu-hami-scheduler`."""
    if name == program:
        return True
    return f"-{program}-" in f"-{name}-" and "scheduler" in name


def _uses_devices(pod: pods.Pod) -> bool:
    return bool(pod.spec.resource_claims) or pod.status.extended_resource_claim_status is not None


def _warning(what: str, *, where: str = "", next: str = "") -> Finding:
    return Finding(severity=Severity.WARNING, check="schedulers", what=what, where=where, next=next)


def _note(what: str) -> Finding:
    return Finding(severity=Severity.NOTE, check="schedulers", what=what)
