"""The rows of `dovetail get`: per resource its columns, which objects stand behind it, and what a row shows.

Given a cluster and filters, returns `Listing`s. Never prints.
"""

import datetime
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

import msgspec

from dovetail.cli import labels, picture, text
from dovetail.model import claims, classes, nodes, objects, pods, pools, slices
from dovetail.sim import cluster as clusters
from dovetail.sim import inventory

if TYPE_CHECKING:  # the engine, which few tables need
    from dovetail.cli import belonging

PCI: Final = "resource.kubernetes.io"
POD_HEADERS: Final = ("namespace", "name", "status", "node", "claims", "age", "why not")
PROMISE: Final = "; starts by "  # as the scheduler ends a reason: schedule/backfill
WHY_WIDTH: Final = 90  # characters of a reason in the narrow table


class Row(msgspec.Struct, frozen=True):
    """One line: its name as -o name prints it, the narrow cells, the further ones of -o wide."""

    name: str
    cells: tuple[str, ...]
    wide: tuple[str, ...] = ()


class Listing(msgspec.Struct, frozen=True):
    """All rows of a resource and the Kubernetes objects behind them."""

    headers: tuple[str, ...]
    wide_headers: tuple[str, ...]
    rows: tuple[Row, ...]
    documents: tuple[dict[str, Any], ...]


class Asked(msgspec.Struct, frozen=True):
    """What the user wants to see. Namespace None means all of them."""

    cluster: clusters.Cluster
    now: datetime.datetime
    test: labels.Test
    namespace: str | None
    node: str | None
    names: tuple[str, ...] = ()
    in_full: bool = False  # nothing is cut short

    def wants(self, stored: objects.Stored) -> bool:
        """Whether an object passes the label and name filters."""
        metadata = stored.struct.metadata
        return self.test(metadata.labels) and (not self.names or metadata.name in self.names)

    def age(self, stored: objects.Stored) -> str:
        """How old an object is."""
        return text.age(stored.struct.metadata.creation_timestamp, self.now)


def gpus(asked: Asked) -> Listing:
    """One row per node with GPUs."""
    shown = [
        one
        for one in picture.nodes_with_gpus(asked.cluster)
        if asked.test(one.node.metadata.labels)
        and asked.node in (None, one.name)
        and (not asked.names or one.name in asked.names)
    ]
    rows = [
        Row(
            f"node/{one.name}",
            (
                one.name,
                one.products,
                str(len(one.gpus)),
                one.tiles,
                text.binary(one.memory_bytes),
                one.offers,
                text.short_id(one.label(inventory.CLIQUE_LABEL)),
                one.label(inventory.RACK_LABEL),
            ),
            (
                one.label("nvidia.com/cuda.driver-version.full"),
                _amount(one.node, "cpu"),
                _amount(one.node, "memory"),
                one.label(inventory.CLIQUE_LABEL),
            ),
        )
        for one in shown
    ]
    pools = {pool for one in shown for pool in one.pools}
    return Listing(
        ("node", "gpu", "gpus", "tiles", "memory", "offers", "clique", "rack"),
        ("driver", "cpu", "host memory", "clique id"),
        tuple(rows),
        _slices_of_pools(asked.cluster, pools),
    )


def devices(asked: Asked) -> Listing:
    """One row per published device. -l looks at the labels of the node."""
    known = {
        stored.struct.metadata.name: stored.struct.metadata.labels for stored in clusters.listed(asked.cluster, "Node")
    }
    shown = [
        item
        for item in picture.items(asked.cluster)
        if asked.node in (None, item.node)
        and asked.test(known.get(item.node, {}))
        and (not asked.names or item.device.name in asked.names)
    ]
    rows = [
        Row(
            f"device/{item.pool}/{item.device.name}",
            (
                item.node,
                item.device.name,
                item.word("type"),
                item.word("profile") or text.product(item.word("productName")),
                text.binary(item.memory_bytes) if item.memory_bytes else "",
                text.short_id(item.word("uuid") or item.word("parentUUID")),
                item.word("pciBusID", domain=PCI),
                item.word("numaNode", domain=PCI),
                "allocated" if item.is_allocated else "free",
            ),
            (
                item.driver,
                text.product(item.word("productName")),
                item.word("uuid") or item.word("parentUUID"),
                item.word("pcieRoot", domain=PCI),
                item.word("cudaComputeCapability"),
                item.word("driverVersion"),
            ),
        )
        for item in shown
    ]
    return Listing(
        ("node", "device", "type", "model", "memory", "gpu", "pci", "numa", "state"),
        ("driver", "product", "gpu uuid", "pcie root", "compute", "driver version"),
        tuple(rows),
        _slices_of_pools(asked.cluster, {(item.driver, item.pool) for item in shown}),
    )


