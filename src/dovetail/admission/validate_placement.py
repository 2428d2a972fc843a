"""Rules for node selectors, device taints, tolerations and binding conditions, wherever they occur.

Given one of these structs and its path; adds a problem for each rule broken. Never matches anything.
"""

from typing import Final

from dovetail.kubetypes import field_errors, names, node_selectors
from dovetail.kubetypes.field_errors import Problems
from dovetail.kubetypes.resource import slices

TAINT_EFFECTS: Final = ("NoExecute", "NoSchedule", "None")
TOLERATION_OPERATORS: Final = ("Equal", "Exists")
SKIPPABLE_OPERATIONS: Final = ("*", "NodePrepareResources", "NodeUnprepareResources")


def check_node_selector(
    problems: Problems, selector: node_selectors.NodeSelector, path: str
) -> None:
    """At least one term; every requirement well-formed."""
    path = f"{path}.nodeSelectorTerms"
    if not selector.node_selector_terms:
        field_errors.required(problems, path, "at least one term is required")
    for index, term in enumerate(selector.node_selector_terms):
        check_node_selector_term(problems, term, f"{path}[{index}]")


def check_node_selector_term(
    problems: Problems, term: node_selectors.NodeSelectorTerm, path: str
) -> None:
    """Label requirements and field requirements of one term."""
    for index, requirement in enumerate(term.match_expressions):
        _check_label_requirement(problems, requirement, f"{path}.matchExpressions[{index}]")
    for index, requirement in enumerate(term.match_fields):
        _check_field_requirement(problems, requirement, f"{path}.matchFields[{index}]")


def check_taint(
    problems: Problems,
    taint: node_selectors.DeviceTaint,
    path: str,
    *,
    old: node_selectors.DeviceTaint | None = None,
) -> None:
    """A key, a label value, a known effect; an effect that was stored before passes."""
    names.check_label_key(problems, f"{path}.key", taint.key)
    names.check_label_value(problems, f"{path}.value", taint.value)
    if old is None or old.effect != taint.effect:
        check_taint_effect(problems, taint.effect, f"{path}.effect")


def check_taint_effect(problems: Problems, effect: str, path: str) -> None:
    """A taint has one of the known effects."""
    if not effect:
        field_errors.required(problems, path)
    elif effect not in TAINT_EFFECTS:
        field_errors.not_supported(problems, path, effect, TAINT_EFFECTS)


def check_tolerations(
    problems: Problems, tolerations: tuple[node_selectors.DeviceToleration, ...], path: str
) -> None:
    """Any number of tolerations: upstream declares a limit and does not enforce it."""
    for index, toleration in enumerate(tolerations):
        at = f"{path}[{index}]"
        _check_toleration(problems, toleration, at)
        if toleration.operator == "Exists" and toleration.value:
            field_errors.invalid(
                problems, f"{at}.value", "must be empty where the operator is Exists"
            )
        elif toleration.operator == "Equal":
            names.check_label_value(problems, f"{at}.value", toleration.value)


def check_declared_tolerations(
    problems: Problems, tolerations: tuple[node_selectors.DeviceToleration, ...], path: str
) -> None:
    """The rules upstream declares on the type: key, operator and effect, not the value."""
    for index, toleration in enumerate(tolerations):
        _check_toleration(problems, toleration, f"{path}[{index}]")


def check_binding_conditions(
    problems: Problems, conditions: tuple[str, ...], failures: tuple[str, ...], *, path: str
) -> None:
    """Both lists or none; at most four each; no condition twice, none in both."""
    success_path, failure_path = f"{path}.bindingConditions", f"{path}.bindingFailureConditions"
    for listed, at in ((conditions, success_path), (failures, failure_path)):
        if len(listed) > slices.MAX_BINDING_CONDITIONS:
            field_errors.too_many(problems, at, len(listed), limit=slices.MAX_BINDING_CONDITIONS)
        else:
            for index, condition in enumerate(listed):
                names.check_label_key(problems, f"{at}[{index}]", condition)
        check_unique(problems, listed, at)
    for index, condition in enumerate(failures):
        if condition in conditions:
            field_errors.invalid(
                problems, f"{failure_path}[{index}]", f'"{condition}" is a binding condition too'
            )
    if failures and not conditions:
        field_errors.invalid(
            problems, success_path, "required where there are bindingFailureConditions"
        )
    if conditions and not failures:
        field_errors.invalid(problems, failure_path, "required where there are bindingConditions")


