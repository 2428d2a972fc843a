"""How an administrator wants GPUs published: the settings of NVIDIA's driver that change its slices.

Structs only. Never looks at a GPU.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final

import msgspec

from dovetail import errors

DRIVER: Final = "gpu.nvidia.com"
OWN_DOMAIN: Final = "dovetail.dev"


class ShareMode(StrEnum):
    """Whether several claims may hold one device, and what limits them; NVIDIA's gate ConsumableShares."""

    DISABLED = "disabled"
    MEMORY = "memory"  # by memory: a claim that requests none takes all of it
    UNLIMITED = "unlimited"
    COUNTED = "counted"  # by a number of claims


class Shares(msgspec.Struct, frozen=True, gc=False):
    """A mode and, if claims are counted, how many may hold a device at once."""

    mode: ShareMode = ShareMode.DISABLED
    count: int = 0


class SliceOptions(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """The defaults are NVIDIA's: whole GPUs and the MIG devices that exist, one claim each."""

    is_mig_dynamic: bool = False
    shares: Shares = Shares()
    # Kubernetes before 1.35 wants counters in the slice of the devices that consume them.
    has_split_counters: bool = True
    has_own_attributes: bool = True


def shares_from(text: str) -> Shares:
    """As NVIDIA's flag --consumable-shares is written: disabled, memory, unlimited or a positive number."""
    text = text.strip() or ShareMode.DISABLED.value
    if text.isdecimal() and int(text) > 0:
        return Shares(ShareMode.COUNTED, int(text))
    if text in (ShareMode.DISABLED, ShareMode.MEMORY, ShareMode.UNLIMITED):
        return Shares(ShareMode(text))
    raise errors.InputError(
        f"consumable shares {text!r}: expected disabled, memory, unlimited or a positive number"
    )


def has_split_counters(server_version: str) -> bool:
    """Whether an API server of this version ("v1.37.1") wants counters in slices of their own."""
    numbers = server_version.removeprefix("v").split(".")
    try:
        return (int(numbers[0]), int(numbers[1].rstrip("+"))) >= (1, 35)
    except (IndexError, ValueError):
        raise errors.InputError(
            f"API server version {server_version!r} has no minor version"
        ) from None
