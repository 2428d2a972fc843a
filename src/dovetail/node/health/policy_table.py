"""What each fault of a GPU means: the effect of its taint, what to do about it, and when it is over.

The defaults follow the immediate actions of NVIDIA's Xid catalogue for Ampere and later, which knows better than the
lists compiled into device plugins: 94 is contained and needs the application restarted, 109 needs a reset. Every rule
can be replaced by the administrator; an error that no rule names keeps new work away and asks for support.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Final

import msgspec

from dovetail import errors


class PolicyInvalid(errors.DovetailError):
    """The administrator's rules cannot be read; the message names the rule and the field."""


class Effect(StrEnum):
    """Of a device taint. The agent never evicts by itself, so NoExecute has to be chosen by an administrator."""

    NONE = "None"  # visible in the slice, keeps nothing away
    NO_SCHEDULE = "NoSchedule"
    NO_EXECUTE = "NoExecute"


class Advice(StrEnum):
    """What people should do; the words stand in events and conditions."""

    IGNORE = "nothing to do"
    RESTART_APP = "restart the application"
    RESET_GPU = "drain the GPU and reset it"
    DRAIN_P2P = "drain the GPUs that talk to it over NVLink"
    REBOOT_NODE = "drain the node and reboot it"
    RECOVER_FABRIC = "check the fabric manager and IMEX domain, then reset the GPU"
    CHECK_MECHANICS = "check power and cooling"
    REPLACE = "replace the GPU"
    CONTACT_SUPPORT = "drain the GPU and contact the vendor"


class Over(StrEnum):
    """What ends a fault."""

    QUIET = "quiet"  # it did not happen again for `seconds`
    GONE = "gone"  # readings no longer show it, for `seconds`
    RESET = "reset"  # the GPU was reset, or the driver loaded again
    NEVER = "never"  # only with another GPU


class Rule(msgspec.Struct, frozen=True, gc=False, kw_only=True, forbid_unknown_fields=True):
    """One fault. `effect` is absent where the fault is reported without a taint."""

    advice: Advice
    effect: Effect | None = None
    over: Over = Over.RESET
    seconds: float = 300.0


LOST: Final = "gpu-lost"
UNMONITORED: Final = "unmonitored"
UNCORRECTABLE_ECC: Final = "uncorrectable-ecc"
ROW_REMAP_PENDING: Final = "row-remap-pending"
ROW_REMAP_FAILED: Final = "row-remap-failed"
PAGES_PENDING: Final = "page-retirement-pending"
FABRIC: Final = "fabric"
HOT: Final = "temperature"
OTHER_XID: Final = "xid-other"

HOT_CELSIUS: Final = 95  # above the slowdown temperature of every board in the catalogue

_APP: Final = Rule(advice=Advice.RESTART_APP, effect=Effect.NONE, over=Over.QUIET)
_IGNORE: Final = Rule(advice=Advice.IGNORE, over=Over.QUIET)
_RESET: Final = Rule(advice=Advice.RESET_GPU, effect=Effect.NO_SCHEDULE)
_REBOOT: Final = Rule(advice=Advice.REBOOT_NODE, effect=Effect.NO_SCHEDULE)
_SUPPORT: Final = Rule(advice=Advice.CONTACT_SUPPORT, effect=Effect.NO_SCHEDULE)
_HEAT: Final = Rule(
    advice=Advice.CHECK_MECHANICS, effect=Effect.NO_SCHEDULE, over=Over.GONE, seconds=120.0
)

# What to do for each recovery action of the driver.
_RECOVERIES: Final = {
    "gpu-reset": Advice.RESET_GPU,
    "drain-and-reset": Advice.RESET_GPU,
    "bus-reset": Advice.RESET_GPU,
    "drain-p2p": Advice.DRAIN_P2P,
    "recover-imex-domain": Advice.RECOVER_FABRIC,
    "node-reboot": Advice.REBOOT_NODE,
    "system-reboot": Advice.REBOOT_NODE,
}


def _asked_for(advice: Advice) -> Rule:
    """While the driver itself asks for it."""
    return Rule(advice=advice, effect=Effect.NO_SCHEDULE, over=Over.GONE, seconds=10.0)


