"""Lease of coordination.k8s.io/v1: who leads, since when, and for how long without a renewal."""

import msgspec

from dovetail.kubetypes import meta


class LeaseSpec(
    msgspec.Struct, frozen=True, gc=False, kw_only=True, rename="camel", omit_defaults=True
):
    """Times are RFC 3339 text with microseconds."""

    holder_identity: str | None = None
    lease_duration_seconds: meta.Int32 | None = None
    acquire_time: meta.Time | None = None
    renew_time: meta.Time | None = None
    lease_transitions: meta.Int32 | None = None


class Lease(
    msgspec.Struct, frozen=True, gc=False, kw_only=True, rename="camel", omit_defaults=True
):
    """A promise to be alive, namespaced."""

    api_version: str = ""
    kind: str = ""
    metadata: meta.ObjectMeta = meta.ObjectMeta()
    spec: LeaseSpec = LeaseSpec()
