"""What the pods of a job request: devices of a claim, or the counted resources of a device plugin.

Given GPU types and what the user wants of them: whole GPUs, a MIG profile, or some memory. The device class is the one
whose selectors accept such a device. Raises InputError where the types do not offer it. Never reads a cluster.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final

import msgspec

from dovetail import errors
from dovetail.ask.submission import gpu_products
from dovetail.cel import device_views, selectors
from dovetail.cel.evaluate.program import Outcome
from dovetail.kubetypes.resource import device_classes, slices
from dovetail.model import node_pools
from dovetail.tables.gpus import plugin_gpus

REQUEST: Final = "gpus"  # the name of the request, and of the claim in the pod

Tree = dict[str, Any]


class Wish(msgspec.Struct, frozen=True, kw_only=True):
    """What one pod should have."""

    count: int
    types: tuple[gpu_products.GpuType, ...] = ()
    is_any_type: bool = True
    profile: str = ""
    memory: str = ""


class DeviceRequest(msgspec.Struct, frozen=True, kw_only=True):
    """The request of one pod: a claim's, or resources with the labels of nodes that count them."""

    claim: Tree | None = None
    resources: dict[str, str] = {}
    node_labels: dict[str, tuple[str, ...]] = {}  # the values that each label may have
    words: str = ""  # for people


NOTHING: Final = DeviceRequest()


def request_for(wish: Wish, classes: Sequence[device_classes.DeviceClass]) -> DeviceRequest:
    """The request. GPUs that a driver publishes come before those that a device plugin counts."""
    if not wish.count:
        return NOTHING
    if not wish.types:
        raise errors.InputError("this cluster has no GPUs; --gpus 0 asks for none")
    published = tuple(each for each in wish.types if each.is_published)
    if published:
        return _claimed(wish, published, classes)
    return _counted(wish, wish.types)


def _claimed(
    wish: Wish,
    types: Sequence[gpu_products.GpuType],
    classes: Sequence[device_classes.DeviceClass],
) -> DeviceRequest:
    expressions = [] if wish.is_any_type else [gpu_products.selector_of(types)]
    driver = types[0].driver
    sample = next((each.sample for each in types if each.sample is not None), None)
    partition = next((each.partition for each in types if each.partition is not None), None)
    exactly: Tree = {}
    words = "GPU" if wish.count == 1 else "GPUs"
    if wish.profile:
        _check_profile(wish.profile, types)
        sample = partition
        expressions.append(f'device.attributes["{driver}"].profile == "{wish.profile}"')
        words = f"MIG {wish.profile}"
    elif wish.memory and any(each.is_shareable for each in types):
        exactly["capacity"] = {"requests": {"memory": wish.memory}}
        words = f"share of {wish.memory}"
    elif wish.memory:
        # The smallest partition that is large enough wins: the engine charges what is left over.
        sample = partition or sample
        capacity = f'device.capacity["{driver}"].memory'
        expressions.append(f'{capacity}.compareTo(quantity("{wish.memory}")) >= 0')
        words = f"{'MIG slice' if partition else 'GPU'} of at least {wish.memory}"
    exactly = {
        "deviceClassName": _class_name(driver, sample, classes),
        "count": wish.count,
        **exactly,
    }
    if expressions:
        exactly["selectors"] = [{"cel": {"expression": each}} for each in expressions]
    claim = {"devices": {"requests": [{"name": REQUEST, "exactly": exactly}]}}
    return DeviceRequest(claim=claim, words=f"{wish.count} {words}{_of_types(wish, types)}")


def _counted(wish: Wish, types: Sequence[gpu_products.GpuType]) -> DeviceRequest:
    """Resources of a device plugin: it counts GPUs and partitions, and knows no memory."""
    if wish.memory:
        raise errors.InputError(
            "a device plugin counts these GPUs and cannot divide them by memory; give --mig PROFILE, "
            "or leave --gpu-memory out for whole GPUs"
        )
    resource = node_pools.GPU_RESOURCE
    words = "GPU" if wish.count == 1 else "GPUs"
    if wish.profile:
        _check_profile(wish.profile, types)
        resource, words = f"{plugin_gpus.MIG_PREFIX}{wish.profile}", f"MIG {wish.profile}"
    values: dict[str, list[str]] = {}
    for each in () if wish.is_any_type else types:
        if each.label:
            values.setdefault(each.label, []).append(each.product)
    return DeviceRequest(
        resources={resource: str(wish.count)},
        node_labels={label: tuple(products) for label, products in values.items()},
        words=f"{wish.count} {words}{_of_types(wish, types)}",
    )


def _check_profile(profile: str, types: Iterable[gpu_products.GpuType]) -> None:
    profiles = list(dict.fromkeys(name for each in types for name in each.profiles))
    if profile in profiles:
        return
    offers = f"it offers {', '.join(profiles)}" if profiles else "it offers no MIG slices"
    names = ", ".join(each.word for each in types)
    raise errors.InputError(f'--mig "{profile}": {names}: {offers}')


def _of_types(wish: Wish, types: Sequence[gpu_products.GpuType]) -> str:
    if wish.is_any_type:
        return ""
    return f" ({' or '.join(each.product for each in types)})"


def _class_name(
    driver: str,
    sample: slices.Device | None,
    classes: Sequence[device_classes.DeviceClass],
) -> str:
    """The class that accepts the device: the driver's own by preference, else the first by name."""
    if sample is None:
        raise errors.InputError(
            "no whole GPU of this type is published; --mig PROFILE asks for a slice"
        )
    names = sorted(each.metadata.name for each in classes if _accepts(each, driver, sample))
    if not names:
        raise errors.InputError(
            f"no DeviceClass accepts devices of {driver}; an administrator creates one: "
            "dovetail get classes shows those there are"
        )
    return driver if driver in names else names[0]


def _accepts(device_class: device_classes.DeviceClass, driver: str, sample: slices.Device) -> bool:
    view = device_views.view(driver, sample)
    expressions = [each.cel.expression for each in device_class.spec.selectors if each.cel]
    if not expressions:
        return False  # it accepts devices of every driver
    if any(selectors.problem(each, is_stored=True) for each in expressions):
        return False
    return all(selectors.selector(each).match(view) is Outcome.MATCH for each in expressions)
