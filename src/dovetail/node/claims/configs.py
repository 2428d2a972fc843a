"""How a claim wants its devices shared: the opaque configs of resource.nvidia.com/v1beta1, decoded and validated.

Given the configs of an allocation, decides which one each device gets: class configs before claim configs, later ones
win, a config for named requests must fit their devices. Defaults and limits are NVIDIA's; fields NVIDIA does not know
are refused by name, not ignored. Raises InputError with the place. Never touches a device.
"""

from __future__ import annotations

import enum
from collections.abc import Sequence
from typing import Final, TypeVar

import msgspec

from dovetail import errors
from dovetail.kubetypes.resource import claims
from dovetail.node.inventory import TimeSlice
from dovetail.quantity import quantity

DRIVER: Final = "gpu.nvidia.com"
API_VERSION: Final = "resource.nvidia.com/v1beta1"
MEBIBYTE: Final = 1024 * 1024

S = TypeVar("S", bound=msgspec.Struct)

_FROM_CLASS: Final = "FromClass"  # AllocationConfigSource, resource.k8s.io/v1
_FROM_CLAIM: Final = "FromClaim"
_REFUSED_KINDS: Final = {
    "VfioDeviceConfig": "passing GPUs through to virtual machines is not supported",
    "ComputeDomainChannelConfig": "compute domains belong to the driver compute-domain.nvidia.com",
    "ComputeDomainDaemonConfig": "compute domains belong to the driver compute-domain.nvidia.com",
}


class DeviceType(enum.Enum):
    """What a config can be for."""

    GPU = "GpuConfig"
    MIG = "MigDeviceConfig"


class TimeSlicing(msgspec.Struct, frozen=True, gc=False):
    """Processes take turns; the driver decides for how long."""

    interval: TimeSlice | None  # None on a MIG device, which has no interval of its own


