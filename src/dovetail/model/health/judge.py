"""Judges a cluster as a whole: every check on the same facts, the worst first. Facts in, a report out."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

import msgspec

from dovetail.model.health import borrowing, control, hardware, tenants
from dovetail.model.health.facts import Facts, Finding, Severity

Check = Callable[[Facts], Iterator[Finding]]

# What is checked, and the facts a check cannot do without: those that are missing are said to be unchecked.
CHECKS: Final[tuple[tuple[str, Check, tuple[str, ...]], ...]] = (
    ("versions", control.versions, ("server_number",)),
    ("kinds", control.kinds, ("served",)),
    ("clock", control.clocks, ("clock_ahead_seconds",)),
    ("rights", control.rights, ("rights",)),
    ("leader", control.leader, ("leases",)),
    ("schedulers", control.schedulers, ("pods",)),
    ("ownership", control.ownership, ("nodes",)),
    ("slices", hardware.published, ("slices",)),
    ("classes", hardware.classes, ("classes", "slices")),
    ("double counting", hardware.double_counting, ("nodes", "slices")),
    ("given twice", hardware.given_twice, ("claims",)),
    ("partitions", hardware.partitions, ("nodes",)),
    ("general pods", tenants.general_pods, ("nodes", "pods")),
    ("claims", tenants.claims_not_made, ("pods",)),
    ("quotas", tenants.used_up, ("quotas",)),
    ("queues", borrowing.held_up, ("queues",)),
)
_ORDER: Final = {severity: place for place, severity in enumerate(Severity)}


class Report(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What was found, what was looked at, and what could not be, with why."""

    cluster: str = ""
    server_version: str = ""
    findings: tuple[Finding, ...] = ()
    checked: tuple[str, ...] = ()
    unchecked: dict[str, str] = {}

    def count(self, severity: Severity) -> int:
        """How many findings are of this kind."""
        return sum(finding.severity is severity for finding in self.findings)


def report(facts: Facts, *, cluster: str = "") -> Report:
    """Every check whose facts are there."""
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
    findings.sort(key=lambda one: _ORDER[one.severity])  # stable: within a severity in the order of the checks
    return Report(
        cluster=cluster,
        server_version=facts.server_version,
        findings=tuple(findings),
        checked=tuple(checked),
        unchecked=unchecked,
    )
