"""Rules for a DeviceClass, and for the selectors and driver configuration it shares with claims.

Given the class and, at an update, what was stored: what has not changed is not judged again. Expressions are
judged by the caller's engine. Never reads inside a driver's parameters beyond their being a JSON object.
"""

import msgspec

from dovetail.admission import validate_metadata
from dovetail.kubetypes import field_errors, names
from dovetail.kubetypes.field_errors import Problems
from dovetail.kubetypes.resource import device_classes
from dovetail.model import pod_requests


def check_create(
    problems: Problems, new: device_classes.DeviceClass, terms: field_errors.Terms
) -> None:
    """A new class."""
    validate_metadata.check_create(problems, new.metadata, is_namespaced=False, checks_prefix=False)
    _check_spec(problems, new.spec, None, terms=terms)


def check_update(
    problems: Problems,
    new: device_classes.DeviceClass,
    old: device_classes.DeviceClass,
    *,
    terms: field_errors.Terms,
) -> None:
    """A changed class; selectors and configuration as stored pass."""
    validate_metadata.check_create(problems, new.metadata, is_namespaced=False, checks_prefix=False)
    validate_metadata.check_update(problems, new.metadata, old.metadata, is_namespaced=False)
    _check_spec(problems, new.spec, old.spec, terms=terms)


def check_selectors(
    problems: Problems,
    selectors: tuple[device_classes.DeviceSelector, ...],
    path: str,
    *,
    terms: field_errors.Terms,
    is_stored: bool = False,
) -> None:
    """At most 32 selectors, each a CEL expression that compiles within its cost."""
    if len(selectors) > device_classes.MAX_SELECTORS:
        field_errors.too_many(problems, path, len(selectors), limit=device_classes.MAX_SELECTORS)
        return
    for index, selector in enumerate(selectors):
        if selector.cel is None:
            field_errors.required(problems, f"{path}[{index}].cel")
        elif not is_stored:
            check_expression(
                problems, selector.cel.expression, f"{path}[{index}].cel.expression", terms=terms
            )


def check_expression(
    problems: Problems, expression: str, path: str, *, terms: field_errors.Terms
) -> None:
    """Within 10 KiB, then whatever the engine says."""
    if field_errors.byte_length(expression) > device_classes.MAX_EXPRESSION_BYTES:
        field_errors.too_long(problems, path, device_classes.MAX_EXPRESSION_BYTES)
        return
    fault = terms.check_selector(expression)
    if fault is None:
        return
    if fault.is_too_costly:
        field_errors.forbidden(problems, path, fault.message)
    else:
        field_errors.invalid(problems, path, fault.message)


def check_opaque(
    problems: Problems,
    opaque: device_classes.OpaqueDeviceConfiguration | None,
    path: str,
    *,
    is_stored: bool = False,
) -> None:
    """A driver and its parameters, a JSON object of at most 10 KiB."""
    path = f"{path}.opaque"
    if opaque is None:
        field_errors.required(problems, path)
        return
    names.check_driver(problems, f"{path}.driver", opaque.driver)
    limit = None if is_stored else device_classes.MAX_PARAMETERS_BYTES
    check_json_object(problems, opaque.parameters, f"{path}.parameters", limit=limit)


def check_json_object(
    problems: Problems, raw: msgspec.Raw, path: str, *, limit: int | None
) -> None:
    """A JSON object of bounded size is wanted."""
    data = bytes(raw).strip()
    if data in (b"", b"null"):
        field_errors.required(problems, path)
    elif limit is not None and len(data) > limit:
        field_errors.too_long(problems, path, limit)
    elif not data.startswith(b"{"):
        field_errors.invalid(problems, path, "must be a JSON object")


def _check_spec(
    problems: Problems,
    spec: device_classes.DeviceClassSpec,
    old: device_classes.DeviceClassSpec | None,
    *,
    terms: field_errors.Terms,
) -> None:
    is_stored = old is not None and spec.selectors == old.selectors
    check_selectors(problems, spec.selectors, "spec.selectors", terms=terms, is_stored=is_stored)
    is_stored = old is not None and spec.config == old.config
    if len(spec.config) > device_classes.MAX_CONFIGS:
        field_errors.too_many(
            problems, "spec.config", len(spec.config), limit=device_classes.MAX_CONFIGS
        )
    else:
        for index, config in enumerate(spec.config):
            check_opaque(problems, config.opaque, f"spec.config[{index}]", is_stored=is_stored)
    name = spec.extended_resource_name
    if name is not None and not pod_requests.is_extended(name):
        field_errors.invalid(
            problems,
            "spec.extendedResourceName",
            f'"{name[:80]}" must be <domain>/<name>, outside kubernetes.io and without "requests."',
        )