def claim_rows(asked: Asked) -> Listing:
    """One row per claim. --node keeps claims allocated on that node."""
    rows: list[Row] = []
    documents = []
    for stored in clusters.listed(asked.cluster, "ResourceClaim", namespace=asked.namespace):
        claim = stored.struct
        if not isinstance(claim, claims.ResourceClaim) or not asked.wants(stored):
            continue
        held = _held(claim)
        if asked.node is not None and asked.node not in {result.pool for result in held}:
            continue
        rows.append(
            Row(
                f"resourceclaim.resource.k8s.io/{claim.metadata.name}",
                (
                    claim.metadata.namespace,
                    claim.metadata.name,
                    requests_summary(claim.spec.devices),
                    _claim_state(claim),
                    asked.age(stored),
                ),
                (
                    ",".join(f"{result.pool}/{result.device}" for result in held),
                    ",".join(user.name for user in claim.status.reserved_for),
                ),
            )
        )
        documents.append(stored.tree)
    headers = ("namespace", "name", "requests", "state", "age")
    return Listing(headers, ("devices", "reserved for"), tuple(rows), tuple(documents))


def requests_summary(wanted: claims.DeviceClaim) -> str:
    """Such as `1 x gpu.nvidia.com [2 selectors]`; alternatives joined by "or", requests by "+"."""
    options = [[one.exactly] if one.exactly else one.first_available for one in wanted.requests]
    return " + ".join(" or ".join(map(_one_request, either)) for either in options)


def _one_request(wanted: claims.ExactDeviceRequest | claims.DeviceSubRequest) -> str:
    number = "all" if wanted.allocation_mode == claims.MODE_ALL else str(wanted.count or 1)
    selectors = f" [{text.counted(len(wanted.selectors), 'selector')}]" if wanted.selectors else ""
    return f"{number} x {wanted.device_class_name}{selectors}"


def _claim_state(claim: claims.ResourceClaim) -> str:
    words = ["allocated" if claim.status.allocation else "pending"]
    if claim.status.reserved_for:
        words.append("reserved")
    if claim.metadata.deletion_timestamp:
        words.append("deleting")
    return ",".join(words)


def _held(claim: claims.ResourceClaim) -> tuple[claims.DeviceRequestAllocationResult, ...]:
    return claim.status.allocation.devices.results if claim.status.allocation else ()


def _slices_of_pools(cluster: clusters.Cluster, pools: set[tuple[str, str]]) -> tuple[dict[str, Any], ...]:
    """All slices of pools given as (driver, name), those with nothing but counters too."""
    return tuple(
        stored.tree
        for stored in clusters.listed(cluster, "ResourceSlice")
        if isinstance(stored.struct, slices.ResourceSlice)
        and (stored.struct.spec.driver, stored.struct.spec.pool.name) in pools
    )


def _amount(node: nodes.Node, name: str) -> str:
    found = node.status.allocatable.get(name)
    return "" if found is None else str(found)


def _simple(
    asked: Asked,
    kind: str,
    show: Callable[[Any, objects.Stored], Row | None],
    headers: tuple[str, ...],
    wide_headers: tuple[str, ...] = (),
) -> Listing:
    """Rows that show one object each."""
    namespace = asked.namespace if clusters.is_namespaced(kind) else None
    found = [
        (row, stored)
        for stored in clusters.listed(asked.cluster, kind, namespace=namespace)
        if asked.wants(stored) and (row := show(stored.struct, stored)) is not None
    ]
    found.sort(key=lambda pair: text.natural(pair[0].name))
    return Listing(headers, wide_headers, tuple(row for row, _ in found), tuple(stored.tree for _, stored in found))


