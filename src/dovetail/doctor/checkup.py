"""Runs every check on the same facts and sorts the findings, worst first. Facts in, a report out."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

import msgspec

from dovetail.doctor import (
    check_control_plane,
    check_devices,
    check_queues,
    check_schedulers,
    check_tenants,
)
from dovetail.doctor.findings import Facts, Finding, Severity

Check = Callable[[Facts], Iterator[Finding]]

# Name, check and the facts it needs. Checks whose facts are missing are reported as unchecked.
CHECKS: Final[tuple[tuple[str, Check, tuple[str, ...]], ...]] = (
    ("versions", check_control_plane.versions, ("server_number",)),
    ("kinds", check_control_plane.kinds, ("served",)),
    ("clock", check_control_plane.clocks, ("clock_ahead_seconds",)),
    ("rights", check_control_plane.rights, ("rights",)),
    ("leader", check_control_plane.leader, ("leases",)),
    ("schedulers", check_schedulers.schedulers, ("pods",)),
    ("ownership", check_schedulers.ownership, ("nodes",)),
    ("slices", check_devices.published, ("slices",)),
    ("classes", check_devices.classes, ("classes", "slices")),
    ("double counting", check_devices.double_counting, ("nodes", "slices")),
    ("given twice", check_devices.double_allocation, ("claims",)),
    ("partitions", check_devices.partitions, ("nodes",)),
    ("general pods", check_tenants.general_pods, ("nodes", "pods")),
    ("claims", check_tenants.missing_claims, ("pods",)),
    ("quotas", check_tenants.exhausted_quotas, ("quotas",)),
    ("queues", check_queues.blocked_queues, ("queues",)),
)
_ORDER: Final = {severity: place for place, severity in enumerate(Severity)}


class Report(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The findings, the checks that ran, and those that could not run with the reason."""

    cluster: str = ""
    server_version: str = ""
    findings: tuple[Finding, ...] = ()
    checked: tuple[str, ...] = ()
    unchecked: dict[str, str] = {}

    def count(self, severity: Severity) -> int:
        """How many findings have this severity."""
        return sum(finding.severity is severity for finding in self.findings)


def report(facts: Facts, *, cluster: str = "") -> Report:
    """Runs every check whose facts could be read."""
    findings: list[Finding] = []
    checked: list[str] = []
    unchecked: dict[str, str] = {}
    for name, check, needs in CHECKS:
        missing = [need for need in needs if getattr(facts, need) is None]
        if missing:
            unchecked[name] = facts.unread.get(missing[0], "not known here")
            continue
        checked.append(name)
        findings.extend(check(facts))
    # A stable sort: within a severity, findings stay in the order of the checks.
    findings.sort(key=lambda finding: _ORDER[finding.severity])
    return Report(
        cluster=cluster,
        server_version=facts.server_version,
        findings=tuple(findings),
        checked=tuple(checked),
        unchecked=unchecked,
    )
