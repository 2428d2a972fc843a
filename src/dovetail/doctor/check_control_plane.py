"""Checks the control plane and our scheduler's place in it: versions, APIs, clock, RBAC, leases, other schedulers.

Facts in, findings out, one function per check. Never sends a request.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

from dovetail.doctor.findings import (
    Facts,
    Finding,
    Ours,
    Severity,
    age_seconds,
    counted,
    listed,
    some,
)
from dovetail.kubetypes.core import leases, pods

FIRST: Final = (1, 34)  # the first server that has resource.k8s.io/v1
TESTED: Final = ((1, 36), (1, 37))  # the versions of the end-to-end tests
KUBELET_SKEW: Final = 3  # minor versions a kubelet may be older than its server
CLOCK_SECONDS: Final = 5.0
PATIENCE_SECONDS: Final = 60.0  # pods pending for less are not reported
DEFAULT_SCHEDULER: Final = "default-scheduler"
RESOURCE_V1: Final = "resource.k8s.io/v1"
NEEDED_KINDS: Final = (
    "resourceclaims",
    "resourceclaims/status",
    "resourceclaimtemplates",
    "resourceslices",
    "deviceclasses",
)
TAINT_RULE_VERSIONS: Final = (RESOURCE_V1, "resource.k8s.io/v1beta2", "resource.k8s.io/v1alpha3")
GROUP_VERSIONS: Final = (
    "scheduling.k8s.io/v1beta1",
    "scheduling.k8s.io/v1alpha3",
    "scheduling.k8s.io/v1alpha2",
)
ADMISSION: Final = "admissionregistration.k8s.io/v1"
ASKED_VERSIONS: Final = tuple(dict.fromkeys((*TAINT_RULE_VERSIONS, *GROUP_VERSIONS, ADMISSION)))


def versions(facts: Facts) -> Iterator[Finding]:
    """Whether the server's version is supported, and no kubelet is too far from it."""
    if facts.server_number is None:
        return
    server_version = facts.server_version or "unknown"

    if facts.server_number < FIRST:
        what = f"the server is {server_version}; resource.k8s.io/v1 came with 1.34, so devices cannot be scheduled"
        yield _error("versions", what, next="upgrade the control plane to 1.36 or 1.37")
    elif facts.server_number not in TESTED:
        tested = " and ".join(f"{major}.{minor}" for major, minor in TESTED)
        yield _warning(
            "versions",
            f"the server is {server_version}; Dovetail is tested on {tested}",
            next="try it with --shadow first",
        )

    for version, node_names in sorted(_nodes_by_kubelet_version(facts.kubelets or {}).items()):
        yield from _kubelet_skew(
            version,
            node_names,
            server_number=facts.server_number,
            server_version=server_version,
        )


def _kubelet_skew(
    version: str, node_names: list[str], *, server_number: tuple[int, int], server_version: str
) -> Iterator[Finding]:
    """Kubelets of one version that the server's version does not support."""
    number = number_of(version)
    if number is None or number[0] != server_number[0]:
        return  # such as v0.0.0-hollow: not a kubelet

    kubelets = counted(len(node_names), "kubelet")
    where = some(node_names)
    minors_behind = server_number[1] - number[1]
    if minors_behind < 0:
        what = f"{kubelets} {version}, newer than the server {server_version}"
        yield _error("versions", what, where=where, next="upgrade the control plane before nodes")
    elif minors_behind > KUBELET_SKEW:
        what = (
            f"{kubelets} {version}, {minors_behind} minor versions older "
            f"than the server {server_version}"
        )
        yield _error("versions", what, where=where, next="upgrade these nodes")


def kinds(facts: Facts) -> Iterator[Finding]:
    """Whether the server serves every API we use; a disabled feature shows up as a missing kind."""
    served = facts.served
    if served is None:
        return

    resource_kinds = served.get(RESOURCE_V1, frozenset())
    missing = [plural for plural in NEEDED_KINDS if plural not in resource_kinds]
    if missing:
        what = f"{RESOURCE_V1} lacks {', '.join(missing)}: claims for devices cannot be used"
        yield _error(
            "kinds",
            what,
            next="enable the API (--runtime-config) and the gate DynamicResourceAllocation",
        )

    yield from _taint_rule_version(served)

    if not any("podgroups" in served.get(version, ()) for version in GROUP_VERSIONS):
        yield _note(
            "kinds", "PodGroups of scheduling.k8s.io are not served: native gangs are not available"
        )

    if "mutatingadmissionpolicies" not in served.get(ADMISSION, frozenset()):
        yield _note(
            "kinds",
            f"MutatingAdmissionPolicy is not served as {ADMISSION}: pods must name their scheduler themselves",
        )


