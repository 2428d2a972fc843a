"""Checks the devices of a cluster: slices, classes, GPUs counted or allocated twice, MIG partitioning.

Facts in, findings out, one function per check. Never sends a request.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Final

from dovetail.doctor.findings import Facts, Finding, Matches, Severity, counted, listed, some
from dovetail.kubetypes.resource import claims, slices
from dovetail.model import node_pools

GPU_DRIVERS: Final = ("gpu.nvidia.com", "gpu.amd.com", "gpu.intel.com")
# NVIDIA's operator runs its device plugin on nodes where this label is true.
PLUGIN_LABEL: Final = "nvidia.com/gpu.deploy.device-plugin"
MIG_TROUBLE: Final = ("failed",)
MIG_UNDER_WAY: Final = ("pending", "rebooting")

PoolKey = tuple[str, str]  # driver, pool
DeviceKey = tuple[str, str, str]  # driver, pool, device


def published(facts: Facts) -> Iterator[Finding]:
    """Whether every pool has all its slices, lists each device once, and names nodes that exist."""
    if facts.slices is None:
        return
    if not facts.slices:
        yield _finding(
            Severity.WARNING,
            "slices",
            "no driver publishes devices: claims cannot be allocated",
            next="install a DRA driver, then: kubectl get resourceslices",
        )
        return

    devices_by_driver: Counter[str] = Counter()
    for slice_ in facts.slices:
        if slice_.spec.devices:
            devices_by_driver[slice_.spec.driver] += len(slice_.spec.devices)
    counts = ", ".join(f"{driver} {count}" for driver, count in sorted(devices_by_driver.items()))
    yield _finding(Severity.NOTE, "slices", f"devices by driver: {counts or 'none'}")

    for pool_key, pool_slices in sorted(_slices_by_pool(facts.slices).items()):
        yield from _pool(pool_key, pool_slices)
    if facts.nodes is not None:
        yield from _orphans(facts)


def classes(facts: Facts) -> Iterator[Finding]:
    """Whether every class has usable selectors and matches a device, and every requested class exists."""
    requests_by_class: Counter[str] = Counter()
    for claim in listed(facts.claims):
        requests_by_class.update(request.device_class_name for request in _requests(claim))

    for name, matches in sorted(facts.matches.items()):
        yield from _class_matches(name, matches, request_count=requests_by_class.get(name, 0))

    if facts.classes is None:
        return
    class_names = {device_class.metadata.name for device_class in facts.classes}
    for name in sorted(requests_by_class.keys() - class_names):
        requests = counted(requests_by_class[name], "request")
        yield _finding(
            Severity.ERROR,
            "classes",
            f"{requests} ask for class {name}, which does not exist",
            where=f"deviceclass {name}",
            next="kubectl get deviceclasses",
        )


def _class_matches(name: str, matches: Matches, *, request_count: int) -> Iterator[Finding]:
    """A class whose selectors cannot be evaluated, or that matches no device."""
    where = f"deviceclass {name}"
    command = f"kubectl get deviceclass {name} -o yaml"
    if matches.problem:
        what = f"a selector of class {name} cannot be used: {matches.problem}"
        yield _finding(Severity.ERROR, "classes", what, where=where, next=command)
        return
    if not matches.devices or matches.matching:
        return

    what = f"class {name} matches none of {matches.devices} devices"
    if request_count:
        what += f", and {counted(request_count, 'request')} ask for it"
    severity = Severity.WARNING if request_count else Severity.NOTE
    yield _finding(severity, "classes", what, where=where, next=command)


def double_counting(facts: Facts) -> Iterator[Finding]:
    """Nodes whose GPUs both a device plugin and a DRA driver offer: each side can allocate them."""
    if facts.nodes is None or facts.slices is None:
        return

    driver_nodes = _nodes_with_published_gpus(facts.slices)
    names_by_pool: dict[str, list[str]] = {}
    labels: dict[str, str] = {}
    for node in facts.nodes:
        if node.metadata.name in driver_nodes and node_pools.plugin_gpus(node):
            pool = node_pools.pool_of(node)
            names_by_pool.setdefault(pool.name, []).append(node.metadata.name)
            labels[pool.name] = pool.label

    for pool_name, names in sorted(names_by_pool.items()):
        what = (
            f"{counted(len(names), 'node')} offer GPUs through a device plugin and a DRA driver: "
            "each can allocate the same GPU"
        )
        target = f"-l {labels[pool_name]}={pool_name}"
        if not pool_name:
            target = " ".join(sorted(names)[:10])
        yield _finding(
            Severity.WARNING,
            "double counting",
            what,
            where=_pool_and_nodes(pool_name, names),
            next=f"kubectl label nodes {target} {PLUGIN_LABEL}=false --overwrite",
        )


def _nodes_with_published_gpus(all_slices: Iterable[slices.ResourceSlice]) -> set[str]:
    """The nodes for which a GPU driver publishes devices."""
    node_names: set[str] = set()
    for slice_ in all_slices:
        if slice_.spec.node_name and slice_.spec.driver in GPU_DRIVERS and slice_.spec.devices:
            node_names.add(slice_.spec.node_name)
    return node_names


def double_allocation(facts: Facts) -> Iterator[Finding]:
    """Devices allocated to two claims although they cannot be shared."""
    for (driver, pool, device), claim_names in sorted(_exclusive_holders(facts).items()):
        if len(claim_names) < 2:
            continue
        holders = counted(len(claim_names), "claim")
        namespace, _, name = claim_names[0].partition("/")
        yield _finding(
            Severity.ERROR,
            "given twice",
            f"device {pool}/{device} of {driver} is held by {holders}",
            where=some(sorted(claim_names)),
            next=f"kubectl -n {namespace} describe resourceclaim {name}",
        )


def _exclusive_holders(facts: Facts) -> dict[DeviceKey, list[str]]:
    """The claims that hold each device, without admin access and shares of a device."""
    holders: dict[DeviceKey, list[str]] = {}
    for claim in listed(facts.claims):
        allocation = claim.status.allocation
        if allocation is None:
            continue
        claim_name = f"{claim.metadata.namespace}/{claim.metadata.name}"
        for result in allocation.devices.results:
            if result.admin_access or result.share_id is not None:
                continue
            device_key = (result.driver, result.pool, result.device)
            holders.setdefault(device_key, []).append(claim_name)
    return holders


def partitions(facts: Facts) -> Iterator[Finding]:
    """Nodes whose MIG re-partitioning failed or has not ended."""
    names_by_state: dict[str, list[str]] = {}
    for node in listed(facts.nodes):
        state = node_pools.pool_of(node).mig_state
        if state in MIG_TROUBLE or state in MIG_UNDER_WAY:
            names_by_state.setdefault(state, []).append(node.metadata.name)

    for state, names in sorted(names_by_state.items()):
        severity = Severity.ERROR if state in MIG_TROUBLE else Severity.NOTE
        what = f"MIG re-partitioning is {state} on {counted(len(names), 'node')}"
        command = f"kubectl get nodes -l {node_pools.MIG_STATE}={state} -L nvidia.com/mig.config"
        yield _finding(severity, "partitions", what, where=some(sorted(names)), next=command)


def _pool(key: PoolKey, members: list[slices.ResourceSlice]) -> Iterator[Finding]:
    """What makes one pool incomplete or invalid. Only the newest generation counts."""
    driver, pool = key
    where = f"pool {pool} of {driver}"
    command = f"kubectl get resourceslices --field-selector spec.driver={driver}"

    newest = max(slice_.spec.pool.generation for slice_ in members)
    current = [slice_ for slice_ in members if slice_.spec.pool.generation == newest]
    for what in (*_count_problems(current, newest), *_name_problems(current)):
        yield _finding(Severity.ERROR, "slices", what, where=where, next=command)

    if old := len(members) - len(current):
        what = f"{counted(old, 'slice')} of an older generation remain: the driver is updating the pool, or died"
        yield _finding(Severity.NOTE, "slices", what, where=where, next=command)


def _count_problems(current: list[slices.ResourceSlice], generation: int) -> Iterator[str]:
    """Whether the slices agree on their number, and that many exist."""
    slice_counts = {slice_.spec.pool.resource_slice_count for slice_ in current}
    if len(slice_counts) > 1:
        announced = ", ".join(map(str, sorted(slice_counts)))
        yield f"its slices disagree on how many there are ({announced})"
        return

    expected = slice_counts.pop()
    if len(current) != expected:
        yield (
            f"shows {len(current)} of {expected} slices of generation {generation}: "
            "its devices are not used"
        )


def _name_problems(current: list[slices.ResourceSlice]) -> Iterator[str]:
    """Whether every device name is used once."""
    names: Counter[str] = Counter()
    for slice_ in current:
        names.update(device.name for device in slice_.spec.devices)
    duplicates = sorted(name for name, count in names.items() if count > 1)
    if duplicates:
        yield f"lists {some(duplicates)} more than once: the whole pool is invalid"


def _orphans(facts: Facts) -> Iterator[Finding]:
    """Slices of nodes that do not exist."""
    node_names = {node.metadata.name for node in listed(facts.nodes)}
    slice_nodes = {slice_.spec.node_name or "" for slice_ in listed(facts.slices)} - {""}
    gone = sorted(slice_nodes - node_names)
    if not gone:
        return

    what = f"{counted(len(gone), 'node')} named by slices do not exist: the driver did not clean up"
    command = f"kubectl get resourceslices --field-selector spec.nodeName={gone[0]}"
    yield _finding(Severity.WARNING, "slices", what, where=some(gone), next=command)


def _slices_by_pool(
    published: tuple[slices.ResourceSlice, ...],
) -> dict[PoolKey, list[slices.ResourceSlice]]:
    members: dict[PoolKey, list[slices.ResourceSlice]] = {}
    for slice_ in published:
        members.setdefault((slice_.spec.driver, slice_.spec.pool.name), []).append(slice_)
    return members


def _requests(
    claim: claims.ResourceClaim,
) -> Iterator[claims.ExactDeviceRequest | claims.DeviceSubRequest]:
    for request in claim.spec.devices.requests:
        if request.exactly is not None:
            yield request.exactly
        yield from request.first_available


def _pool_and_nodes(pool: str, names: list[str]) -> str:
    listed = some(sorted(names))
    return f"pool {pool}: {listed}" if pool else listed


def _finding(
    severity: Severity, check: str, what: str, *, where: str = "", next: str = ""
) -> Finding:
    return Finding(severity=severity, check=check, what=what, where=where, next=next)
