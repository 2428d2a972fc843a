"""The table `dovetail get slices`: one row per ResourceSlice. Never prints."""

from dovetail.kubetypes import codec, object_set, registry
from dovetail.kubetypes.resource import slices
from dovetail.tables import listing

HEADERS = ("name", "node", "driver", "pool", "devices", "counter sets", "age")
WIDE_HEADERS = ("generation", "slices in pool")


def rows(query: listing.Query) -> listing.Listing:
    """One row per slice."""

    def row_of(published: slices.ResourceSlice, stored: codec.Stored) -> listing.Row | None:
        spec = published.spec
        if not query.wants_node(spec.node_name):
            return None
        return listing.Row(
            f"resourceslice.resource.k8s.io/{published.metadata.name}",
            (
                published.metadata.name,
                spec.node_name or "",
                spec.driver,
                spec.pool.name,
                str(len(spec.devices)),
                str(len(spec.shared_counters)),
                query.age(stored),
            ),
            (str(spec.pool.generation), str(spec.pool.resource_slice_count)),
        )

    return listing.one_row_each(query, "ResourceSlice", row_of, HEADERS, WIDE_HEADERS)


def _reads(query: listing.Query) -> tuple[object_set.Read, ...]:
    of_node = "" if query.node is None else f"spec.nodeName={query.node}"
    fields = listing.joined_fields(listing.fields_of(query), of_node)
    return (object_set.Read(registry.SLICE, "", query.labels, fields),)


TABLE = listing.Table(
    name="slices",
    aliases=("slice", "resourceslice", "resourceslices"),
    listing=rows,
    reads=_reads,
    next_step="get devices",
)