def node_rows(asked: Asked) -> Listing:
    """One row per node."""

    def show(node: nodes.Node, stored: objects.Stored) -> Row | None:
        if asked.node not in (None, node.metadata.name):
            return None
        ready = next((one.status for one in node.status.conditions if one.type == "Ready"), "Unknown")
        status = {"True": "Ready", "False": "NotReady"}.get(ready, "Unknown")
        status += ",SchedulingDisabled" if node.spec.unschedulable else ""
        found = node.metadata.labels
        pool = pools.of(node)
        return Row(
            f"node/{node.metadata.name}",
            (
                node.metadata.name,
                status,
                pool.name,
                found.get("nvidia.com/gpu.count", "0"),
                pool.accelerator,
                _amount(node, "cpu"),
                _amount(node, "memory"),
                asked.age(stored),
            ),
            (
                pool.provider,
                "yes" if pool.is_spot else "",
                pool.offer,
                found.get("kubernetes.io/arch", ""),
                _amount(node, "pods"),
            ),
        )

    headers = ("name", "status", "pool", "gpus", "gpu", "cpu", "memory", "age")
    return _simple(asked, "Node", show, headers, ("provider", "spot", "offers", "arch", "pods"))


def class_rows(asked: Asked) -> Listing:
    """One row per device class."""

    def show(one: classes.DeviceClass, stored: objects.Stored) -> Row:
        expressions = [selector.cel.expression for selector in one.spec.selectors if selector.cel]
        return Row(
            f"deviceclass.resource.k8s.io/{one.metadata.name}",
            (
                one.metadata.name,
                str(len(one.spec.selectors)),
                one.spec.extended_resource_name or "",
                asked.age(stored),
            ),
            ("; ".join(" ".join(expression.split()) for expression in expressions),),
        )

    return _simple(asked, "DeviceClass", show, ("name", "selectors", "extended resource", "age"), ("expressions",))


def slice_rows(asked: Asked) -> Listing:
    """One row per slice."""

    def show(one: slices.ResourceSlice, stored: objects.Stored) -> Row | None:
        if asked.node not in (None, one.spec.node_name):
            return None
        pool = one.spec.pool
        return Row(
            f"resourceslice.resource.k8s.io/{one.metadata.name}",
            (
                one.metadata.name,
                one.spec.node_name or "",
                one.spec.driver,
                pool.name,
                str(len(one.spec.devices)),
                str(len(one.spec.shared_counters)),
                asked.age(stored),
            ),
            (str(pool.generation), str(pool.resource_slice_count)),
        )

    headers = ("name", "node", "driver", "pool", "devices", "counter sets", "age")
    return _simple(asked, "ResourceSlice", show, headers, ("generation", "slices in pool"))


def pod_rows(asked: Asked) -> Listing:
    """One row per pod: where it is, or why it is nowhere. -o wide shows its gang and queue, and the reason in full."""
    places = _belonging(asked.cluster) if asked.in_full else None

    def show(pod: pods.Pod, stored: objects.Stored) -> Row | None:
        if asked.node not in (None, pod.spec.node_name):
            return None
        wanted = [one.resource_claim_name or one.resource_claim_template_name for one in pod.spec.resource_claims]
        cells = (
            pod.metadata.namespace,
            pod.metadata.name,
            pod.status.phase or "Pending",
            pod.spec.node_name or "",
            ",".join(name or "" for name in wanted),
            asked.age(stored),
        )
        why = _why_not(pod)
        place = (_cut(why),) if places is None else (*places.of(pod), why)
        return Row(f"pod/{pod.metadata.name}", (*cells, *place))

    *first, last = POD_HEADERS
    headers = POD_HEADERS if places is None else (*first, "gang", "queue", last)
    return _simple(asked, "Pod", show, headers, ())


def _belonging(cluster: clusters.Cluster) -> "belonging.Belonging":
    from dovetail.cli import belonging

    return belonging.Belonging(cluster)


def _cut(reason: str) -> str:
    """The reason in one narrow column; a promised start at its end is kept, being what most want to know."""
    if len(reason) <= WHY_WIDTH:
        return reason
    _, mark, promise = reason.rpartition(PROMISE)
    kept = mark + promise.partition(" ")[0] if mark else ""
    return reason[: WHY_WIDTH - len("...") - len(kept)].rstrip() + "..." + kept


def _why_not(pod: pods.Pod) -> str:
    """What the scheduler wrote about a pod without a node."""
    if pod.spec.node_name:
        return ""
    return next((one.message for one in pod.status.conditions if one.type == "PodScheduled"), "")


def template_rows(asked: Asked) -> Listing:
    """One row per claim template."""

    def show(one: claims.ResourceClaimTemplate, stored: objects.Stored) -> Row:
        return Row(
            f"resourceclaimtemplate.resource.k8s.io/{one.metadata.name}",
            (
                one.metadata.namespace,
                one.metadata.name,
                requests_summary(one.spec.spec.devices),
                asked.age(stored),
            ),
        )

    return _simple(asked, "ResourceClaimTemplate", show, ("namespace", "name", "requests", "age"))
