"""Rules for what a ResourceClaim or its template asks for.

Given the spec and its path; adds a problem for each rule broken. Expressions are for the caller's engine.
The spec is immutable, so an update is judged by what changed. Never looks at classes, devices or quota.
"""

from dovetail.admission import validate_classes, validate_metadata, validate_placement
from dovetail.kubetypes import field_errors, names
from dovetail.kubetypes.field_errors import Problems
from dovetail.kubetypes.resource import claims, device_classes

RequestNames = dict[str, frozenset[str]]


def check_create(problems: Problems, new: claims.ResourceClaim, terms: field_errors.Terms) -> None:
    """A new claim."""
    check_admin_requests(problems, new.spec.devices, terms)
    validate_metadata.check_create(problems, new.metadata, is_namespaced=True)
    check_spec(problems, new.spec, "spec", terms=terms)


def check_update(problems: Problems, new: claims.ResourceClaim, old: claims.ResourceClaim) -> None:
    """Only metadata can change."""
    validate_metadata.check_create(problems, new.metadata, is_namespaced=True)
    validate_metadata.check_update(problems, new.metadata, old.metadata, is_namespaced=True)
    if new.spec != old.spec:
        field_errors.invalid(problems, "spec", "cannot be changed")


def check_template_create(
    problems: Problems, new: claims.ResourceClaimTemplate, terms: field_errors.Terms
) -> None:
    """A new template."""
    check_admin_requests(problems, new.spec.spec.devices, terms)
    _check_template(problems, new, terms)


def check_template_update(
    problems: Problems,
    new: claims.ResourceClaimTemplate,
    old: claims.ResourceClaimTemplate,
    *,
    terms: field_errors.Terms,
) -> None:
    """Only metadata can change; the whole is judged once more."""
    _check_template(problems, new, terms)
    validate_metadata.check_update(problems, new.metadata, old.metadata, is_namespaced=True)
    if new.spec != old.spec:
        field_errors.invalid(problems, "spec", "cannot be changed")


def check_spec(
    problems: Problems, spec: claims.ResourceClaimSpec, path: str, *, terms: field_errors.Terms
) -> None:
    """Requests, constraints on them and configuration for them."""
    devices, path = spec.devices, f"{path}.devices"
    declared = request_names(devices)
    if len(devices.requests) > claims.MAX_REQUESTS:
        field_errors.too_many(
            problems, f"{path}.requests", len(devices.requests), limit=claims.MAX_REQUESTS
        )
    else:
        for index, request in enumerate(devices.requests):
            _check_request(problems, request, f"{path}.requests[{index}]", terms=terms)
        validate_placement.check_unique(
            problems, tuple(request.name for request in devices.requests), f"{path}.requests"
        )
    if len(devices.constraints) > claims.MAX_CONSTRAINTS:
        limit = claims.MAX_CONSTRAINTS
        field_errors.too_many(
            problems, f"{path}.constraints", len(devices.constraints), limit=limit
        )
    else:
        for index, constraint in enumerate(devices.constraints):
            _check_constraint(
                problems, constraint, f"{path}.constraints[{index}]", declared=declared
            )
    if len(devices.config) > device_classes.MAX_CONFIGS:
        limit = device_classes.MAX_CONFIGS
        field_errors.too_many(problems, f"{path}.config", len(devices.config), limit=limit)
    else:
        for index, config in enumerate(devices.config):
            at = f"{path}.config[{index}]"
            check_request_list(problems, config.requests, f"{at}.requests", declared=declared)
            validate_classes.check_opaque(problems, config.opaque, at)


def request_names(devices: claims.DeviceClaim) -> RequestNames:
    """The claim's requests and the alternatives of each; the last of two with one name counts."""
    return {
        request.name: frozenset(option.name for option in request.first_available)
        for request in devices.requests
    }


def check_request_list(
    problems: Problems, requests: tuple[str, ...], path: str, *, declared: RequestNames
) -> None:
    """References to requests: at most 32, each once, each to one that exists."""
    if len(requests) > claims.MAX_REQUESTS:
        field_errors.too_many(problems, path, len(requests), limit=claims.MAX_REQUESTS)
        return
    for index, name in enumerate(requests):
        check_reference(problems, name, f"{path}[{index}]", declared=declared)
    validate_placement.check_unique(problems, requests, path)


def check_reference(problems: Problems, name: str, path: str, *, declared: RequestNames) -> None:
    """`request` or `request/alternative` of the same claim."""
    request, slash, option = name.partition("/")
    is_known = request in declared and (not slash or option in declared[request])
    if is_known and names.is_dns_label(request) and (not slash or names.is_dns_label(option)):
        return
    choices = ", ".join(sorted(declared)) or "none"
    message = (
        f'"{name[:130]}" is no request of the claim, nor request/alternative; there are: {choices}'
    )
    field_errors.invalid(problems, path, message)


def check_admin_requests(
    problems: Problems, devices: claims.DeviceClaim, terms: field_errors.Terms
) -> None:
    """Admin access is for labelled namespaces. The path is upstream's, without `exactly`."""
    if terms.namespace_has_admin_label:
        return
    for index, request in enumerate(devices.requests):
        if request.exactly is not None and request.exactly.admin_access:
            path = f"spec.devices.requests[{index}].adminAccess"
            field_errors.forbidden(problems, path, admin_message())
            return


