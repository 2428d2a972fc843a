"""`dovetail wait`: ends when work has started, has finished, is gone, or meets a condition; exit codes as kubectl's."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

import click

from dovetail import errors
from dovetail.ask import api_session
from dovetail.cli import output
from dovetail.cli.cluster import cluster_option
from dovetail.cli.work import wait_conditions
from dovetail.cli.work.wait_conditions import Verdict
from dovetail.quantity import durations

if TYPE_CHECKING:
    from dovetail.cli.work import work_targets
    from dovetail.kube import resource_names
    from dovetail.kube.http import transport

POLL_SECONDS: Final = 0.1
SLOWEST_POLL_SECONDS: Final = 1.0
DEFAULT_TIMEOUT: Final = "30s"  # as kubectl
FAILED: Final = 1


class Awaited(NamedTuple):
    """One piece of work to wait for: the word that means it, or kind and name."""

    kind: str
    name: str

    @property
    def word(self) -> str:
        """As a user writes it."""
        return f"{self.kind}/{self.name}" if self.kind else self.name


@click.command()
@click.argument("words", metavar="NAME... | KIND/NAME... | KIND NAME...", nargs=-1, required=True)
@click.option("--for", "wanted", required=True, metavar="WHAT", help=wait_conditions.KINDS)
@click.option(
    "--timeout",
    default=DEFAULT_TIMEOUT,
    show_default=True,
    metavar="DURATION",
    help="0 looks once; negative: a week.",
)
@click.option("-n", "--namespace", help="Namespace of the work. [default: the context's]")
@click.option("-l", "--selector", default="", metavar="LABELS", help="With KIND: those with them.")
@click.option("--all", "everything", is_flag=True, help="With KIND: all of them.")
@cluster_option.writable
def command(
    *,
    words: tuple[str, ...],
    wanted: str,
    timeout: str,
    namespace: str | None,
    selector: str,
    everything: bool,
) -> None:
    """Wait for work: a pod, a job, a gang, or any object.

    \b
    dovetail wait job/train --for finished --timeout 2h
    dovetail wait pod/notebook --for condition=Ready

    Ends with 0 once it has come for all of them, with 1 if it does not come in time, or if work `finished` by failing.
    """
    condition = wait_conditions.condition_of(wanted)
    seconds = _seconds(timeout)
    if (selector or everything) and (len(words) != 1 or "/" in words[0]):
        raise click.UsageError("-l and --all select objects of one KIND; give that alone")
    choice = cluster_option.chosen()
    place = namespace or choice.connection.namespace

    async def work(over: transport.Transport) -> int:
        from dovetail.kube import resource_names

        served = await resource_names.discover(over)
        awaited = await _awaited(
            over, served, words, namespace=place, selector=selector, everything=everything
        )
        until = asyncio.get_running_loop().time() + seconds
        codes = [
            await _wait(over, served, each, namespace=place, condition=condition, until=until)
            for each in awaited
        ]
        return max(codes, default=0)

    code = api_session.run(choice, work)
    if code:
        raise click.exceptions.Exit(code)


def _seconds(timeout: str) -> float:
    if timeout.startswith("-"):
        return float(durations.seconds("7d") or 0)
    seconds = durations.seconds(timeout)
    if seconds is None:
        raise click.BadParameter(
            f'"{timeout}": expected a duration such as 30s or 10m', param_hint="--timeout"
        )
    return float(seconds)


async def _awaited(
    over: transport.Transport,
    served: resource_names.Resources,
    words: Sequence[str],
    *,
    namespace: str,
    selector: str,
    everything: bool,
) -> list[Awaited]:
    from dovetail.cli.work import work_targets

    if selector or everything:
        lookup = work_targets.Lookup(over, served, namespace)
        selected = await lookup.selected(words[0], selector)
        if not selected:
            raise errors.InputError("no matching resources found")
        return [Awaited(words[0], each.target.name) for each in selected if each.target]
    first, *names = words
    is_kind = served.of_word(first) is not None or first == work_targets.GANG
    if names and is_kind and not any("/" in word for word in words):
        return [Awaited(first, name) for name in names]
    awaited = []
    for word in words:
        kind, slash, name = word.partition("/")
        awaited.append(Awaited(kind, name) if slash else Awaited("", word))
    return awaited


async def _wait(
    over: transport.Transport,
    served: resource_names.Resources,
    awaited: Awaited,
    *,
    namespace: str,
    condition: wait_conditions.Condition,
    until: float,
) -> int:
    """Looks again and again. Returns the exit code."""
    from dovetail.cli.work import work_targets

    loop = asyncio.get_running_loop()
    pause = POLL_SECONDS
    may_be_absent = condition.is_deletion or condition.text.endswith("create")
    while True:
        lookup = work_targets.Lookup(over, served, namespace)
        work: work_targets.Work | None
        try:
            if awaited.kind:
                work = await lookup.of_kind(awaited.kind, awaited.name)
            else:
                work = await lookup.of_word(awaited.name)
        except work_targets.NotFoundError:
            if not may_be_absent:
                raise
            work = None
        verdict = condition.test(work)
        label = work.label if work is not None else awaited.word
        if verdict is Verdict.MET:
            met = "deleted" if condition.is_deletion else f"{condition.text} met"
            output.write_lines([f"{label} {met}"])
            return 0
        if verdict is Verdict.FAILED:
            output.write_lines([f"{label} failed"])
            return FAILED
        if loop.time() >= until:
            output.say(f"error: timed out waiting for {condition.text} of {label}")
            return FAILED
        await asyncio.sleep(min(pause, max(0.0, until - loop.time())))
        pause = min(SLOWEST_POLL_SECONDS, pause * 1.5)