# NVIDIA's Xid catalogue, column "immediate action". Engine errors of one application come in ranges:
# copy engines 39-41, 70-72, 75-77, 85, 126-135; decoders 68, 83, 84, 88, 89, 96-98; JPEG 82, 99-105; OFA 86, 139.
_APP_XIDS: Final = frozenset(
    {8, 11, 13, 25, 31, 32, 39, 40, 41, 60, 68, 69, 70, 71, 72, 75, 76, 77, 80, 82, 83, 84, 85, 86}
    | {88, 89, 94, 139}
    | set(range(96, 106))
    | set(range(126, 136))
)
_IGNORED_XIDS: Final = frozenset(
    {37, 38, 43, 44, 63, 66, 67, 92, 93, 106, 107, 108, 121, 137, 141, 147, 148, 152, 153}
    | {157, 160, 161}
)
_RESET_XIDS: Final = frozenset(
    {46, 48, 62, 64, 74, 95, 109, 110, 119, 120, 136, 140, 143, 144, 145, 146, 149, 150}
    | {155, 156, 158}
)
_REBOOT_XIDS: Final = frozenset({79, 151})

DEFAULTS: Final[Mapping[str, Rule]] = {
    **{f"xid-{code}": _APP for code in _APP_XIDS},
    **{f"xid-{code}": _IGNORE for code in _IGNORED_XIDS},
    **{f"xid-{code}": _RESET for code in _RESET_XIDS},
    **{f"xid-{code}": _REBOOT for code in _REBOOT_XIDS},
    # Alone it follows another process's end; with another error that one decides.
    "xid-45": _APP,
    "xid-54": Rule(advice=Advice.CHECK_MECHANICS, effect=Effect.NONE, over=Over.QUIET),
    # Only announces that the recovery action changed, which is read by itself.
    "xid-154": _IGNORE,
    "xid-78": _SUPPORT,  # the catalogue: update software and firmware
    "xid-142": _SUPPORT,
    "xid-159": _SUPPORT,  # the catalogue: check the unified memory driver
    OTHER_XID: _SUPPORT,
    LOST: Rule(advice=Advice.REBOOT_NODE, effect=Effect.NO_SCHEDULE, over=Over.GONE, seconds=60.0),
    UNMONITORED: Rule(advice=Advice.IGNORE, effect=Effect.NONE, over=Over.GONE, seconds=0.0),
    UNCORRECTABLE_ECC: Rule(
        advice=Advice.RESET_GPU, effect=Effect.NO_SCHEDULE, over=Over.GONE, seconds=60.0
    ),
    # Rows are remapped by the next reset; until then the spare row is not in use, but the GPU works.
    ROW_REMAP_PENDING: Rule(
        advice=Advice.RESET_GPU, effect=Effect.NONE, over=Over.GONE, seconds=60.0
    ),
    PAGES_PENDING: Rule(advice=Advice.RESET_GPU, effect=Effect.NONE, over=Over.GONE, seconds=60.0),
    ROW_REMAP_FAILED: Rule(
        advice=Advice.REPLACE, effect=Effect.NO_SCHEDULE, over=Over.GONE, seconds=60.0
    ),
    FABRIC: Rule(
        advice=Advice.RECOVER_FABRIC, effect=Effect.NO_SCHEDULE, over=Over.GONE, seconds=60.0
    ),
    HOT: _HEAT,
    "throttle-hw-slowdown": Rule(
        advice=Advice.CHECK_MECHANICS, effect=Effect.NONE, over=Over.GONE, seconds=120.0
    ),
    "throttle-hw-thermal-slowdown": _HEAT,
    "throttle-hw-power-brake": _HEAT,
    "throttle-sw-thermal-slowdown": Rule(
        advice=Advice.CHECK_MECHANICS, effect=Effect.NONE, over=Over.GONE, seconds=120.0
    ),
    **{f"recovery-{action}": _asked_for(advice) for action, advice in _RECOVERIES.items()},
}


class HealthPolicy(msgspec.Struct, frozen=True, gc=False):
    """The rules in force: the administrator's first, then the defaults."""

    overrides: Mapping[str, Rule] = {}

    def rule(self, fault: str) -> Rule:
        """The rule of a fault; an Xid without one of its own gets the rule for others."""
        for rules in (self.overrides, DEFAULTS):
            if fault in rules:
                return rules[fault]
        return self.overrides.get(OTHER_XID, DEFAULTS[OTHER_XID])


def read(document: bytes) -> HealthPolicy:
    """The administrator's rules, as YAML: fault names with advice, effect, over and seconds."""
    try:
        overrides = msgspec.yaml.decode(document or b"{}", type=dict[str, Rule])
    except msgspec.MsgspecError as error:
        raise PolicyInvalid(f"health policy: {error}") from error

    unknown = sorted(name for name in overrides if not _is_fault(name))
    if unknown:
        names = ", ".join(sorted(name for name in DEFAULTS if not name.startswith("xid-")))
        raise PolicyInvalid(
            f'health policy: unknown fault "{unknown[0]}"; known: xid-NUMBER, xid-other, {names}'
        )
    return HealthPolicy(overrides)


def _is_fault(name: str) -> bool:
    return name in DEFAULTS or (name.startswith("xid-") and name[4:].isdigit())
