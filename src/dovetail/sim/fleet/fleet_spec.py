"""Describes a fleet: pools of equal nodes, their GPUs, racks and driver; small enough to write by hand.

Given YAML text or structs. Refuses boards that do not exist or that lack published figures, naming pool and field.
Never builds a Kubernetes object: `fleet_objects` does.
"""

import re
from collections.abc import Iterator
from typing import Annotated, Final

import msgspec

from dovetail import errors, gpus
from dovetail.kubetypes import names, untyped
from dovetail.quantity import quantity

Count = Annotated[int, msgspec.Meta(ge=1, le=10_000)]
GpuCount = Annotated[int, msgspec.Meta(ge=1, le=16)]  # the largest NVIDIA boards hold 16

DEFAULT_DRIVER: Final = "580.126.20"
DEFAULT_CUDA: Final = "13.0"
AUTOMATIC: Final = "auto"
SHARED_MEMORY: Final = "memory"  # as NVIDIA's driver with ConsumableShares=memory

_DNS_LABEL: Final = re.compile(r"[a-z0-9]([a-z0-9-]{0,52}[a-z0-9])?")
_CLIQUE: Final = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}\.[0-9]{1,10}")
_VERSION: Final = re.compile(r"[0-9]{1,6}(\.[0-9]{1,6}){1,2}")


