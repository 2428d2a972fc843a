"""The tables `dovetail get claims` and `get templates`: what is requested, what was allocated. Never print."""

from dovetail.kubetypes import codec, registry
from dovetail.kubetypes.resource import claims
from dovetail.tables import listing, text


def claim_rows(query: listing.Query) -> listing.Listing:
    """One row per claim. --node keeps claims allocated on that node."""
    rows: list[listing.Row] = []
    shown: list[codec.Stored] = []
    for stored in query.objects.listed("ResourceClaim", namespace=query.namespace):
        claim = stored.struct
        if not isinstance(claim, claims.ResourceClaim) or not query.wants(stored):
            continue
        results = results_of(claim)
        if query.node is not None and query.node not in {result.pool for result in results}:
            continue
        rows.append(_claim_row(claim, age=query.age(stored)))
        shown.append(stored)

    headers = ("namespace", "name", "requests", "state", "age")
    wide_headers = ("devices", "reserved for")
    return listing.Listing(
        headers, wide_headers, tuple(rows), lambda: [stored.tree for stored in shown]
    )


def template_rows(query: listing.Query) -> listing.Listing:
    """One row per claim template."""

    def row_of(template: claims.ResourceClaimTemplate, stored: codec.Stored) -> listing.Row:
        return listing.Row(
            f"resourceclaimtemplate.resource.k8s.io/{template.metadata.name}",
            (
                template.metadata.namespace,
                template.metadata.name,
                requests_summary(template.spec.spec.devices),
                query.age(stored),
            ),
        )

    headers = ("namespace", "name", "requests", "age")
    return listing.one_row_each(query, "ResourceClaimTemplate", row_of, headers)


def requests_summary(device_claim: claims.DeviceClaim) -> str:
    """Such as `1 x gpu.nvidia.com [2 selectors]`; alternatives joined by "or", requests by "+"."""
    options = [
        [request.exactly] if request.exactly else request.first_available
        for request in device_claim.requests
    ]
    return " + ".join(" or ".join(map(_request_text, either)) for either in options)


def _claim_row(claim: claims.ResourceClaim, *, age: str) -> listing.Row:
    devices = ",".join(f"{result.pool}/{result.device}" for result in results_of(claim))
    users = ",".join(user.name for user in claim.status.reserved_for)
    return listing.Row(
        f"resourceclaim.resource.k8s.io/{claim.metadata.name}",
        (
            claim.metadata.namespace,
            claim.metadata.name,
            requests_summary(claim.spec.devices),
            state_of(claim),
            age,
        ),
        (devices, users),
    )


def _request_text(request: claims.ExactDeviceRequest | claims.DeviceSubRequest) -> str:
    number = "all" if request.allocation_mode == claims.MODE_ALL else str(request.count or 1)
    count = len(request.selectors)
    selectors = f" [{text.counted(count, 'selector')}]" if count else ""
    return f"{number} x {request.device_class_name}{selectors}"


def state_of(claim: claims.ResourceClaim) -> str:
    """Whether it has devices, whether pods use them, whether it is being deleted."""
    words = ["allocated" if claim.status.allocation else "pending"]
    if claim.status.reserved_for:
        words.append("reserved")
    if claim.metadata.deletion_timestamp:
        words.append("deleting")
    return ",".join(words)


def results_of(claim: claims.ResourceClaim) -> tuple[claims.DeviceRequestAllocationResult, ...]:
    """The devices that it holds."""
    return claim.status.allocation.devices.results if claim.status.allocation else ()


CLAIMS = listing.Table(
    name="claims",
    aliases=("claim", "resourceclaim", "resourceclaims"),
    listing=claim_rows,
    reads=listing.reads_of(registry.CLAIM),
    is_namespaced=True,
)
TEMPLATES = listing.Table(
    name="templates",
    aliases=("template", "resourceclaimtemplate", "resourceclaimtemplates"),
    listing=template_rows,
    reads=listing.reads_of(registry.TEMPLATE),
    is_namespaced=True,
)
