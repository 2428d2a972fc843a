"""Reads Leases of leader elections: which is ours, and which holders renew in time.

Facts in, Leases out. Times are compared by the server's clock. Never sends a request.
"""

from __future__ import annotations

from typing import Final

from dovetail.doctor.findings import Facts, age_seconds, listed
from dovetail.kubetypes.core import leases

SLACK_SECONDS: Final = 5.0  # clocks and the reading of a large cluster


def our_lease(facts: Facts) -> leases.Lease | None:
    """The Lease of our scheduler, held or not."""
    return next((lease for lease in listed(facts.leases) if is_ours(lease, facts)), None)


def live_leases(facts: Facts) -> list[leases.Lease]:
    """The Leases that a holder renews."""
    return [lease for lease in listed(facts.leases) if is_alive(lease, facts)]


def is_ours(lease: leases.Lease, facts: Facts) -> bool:
    """Whether our scheduler elects its leader by this Lease."""
    return (lease.metadata.namespace, lease.metadata.name) == (
        facts.ours.lease_namespace,
        facts.ours.lease_name,
    )


def is_alive(lease: leases.Lease, facts: Facts) -> bool:
    """Whether a holder renewed the Lease in time, by the server's clock."""
    age = age_seconds(lease.spec.renew_time, facts.now)
    if age is None or not lease.spec.holder_identity:
        return False
    server_age = age - (facts.clock_ahead_seconds or 0.0)
    return server_age <= (lease.spec.lease_duration_seconds or 0) + SLACK_SECONDS
