"""Reads the scheduler's configuration file and describes it as JSON Schema.

Given a path to YAML or JSON. Reports all problems at once, one per line with the file, the field's path and the next
step. Never fills in values that depend on the machine.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import msgspec

from dovetail import errors
from dovetail.files import bounded_files
from dovetail.kubetypes import untyped
from dovetail.manifest import yaml_text
from dovetail.model import configuration, configuration_problems
from dovetail.model.configuration import SchedulerConfiguration

SCHEMA_ID: Final = "urn:dovetail:v1alpha1:scheduler-configuration"


def load(path: str | Path) -> SchedulerConfiguration:
    """The configuration of a file. Raises InputError with every wrong field."""
    return read(bounded_files.text(path), file=str(path))


def read(text: str, *, file: str) -> SchedulerConfiguration:
    """The configuration of a YAML or JSON text."""
    tree = _document(text, file)
    if misfits := configuration_problems.misfits(tree):
        raise _refused(file, misfits)
    whole = untyped.without_nulls(SchedulerConfiguration, tree)
    missing = [
        untyped.Misfit(name, f'is required; write "{name}: {value}"')
        for name, value in (("apiVersion", configuration.API_VERSION), ("kind", configuration.KIND))
        if name not in whole
    ]
    read_ = msgspec.convert(whole, SchedulerConfiguration)
    if wrong := missing + list(configuration_problems.problems(read_)):
        raise _refused(file, wrong)
    return read_


def schema() -> dict[str, Any]:
    """The file as JSON Schema 2020-12: types, limits, defaults and meanings; unknown fields are not allowed."""
    (reference,), components = msgspec.json.schema_components(
        (SchedulerConfiguration,), ref_template="#/$defs/{name}"
    )
    own = components.pop(reference["$ref"].rpartition("/")[2])
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": SCHEMA_ID,
        **own,
        "required": ["apiVersion", "kind"],
        "$defs": components,
    }


def _document(text: str, file: str) -> dict[str, Any]:
    try:
        trees = [document.tree for document in yaml_text.documents(text)]
    except yaml_text.TextError as error:
        raise errors.InputError(f"{file}: line {error.line}: {error.message}") from None
    if len(trees) != 1:
        raise errors.InputError(f"{file}: expected one document, got {len(trees)}")
    if not isinstance(trees[0], dict):
        raise errors.InputError(f"{file}: expected a mapping, got {untyped.shown(trees[0])}")
    return trees[0]


def _refused(file: str, wrong: list[untyped.Misfit]) -> errors.InputError:
    return errors.InputError(
        "\n".join(f"{file}: {misfit.path}: {misfit.message}" for misfit in wrong)
    )
