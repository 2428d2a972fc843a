"""The table `dovetail get classes`: one row per DeviceClass. Never prints."""

from dovetail.kubetypes import codec, registry
from dovetail.kubetypes.resource import device_classes
from dovetail.tables import listing

HEADERS = ("name", "selectors", "extended resource", "age")
WIDE_HEADERS = ("expressions",)


def rows(query: listing.Query) -> listing.Listing:
    """One row per device class."""

    def row_of(device_class: device_classes.DeviceClass, stored: codec.Stored) -> listing.Row:
        selectors = device_class.spec.selectors
        expressions = [selector.cel.expression for selector in selectors if selector.cel]
        on_one_line = [" ".join(expression.split()) for expression in expressions]
        return listing.Row(
            f"deviceclass.resource.k8s.io/{device_class.metadata.name}",
            (
                device_class.metadata.name,
                str(len(selectors)),
                device_class.spec.extended_resource_name or "",
                query.age(stored),
            ),
            ("; ".join(on_one_line),),
        )

    return listing.one_row_each(query, "DeviceClass", row_of, HEADERS, WIDE_HEADERS)


TABLE = listing.Table(
    name="classes",
    aliases=("class", "deviceclass", "deviceclasses"),
    listing=rows,
    reads=listing.reads_of(registry.DEVICE_CLASS),
    next_step="get devices",
)