def _taint_rule_version(served: Mapping[str, frozenset[str]]) -> Iterator[Finding]:
    """Notes that DeviceTaintRules are missing or served by an older API version only."""
    for version in TAINT_RULE_VERSIONS:
        if "devicetaintrules" not in served.get(version, ()):
            continue
        if version != RESOURCE_V1:
            yield _note(
                "kinds",
                f"DeviceTaintRules are served as {version}, not yet as {RESOURCE_V1}; both are read",
            )
        return

    yield _note(
        "kinds", "DeviceTaintRules are not served: devices cannot be owned or drained by rule"
    )


def clocks(facts: Facts) -> Iterator[Finding]:
    """Whether this machine's clock agrees with the server's: ages and lease times depend on it."""
    ahead_seconds = facts.clock_ahead_seconds
    if ahead_seconds is None or abs(ahead_seconds) <= CLOCK_SECONDS:
        return

    direction = "ahead of" if ahead_seconds > 0 else "behind"
    yield _warning(
        "clock",
        f"this machine is {abs(ahead_seconds):.0f} s {direction} the server",
        next="timedatectl status",
    )


def rights(facts: Facts) -> Iterator[Finding]:
    """Whether the scheduler has every right it needs."""
    reviewed = facts.rights
    if reviewed is None or not reviewed.missing:
        return
    subject = reviewed.subject

    if len(reviewed.missing) < len(reviewed.needed):
        missing = some([str(right) for right in reviewed.missing], 6)
        yield _error(
            "rights",
            f"{subject} lacks {missing}",
            where=subject,
            next="dovetail upgrade, or compare with `dovetail install --dry-run`",
        )
        return

    # No right at all: either nothing is installed, or the scheduler runs as another user.
    our_lease = _our_lease(facts)
    if our_lease is not None and _is_alive(our_lease, facts):
        what = f"{subject} has no rights, yet a scheduler leads: it runs as another user"
        yield _note("rights", f"{what}; name it with --service-account")
        return

    what = (
        f"{subject} has none of the {len(reviewed.needed)} rights a scheduler needs; "
        "is it installed?"
    )
    yield _error("rights", what, where=subject, next="dovetail install")


def leader(facts: Facts) -> Iterator[Finding]:
    """Whether one of our replicas leads."""
    if facts.leases is None:
        return
    ours = facts.ours
    where = f"lease {ours.lease_namespace}/{ours.lease_name}"
    command = f"kubectl -n {ours.lease_namespace} get lease {ours.lease_name} -o yaml"

    our_lease = _our_lease(facts)
    if our_lease is None:
        what = "no Dovetail scheduler has ever led here"
        yield _warning("leader", what, where=where, next="dovetail scheduler")
        return

    holder = our_lease.spec.holder_identity
    if not holder:
        what = "no replica leads: the last leader gave the lease back"
        yield _error("leader", what, where=where, next=command)
    elif not _is_alive(our_lease, facts):
        age = age_seconds(our_lease.spec.renew_time, facts.now)
        renewed = "at an unreadable time" if age is None else f"{age:.0f} s ago"
        what = f"no replica leads: {holder} last renewed the lease {renewed}"
        yield _error("leader", what, where=where, next=command)


def schedulers(facts: Facts) -> Iterator[Finding]:
    """Which other schedulers work here, and whether two of them could allocate the same device."""
    if facts.pods is None:
        return

    live_pods = [pod for pod in facts.pods if pod.status.phase not in pods.TERMINAL_PHASES]
    pods_by_scheduler = Counter(scheduler_of(pod) for pod in live_pods)
    if pods_by_scheduler:
        census = ", ".join(f"{name} {count}" for name, count in pods_by_scheduler.most_common())
        yield _note("schedulers", f"pods by scheduler: {census}")

    other_leaders = _other_leaders(facts)
    if other_leaders:
        yield _note("schedulers", f"other schedulers lead here: {some(other_leaders)}")

    yield from _shared_devices(facts.pods, facts.ours)
    yield from _unserved_pods(facts.pods, facts)


def _other_leaders(facts: Facts) -> list[str]:
    """The live leases of other schedulers, by namespace and name."""
    leaders: list[str] = []
    for lease in _live_leases(facts):
        metadata = lease.metadata
        is_scheduler = "scheduler" in metadata.name
        if is_scheduler and not _is_ours(lease, facts):
            leaders.append(f"{metadata.namespace}/{metadata.name}")
    return leaders


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
        "schedulers",
        what,
        next="set ownership in the scheduler's configuration; pass it to doctor with --config",
    )


