"""Rules for a DeviceClass, and for the selectors and driver configuration it shares with claims.

Given the class and, at an update, what was stored: what has not changed is not judged again. Expressions are
judged by the caller's engine. Never reads inside a driver's parameters beyond their being a JSON object.
"""

from typing import Final

import msgspec

from dovetail.model import classes
from dovetail.model.validation import fields, metadata, names
from dovetail.model.validation.fields import Problems

QUOTA_PREFIX: Final = "requests."  # DefaultResourceRequestsPrefix, core/v1
NATIVE_DOMAIN: Final = "kubernetes.io/"  # ResourceDefaultNamespacePrefix, core/v1


def check_create(problems: Problems, new: classes.DeviceClass, terms: fields.Terms) -> None:
    """A new class."""
    metadata.check_create(problems, new.metadata, is_namespaced=False, checks_prefix=False)
    _check_spec(problems, new.spec, None, terms=terms)


def check_update(
    problems: Problems, new: classes.DeviceClass, old: classes.DeviceClass, *, terms: fields.Terms
) -> None:
    """A changed class; selectors and configuration as stored pass."""
    metadata.check_create(problems, new.metadata, is_namespaced=False, checks_prefix=False)
    metadata.check_update(problems, new.metadata, old.metadata, is_namespaced=False)
    _check_spec(problems, new.spec, old.spec, terms=terms)


def check_selectors(
    problems: Problems,
    selectors: tuple[classes.DeviceSelector, ...],
    path: str,
    *,
    terms: fields.Terms,
    is_stored: bool = False,
) -> None:
    """At most 32 selectors, each a CEL expression that compiles within its cost."""
    if len(selectors) > classes.MAX_SELECTORS:
        fields.too_many(problems, path, len(selectors), limit=classes.MAX_SELECTORS)
        return
    for index, selector in enumerate(selectors):
        if selector.cel is None:
            fields.required(problems, f"{path}[{index}].cel")
        elif not is_stored:
            check_expression(problems, selector.cel.expression, f"{path}[{index}].cel.expression", terms=terms)


def check_expression(problems: Problems, expression: str, path: str, *, terms: fields.Terms) -> None:
    """Within 10 KiB, then whatever the engine says."""
    if fields.byte_length(expression) > classes.MAX_EXPRESSION_BYTES:
        fields.too_long(problems, path, classes.MAX_EXPRESSION_BYTES)
        return
    fault = terms.check_selector(expression)
    if fault is None:
        return
    if fault.is_too_costly:
        fields.forbidden(problems, path, fault.message)
    else:
        fields.invalid(problems, path, fault.message)


def check_opaque(
    problems: Problems,
    opaque: classes.OpaqueDeviceConfiguration | None,
    path: str,
    *,
    is_stored: bool = False,
) -> None:
    """A driver and its parameters, a JSON object of at most 10 KiB."""
    path = f"{path}.opaque"
    if opaque is None:
        fields.required(problems, path)
        return
    names.check_driver(problems, f"{path}.driver", opaque.driver)
    limit = None if is_stored else classes.MAX_PARAMETERS_BYTES
    check_json_object(problems, opaque.parameters, f"{path}.parameters", limit=limit)


def check_json_object(problems: Problems, raw: msgspec.Raw, path: str, *, limit: int | None) -> None:
    """A JSON object of bounded size is wanted."""
    data = bytes(raw).strip()
    if data in (b"", b"null"):
        fields.required(problems, path)
    elif limit is not None and len(data) > limit:
        fields.too_long(problems, path, limit)
    elif not data.startswith(b"{"):
        fields.invalid(problems, path, "must be a JSON object")


def is_extended_resource(name: str) -> bool:
    """Whether pods can ask for the name as an extended resource."""
    if "/" not in name or NATIVE_DOMAIN in name or name.startswith(QUOTA_PREFIX):
        return False
    return names.is_label_key(QUOTA_PREFIX + name)


def _check_spec(
    problems: Problems,
    spec: classes.DeviceClassSpec,
    old: classes.DeviceClassSpec | None,
    *,
    terms: fields.Terms,
) -> None:
    is_stored = old is not None and spec.selectors == old.selectors
    check_selectors(problems, spec.selectors, "spec.selectors", terms=terms, is_stored=is_stored)
    is_stored = old is not None and spec.config == old.config
    if len(spec.config) > classes.MAX_CONFIGS:
        fields.too_many(problems, "spec.config", len(spec.config), limit=classes.MAX_CONFIGS)
    else:
        for index, config in enumerate(spec.config):
            check_opaque(problems, config.opaque, f"spec.config[{index}]", is_stored=is_stored)
    name = spec.extended_resource_name
    if name is not None and not is_extended_resource(name):
        fields.invalid(
            problems,
            "spec.extendedResourceName",
            f'"{name[:80]}" must be <domain>/<name>, outside kubernetes.io and without "requests."',
        )
