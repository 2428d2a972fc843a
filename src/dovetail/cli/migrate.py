"""`dovetail migrate`: objects of Kueue or KAI into queues and topologies of ours. Reads files and prints."""

import shlex
from collections.abc import Callable, Iterator, Sequence
from itertools import groupby
from typing import NoReturn

import click

from dovetail.cli import apply, output, text
from dovetail.model import conversion, manifests, plaintext
from dovetail.model.conversion import notes

NO_LOSS = (notes.Fate.CARRIED, notes.Fate.LEFT_OUT)
THEIRS = {"kueue": "Kueue", "kai": "KAI Scheduler"}
LOSSY = 1  # exit code where something was dropped and --strict was given
Converter = Callable[[Sequence[notes.Tree]], notes.Conversion]


@click.group()
def group() -> None:
    """Convert other schedulers' objects into queues and topologies.

    Objects go to standard output, ready for kubectl apply or dovetail apply. What became of each field goes to
    standard error: carried over, approximated or dropped, and why.
    """


def _options(command: Callable[..., None]) -> Callable[..., None]:
    for option in (
        click.option("--strict", is_flag=True, help="End with exit code 1 where a field was dropped."),
        click.option("--quiet", is_flag=True, help="Of the account, only what was approximated or dropped."),
        click.option("-o", "--output", "form", type=click.Choice(("yaml", "json")), default="yaml", show_default=True),
        click.option(
            "-f", "--filename", "files", multiple=True, required=True, metavar="FILE|DIR|-", help="What to read."
        ),
    ):
        command = option(command)
    return command


@group.command(short_help="Convert the objects of Kueue.")
@_options
def kueue(*, files: tuple[str, ...], form: str, quiet: bool, strict: bool) -> None:
    """Convert ClusterQueues, LocalQueues, Cohorts, ResourceFlavors, WorkloadPriorityClasses and Topologies of Kueue."""
    from dovetail.model.conversion import kueue as converter

    _run(converter.convert, files, form=form, quiet=quiet, strict=strict)


@group.command(short_help="Convert the objects of KAI Scheduler.")
@_options
def kai(*, files: tuple[str, ...], form: str, quiet: bool, strict: bool) -> None:
    """Convert Queues and Topologies of KAI Scheduler, and say what PodGroups become."""
    from dovetail.model.conversion import kai as converter

    _run(converter.convert, files, form=form, quiet=quiet, strict=strict)


def _run(convert: Converter, files: tuple[str, ...], *, form: str, quiet: bool, strict: bool) -> None:
    trees = _trees(files)
    scheduler = str(click.get_current_context().info_name)
    found = convert(trees)
    if found.objects:
        output.write_documents(found.objects, form)
    for line in _account(found, quiet=quiet):
        output.say(line)
    whose = _whose(trees)
    if scheduler not in whose:
        hint = "".join(f"; for those of {THEIRS[one]}: dovetail migrate {one} {_given(files)}" for one in sorted(whose))
        _refuse([f"no objects of {THEIRS[scheduler]} found{hint}"])
    if found.objects and apply.STDIN not in files:
        output.next_step(f"migrate {scheduler} {_given(files)} | kubectl apply -f -")
    if strict and found.count(notes.Fate.DROPPED):
        raise click.exceptions.Exit(LOSSY)


def _whose(trees: list[notes.Tree]) -> set[str]:
    """The schedulers that objects were given of."""
    groups = {str(tree.get("apiVersion", "")).partition("/")[0] for tree in trees}
    return {name for group, name in conversion.SCHEDULERS.items() if group in groups}


def _given(files: tuple[str, ...]) -> str:
    return " ".join(f"-f {shlex.quote(name)}" for name in files)


def _trees(files: tuple[str, ...]) -> list[notes.Tree]:
    read = [manifests.load(content, file=name, strict=False) for name, content in apply.contents(files)]
    problems = [str(problem) for one in read for problem in one.problems]
    if problems:
        _refuse(problems)
    return [one.stored.tree for found in read for one in found.objects]


def _account(found: notes.Conversion, *, quiet: bool) -> Iterator[str]:
    """What became of each field, object by object, and the sums at the end."""
    for subject, group_ in groupby(found.notes, key=lambda one: one.object):
        shown = [one for one in group_ if not quiet or one.fate not in NO_LOSS]
        if shown:
            yield plaintext.escaped(subject)
        for one in shown:
            yield plaintext.escaped(f"  {one.fate:<13} {_told(one)}")
    counts = ", ".join(f"{found.count(fate)} {fate}" for fate in notes.Fate)
    yield f"{text.counted(len(found.objects), 'object')} made; fields: {counts}"


def _told(one: notes.Note) -> str:
    if one.fate is notes.Fate.ADDED:
        return f"{one.to}: {one.why}"
    field = one.field or "all of it"
    return ": ".join(part for part in (f"{field} -> {one.to}" if one.to else field, one.why) if part)


def _refuse(problems: list[str]) -> NoReturn:
    for problem in problems:
        output.say(f"error: {problem}")
    output.say(f"nothing was converted: {text.counted(len(problems), 'problem')}")
    raise click.exceptions.Exit(apply.REFUSED)
