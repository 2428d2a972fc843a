"""`dovetail explain`: what a field of a resource means, or what a word means that says why work waits."""

from __future__ import annotations

import difflib
import textwrap
from typing import TYPE_CHECKING, Any, Final

import click
import msgspec

from dovetail import errors
from dovetail.ask import api_session
from dovetail.cli import output
from dovetail.cli.cluster import cluster_option, resource_arguments
from dovetail.cli.work.explaining import reason_texts, schema_fields
from dovetail.kubetypes import registry
from dovetail.ports import failures

if TYPE_CHECKING:
    from dovetail.kube import resource_names
    from dovetail.kube.http import transport

WIDTH: Final = 80
FORMS: Final = ("table", "json")

Tree = dict[str, Any]


@click.command()
@click.argument("word", metavar="RESOURCE[.FIELD...] | REASON")
@click.option("--recursive", is_flag=True, help="All fields below, without descriptions.")
@click.option("--api-version", default="", metavar="GROUP/VERSION", help="[default: preferred]")
@click.option("-o", "--output", "form", type=click.Choice(FORMS), default="table")
@cluster_option.writable
def command(*, word: str, recursive: bool, api_version: str, form: str) -> None:
    """Explain a resource or one of its fields, as kubectl explain, or a reason why work waits.

    \b
    dovetail explain queue.spec.resources
    dovetail explain resourceclaim.spec.devices.requests
    dovetail explain SelectorMatchesTooFew

    Without a cluster, the kinds of Dovetail and of DRA are known.
    """
    by_lower_case = {name.lower(): name for name in reason_texts.ALL}
    reason = by_lower_case.get(word.lower())
    if reason is not None:
        _write_reason(reason, form)
        return
    kind_word, *path = word.split(".")
    if not kind_word or not all(path):
        raise click.BadParameter(f'"{word}": expected RESOURCE, RESOURCE.FIELD... or a reason')
    kind, document = _kind_and_document(kind_word, path, api_version)
    identity = schema_fields.Identity(kind.group, kind.api_version.rpartition("/")[2], kind.name)
    schemas = schema_fields.Schemas(document)
    schema = schemas.of_kind(identity)
    if schema is None:
        raise errors.StateError(f"the cluster publishes no schema of {kind.name}")
    schema = schemas.field(schema, path, start=kind.name)
    if form == "json":
        output.write_json(schema)
        return
    lines = schema_fields.lines_of(schemas, identity, schema, path, is_recursive=recursive)
    output.write_lines(lines)


def _write_reason(reason: str, form: str) -> None:
    entry = reason_texts.ALL[reason]
    if form == "json":
        output.write_json({"reason": reason, "means": entry.means, "helps": entry.helps})
        return
    lines = [f"REASON:     {reason}", "", "MEANS:"]
    lines += [f"    {line}" for line in textwrap.wrap(entry.means, WIDTH - 4)]
    lines += ["", "HELPS:"]
    for number, help_text in enumerate(entry.helps, start=1):
        wrapped = textwrap.wrap(help_text, WIDTH - 7)
        lines += [f"    {number}  {wrapped[0]}", *(f"       {line}" for line in wrapped[1:])]
    output.write_lines(lines)


def _kind_and_document(word: str, path: list[str], api_version: str) -> tuple[registry.Kind, Tree]:
    """The kind and an OpenAPI document that has it: the cluster's, else what is known without one."""
    try:
        choice = cluster_option.chosen()
    except errors.StateError:
        return _known(word, path, api_version)

    async def work(over: transport.Transport) -> tuple[registry.Kind, Tree]:
        from dovetail.kube import resource_names

        served = await resource_names.discover(over)
        kind = _kind_of(word, path, served, api_version)
        if choice.is_embedded and kind.group == registry.QUEUE.group:
            return _known(word, path, api_version)  # it serves our kinds without definitions
        place = f"api/{kind.api_version}" if kind.is_core else f"apis/{kind.api_version}"
        answer = await over.request("GET", f"/openapi/v3/{place}")
        document: Tree = msgspec.json.decode(answer.body) if answer.is_success else {}
        return kind, document

    try:
        return api_session.run(choice, work)
    except failures.Unavailable as error:
        output.say(f"{error}; this is what is known without the cluster")
        return _known(word, path, api_version)


def _known(word: str, path: list[str], api_version: str) -> tuple[registry.Kind, Tree]:
    from dovetail.cli.work.explaining import known_schemas

    kind = _kind_of(word, path, known_schemas.resources(), api_version)
    return kind, known_schemas.document_of(kind)


def _kind_of(
    word: str, path: list[str], served: resource_names.Resources, api_version: str
) -> registry.Kind:
    resource = served.of_word(resource_arguments.OWN_WORDS.get(word.lower(), word))
    if resource is None:
        near = [] if path else difflib.get_close_matches(word, reason_texts.ALL, n=1)
        if near:
            raise errors.InputError(f'no resource or reason "{word}"; did you mean {near[0]}?')
        resource = resource_arguments.resource_of(word, served)
    if not api_version:
        return resource.kind
    other = served.of_type(api_version, resource.kind.name)
    if other is None:
        raise errors.InputError(f"no {resource.kind.name} in {api_version}")
    return other.kind
