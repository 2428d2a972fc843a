"""Topology of dovetail.dev/v1alpha1: the labels that say where a node stands, widest level first."""

from __future__ import annotations

import msgspec

from dovetail.kubetypes import meta


class Level(
    msgspec.Struct, frozen=True, gc=False, kw_only=True, rename="camel", omit_defaults=True
):
    """One level: nodes that agree in this label, and in those of all wider levels, form a domain."""

    node_label: str = ""
    alias: str = ""  # a short name gangs may use for it
    power_cap_watts: meta.Int64 | None = (
        None  # of the boards in use in each of its domains, by their rated power
    )


class TopologySpec(
    msgspec.Struct, frozen=True, gc=False, kw_only=True, rename="camel", omit_defaults=True
):
    """Levels from the widest to the narrowest."""

    levels: tuple[Level, ...] = ()


class Topology(
    msgspec.Struct, frozen=True, gc=False, kw_only=True, rename="camel", omit_defaults=True
):
    """A hierarchy of domains, cluster-scoped."""

    api_version: str = ""
    kind: str = ""
    metadata: meta.ObjectMeta = meta.ObjectMeta()
    spec: TopologySpec = TopologySpec()
