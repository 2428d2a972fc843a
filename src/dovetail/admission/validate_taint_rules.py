"""Rules for a DeviceTaintRule: the devices it selects, its taint, its conditions.

Given the rule and, at an update, what was stored; adds a problem for each rule broken. Never matches devices.
"""

from dovetail.admission import validate_metadata, validate_placement
from dovetail.kubetypes import field_errors, names, node_selectors
from dovetail.kubetypes.field_errors import Problems
from dovetail.kubetypes.resource import taint_rules


def check_create(problems: Problems, new: taint_rules.DeviceTaintRule) -> None:
    """A new rule."""
    validate_metadata.check_create(problems, new.metadata, is_namespaced=False)
    _check_spec(problems, new.spec, old_taint=None)


def check_update(
    problems: Problems, new: taint_rules.DeviceTaintRule, old: taint_rules.DeviceTaintRule
) -> None:
    """A changed rule; an effect as stored passes."""
    validate_metadata.check_update(problems, new.metadata, old.metadata, is_namespaced=False)
    _check_spec(problems, new.spec, old_taint=old.spec.taint)


def check_status_update(
    problems: Problems, new: taint_rules.DeviceTaintRule, old: taint_rules.DeviceTaintRule
) -> None:
    """New conditions."""
    validate_metadata.check_update(problems, new.metadata, old.metadata, is_namespaced=False)
    conditions = new.status.conditions
    validate_metadata.check_conditions(problems, conditions, "status.conditions")
    if len(conditions) > taint_rules.MAX_CONDITIONS:
        field_errors.too_many(
            problems, "status.conditions", len(conditions), limit=taint_rules.MAX_CONDITIONS
        )


def _check_spec(
    problems: Problems,
    spec: taint_rules.DeviceTaintRuleSpec,
    *,
    old_taint: node_selectors.DeviceTaint | None,
) -> None:
    chosen = spec.device_selector
    if chosen is not None:
        if chosen.driver is not None:
            names.check_driver(problems, "spec.deviceSelector.driver", chosen.driver)
        if chosen.pool is not None:
            names.check_pool(problems, "spec.deviceSelector.pool", chosen.pool)
        if chosen.device is not None:
            names.check_label(problems, "spec.deviceSelector.device", chosen.device)
    validate_placement.check_taint(problems, spec.taint, "spec.taint", old=old_taint)