def check_skipped_operations(problems: Problems, operations: tuple[str, ...], path: str) -> None:
    """Known operations, each once; skipping the preparation means skipping its undoing too."""
    check_unique(problems, operations, path)
    for index, operation in enumerate(operations):
        if operation not in SKIPPABLE_OPERATIONS:
            field_errors.not_supported(
                problems, f"{path}[{index}]", operation, SKIPPABLE_OPERATIONS
            )
    if "NodePrepareResources" in operations and not {"NodeUnprepareResources", "*"} & set(
        operations
    ):
        field_errors.invalid(
            problems, path, "NodePrepareResources needs NodeUnprepareResources skipped as well"
        )


def check_unique(problems: Problems, values: tuple[str, ...], path: str) -> None:
    """No value occurs twice."""
    if len(set(values)) == len(values):
        return
    seen_values: set[str] = set()
    for index, value in enumerate(values):
        if value in seen_values:
            field_errors.duplicate(problems, f"{path}[{index}]", value)
        seen_values.add(value)


def _check_toleration(
    problems: Problems, toleration: node_selectors.DeviceToleration, path: str
) -> None:
    if toleration.key:
        names.check_label_key(problems, f"{path}.key", toleration.key)
    if not toleration.operator:
        field_errors.required(problems, f"{path}.operator")
    elif toleration.operator not in TOLERATION_OPERATORS:
        field_errors.not_supported(
            problems, f"{path}.operator", toleration.operator, TOLERATION_OPERATORS
        )
    if toleration.effect and toleration.effect not in TAINT_EFFECTS:
        field_errors.not_supported(problems, f"{path}.effect", toleration.effect, TAINT_EFFECTS)


def _check_label_requirement(
    problems: Problems, requirement: node_selectors.NodeSelectorRequirement, path: str
) -> None:
    values = requirement.values
    match requirement.operator:
        case "In" | "NotIn":
            if not values:
                field_errors.required(problems, f"{path}.values", "In and NotIn need a value")
        case "Exists" | "DoesNotExist":
            if values:
                field_errors.forbidden(
                    problems, f"{path}.values", "Exists and DoesNotExist take no value"
                )
        case "Gt" | "Lt":
            if len(values) != 1:
                field_errors.required(
                    problems, f"{path}.values", "Gt and Lt need exactly one value"
                )
        case operator:
            field_errors.invalid(
                problems, f"{path}.operator", f'"{operator}" is not an operator of node selectors'
            )
    names.check_label_key(problems, f"{path}.key", requirement.key)
    for index, value in enumerate(values):
        names.check_label_value(problems, f"{path}.values[{index}]", value)


def _check_field_requirement(
    problems: Problems, requirement: node_selectors.NodeSelectorRequirement, path: str
) -> None:
    if requirement.operator not in ("In", "NotIn"):
        field_errors.invalid(
            problems, f"{path}.operator", f'"{requirement.operator}" does not work on fields'
        )
    elif len(requirement.values) != 1:
        field_errors.required(
            problems, f"{path}.values", "In and NotIn on a field need exactly one value"
        )
    if requirement.key != node_selectors.FIELD_NODE_NAME:
        field_errors.invalid(
            problems, f"{path}.key", f'only "{node_selectors.FIELD_NODE_NAME}" can be selected'
        )
        return
    for index, value in enumerate(requirement.values):
        names.check_subdomain(problems, f"{path}.values[{index}]", value)
