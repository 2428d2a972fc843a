"""The table `dovetail get pods`: where a pod runs, or why it is pending. Never prints."""

from typing import TYPE_CHECKING, Final

from dovetail.cli.tables import listing
from dovetail.kubetypes import codec, object_set, registry
from dovetail.kubetypes.core import pods

if TYPE_CHECKING:  # the engine, which few tables need
    from dovetail.cli.tables import membership

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
            pod.status.phase or "Pending",
            pod.spec.node_name or "",
            ",".join(_claim_names(pod)),
            query.age(stored),
        )
        reason = _why_not(pod)
        last_cells = (_cut(reason),) if belonging is None else (*belonging.of(pod), reason)
        return listing.Row(f"pod/{pod.metadata.name}", (*cells, *last_cells))

    *first, last = HEADERS
    headers = HEADERS if belonging is None else (*first, "gang", "queue", last)
    return listing.one_row_each(query, "Pod", row_of, headers)


def is_pending(row: listing.Row) -> bool:
    """Whether a row shows a pod without a node."""
    return row.cells[HEADERS.index("status")] == "Pending"


def _belonging(objects: object_set.ObjectSet) -> "membership.Memberships":
    from dovetail.cli.tables import membership

    return membership.Memberships(objects)


def _claim_names(pod: pods.Pod) -> list[str]:
    return [
        entry.resource_claim_name or entry.resource_claim_template_name or ""
        for entry in pod.spec.resource_claims
    ]


def _cut(reason: str) -> str:
    """The reason, cut to one narrow column; a promised start at its end is kept."""
    if len(reason) <= WHY_WIDTH:
        return reason
    _, mark, promise = reason.rpartition(PROMISE)
    ending = mark + promise.partition(" ")[0] if mark else ""
    return reason[: WHY_WIDTH - len("...") - len(ending)].rstrip() + "..." + ending


def _why_not(pod: pods.Pod) -> str:
    """The scheduler's message about a pending pod."""
    if pod.spec.node_name:
        return ""
    messages = {condition.type: condition.message for condition in reversed(pod.status.conditions)}
    return messages.get("PodScheduled", "")


def _reads(query: listing.Query) -> tuple[object_set.Read, ...]:
    """The pods themselves; for -o wide also what makes gangs and queues of them."""
    selectors = [listing.fields_of_name(query.names)]
    if query.node is not None:
        selectors.append(f"spec.nodeName={query.node}")
    fields = ",".join(filter(None, selectors))
    reads = [object_set.Read(registry.POD, query.namespace or "", query.labels, fields)]
    if query.in_full:
        from dovetail.cli.tables import membership

        reads += [object_set.Read(kind) for kind in membership.KINDS]
    return tuple(reads)


TABLE = listing.Table(
    name="pods", aliases=("pod", "po"), listing=rows, reads=_reads, is_namespaced=True
)
