"""Judges the devices a cluster shows: pools of slices, classes, GPUs counted twice or given twice, partitions.

Facts in, findings out, one function per check. Never asks a cluster.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Final

from dovetail.model import claims, pools, slices
from dovetail.model.health.facts import Facts, Finding, Severity, counted, some

GPU_DRIVERS: Final = ("gpu.nvidia.com", "gpu.amd.com", "gpu.intel.com")
PLUGIN_LABEL: Final = "nvidia.com/gpu.deploy.device-plugin"  # NVIDIA's operator runs its plugin where this is true
MIG_TROUBLE: Final = ("failed",)
MIG_UNDER_WAY: Final = ("pending", "rebooting")

PoolKey = tuple[str, str]  # driver, pool


def published(facts: Facts) -> Iterator[Finding]:
    """Whether every pool shows all its slices, each device once, on nodes that exist."""
    if facts.slices is None:
        return
    if not facts.slices:
        what = "no driver publishes devices: claims cannot be served"
        yield _finding(Severity.WARNING, "slices", what, next="install a DRA driver, then: kubectl get resourceslices")
        return
    drivers = Counter(one.spec.driver for one in facts.slices for _ in one.spec.devices)
    shown = ", ".join(f"{driver} {count}" for driver, count in sorted(drivers.items()))
    yield _finding(Severity.NOTE, "slices", f"devices by driver: {shown or 'none'}")
    for key, members in sorted(_pools(facts.slices).items()):
        yield from _pool(key, members)
    if facts.nodes is not None:
        yield from _orphans(facts)


def classes(facts: Facts) -> Iterator[Finding]:
    """Whether every class can be used and matches something."""
    used = Counter(one.device_class_name for claim in facts.claims or () for one in _requests(claim))
    for name, matched in sorted(facts.matches.items()):
        where, asked = f"deviceclass {name}", used.get(name, 0)
        command = f"kubectl get deviceclass {name} -o yaml"
        if matched.problem:
            what = f"a selector of class {name} cannot be used: {matched.problem}"
            yield _finding(Severity.ERROR, "classes", what, where=where, next=command)
        elif matched.devices and not matched.matching:
            severity = Severity.WARNING if asked else Severity.NOTE
            wanted = f", and {counted(asked, 'request')} ask for it" if asked else ""
            what = f"class {name} matches none of {matched.devices} devices{wanted}"
            yield _finding(severity, "classes", what, where=where, next=command)
    if facts.classes is not None:
        there = {one.metadata.name for one in facts.classes}
        for name in sorted(used.keys() - there):
            what = f"{counted(used[name], 'request')} ask for class {name}, which does not exist"
            yield _finding(
                Severity.ERROR, "classes", what, where=f"deviceclass {name}", next="kubectl get deviceclasses"
            )


def double_counting(facts: Facts) -> Iterator[Finding]:
    """Nodes whose GPUs a device plugin counts and a driver publishes as well: each side gives them away."""
    if facts.nodes is None or facts.slices is None:
        return
    by_driver: dict[str, int] = {}
    for one in facts.slices:
        if one.spec.driver in GPU_DRIVERS and one.spec.node_name:
            by_driver[one.spec.node_name] = by_driver.get(one.spec.node_name, 0) + len(one.spec.devices)
    found: dict[str, list[str]] = {}
    labels: dict[str, str] = {}
    for node in facts.nodes:
        if pools.plugin_gpus(node) and by_driver.get(node.metadata.name):
            pool = pools.of(node)
            found.setdefault(pool.name, []).append(node.metadata.name)
            labels[pool.name] = f"-l {pool.label}={pool.name}" if pool.name else ""
    for pool_name, names in sorted(found.items()):
        what = (
            f"{counted(len(names), 'node')} offer GPUs by device plugin and by a DRA driver: "
            f"a GPU can be given away once by each"
        )
        chosen = labels[pool_name] or " ".join(sorted(names)[:10])
        yield _finding(
            Severity.WARNING,
            "double counting",
            what,
            where=_place(pool_name, names),
            next=f"kubectl label nodes {chosen} {PLUGIN_LABEL}=false --overwrite",
        )


def given_twice(facts: Facts) -> Iterator[Finding]:
    """Devices that two claims hold although they cannot be shared."""
    holders: dict[tuple[str, str, str], list[str]] = {}
    for claim in facts.claims or ():
        allocation = claim.status.allocation
        for one in allocation.devices.results if allocation is not None else ():
            if not one.admin_access and one.share_id is None:
                place = (one.driver, one.pool, one.device)
                holders.setdefault(place, []).append(f"{claim.metadata.namespace}/{claim.metadata.name}")
    for (driver, pool, device), names in sorted(holders.items()):
        if len(names) > 1:
            what = f"device {pool}/{device} of {driver} is held by {counted(len(names), 'claim')}"
            command = f"kubectl -n {names[0].partition('/')[0]} describe resourceclaim {names[0].partition('/')[2]}"
            yield _finding(Severity.ERROR, "given twice", what, where=some(sorted(names)), next=command)


def partitions(facts: Facts) -> Iterator[Finding]:
    """Nodes whose re-partitioning failed or has not ended."""
    by_state: dict[str, list[str]] = {}
    for node in facts.nodes or ():
        state = pools.of(node).mig_state
        if state in MIG_TROUBLE or state in MIG_UNDER_WAY:
            by_state.setdefault(state, []).append(node.metadata.name)
    for state, names in sorted(by_state.items()):
        severity = Severity.ERROR if state in MIG_TROUBLE else Severity.NOTE
        what = f"MIG re-partitioning is {state} on {counted(len(names), 'node')}"
        command = f"kubectl get nodes -l {pools.MIG_STATE}={state} -L nvidia.com/mig.config"
        yield _finding(severity, "partitions", what, where=some(sorted(names)), next=command)


def _pool(key: PoolKey, members: list[slices.ResourceSlice]) -> Iterator[Finding]:
    driver, pool = key
    where = f"pool {pool} of {driver}"
    command = f"kubectl get resourceslices --field-selector spec.driver={driver}"
    newest = max(one.spec.pool.generation for one in members)
    current = [one for one in members if one.spec.pool.generation == newest]
    wanted = {one.spec.pool.resource_slice_count for one in current}
    if len(wanted) > 1:
        what = f"its slices disagree on how many there are ({', '.join(map(str, sorted(wanted)))})"
        yield _finding(Severity.ERROR, "slices", what, where=where, next=command)
    elif len(current) != (expected := wanted.pop()):
        what = f"shows {len(current)} of {expected} slices of generation {newest}: its devices are not used"
        yield _finding(Severity.ERROR, "slices", what, where=where, next=command)
    names = Counter(device.name for one in current for device in one.spec.devices)
    if twice := sorted(name for name, count in names.items() if count > 1):
        what = f"lists {some(twice)} more than once: the whole pool is invalid"
        yield _finding(Severity.ERROR, "slices", what, where=where, next=command)
    if old := len(members) - len(current):
        what = f"{counted(old, 'slice')} of an older generation are still there: the driver is changing it, or died"
        yield _finding(Severity.NOTE, "slices", what, where=where, next=command)


def _orphans(facts: Facts) -> Iterator[Finding]:
    there = {node.metadata.name for node in facts.nodes or ()}
    gone = sorted({one.spec.node_name for one in facts.slices or () if one.spec.node_name} - there)
    if gone:
        what = f"{counted(len(gone), 'node')} that slices name do not exist: the driver did not clean up"
        command = f"kubectl get resourceslices --field-selector spec.nodeName={gone[0]}"
        yield _finding(Severity.WARNING, "slices", what, where=some(gone), next=command)


def _pools(found: tuple[slices.ResourceSlice, ...]) -> dict[PoolKey, list[slices.ResourceSlice]]:
    members: dict[PoolKey, list[slices.ResourceSlice]] = {}
    for one in found:
        members.setdefault((one.spec.driver, one.spec.pool.name), []).append(one)
    return members


def _requests(claim: claims.ResourceClaim) -> Iterator[claims.ExactDeviceRequest | claims.DeviceSubRequest]:
    for request in claim.spec.devices.requests:
        if request.exactly is not None:
            yield request.exactly
        yield from request.first_available


def _place(pool: str, names: list[str]) -> str:
    listed = some(sorted(names))
    return f"pool {pool}: {listed}" if pool else listed


def _finding(severity: Severity, check: str, what: str, *, where: str = "", next: str = "") -> Finding:
    return Finding(severity=severity, check=check, what=what, where=where, next=next)