def ownership(facts: Facts) -> Iterator[Finding]:
    """Whether any node carries the labels and the taint that the configuration calls ours."""
    if facts.nodes is None:
        return
    ours = facts.ours

    our_labels = ours.node_labels.items()
    all_labels = [node.metadata.labels.items() for node in facts.nodes]
    if our_labels and not any(our_labels <= labels for labels in all_labels):
        selector = ",".join(f"{key}={value}" for key, value in sorted(our_labels))
        yield _error(
            "ownership",
            f"no node carries the labels of our nodes ({selector}): every pod of ours waits",
            next=f"kubectl label node NAME {selector.replace(',', ' ')}",
        )

    taint_keys = {taint.key for node in facts.nodes for taint in node.spec.taints}
    if ours.node_taint and ours.node_taint not in taint_keys:
        yield _error(
            "ownership",
            f"no node carries the taint of our nodes ({ours.node_taint}): every pod of ours waits",
            next=f"kubectl taint node NAME {ours.node_taint}=:NoSchedule",
        )


def scheduler_of(pod: pods.Pod) -> str:
    """The scheduler the pod names, or the default one."""
    return pod.spec.scheduler_name or DEFAULT_SCHEDULER


def number_of(version: str) -> tuple[int, int] | None:
    """(1, 37) from v1.37.1 and the like; None if the text is not a version."""
    parts = version.removeprefix("v").split(".")
    digits = [re.sub("[^0-9]", "", part) for part in parts[:2]]
    if len(digits) != 2 or not all(digits):
        return None
    return int(digits[0]), int(digits[1])


def _unserved_pods(all_pods: Sequence[pods.Pod], facts: Facts) -> Iterator[Finding]:
    """Pending pods that name a scheduler which has placed no pod and holds no lease here."""
    active_schedulers = {*facts.ours.names, DEFAULT_SCHEDULER}
    active_schedulers.update(lease.metadata.name for lease in _live_leases(facts))
    active_schedulers.update(scheduler_of(pod) for pod in all_pods if pod.spec.node_name)

    pending: dict[str, list[str]] = {}
    for pod in all_pods:
        name = scheduler_of(pod)
        if name in active_schedulers or pod.status.phase in pods.TERMINAL_PHASES:
            continue
        age = age_seconds(pod.metadata.creation_timestamp, facts.now) or 0
        if age > PATIENCE_SECONDS:
            pending.setdefault(name, []).append(f"{pod.metadata.namespace}/{pod.metadata.name}")

    for name, pod_names in sorted(pending.items()):
        count = counted(len(pod_names), "pod")
        what = (
            f'{count} wait for scheduler "{name}", which has placed nothing here and leads nothing'
        )
        command = (
            f"kubectl get pods -A --field-selector spec.schedulerName={name},status.phase=Pending"
        )
        yield _error("schedulers", what, where=some(sorted(pod_names)), next=command)


def _uses_devices(pod: pods.Pod) -> bool:
    return bool(pod.spec.resource_claims) or pod.status.extended_resource_claim_status is not None


def _our_lease(facts: Facts) -> leases.Lease | None:
    return next((lease for lease in listed(facts.leases) if _is_ours(lease, facts)), None)


def _live_leases(facts: Facts) -> list[leases.Lease]:
    return [lease for lease in listed(facts.leases) if _is_alive(lease, facts)]


def _is_ours(lease: leases.Lease, facts: Facts) -> bool:
    return (lease.metadata.namespace, lease.metadata.name) == (
        facts.ours.lease_namespace,
        facts.ours.lease_name,
    )


def _is_alive(lease: leases.Lease, facts: Facts) -> bool:
    """Whether a holder renewed the lease in time, by the server's clock."""
    age = age_seconds(lease.spec.renew_time, facts.now)
    if age is None or not lease.spec.holder_identity:
        return False
    server_age = age - (facts.clock_ahead_seconds or 0.0)
    return server_age <= (lease.spec.lease_duration_seconds or 0) + CLOCK_SECONDS


def _nodes_by_kubelet_version(kubelets: dict[str, str]) -> dict[str, list[str]]:
    names_by_version: dict[str, list[str]] = {}
    for node, version in sorted(kubelets.items()):
        names_by_version.setdefault(version, []).append(node)
    return names_by_version


def _error(check: str, what: str, *, where: str = "", next: str = "") -> Finding:
    return Finding(severity=Severity.ERROR, check=check, what=what, where=where, next=next)


def _warning(check: str, what: str, *, where: str = "", next: str = "") -> Finding:
    return Finding(severity=Severity.WARNING, check=check, what=what, where=where, next=next)


def _note(check: str, what: str) -> Finding:
    return Finding(severity=Severity.NOTE, check=check, what=what)