def admin_message() -> str:
    """What a namespace needs before its claims can have admin access."""
    return f"needs the label {claims.ADMIN_NAMESPACE_LABEL}: true on the namespace"


def _check_template(
    problems: Problems, new: claims.ResourceClaimTemplate, terms: field_errors.Terms
) -> None:
    validate_metadata.check_create(problems, new.metadata, is_namespaced=True)
    validate_metadata.check_template(problems, new.spec.metadata, "spec.metadata")
    check_spec(problems, new.spec.spec, "spec.spec", terms=terms)


def _check_request(
    problems: Problems, request: claims.DeviceRequest, path: str, *, terms: field_errors.Terms
) -> None:
    names.check_label(problems, f"{path}.name", request.name)
    exactly, options = request.exactly, request.first_available
    if exactly is not None and options:
        field_errors.invalid(
            problems, path, "has exactly and firstAvailable; only one of them is possible"
        )
        _check_declared(problems, request, path)
    elif exactly is not None:
        _check_device_request(problems, exactly, f"{path}.exactly", terms=terms)
    elif not options:
        field_errors.required(problems, path, "needs exactly or firstAvailable")
    elif len(options) > claims.MAX_FIRST_AVAILABLE:
        field_errors.too_many(
            problems, f"{path}.firstAvailable", len(options), limit=claims.MAX_FIRST_AVAILABLE
        )
    else:
        for index, option in enumerate(options):
            names.check_label(problems, f"{path}.firstAvailable[{index}].name", option.name)
            _check_device_request(problems, option, f"{path}.firstAvailable[{index}]", terms=terms)
        validate_placement.check_unique(
            problems, tuple(option.name for option in options), f"{path}.firstAvailable"
        )


def _check_device_request(
    problems: Problems,
    request: claims.ExactDeviceRequest | claims.DeviceSubRequest,
    path: str,
    *,
    terms: field_errors.Terms,
) -> None:
    _check_class_name(problems, request.device_class_name, f"{path}.deviceClassName")
    validate_classes.check_selectors(problems, request.selectors, f"{path}.selectors", terms=terms)
    match request.allocation_mode:
        case claims.MODE_ALL:
            if request.count != 0:
                field_errors.invalid(
                    problems, f"{path}.count", "must be absent where allocationMode is All"
                )
        case claims.MODE_EXACT_COUNT:
            if request.count <= 0:
                field_errors.invalid(problems, f"{path}.count", "must be greater than zero")
        case _:
            _check_mode(problems, request.allocation_mode, f"{path}.allocationMode")
    validate_placement.check_tolerations(problems, request.tolerations, f"{path}.tolerations")


def _check_class_name(problems: Problems, name: str, path: str) -> None:
    if not name:
        field_errors.required(problems, path, "name of a DeviceClass")
    else:
        names.check_subdomain(problems, path, name)


def _check_mode(problems: Problems, mode: str, path: str) -> None:
    choices = (claims.MODE_ALL, claims.MODE_EXACT_COUNT)
    if mode not in choices:
        field_errors.not_supported(problems, path, mode, choices)


def _check_declared(problems: Problems, request: claims.DeviceRequest, path: str) -> None:
    """The rules upstream declares on the types: they hold even where a request has both forms."""
    options = request.first_available
    forms: list[tuple[str, claims.ExactDeviceRequest | claims.DeviceSubRequest]] = []
    if request.exactly is not None:
        forms.append((f"{path}.exactly", request.exactly))
    if len(options) > claims.MAX_FIRST_AVAILABLE:
        field_errors.too_many(
            problems, f"{path}.firstAvailable", len(options), limit=claims.MAX_FIRST_AVAILABLE
        )
    else:
        for index, option in enumerate(options):
            _check_class_name(
                problems,
                option.device_class_name,
                f"{path}.firstAvailable[{index}].deviceClassName",
            )
            forms.append((f"{path}.firstAvailable[{index}]", option))
        validate_placement.check_unique(
            problems, tuple(option.name for option in options), f"{path}.firstAvailable"
        )
    for at, form in forms:
        if len(form.selectors) > device_classes.MAX_SELECTORS:
            limit = device_classes.MAX_SELECTORS
            field_errors.too_many(problems, f"{at}.selectors", len(form.selectors), limit=limit)
        if form.allocation_mode:
            _check_mode(problems, form.allocation_mode, f"{at}.allocationMode")
        validate_placement.check_declared_tolerations(
            problems, form.tolerations, f"{at}.tolerations"
        )


def _check_constraint(
    problems: Problems, constraint: claims.DeviceConstraint, path: str, *, declared: RequestNames
) -> None:
    check_request_list(problems, constraint.requests, f"{path}.requests", declared=declared)
    if constraint.match_attribute is None and constraint.distinct_attribute is None:
        field_errors.required(problems, path, "needs matchAttribute or distinctAttribute")
    if constraint.match_attribute is not None:
        names.check_qualified_attribute(
            problems, f"{path}.matchAttribute", constraint.match_attribute
        )
    if constraint.distinct_attribute is not None:
        names.check_qualified_attribute(
            problems, f"{path}.distinctAttribute", constraint.distinct_attribute
        )