class Mps(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """Processes run at the same time through an MPS daemon."""

    active_thread_percentage: int | None = None
    memory_limit_bytes: int | None = None  # for each device
    device_limits_bytes: dict[str, int] = {}  # by index among the devices or by UUID
    is_multi_user: bool = False


class Config(msgspec.Struct, frozen=True, gc=False):
    """What one config says. Without sharing, a device is prepared as it is."""

    device_type: DeviceType
    sharing: TimeSlicing | Mps | None = None


class _Wire(
    msgspec.Struct, frozen=True, gc=False, kw_only=True, rename="camel", forbid_unknown_fields=True
):
    """Unknown fields are refused here: a misspelt limit that is ignored is no limit."""


class _TimeSlicingConfig(_Wire, frozen=True, gc=False):
    interval: str | None = None


class _MpsConfig(_Wire, frozen=True, gc=False):
    default_active_thread_percentage: int | None = None
    default_pinned_device_memory_limit: quantity.Quantity | None = None
    default_per_device_pinned_memory_limit: dict[str, quantity.Quantity] | None = None
    multi_user: bool | None = None


class _GpuSharing(_Wire, frozen=True, gc=False):
    strategy: str = ""
    time_slicing_config: _TimeSlicingConfig | None = None
    mps_config: _MpsConfig | None = None


class _MigSharing(_Wire, frozen=True, gc=False):
    strategy: str = ""
    mps_config: _MpsConfig | None = None


class _GpuConfig(_Wire, frozen=True, gc=False):
    api_version: str
    kind: str
    sharing: _GpuSharing | None = None


class _MigConfig(_Wire, frozen=True, gc=False):
    api_version: str
    kind: str
    sharing: _MigSharing | None = None


class _Header(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    api_version: str = ""
    kind: str = ""


class ScopedConfig(msgspec.Struct, frozen=True, gc=False):
    """A config and the requests it is for; all of them if it names none."""

    requests: tuple[str, ...]
    config: Config

    def names(self, request: str) -> bool:
        """Whether it names this request, or the request that this one is an alternative of."""
        return request in self.requests or request.partition("/")[0] in self.requests


def of_allocation(
    configurations: Sequence[claims.DeviceAllocationConfiguration],
) -> tuple[ScopedConfig, ...]:
    """The configs for our driver, weakest first."""
    for index, configuration in enumerate(configurations):
        if configuration.source not in (_FROM_CLASS, _FROM_CLAIM):
            raise errors.InputError(
                f"allocation.devices.config[{index}]: unknown source {configuration.source!r}"
            )
    scoped: list[ScopedConfig] = []
    for source in (_FROM_CLASS, _FROM_CLAIM):
        for index, configuration in enumerate(configurations):
            opaque = configuration.opaque
            if configuration.source != source:
                continue
            place = f"allocation.devices.config[{index}]"
            if opaque is None:
                raise errors.InputError(f"{place}: only opaque configs are understood")
            if opaque.driver == DRIVER:
                parameters = bytes(opaque.parameters)
                decoded = decode(parameters, place=f"{place}.opaque.parameters")
                scoped.append(ScopedConfig(configuration.requests, decoded))
    return tuple(scoped)


def chosen(
    scoped: Sequence[ScopedConfig], *, request: str, device: str, device_type: DeviceType
) -> int | None:
    """The index of the config for one device; None where the defaults apply."""
    for index in range(len(scoped) - 1, -1, -1):
        candidate = scoped[index]
        fits = candidate.config.device_type is device_type
        if candidate.names(request):
            if not fits:
                raise errors.InputError(
                    f"request {request}: {candidate.config.device_type.value} is not for {device}, "
                    f"which takes a {device_type.value}"
                )
            return index
        if not candidate.requests and fits:
            return index
    return None


def decode(parameters: bytes, *, place: str) -> Config:
    """One config, with NVIDIA's defaults filled in. Raises InputError."""
    header = _decoded(_Header, parameters, place)
    if header.api_version != API_VERSION:
        raise errors.InputError(
            f"{place}.apiVersion: {header.api_version!r} is not known; known: {API_VERSION}"
        )
    if header.kind == DeviceType.GPU.value:
        gpu = _decoded(_GpuConfig, parameters, place)
        return Config(DeviceType.GPU, _gpu_sharing(gpu.sharing, f"{place}.sharing"))
    if header.kind == DeviceType.MIG.value:
        mig = _decoded(_MigConfig, parameters, place)
        return Config(DeviceType.MIG, _mig_sharing(mig.sharing, f"{place}.sharing"))
    reason = _REFUSED_KINDS.get(header.kind)
    if reason is not None:
        raise errors.InputError(f"{place}: {header.kind}: {reason}")
    raise errors.InputError(
        f"{place}.kind: {header.kind!r} is not known; known: GpuConfig, MigDeviceConfig"
    )


def _gpu_sharing(sharing: _GpuSharing | None, place: str) -> TimeSlicing | Mps | None:
    if sharing is None:
        return None
    match sharing.strategy:
        case "TimeSlicing":
            if sharing.mps_config is not None:
                raise errors.InputError(f"{place}.mpsConfig: not with strategy TimeSlicing")
            config = sharing.time_slicing_config or _TimeSlicingConfig()
            return TimeSlicing(_interval(config.interval, f"{place}.timeSlicingConfig.interval"))
        case "MPS":
            if sharing.time_slicing_config is not None:
                raise errors.InputError(f"{place}.timeSlicingConfig: not with strategy MPS")
            return _mps(sharing.mps_config or _MpsConfig(), f"{place}.mpsConfig")
    raise _unknown_strategy(sharing.strategy, place)


def _mig_sharing(sharing: _MigSharing | None, place: str) -> TimeSlicing | Mps | None:
    if sharing is None:
        return None
    match sharing.strategy:
        case "TimeSlicing":
            return TimeSlicing(None)
        case "MPS":
            return _mps(sharing.mps_config or _MpsConfig(), f"{place}.mpsConfig")
    raise _unknown_strategy(sharing.strategy, place)


def _interval(text: str | None, place: str) -> TimeSlice:
    if text is None:
        return TimeSlice.DEFAULT
    try:
        return TimeSlice(text)
    except ValueError:
        known = ", ".join(TimeSlice)
        raise errors.InputError(f"{place}: {text!r} is not known; known: {known}") from None


def _mps(config: _MpsConfig, place: str) -> Mps:
    percentage = config.default_active_thread_percentage
    if percentage is not None and not 0 <= percentage <= 100:
        raise errors.InputError(
            f"{place}.defaultActiveThreadPercentage: {percentage} is not between 0 and 100"
        )
    limit = config.default_pinned_device_memory_limit
    limit_place = f"{place}.defaultPinnedDeviceMemoryLimit"
    per_device = config.default_per_device_pinned_memory_limit or {}
    device_limits = {
        device: _limit(value, f"{place}.defaultPerDevicePinnedMemoryLimit[{device}]")
        for device, value in per_device.items()
    }
    return Mps(
        active_thread_percentage=percentage,
        memory_limit_bytes=None if limit is None else _limit(limit, limit_place),
        device_limits_bytes=device_limits,
        is_multi_user=bool(config.multi_user),
    )


def _limit(value: quantity.Quantity, place: str) -> int:
    if value.value() < MEBIBYTE:
        raise errors.InputError(f"{place}: {value} is less than 1Mi, the smallest limit of MPS")
    return value.value()


def _unknown_strategy(strategy: str, place: str) -> errors.InputError:
    return errors.InputError(
        f"{place}.strategy: {strategy!r} is not known; known: TimeSlicing, MPS"
    )


def _decoded(kind: type[S], parameters: bytes, place: str) -> S:
    try:
        return msgspec.json.decode(parameters, type=kind, dec_hook=quantity.decode_hook)
    except (msgspec.MsgspecError, errors.InputError, UnicodeDecodeError, RecursionError) as error:
        message = str(error).replace("`", "'")
        raise errors.InputError(f"{place}: {message}") from None
