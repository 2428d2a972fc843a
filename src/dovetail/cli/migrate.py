"""`dovetail migrate`: converts objects of Kueue or KAI into queues and topologies. Reads files and prints."""

import shlex
from collections.abc import Callable, Iterator, Sequence
from itertools import groupby
from typing import NoReturn

import click

from dovetail.ask import given_manifests
from dovetail.cli import output
from dovetail.cli.objects import manifest_files
from dovetail.manifest import manifests
from dovetail.migrate import field_notes
from dovetail.model import plaintext
from dovetail.tables import text

NO_LOSS = (field_notes.Fate.CARRIED, field_notes.Fate.LEFT_OUT)
THEIRS = {"kueue": "Kueue", "kai": "KAI Scheduler"}
LOSSY = 1  # exit code with --strict if a field was dropped
Converter = Callable[[Sequence[field_notes.Tree]], field_notes.Conversion]


@click.group()
def group() -> None:
    """Convert other schedulers' objects into queues and topologies.

    Objects go to standard output, ready for kubectl apply or dovetail apply. What became of each field goes to
    standard error: carried over, approximated or dropped, and why.
    """


def _options(command: Callable[..., None]) -> Callable[..., None]:
    for option in (
        click.option("--strict", is_flag=True, help="End with exit code 1 if a field was dropped."),
        click.option(
            "--quiet", is_flag=True, help="Of the account, only what was approximated or dropped."
        ),
        click.option(
            "-o",
            "--output",
            "form",
            type=click.Choice(("yaml", "json")),
            default="yaml",
            show_default=True,
        ),
        click.option(
            "-f",
            "--filename",
            "files",
            multiple=True,
            required=True,
            metavar="FILE|DIR|-",
            help="What to read.",
        ),
    ):
        command = option(command)
    return command


@group.command(short_help="Convert the objects of Kueue.")
@_options
def kueue(*, files: tuple[str, ...], form: str, quiet: bool, strict: bool) -> None:
    """Convert ClusterQueues, LocalQueues, Cohorts, ResourceFlavors, WorkloadPriorityClasses and Topologies of Kueue."""
    from dovetail.migrate import from_kueue

    _run(from_kueue.convert, files, form=form, quiet=quiet, strict=strict)


@group.command(short_help="Convert the objects of KAI Scheduler.")
@_options
def kai(*, files: tuple[str, ...], form: str, quiet: bool, strict: bool) -> None:
    """Convert Queues and Topologies of KAI Scheduler, and say what PodGroups become."""
    from dovetail.migrate import from_kai

    _run(from_kai.convert, files, form=form, quiet=quiet, strict=strict)


def _run(
    convert: Converter, files: tuple[str, ...], *, form: str, quiet: bool, strict: bool
) -> None:
    trees = _trees(files)
    scheduler = str(click.get_current_context().info_name)
    conversion = convert(trees)
    if conversion.objects:
        output.write_documents(conversion.objects, form)
    for line in _report(conversion, quiet=quiet):
        output.say(line)

    schedulers = _schedulers_of(trees)
    if scheduler not in schedulers:
        problem = f"no objects of {THEIRS[scheduler]} found"
        for name in sorted(schedulers):
            problem += f"; for those of {THEIRS[name]}: dovetail migrate {name} {_given(files)}"
        _refuse([problem])

    if conversion.objects and given_manifests.STDIN not in files:
        output.next_step(f"migrate {scheduler} {_given(files)} | kubectl apply -f -")
    if strict and conversion.count(field_notes.Fate.DROPPED):
        raise click.exceptions.Exit(LOSSY)


def _schedulers_of(trees: list[field_notes.Tree]) -> set[str]:
    """The schedulers to which the objects belong."""
    groups = {str(tree.get("apiVersion", "")).partition("/")[0] for tree in trees}
    return {name for group, name in manifests.CONVERTIBLE.items() if group in groups}


def _given(files: tuple[str, ...]) -> str:
    return " ".join(f"-f {shlex.quote(name)}" for name in files)


def _trees(files: tuple[str, ...]) -> list[field_notes.Tree]:
    problems: list[str] = []
    trees: list[field_notes.Tree] = []
    for name, content in given_manifests.contents(files):
        manifest = manifests.load(content, file=name, strict=False)
        problems += map(str, manifest.problems)
        trees += [item.stored.tree for item in manifest.objects]

    if problems:
        _refuse(problems)
    return trees


def _report(conversion: field_notes.Conversion, *, quiet: bool) -> Iterator[str]:
    """The fate of every field, object by object, and the totals at the end."""
    hidden = NO_LOSS if quiet else ()
    shown = [note for note in conversion.notes if note.fate not in hidden]
    for subject, notes in groupby(shown, key=lambda note: note.object):
        yield plaintext.escaped(subject)
        for note in notes:
            yield plaintext.escaped(f"  {note.fate:<13} {_described(note)}")

    counts = ", ".join(f"{conversion.count(fate)} {fate}" for fate in field_notes.Fate)
    yield f"{text.counted(len(conversion.objects), 'object')} made; fields: {counts}"


def _described(note: field_notes.Note) -> str:
    if note.fate is field_notes.Fate.ADDED:
        return f"{note.to}: {note.why}"
    line = note.field or "all of it"
    if note.to:
        line += f" -> {note.to}"
    return f"{line}: {note.why}" if note.why else line


def _refuse(problems: list[str]) -> NoReturn:
    for problem in problems:
        output.say(f"error: {problem}")
    output.say(f"nothing was converted: {text.counted(len(problems), 'problem')}")
    raise click.exceptions.Exit(manifest_files.REFUSED)
