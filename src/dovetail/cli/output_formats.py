"""The values of `-o` of `dovetail get`: a name, and for jsonpath and custom-columns a template after `=`.

Given what the user typed, returns a format, or refuses with the way to get what only kubectl has. Never prints.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import click
from click.shell_completion import CompletionItem

from dovetail import errors
from dovetail.cli import output
from dovetail.kubetypes import json_paths
from dovetail.tables import path_templates

JSONPATH: Final = "jsonpath"
CUSTOM_COLUMNS: Final = "custom-columns"
TABLES: Final = ("table", "wide")
_WITH_TEMPLATE: Final = {
    JSONPATH: "'{.items[*].metadata.name}'",
    CUSTOM_COLUMNS: "NAME:.metadata.name",
}
_KUBECTL: Final = (
    "go-template",
    "go-template-file",
    "template",
    "templatefile",
    "jsonpath-as-json",
    "jsonpath-file",
    "custom-columns-file",
    "kyaml",
)


class Format(NamedTuple):
    """How to print."""

    name: str
    template: str = ""

    @property
    def is_table(self) -> bool:
        """Whether it is a table of ours or the server's."""
        return self.name in TABLES

    @property
    def is_wide(self) -> bool:
        """Whether it is the table with all columns."""
        return self.name == "wide"

    @property
    def shows_documents(self) -> bool:
        """Whether the objects themselves are printed."""
        return self.name not in (*TABLES, "name")


def sort_path(written: str | None) -> json_paths.Path | None:
    """The path that `--sort-by` names. One that cannot be read is bad input."""
    if written is None:
        return None
    try:
        return path_templates.path_of(written)
    except errors.InputError as error:
        raise output.BadInput(f"--sort-by: {error}") from None


def _check(name: str, template: str) -> None:
    """Refuses a template that cannot be read, before anything else is."""
    try:
        if name == CUSTOM_COLUMNS:
            path_templates.columns(template, (), has_headers=False)
        else:
            path_templates.printed(template, {})
    except errors.InputError as error:
        raise output.BadInput(str(error)) from None


class FormatType(click.ParamType[Format]):
    """Reads a format."""

    name = "format"

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        """The names, templates with the sign that follows them."""
        names = (*output.FORMATS, *(f"{each}=" for each in _WITH_TEMPLATE))
        return [CompletionItem(each) for each in names if each.startswith(incomplete)]

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> Format:
        if isinstance(value, Format):
            return value
        name, _, template = str(value).partition("=")
        if name in _WITH_TEMPLATE and not template:
            self.fail(f"{name} needs a template: -o {name}={_WITH_TEMPLATE[name]}", param, ctx)
        if name in _WITH_TEMPLATE:
            _check(name, template)
        if name in _WITH_TEMPLATE or (name in output.FORMATS and not template):
            return Format(name, template)
        if name in _KUBECTL:
            self.fail(
                f"{name} is kubectl's: `kubectl get -o {name}=...` works on the same cluster"
                " (`dovetail up` prints its KUBECONFIG), or read -o json",
                param,
                ctx,
            )
        known = ", ".join((*output.FORMATS, *(f"{each}=..." for each in _WITH_TEMPLATE)))
        return self.fail(f'"{value}" is none of {known}', param, ctx)
