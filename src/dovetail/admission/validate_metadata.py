"""Rules for the metadata of any object, at creation and at update, and for conditions.

Given metadata and what the kind demands of names; adds a problem for each rule broken. Never generates names.
"""

from typing import Final

from dovetail.kubetypes import field_errors, meta, names
from dovetail.kubetypes.field_errors import Problems

MAX_ANNOTATIONS_BYTES: Final = 256 * 1024  # TotalAnnotationSizeLimitB, apimachinery
MAX_GENERATED_PREFIX: Final = (
    58  # of a generated name of 63, five characters are random; apiserver names
)
MAX_REASON_BYTES: Final = 1024  # maxReasonLen, apimachinery meta/v1 validation
MAX_MESSAGE_BYTES: Final = 32 * 1024  # maxMessageLen
CONDITION_STATUSES: Final = ("False", "True", "Unknown")
_ORPHAN: Final = "orphan"
_FOREGROUND: Final = "foregroundDeletion"
STANDARD_FINALIZERS: Final = ("kubernetes", _ORPHAN, _FOREGROUND)  # the only ones without a domain


def check_create(
    problems: Problems,
    metadata: meta.ObjectMeta,
    *,
    is_namespaced: bool,
    checks_prefix: bool = True,
) -> None:
    """A new object whose name must be a DNS subdomain. `checks_prefix`: generateName must be one too."""
    name, prefix = metadata.name, metadata.generate_name
    if checks_prefix and prefix and not names.is_dns_subdomain(_masked(prefix)):
        field_errors.invalid(
            problems, "metadata.generateName", f'"{prefix[:80]}" {names.SUBDOMAIN_RULE}'
        )
    if not name and prefix:
        name = prefix[:MAX_GENERATED_PREFIX] + "xxxxx"  # what follows is for the server to choose
    if not name:
        field_errors.required(problems, "metadata.name", "name or generateName is required")
    else:
        names.check_subdomain(problems, "metadata.name", name)
    _check_common(problems, metadata, is_namespaced=is_namespaced)


def check_update(
    problems: Problems, new: meta.ObjectMeta, old: meta.ObjectMeta, *, is_namespaced: bool
) -> None:
    """Identity stays, the version is known, and no finalizer is added during deletion."""
    path = "metadata"
    if not new.name:
        field_errors.required(problems, "metadata.name")
    elif new.name in (".", "..") or "/" in new.name or "%" in new.name:
        field_errors.invalid(
            problems, "metadata.name", f'"{new.name[:80]}" must fit into a path: no "/", no "%"'
        )
    _check_common(problems, new, is_namespaced=is_namespaced)
    if old.deletion_timestamp is not None:
        added = sorted(set(new.finalizers) - set(old.finalizers))
        if added:
            field_errors.forbidden(
                problems, f"{path}.finalizers", f"no finalizer can be added while deleting: {added}"
            )
    if not new.resource_version:
        field_errors.invalid(problems, f"{path}.resourceVersion", "must be given for an update")
    if new.generation < old.generation:
        field_errors.invalid(problems, f"{path}.generation", "must not go back")
    for name, is_changed in (
        ("name", new.name != old.name),
        ("namespace", new.namespace != old.namespace),
        ("uid", new.uid != old.uid),
        ("creationTimestamp", new.creation_timestamp != old.creation_timestamp),
        ("deletionTimestamp", new.deletion_timestamp != old.deletion_timestamp),
        (
            "deletionGracePeriodSeconds",
            new.deletion_grace_period_seconds != old.deletion_grace_period_seconds,
        ),
    ):
        if is_changed:
            field_errors.invalid(problems, f"{path}.{name}", "cannot be changed")


def check_template(problems: Problems, metadata: meta.ObjectMeta, path: str) -> None:
    """Metadata inside a template: labels and annotations, nothing else."""
    check_annotations(problems, metadata.annotations, f"{path}.annotations")
    check_labels(problems, metadata.labels, f"{path}.labels")
    for name, wire_name in zip(
        metadata.__struct_fields__, metadata.__struct_encode_fields__, strict=True
    ):
        value, absent = getattr(metadata, name), getattr(_EMPTY, name)
        is_given = (
            value is not absent if isinstance(value, tuple) else value != absent
        )  # an empty list is given
        if is_given and name not in ("labels", "annotations"):
            spelled = (
                "uID" if name == "uid" else wire_name
            )  # upstream lower-cases the first letter of UID only
            field_errors.forbidden(problems, f"{path}.{spelled}", "cannot be set in a template")


def check_labels(problems: Problems, labels: dict[str, str], path: str) -> None:
    """Every key a label key, every value a label value."""
    for key, value in labels.items():
        names.check_label_key(problems, path, key)
        names.check_label_value(problems, path, value)


