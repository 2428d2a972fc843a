"""The table `dovetail get pods`: where a pod runs, or why it is pending. Never prints."""

from typing import TYPE_CHECKING, Final

from dovetail.kubetypes import codec, object_set, registry
from dovetail.kubetypes.core import pods
from dovetail.tables import listing

if TYPE_CHECKING:  # the engine, which few tables need
    from dovetail.tables import membership

HEADERS: Final = ("namespace", "name", "status", "node", "claims", "age", "why not")
PROMISE: Final = "; starts by "  # how the scheduler ends a reason: schedule/backfill
WHY_WIDTH: Final = 90  # characters of a reason in the narrow table


def rows(query: listing.Query) -> listing.Listing:
    """One row per pod. -o wide adds its gang and queue, and shows the reason in full."""
    belonging = _belonging(query.objects) if query.in_full else None

    def row_of(pod: pods.Pod, stored: codec.Stored) -> listing.Row | None:
        if not query.wants_node(pod.spec.node_name):
            return None
        cells = (
            pod.metadata.namespace,
            pod.metadata.name,
            status_of(pod),
            pod.spec.node_name or "",
            ",".join(claim_names(pod)),
            query.age(stored),
        )
        reason = why_not(pod, query.objects)
        last_cells = (cut(reason),) if belonging is None else (*belonging.of(pod), reason)
        return listing.Row(f"pod/{pod.metadata.name}", (*cells, *last_cells))

    *first, last = HEADERS
    headers = HEADERS if belonging is None else (*first, "gang", "queue", last)
    return listing.one_row_each(query, "Pod", row_of, headers)


def is_pending(row: listing.Row) -> bool:
    """Whether a row shows a pod without a node."""
    return row.cells[HEADERS.index("status")] == "Pending"


def status_of(pod: pods.Pod) -> str:
    """The phase; a pod that is being deleted reads Terminating, as kubectl shows it."""
    is_ended = pod.status.phase in pods.TERMINAL_PHASES
    if pod.metadata.deletion_timestamp is not None and not is_ended:
        return "Terminating"
    return pod.status.phase or "Pending"


def _belonging(objects: object_set.ObjectSet) -> "membership.Memberships":
    from dovetail.tables import membership

    return membership.Memberships(objects)


def claim_names(pod: pods.Pod) -> list[str]:
    """The claims or templates that a pod names."""
    return [
        entry.resource_claim_name or entry.resource_claim_template_name or ""
        for entry in pod.spec.resource_claims
    ]


def cut(reason: str) -> str:
    """The reason, cut to one narrow column; a promised start at its end is kept."""
    if len(reason) <= WHY_WIDTH:
        return reason
    _, mark, promise = reason.rpartition(PROMISE)
    ending = mark + promise.partition(" ")[0] if mark else ""
    return reason[: WHY_WIDTH - len("...") - len(ending)].rstrip() + "..." + ending


def why_not(pod: pods.Pod, objects: object_set.ObjectSet) -> str:
    """The scheduler's message about a pending pod; no scheduler decides about one that names its node."""
    node = pod.spec.node_name
    if not node:
        messages = {entry.type: entry.message for entry in reversed(pod.status.conditions)}
        return messages.get("PodScheduled", "")
    if not _may_name_no_node(pod) or objects.get(object_set.Key("Node", "", node)) is not None:
        return ""
    return f"node {node} does not exist; a pod that names its node is placed on no other"


def _may_name_no_node(pod: pods.Pod) -> bool:
    """Whether no kubelet has started the pod yet, and no scheduler chose its node."""
    is_scheduled = any(
        entry.type == "PodScheduled" and entry.status == "True" for entry in pod.status.conditions
    )
    return bool(pod.spec.node_name) and pod.status.phase == "Pending" and not is_scheduled


def _more_reads(query: listing.Query) -> tuple[object_set.Read, ...]:
    """The nodes of pods that may name one which does not exist."""
    structs = (stored.struct for stored in query.objects.listed("Pod"))
    lost = [pod for pod in structs if isinstance(pod, pods.Pod) and _may_name_no_node(pod)]
    names = sorted({pod.spec.node_name or "" for pod in lost})
    return tuple(
        object_set.Read(registry.NODE, fields=listing.fields_of_name([name])) for name in names
    )


def _reads(query: listing.Query) -> tuple[object_set.Read, ...]:
    """The pods themselves; for -o wide also what makes gangs and queues of them."""
    of_node = "" if query.node is None else f"spec.nodeName={query.node}"
    fields = listing.joined_fields(listing.fields_of(query), of_node)
    reads = [object_set.Read(registry.POD, query.namespace or "", query.labels, fields)]
    if query.in_full:
        from dovetail.tables import membership

        reads += [object_set.Read(kind) for kind in membership.KINDS]
    return tuple(reads)


TABLE = listing.Table(
    name="pods",
    aliases=("pod", "po"),
    listing=rows,
    reads=_reads,
    more_reads=_more_reads,
    is_namespaced=True,
)
