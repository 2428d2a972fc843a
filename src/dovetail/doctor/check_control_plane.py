"""Checks the control plane and our scheduler's place in it: versions, APIs, clock, RBAC, leader.

Facts in, findings out, one function per check. Never sends a request.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Final

from dovetail.doctor import leader_leases
from dovetail.doctor.findings import (
    Facts,
    Finding,
    Severity,
    age_seconds,
    counted,
    listed,
    some,
)
from dovetail.hollow import node_marks

FIRST: Final = (1, 34)  # the first server that has resource.k8s.io/v1
TESTED: Final = ((1, 36), (1, 37))  # the versions of the end-to-end tests
KUBELET_SKEW: Final = 3  # minor versions a kubelet may be older than its server
CLOCK_SECONDS: Final = 5.0
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
    our_lease = leader_leases.our_lease(facts)
    if our_lease is not None and leader_leases.is_alive(our_lease, facts):
        what = f"{subject} has no rights, yet a scheduler leads: it runs as another user"
        yield _note("rights", f"{what}; name it with --service-account")
        return

    what = (
        f"{subject} has none of the {len(reviewed.needed)} rights a scheduler needs; "
        "is it installed?"
    )
    yield _error("rights", what, where=subject, next="dovetail install")


def leader(facts: Facts) -> Iterator[Finding]:
    """Whether one of our replicas leads. The embedded scheduler has no replicas and takes no lease."""
    if facts.leases is None or facts.is_embedded:
        return
    ours = facts.ours
    where = f"lease {ours.lease_namespace}/{ours.lease_name}"
    command = f"kubectl -n {ours.lease_namespace} get lease {ours.lease_name} -o yaml"

    our_lease = leader_leases.our_lease(facts)
    if our_lease is None:
        what = "no Dovetail scheduler has ever led here"
        yield _warning("leader", what, where=where, next="dovetail scheduler")
        return

    holder = our_lease.spec.holder_identity
    if not holder and (replica_count := _hollow_replicas(facts)):
        replicas = counted(replica_count, "replica")
        what = f"no replica leads: {replicas} on hollow nodes, where no container runs"
        yield _error("leader", what, where=where, next="dovetail scheduler")
    elif not holder and our_lease.spec.renew_time is None:
        what = "no replica has led yet"
        yield _error("leader", what, where=where, next=command)
    elif not holder:
        what = "no replica leads: the last leader gave the lease back"
        yield _error("leader", what, where=where, next=command)
    elif not leader_leases.is_alive(our_lease, facts):
        age = age_seconds(our_lease.spec.renew_time, facts.now)
        renewed = "at an unreadable time" if age is None else f"{age:.0f} s ago"
        what = f"no replica leads: {holder} last renewed the lease {renewed}"
        yield _error("leader", what, where=where, next=command)


def _hollow_replicas(facts: Facts) -> int:
    """How many pods of the installation that the Lease belongs to are on hollow nodes."""
    ours = facts.ours
    hollow_nodes = {
        node.metadata.name for node in listed(facts.nodes) if node_marks.is_hollow(node)
    }
    replicas = [
        pod
        for pod in listed(facts.pods)
        if pod.metadata.namespace == ours.lease_namespace
        and pod.metadata.name.startswith(f"{ours.lease_name}-")
    ]
    return sum(pod.spec.node_name in hollow_nodes for pod in replicas)


def number_of(version: str) -> tuple[int, int] | None:
    """(1, 37) from v1.37.1 and the like; None if the text is not a version."""
    parts = version.removeprefix("v").split(".")
    digits = [re.sub("[^0-9]", "", part) for part in parts[:2]]
    if len(digits) != 2 or not all(digits):
        return None
    return int(digits[0]), int(digits[1])


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
