"""`dovetail why`: why a pod does not start, in one sentence, with the numbers, the holders and fixes that were tried.

Given a pod, a workload, or nothing for all pods that wait. Exit code 0: it starts; 1: it does not; 2: bad input. Only
reads the cluster. Never decides: `answer/why` does.
"""

from __future__ import annotations

import shutil
import sys
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from dovetail import errors
from dovetail.ask import cluster_view, replicas
from dovetail.cli import output
from dovetail.cli.answers import asked_cluster
from dovetail.cli.cluster import cluster_option
from dovetail.tables import text

if TYPE_CHECKING:
    from dovetail.answer.replica.replica import Replica
    from dovetail.answer.why.why_answer import Why

FORMS = ("table", "wide", "json", "yaml")
STARTS, BLOCKED = 0, 1
WATCH_SECONDS = 2.0


@click.command(name="why")
@click.argument("name", required=False, metavar="[NAME | KIND/NAME]")
@click.option("-n", "--namespace", help="Namespace to look in. [default: the context's]")
@click.option("-A", "--all-namespaces", is_flag=True, help="Pods of all namespaces.")
@click.option("-w", "--watch", is_flag=True, help="Answer again when the answer changes.")
@click.option(
    "-o", "--output", "form", type=click.Choice(FORMS), default="table", show_default=True
)
@asked_cluster.configurable
@cluster_option.readable
def command(
    *,
    name: str | None,
    namespace: str | None,
    all_namespaces: bool,
    watch: bool,
    form: str,
    file: str | None,
) -> None:
    """Say why a pod does not start: NAME, pod/NAME, or the first waiting pod of job/NAME and other workloads.

    Without a name, every pod that waits, one line each. The engine is asked about the whole cluster; every fix it
    shows was tried. Exit code 0: it starts, 1: it does not.
    """
    if namespace and all_namespaces:
        raise click.UsageError("give -n or -A, not both")
    if name and all_namespaces:
        raise click.UsageError("a name is looked up in one namespace: give -n instead of -A")
    if watch and cluster_option.snapshot() is not None:
        raise click.UsageError("a snapshot does not change; leave -w out")
    place = None if all_namespaces else namespace or cluster_option.default_namespace()
    code, shown = _answer(name, place, form, file)
    while watch:
        time.sleep(WATCH_SECONDS)
        code, shown = _answer(name, place, form, file, before=shown)
    click.get_current_context().exit(code)


def _answer(
    name: str | None,
    place: str | None,
    form: str,
    file: str | None,
    *,
    before: object = None,
) -> tuple[int, object]:
    """Asks once and prints the answer, unless it is the one before."""
    from dovetail.ask import why_asked

    seen, policy_ = asked_cluster.view(file, why_asked.KINDS)
    with cluster_view.not_collecting():
        replica = replicas.replica_of(seen, policy_)
        answers = _answers(replica, name, place)
    if answers != before:
        _show(answers, form, is_list=name is None, cluster=seen.name)
    is_blocked = any(not answer.schedulable for answer in answers)
    return (BLOCKED if is_blocked else STARTS), answers


def _answers(replica: Replica, name: str | None, place: str | None) -> list[Why]:
    from dovetail.ask import why_asked

    if name is None:
        return why_asked.why_waiting(replica, place)
    assert place is not None
    try:
        return [why_asked.why(replica, name, place)]
    except errors.InputError as error:
        raise output.BadInput(str(error)) from None


def _show(answers: Sequence[Why], form: str, *, is_list: bool, cluster: str) -> None:
    if form in ("json", "yaml"):
        _write_data(answers, form, is_list=is_list)
        return
    from dovetail.tables.answers import why_text

    is_wide = form == "wide"
    if is_list:
        _write_list(answers, is_wide=is_wide)
    else:
        columns = _columns() or why_text.PIPE_COLUMNS
        output.write_lines(why_text.lines_of(answers[0], is_wide=is_wide, columns=columns))
    cluster_option.say_cluster(cluster)
    _say_next(answers, is_list=is_list)


def _write_list(answers: Sequence[Why], *, is_wide: bool) -> None:
    """One line for each pod that waits."""
    from dovetail.tables.answers import why_text

    if not answers:
        output.say("nothing waits")
        return
    rows = [why_text.row_of(answer) for answer in answers]
    lines = text.table(why_text.LIST_HEADERS, rows)
    (output.write_lines if is_wide else output.write_table)(lines)


def _columns() -> int | None:
    """Of the terminal, where there is one."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else None


def _say_next(answers: Sequence[Why], *, is_list: bool) -> None:
    """The last line: the next command."""
    blocked = [answer for answer in answers if not answer.schedulable]
    if is_list and blocked:
        subject = blocked[0].subject
        cluster_option.next_step(f"why {subject.name} -n {subject.namespace}")
    else:
        cluster_option.next_step("when" if blocked else "get pods -A")


def _write_data(answers: Sequence[Why], form: str, *, is_list: bool) -> None:
    import msgspec

    value: Any = list(answers) if is_list else answers[0]
    if form == "json":
        output.write_json(value)
        return
    tree = msgspec.to_builtins(value)
    output.write_object(tree, "yaml")