def check_annotations(problems: Problems, annotations: dict[str, str], path: str) -> None:
    """Keys like label keys in any case; 256 KiB in all."""
    for key in annotations:
        names.check_label_key(problems, path, key.lower())
    if sum(
        field_errors.byte_length(key) + field_errors.byte_length(value)
        for key, value in annotations.items()
    ) > (MAX_ANNOTATIONS_BYTES):
        field_errors.too_long(problems, path, MAX_ANNOTATIONS_BYTES)


def check_conditions(problems: Problems, conditions: tuple[meta.Condition, ...], path: str) -> None:
    """Types occur once; each condition is complete."""
    types: set[str] = set()
    for index, condition in enumerate(conditions):
        if condition.type in types:
            field_errors.duplicate(problems, f"{path}[{index}]", condition.type)
        types.add(condition.type)
        _check_condition(problems, condition, f"{path}[{index}]")


def _check_common(problems: Problems, metadata: meta.ObjectMeta, *, is_namespaced: bool) -> None:
    _check_namespace(
        problems, metadata.namespace, is_namespaced=is_namespaced, path="metadata.namespace"
    )
    if metadata.generation < 0:
        field_errors.invalid(problems, "metadata.generation", "must not be negative")
    check_labels(problems, metadata.labels, "metadata.labels")
    check_annotations(problems, metadata.annotations, "metadata.annotations")
    _check_owners(problems, metadata.owner_references, "metadata.ownerReferences")
    _check_finalizers(problems, metadata.finalizers, "metadata.finalizers")


def _check_condition(problems: Problems, condition: meta.Condition, path: str) -> None:
    if not condition.type:
        field_errors.required(problems, f"{path}.type")
    else:
        names.check_label_key(problems, f"{path}.type", condition.type)
    if not condition.status:
        field_errors.required(problems, f"{path}.status")
    elif condition.status not in CONDITION_STATUSES:
        field_errors.not_supported(problems, f"{path}.status", condition.status, CONDITION_STATUSES)
    if condition.observed_generation < 0:
        field_errors.invalid(problems, f"{path}.observedGeneration", "must not be negative")
    if not condition.last_transition_time:
        field_errors.required(problems, f"{path}.lastTransitionTime")
    if not condition.reason:
        field_errors.required(problems, f"{path}.reason")
    else:
        if not names.is_condition_reason(condition.reason):
            field_errors.invalid(
                problems,
                f"{path}.reason",
                "must start with a letter; letters, digits, '_', ',', ':'",
            )
        if field_errors.byte_length(condition.reason) > MAX_REASON_BYTES:
            field_errors.too_long(problems, f"{path}.reason", MAX_REASON_BYTES)
    if field_errors.byte_length(condition.message) > MAX_MESSAGE_BYTES:
        field_errors.too_long(problems, f"{path}.message", MAX_MESSAGE_BYTES)


def _check_namespace(problems: Problems, namespace: str, *, is_namespaced: bool, path: str) -> None:
    if not is_namespaced:
        if namespace:
            field_errors.forbidden(problems, path, "objects of this kind have no namespace")
    elif not namespace:
        field_errors.required(problems, path)
    else:
        names.check_label(problems, path, namespace)


def _check_owners(problems: Problems, owners: tuple[meta.OwnerReference, ...], path: str) -> None:
    controller = ""
    for index, owner in enumerate(owners):
        at = f"{path}[{index}]"
        if not owner.api_version:
            field_errors.required(problems, f"{at}.apiVersion")
        elif owner.api_version.count("/") > 1 or owner.api_version.endswith("/"):
            field_errors.invalid(
                problems, f"{at}.apiVersion", "must be <group>/<version> or <version>"
            )
        for name, value in (("kind", owner.kind), ("name", owner.name), ("uid", owner.uid)):
            if not value:
                field_errors.required(problems, f"{at}.{name}")
        if (owner.api_version, owner.kind) == ("v1", "Event"):
            field_errors.invalid(problems, at, "an event cannot be an owner")
        if owner.controller:
            if controller:
                field_errors.invalid(
                    problems,
                    path,
                    f"only one owner can be the controller: {controller}, {owner.name}",
                )
            else:
                controller = f"{owner.kind}/{owner.name}"


def _check_finalizers(problems: Problems, finalizers: tuple[str, ...], path: str) -> None:
    for index, finalizer in enumerate(finalizers):
        names.check_label_key(problems, path, finalizer)
        if "/" not in finalizer and finalizer not in STANDARD_FINALIZERS:
            field_errors.invalid(
                problems, f"{path}[{index}]", f'"{finalizer[:80]}" must be <domain>/<name>'
            )
    if _ORPHAN in finalizers and _FOREGROUND in finalizers:
        field_errors.invalid(problems, path, f"{_ORPHAN} and {_FOREGROUND} exclude each other")


def _masked(generate_name: str) -> str:
    """A trailing dash is fine where characters follow; upstream puts a letter over it and its neighbour."""
    return (
        f"{generate_name[:-2]}a"
        if len(generate_name) > 1 and generate_name.endswith("-")
        else generate_name
    )


_EMPTY: Final = meta.ObjectMeta()