class Pool(msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """Equal nodes. `nodes_per_rack` splits a pool over racks; `clique: auto` puts each rack into one NVLink domain.

    `shares: memory` lets several claims use a GPU at once, each with a part of its memory.
    """

    name: str
    count: Count
    gpu: str
    gpus_per_node: GpuCount = 8
    mig: bool = False
    shares: str | None = None
    rack: str | None = None
    nodes_per_rack: Count | None = None
    clique: str | None = None
    machine: str | None = None
    labels: dict[str, str] = {}
    cpu: str = "64"
    memory: str = "512Gi"


class Fleet(msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """All pools and the driver they run. The name seeds every generated id."""

    name: str
    pools: tuple[Pool, ...]
    driver_version: str = DEFAULT_DRIVER
    cuda_version: str = DEFAULT_CUDA


def sample() -> Fleet:
    """Four DGX H100, four A100 nodes with MIG and one GB200 NVL72 rack."""
    h100 = Pool(
        name="h100",
        count=4,
        gpu="H100-SXM5-80GB",
        machine="DGX-H100",
        rack="r1",
        cpu="224",
        memory="2Ti",
    )
    a100 = Pool(
        name="a100",
        count=4,
        gpu="A100-SXM4-80GB",
        gpus_per_node=4,
        mig=True,
        rack="r2",
        cpu="128",
        memory="1Ti",
    )
    gb200 = Pool(
        name="gb200",
        count=18,
        gpu="GB200",
        gpus_per_node=4,
        rack="nvl72",
        clique=AUTOMATIC,
        cpu="144",
        memory="960Gi",
    )
    return Fleet(name="sample", pools=(h100, a100, gb200))


def read(text: str, *, file: str) -> Fleet:
    """The fleet a YAML or JSON document describes. Raises InputError naming file and field."""
    from dovetail.manifest import yaml_text  # here: most commands read no fleet

    try:
        documents = [document.tree for document in yaml_text.documents(text)]
    except yaml_text.TextError as error:
        raise errors.InputError(f"{file}: {error}") from None
    if len(documents) != 1:
        raise errors.InputError(
            f"{file}: expected one document that describes a fleet, got {len(documents)}"
        )
    try:
        fleet = msgspec.convert(documents[0], Fleet)
    except msgspec.ValidationError as error:
        raise errors.InputError(f"{file}: {untyped.path_first(error)}") from None
    if problems := list(problems_of(fleet)):
        raise errors.InputError("\n".join(f"{file}: {problem}" for problem in problems))
    return fleet


def gpu_of(pool: Pool) -> gpus.Gpu | None:
    """The pool's board, by our name or by the driver's product name."""
    return gpus.by_name(pool.gpu) or gpus.by_product(pool.gpu)


def problems_of(fleet: Fleet) -> Iterator[str]:
    """Why a fleet cannot be built: field, expected and given value."""
    if not _DNS_LABEL.fullmatch(fleet.name):
        yield f'name: expected lower-case letters, digits and "-", got "{fleet.name}"'
    for field, version in (
        ("driverVersion", fleet.driver_version),
        ("cudaVersion", fleet.cuda_version),
    ):
        if not _VERSION.fullmatch(version):
            yield f'{field}: expected numbers such as {DEFAULT_DRIVER}, got "{version}"'
            return

    if not fleet.pools:
        yield "pools: expected at least one pool"
    pool_names: set[str] = set()
    for index, pool in enumerate(fleet.pools):
        where = f"pools[{index}]"
        if pool.name in pool_names:
            yield f'{where}.name: "{pool.name}" is already taken by another pool'
        pool_names.add(pool.name)
        for field, problem in _problems_of_pool(pool, fleet.driver_version):
            yield f"{where}.{field}: {problem}"


def label_value(text: str) -> str:
    """A product name as feature discovery writes it into a label."""
    return re.sub(r"[^A-Za-z0-9._-]+", "-", text)


def version_numbers(version: str) -> tuple[int, ...]:
    """A driver version as numbers, to compare: 580.95.05 is (580, 95, 5)."""
    return tuple(int(part) for part in version.split("."))


def _problems_of_pool(pool: Pool, driver_version: str) -> Iterator[tuple[str, str]]:
    yield from _field_problems(pool)

    gpu = gpu_of(pool)
    if gpu is None:
        supported = ", ".join(gpu.name for gpu in gpus.all_gpus())
        yield "gpu", f'unknown board "{pool.gpu}"; known: {supported}'
        return
    if gpu.memory_bytes is None:
        yield (
            "gpu",
            f"{gpu.name}: the memory its driver reports is not known, so it cannot be simulated",
        )
    if pool.mig:
        for problem in _mig_problems(gpu, driver_version):
            yield "mig", problem


def _field_problems(pool: Pool) -> Iterator[tuple[str, str]]:
    if not _DNS_LABEL.fullmatch(pool.name):
        yield "name", f'expected lower-case letters, digits and "-", got "{pool.name}"'
    for field, text in (("cpu", pool.cpu), ("memory", pool.memory)):
        if not quantity.is_quantity(text) or quantity.parse(text).nanos <= 0:
            yield field, f'expected a quantity above zero such as 512Gi, got "{text}"'
    if pool.clique not in (None, AUTOMATIC) and not _CLIQUE.fullmatch(pool.clique or ""):
        yield "clique", f'expected "{AUTOMATIC}" or CLUSTER-UUID.NUMBER, got "{pool.clique}"'
    if pool.shares not in (None, SHARED_MEMORY):
        yield "shares", f'expected "{SHARED_MEMORY}", got "{pool.shares}"'
    elif pool.shares is not None and pool.mig:
        yield "shares", "GPUs are either divided by MIG or shared; remove shares or mig"
    if pool.rack is not None and not _DNS_LABEL.fullmatch(pool.rack):
        yield "rack", f'expected lower-case letters, digits and "-", got "{pool.rack}"'
    yield from _label_problems(pool)


def _label_problems(pool: Pool) -> Iterator[tuple[str, str]]:
    """What an API server would refuse of the node's labels."""
    if pool.machine is not None and not names.is_label_value(label_value(pool.machine)):
        yield "machine", f'expected a product name such as DGX-H100, got "{pool.machine}"'
    for key, value in pool.labels.items():
        if not names.is_label_key(key):
            yield f"labels[{key}]", f"the key {names.KEY_RULE}"
        elif not names.is_label_value(value):
            yield f"labels[{key}]", f'"{value}" {names.VALUE_RULE}'


def _mig_problems(gpu: gpus.Gpu, driver_version: str) -> Iterator[str]:
    if gpu.mig is None:
        yield f"{gpu.name} has no MIG; expected false"
        return
    if not gpus.is_fully_known(gpu):
        yield f"the memory and engines of some MIG profiles of {gpu.name} are not known; expected false"
    needed = gpu.mig.minimum_driver
    if needed and version_numbers(driver_version) < version_numbers(needed.value):
        yield f"{gpu.name} needs driver {needed.value} or later for MIG, the fleet has {driver_version}"


def _readable(error: msgspec.ValidationError) -> str:
    """msgspec's message with the path first: `pools[0].count: Expected ...`."""
    message, _, location = str(error).partition(" - at `$")
    path = location.rstrip("`").lstrip(".")
    message = message.replace("`", "").replace("Expected", "expected", 1).replace("Object", "it", 1)
    return f"{path}: {message}" if path else message
