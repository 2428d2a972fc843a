"""Namespace of core v1, with the field scheduling reads: its labels, which select whole namespaces at once."""

from typing import Final

import msgspec

from dovetail.kubetypes import meta


class Namespace(
    msgspec.Struct, frozen=True, gc=False, kw_only=True, rename="camel", omit_defaults=True
):
    """A room for names, cluster-scoped."""

    api_version: str = ""
    kind: str = ""
    metadata: meta.ObjectMeta = meta.ObjectMeta()


UNMODELLED: Final[dict[type, frozenset[str]]] = {Namespace: frozenset({"spec", "status"})}
