"""Reads the scheduler's configuration file and describes it as JSON Schema.

Given a path to YAML or JSON. What is wrong with it is told all at once, each line with the file, the field's path and
what to do. Never fills in what depends on the machine.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import msgspec

from dovetail import errors
from dovetail.boot import files
from dovetail.model import configuration, trees, yaml_text
from dovetail.model.configuration import SchedulerConfiguration

SCHEMA_ID: Final = "urn:dovetail:v1alpha1:scheduler-configuration"


def load(path: str | Path) -> SchedulerConfiguration:
    """The configuration in a file. Raises InputError naming every field that is wrong."""
    return read(files.text(path), file=str(path))


def read(text: str, *, file: str) -> SchedulerConfiguration:
    """The configuration a YAML or JSON text holds."""
    tree = _document(text, file)
    if found := configuration.misfits(tree):
        raise _refused(file, found)
    whole = trees.without_nulls(SchedulerConfiguration, tree)
    unsaid = [
        trees.Misfit(name, f'is required; write "{name}: {value}"')
        for name, value in (("apiVersion", configuration.API_VERSION), ("kind", configuration.KIND))
        if name not in whole
    ]
    read_ = msgspec.convert(whole, SchedulerConfiguration)
    if wrong := unsaid + list(configuration.problems(read_)):
        raise _refused(file, wrong)
    return read_


def schema() -> dict[str, Any]:
    """The file as JSON Schema 2020-12: types, limits, defaults and meanings; unknown fields are not allowed."""
    (reference,), components = msgspec.json.schema_components((SchedulerConfiguration,), ref_template="#/$defs/{name}")
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
        found = [one.tree for one in yaml_text.documents(text)]
    except yaml_text.TextError as error:
        raise errors.InputError(f"{file}: line {error.line}: {error.message}") from None
    if len(found) != 1:
        raise errors.InputError(f"{file}: expected one document, got {len(found)}")
    if not isinstance(found[0], dict):
        raise errors.InputError(f"{file}: expected a mapping, got {trees.shown(found[0])}")
    return found[0]


def _refused(file: str, wrong: list[trees.Misfit]) -> errors.InputError:
    return errors.InputError("\n".join(f"{file}: {one.path}: {one.message}" for one in wrong))
