"""Intent of dovetail.dev/v1alpha1: which pods of a gang are about to get which nodes, kept while that is being written.

Writes are not atomic: whoever schedules next reads here what was begun, and completes it or takes it back.
"""

from __future__ import annotations

import msgspec

from dovetail.model import meta


class Member(msgspec.Struct, frozen=True, gc=False, kw_only=True, rename="camel", omit_defaults=True):
    """A pod, the node decided for it, and the claims that get devices for it."""

    pod: str = ""
    uid: str = ""
    node: str = ""
    claims: tuple[str, ...] = ()


class IntentSpec(msgspec.Struct, frozen=True, gc=False, kw_only=True, rename="camel", omit_defaults=True):
    """What was begun, and by when it is over one way or the other."""

    gang: str = ""
    attempt: meta.Int32 = 1
    deadline: str = ""  # RFC 3339
    members: tuple[Member, ...] = ()


class Intent(msgspec.Struct, frozen=True, gc=False, kw_only=True, rename="camel", omit_defaults=True):
    """Pods of a gang that are being given their nodes, namespaced."""

    api_version: str = ""
    kind: str = ""
    metadata: meta.ObjectMeta = meta.ObjectMeta()
    spec: IntentSpec = IntentSpec()
