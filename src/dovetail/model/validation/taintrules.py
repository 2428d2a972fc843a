"""Rules for a DeviceTaintRule: the devices it selects, its taint, its conditions.

Given the rule and, at an update, what was stored; adds a problem for each rule broken. Never matches devices.
"""

from dovetail.model import selectors, taintrules
from dovetail.model.validation import fields, metadata, names, placement
from dovetail.model.validation.fields import Problems


def check_create(problems: Problems, new: taintrules.DeviceTaintRule) -> None:
    """A new rule."""
    metadata.check_create(problems, new.metadata, is_namespaced=False)
    _check_spec(problems, new.spec, old_taint=None)


def check_update(problems: Problems, new: taintrules.DeviceTaintRule, old: taintrules.DeviceTaintRule) -> None:
    """A changed rule; an effect as stored passes."""
    metadata.check_update(problems, new.metadata, old.metadata, is_namespaced=False)
    _check_spec(problems, new.spec, old_taint=old.spec.taint)


def check_status_update(problems: Problems, new: taintrules.DeviceTaintRule, old: taintrules.DeviceTaintRule) -> None:
    """New conditions."""
    metadata.check_update(problems, new.metadata, old.metadata, is_namespaced=False)
    conditions = new.status.conditions
    metadata.check_conditions(problems, conditions, "status.conditions")
    if len(conditions) > taintrules.MAX_CONDITIONS:
        fields.too_many(problems, "status.conditions", len(conditions), limit=taintrules.MAX_CONDITIONS)


def _check_spec(
    problems: Problems,
    spec: taintrules.DeviceTaintRuleSpec,
    *,
    old_taint: selectors.DeviceTaint | None,
) -> None:
    chosen = spec.device_selector
    if chosen is not None:
        if chosen.driver is not None:
            names.check_driver(problems, "spec.deviceSelector.driver", chosen.driver)
        if chosen.pool is not None:
            names.check_pool(problems, "spec.deviceSelector.pool", chosen.pool)
        if chosen.device is not None:
            names.check_label(problems, "spec.deviceSelector.device", chosen.device)
    placement.check_taint(problems, spec.taint, "spec.taint", old=old_taint)
