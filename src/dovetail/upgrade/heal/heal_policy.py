"""How far the healer may go: limits per window, the breaker of a pool, and what it may end. As data.

Given text and its name. Raises InputError with the place. Never heals.
"""

from __future__ import annotations

from typing import Annotated, Any

import msgspec

from dovetail import errors
from dovetail.manifest import yaml_text
from dovetail.upgrade.heal.remedy_ladder import Rung

Seconds = Annotated[int, msgspec.Meta(ge=1, le=31_536_000)]


class HealPolicy(
    msgspec.Struct,
    frozen=True,
    kw_only=True,
    rename="camel",
    forbid_unknown_fields=True,
):
    """The rules of the healer."""

    window_seconds: Seconds = 86_400  # how long an attempt counts
    tries: Annotated[int, msgspec.Meta(ge=1, le=10)] = 2  # of one remedy per window, then the next
    fault_seconds: Seconds = 90  # how long a fault stands before a remedy begins
    breaker_share: Annotated[float, msgspec.Meta(gt=0, le=1)] = 0.25  # of a pool's nodes with GPUs
    breaker_seconds: Seconds = 300
    reset_seconds: Seconds = 900  # from the request until a remedy counts as failed
    reboot_seconds: Seconds = 1_800
    pass_seconds: Seconds = 10  # between two looks at the cluster
    highest: Rung = Rung.REPLACE
    restart_applications: bool = False
    evict_bare_pods: bool = False  # no controller creates them again

    def allowed(self, nodes: int) -> int:
        """How many nodes of a pool of this size may be healed at once, and begun within the breaker's time."""
        return max(1, int(nodes * self.breaker_share))


DEFAULT = HealPolicy()


def read(text: str, name: str) -> HealPolicy:
    """The rules of a YAML file."""
    try:
        documents = list(yaml_text.documents(text))
    except yaml_text.TextError as error:
        raise errors.InputError(f"{name}: {error}") from None
    tree: Any = documents[0].tree if len(documents) == 1 else None
    if not isinstance(tree, dict):
        known = ", ".join(field.encode_name for field in msgspec.structs.fields(HealPolicy))
        raise errors.InputError(f"{name}: expected one document with fields of: {known}")
    try:
        return msgspec.convert(tree, type=HealPolicy)
    except msgspec.ValidationError as error:
        raise errors.InputError(f"{name}: {error}") from None
