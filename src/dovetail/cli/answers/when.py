"""`dovetail when`: when pending work starts and how late that may get, or why it cannot be known."""

from __future__ import annotations

from typing import NamedTuple

import click
import msgspec

from dovetail.answer import when
from dovetail.ask import cluster_view, replicas, scheduler_policy, when_asked
from dovetail.cli import output
from dovetail.cli.answers import asked_cluster, followed_answer
from dovetail.cli.cluster import cluster_option
from dovetail.kubetypes.core import pods
from dovetail.model import policy
from dovetail.quantity import durations
from dovetail.tables import missing_names, text
from dovetail.tables.answers import when_table

FORMS = ("table", "wide", "json", "yaml")
REFUSED = 1


@click.command(name="when")
@click.argument("name", required=False)
@click.option(
    "-n", "--namespace", metavar="NAME", help="Only gangs of this namespace. [default: all]"
)
@click.option("-A", "--all-namespaces", is_flag=True, help="Of all namespaces, as by default.")
@click.option(
    "-o", "--output", "form", type=click.Choice(FORMS), default="table", show_default=True
)
@click.option("-w", "--watch", is_flag=True, help="Go on with a row for every change.")
@click.option(
    "--timeout",
    metavar="TIME",
    help="With -w: end after so long, such as 10m, with exit code 1 if work still waits.",
)
@asked_cluster.configurable
@cluster_option.readable
def command(
    *,
    name: str | None,
    namespace: str | None,
    all_namespaces: bool,
    form: str,
    watch: bool,
    timeout: str | None,
    file: str | None,
) -> None:
    """Say when waiting work starts: all of it, or the gang or pod NAME (train, job/train, pod/train-0).

    Runs the cluster forward on paper with the runtimes that work states: once as expected, once at its longest.
    With -w the answer is followed until the work has started.
    """
    if namespace and all_namespaces:
        raise click.UsageError("give -n or -A, not both")
    selection = _Selection(name, namespace)
    if watch:
        _follow(selection, form=form, timeout=timeout, file=file)
        return
    if timeout is not None:
        raise click.UsageError("--timeout ends -w: give both")
    seen, rules = asked_cluster.view(file)
    expectations = _expectations(seen, rules, selection)
    if name is not None and not expectations:
        _close_without(name, namespace, seen)
        return
    if form in ("json", "yaml"):
        _write(expectations, form)
        return
    is_wide = form == "wide"
    if expectations:
        rows = [
            when_table.row_of(expectation, seen.now, is_wide=is_wide)
            for expectation in expectations
        ]
        output.write_table(text.table(when_table.headers(is_wide=is_wide), rows))
    else:
        output.say("nothing waits")
    cluster_option.say_cluster(seen.name)
    first = next(iter(expectations), None)
    cluster_option.next_step("queue" if first is None else _why(first))


def _close_without(name: str, namespace: str | None, seen: cluster_view.View) -> None:
    """Says what runs already under the name that was asked about. Raises BadInput where nothing has it."""
    wanted = name.rpartition("/")[2]
    structs = [stored.struct for stored in seen.objects.listed("Pod", namespace=namespace)]
    all_pods = [struct for struct in structs if isinstance(struct, pods.Pod)]
    known = {(pod.metadata.namespace, pod.metadata.name): pod for pod in all_pods}
    meant = [pod for (_, pod_name), pod in known.items() if pod_name == wanted]
    owned = [pod for pod in all_pods if wanted in _owner_names(pod)]
    started = [pod for pod in (*meant, *owned) if pod.spec.node_name]
    if not started:
        hint = missing_names.hint(wanted, namespace, known)
        raise output.BadInput(f'nothing called "{name}" waits for its start{hint}')
    first = started[0]
    since = f" since {first.status.start_time}" if first.status.start_time else ""
    output.say(
        f"{first.metadata.namespace}/{first.metadata.name} does not wait: "
        f"{first.status.phase or 'Pending'} on {first.spec.node_name}{since}"
    )
    cluster_option.say_cluster(seen.name)


def _owner_names(pod: pods.Pod) -> set[str]:
    return {owner.name for owner in pod.metadata.owner_references}


class _Selection(NamedTuple):
    """Which gangs are asked about."""

    name: str | None
    namespace: str | None


def _expectations(
    seen: cluster_view.View, rules: policy.Policy, selection: _Selection
) -> list[when.Expectation]:
    return when_asked.when(seen, rules, name=selection.name, namespace=selection.namespace)


def _write(expectations: list[when.Expectation], form: str) -> None:
    if form == "json":
        output.write_json(expectations)
        return
    trees: list[dict[str, object]] = msgspec.json.decode(msgspec.json.encode(expectations))
    output.write_documents(trees, "yaml")


def _follow(selection: _Selection, *, form: str, timeout: str | None, file: str | None) -> None:
    """Prints a row for each gang whose answer changed, until all that were asked about have started."""
    if form not in ("table", "wide"):
        raise click.UsageError("-w prints rows: leave -o out, or give -o wide")
    seconds = None if timeout is None else _seconds(timeout)
    configured = scheduler_policy.configured(file)
    is_wide = form == "wide"
    shown: dict[str, tuple[str, ...]] = {}
    has_rows = False

    def show(seen: cluster_view.View) -> bool:
        nonlocal has_rows
        rules = configured or scheduler_policy.default(seen)
        expectations = {str(each.gang): each for each in _expectations(seen, rules, selection)}
        if not has_rows and not expectations and selection.name is not None:
            _close_without(selection.name, selection.namespace, seen)
            return True
        rows = [
            when_table.row_of(each, seen.now, is_wide=is_wide)
            for gang, each in expectations.items()
            if shown.get(gang) != _essence(each)
        ]
        rows += [
            when_table.ended_row(gang, is_wide=is_wide)
            for gang in shown
            if gang not in expectations
        ]
        if rows:
            lines = text.table(when_table.headers(is_wide=is_wide), rows)
            output.write_lines(lines[1:] if has_rows else lines)
        has_rows = True
        shown.clear()
        shown.update((gang, _essence(each)) for gang, each in expectations.items())
        return not expectations

    reads = replicas.reads()
    if not followed_answer.follow(reads, show, timeout=seconds):
        click.get_current_context().exit(REFUSED)


def _essence(expectation: when.Expectation) -> tuple[str, ...]:
    """What a person would call a change: seconds are none."""
    times = (expectation.start, expectation.latest)
    minutes = [time.strftime("%Y-%m-%d %H:%M") if time is not None else "" for time in times]
    return (*minutes, str(len(expectation.members)), expectation.why)


def _seconds(typed: str) -> float:
    seconds = durations.seconds(typed)
    if seconds is None:
        raise click.UsageError(f'--timeout "{typed}": expected a time such as 90s, 10m or 2h')
    return float(seconds)


def _why(expectation: when.Expectation) -> str:
    """The command that says why a gang waits."""
    gang = expectation.gang
    return f"why {gang.name}{cluster_option.namespace_words(gang.namespace)}"
