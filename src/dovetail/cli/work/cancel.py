"""`dovetail cancel`: ends work for good: deletes what a user created, so that no controller creates its pods again."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

import click

from dovetail import errors
from dovetail.ask import api_session
from dovetail.ask.submission import job_manifest
from dovetail.cli import output
from dovetail.cli.cluster import cluster_option
from dovetail.tables import text

if TYPE_CHECKING:
    from dovetail.cli.work import work_targets
    from dovetail.kube.http import transport

REFUSED: Final = 1

Tree = dict[str, Any]


@click.command()
@click.argument("words", metavar="NAME... | KIND/NAME...", nargs=-1)
@click.option("-n", "--namespace", help="Namespace of the work. [default: the context's]")
@click.option("-l", "--selector", default="", metavar="LABELS", help="The work of pods with them.")
@click.option("--me", is_flag=True, help="All work that I submitted with `dovetail run`.")
@click.option("--dry-run", is_flag=True, help="Say what would end, and end nothing.")
@click.option("-y", "--yes", is_flag=True, help="Do not ask, however much would end.")
@click.option("-o", "--output", "form", type=click.Choice(("table", "name")), default="table")
@cluster_option.writable
def command(
    *,
    words: tuple[str, ...],
    namespace: str | None,
    selector: str,
    me: bool,
    dry_run: bool,
    yes: bool,
    form: str,
) -> None:
    """End work: a job, a gang, a pod, or any object that owns pods (NAME, job/NAME, gang/NAME, pod/NAME).

    Deletes the object that a user created: for a pod of a Job the Job, because it would create the pod again.
    """
    labels = ",".join(filter(None, [selector, job_manifest.my_selector() if me else ""]))
    if bool(words) == bool(labels):
        raise click.UsageError("name the work to end, or select it with -l LABELS or --me")
    choice = cluster_option.chosen()
    place = namespace or choice.connection.namespace

    async def look(over: transport.Transport) -> list[work_targets.Work]:
        return await _doomed(over, words, namespace=place, labels=labels)

    doomed = api_session.run(choice, look)
    if not doomed:
        raise errors.InputError(f"nothing to cancel in namespace {place}")
    if dry_run:
        output.write_lines([f"{_shown(work, form)}{_dry(form)}" for work in doomed])
        cluster_option.say_cluster(choice.name)
        return
    if not yes and _needs_consent(doomed, words) and not _agrees(doomed):
        output.say("nothing was cancelled")
        raise click.exceptions.Exit(REFUSED)
    api_session.run(choice, lambda over: _delete(over, doomed))
    done = "" if form == "name" else " cancelled"
    output.write_lines([f"{_shown(work, form)}{done}" for work in doomed])
    cluster_option.say_cluster(choice.name)


async def _doomed(
    over: transport.Transport, words: Sequence[str], *, namespace: str, labels: str
) -> list[work_targets.Work]:
    """What has to be deleted, each once. All words are looked up before anything ends."""
    from dovetail.cli.work import work_targets

    lookup = await work_targets.lookup(over, namespace)
    if labels:
        named = await lookup.selected("pods", labels)
        named = [work for work in named if not work_targets.is_ended(work.pods[0])]
    else:
        named = [await lookup.of_word(word) for word in words]
    by_label: dict[str, work_targets.Work] = {}
    for work in named:
        for top in await lookup.top_of(work):
            by_label.setdefault(top.label, top)
    return list(by_label.values())


def _needs_consent(doomed: Sequence[work_targets.Work], words: Sequence[str]) -> bool:
    """Whether more than one object would end, or other pods than the one that was named."""
    if len(doomed) > 1:
        return True
    is_pod_named = any(word.startswith(("pod/", "pods/", "po/")) for word in words)
    return is_pod_named and len(doomed[0].pods) > 1


def _agrees(doomed: Sequence[work_targets.Work]) -> bool:
    for work in doomed:
        output.say(_shown(work, "table"))
    if not sys.stdin.isatty():
        raise click.UsageError(
            f"{text.counted(len(doomed), 'object')} would end, and there is no terminal to ask on; "
            "add --yes, or --dry-run to look only"
        )
    return click.confirm("cancel?", default=False, err=True)


async def _delete(over: transport.Transport, doomed: Sequence[work_targets.Work]) -> None:
    from dovetail.kube import object_requests

    for work in doomed:
        assert work.target is not None  # a gang by label is made of other objects
        await object_requests.delete(over, work.target)


def _shown(work: work_targets.Work, form: str) -> str:
    if form == "name" or work.is_pod:
        return work.label
    return f"{work.label} ({text.counted(len(work.pods), 'pod')})"


def _dry(form: str) -> str:
    return "" if form == "name" else " would be cancelled (dry run)"
