"""`dovetail when`: when pending work starts and how late that may get, or why it cannot be known."""

from __future__ import annotations

import asyncio
import datetime

import click

from dovetail import errors
from dovetail.answer import when
from dovetail.cli import options, output
from dovetail.cli.tables import text
from dovetail.model import plan, policy
from dovetail.sim.local import control, local_cluster, state_dir
from dovetail.world.events import Object

FORMS = ("table", "json")
HEADERS = ("gang", "pods", "start", "in", "latest", "why")
UNKNOWN = "?"


@click.command(name="when")
@click.argument("name", required=False)
@click.option(
    "-n", "--namespace", metavar="NAME", help="Only gangs of this namespace. [default: all]"
)
@click.option(
    "-o", "--output", "form", type=click.Choice(FORMS), default="table", show_default=True
)
@click.option(
    "--kubeconfig",
    metavar="FILE",
    help="Ask about a real cluster: the one this kubeconfig leads to.",
)
@click.option(
    "--context",
    metavar="NAME",
    help="Ask about a real cluster: the kubeconfig's context of this name.",
)
@click.option(
    "--config",
    "file",
    metavar="FILE",
    help="The scheduler's configuration: whose pods, how queues share.",
)
@options.state
def command(
    *,
    name: str | None,
    namespace: str | None,
    form: str,
    kubeconfig: str | None,
    context: str | None,
    file: str | None,
    state: str | None,
) -> None:
    """Say when waiting work starts: all of it, or the gang or pod NAME (train, job/train, pod/train-0).

    Runs the cluster forward on paper with the runtimes that work states: once as expected, once at its longest.
    """
    is_live = kubeconfig is not None or context is not None
    rules = _rules(file, is_live=is_live)  # first: a wrong file is reported before any request
    promised: tuple[plan.Promise, ...] = ()
    if is_live:
        facts, promised = _live(kubeconfig, context)
        now = datetime.datetime.now(datetime.UTC)
    else:
        facts, now = _local(options.opened(state))

    all_expectations = when.when(facts, rules, now, promises=promised)
    expectations = [each for each in all_expectations if _is_selected(each, name, namespace)]
    if name is not None and not expectations:
        raise errors.InputError(f'nothing called "{name}" waits for its start')
    if form == "json":
        output.write_json(expectations)
        return
    if expectations:
        rows = [_row(expectation, now) for expectation in expectations]
        output.write_lines(text.table(HEADERS, rows))
    else:
        output.say("nothing waits")
    output.say(f"next: {'kubectl' if is_live else 'dovetail'} get pods -A")


def _rules(file: str | None, *, is_live: bool) -> policy.Policy:
    """The scheduler's policy. It has every pod of the local cluster; a real one may have other schedulers."""
    from dovetail.model import configuration  # the local cluster needs none

    if file is not None:
        from dovetail.files import configuration_file

        return configuration.policy_of(configuration_file.load(file))
    if is_live:
        return configuration.policy_of(configuration.SchedulerConfiguration())
    return policy.DEFAULT


def _local(opened: state_dir.Local) -> tuple[list[Object], datetime.datetime]:
    """The local cluster as it is now, or a saved one as it was when it was saved."""
    cluster = opened.cluster()
    if cluster is None:
        raise errors.StateError(f"no cluster in {opened.store.directory}\nnext: dovetail up")
    now = opened.now()
    if (directory := options.snapshot()) is not None:
        from dovetail.snapshot import snapshot_files  # most commands read none

        now = snapshot_files.taken_at(snapshot_files.checked(directory))
    return control.facts_of(cluster), now


def _live(
    kubeconfig: str | None, context: str | None
) -> tuple[list[Object], tuple[plan.Promise, ...]]:
    """The objects of a real cluster, and the starts its scheduler promised."""
    from dovetail.boot import live_view  # the local cluster needs no HTTP
    from dovetail.kube.auth import client_config
    from dovetail.kubetypes import registry

    kinds = (*registry.WATCHED, *registry.OURS, *registry.OWNERS, *registry.PARENTS)
    connection = client_config.load(kubeconfig, context=context)
    cluster: local_cluster.Cluster = asyncio.run(live_view.cluster(connection, kinds))
    return control.facts_of(cluster), asyncio.run(live_view.promises(connection))


def _is_selected(expectation: when.Expectation, name: str | None, namespace: str | None) -> bool:
    gang = expectation.gang
    if namespace is not None and gang.namespace != namespace:
        return False
    if name is None or name in (gang.name, gang.name.partition("/")[2], str(gang)):
        return True
    return name.removeprefix("pod/") in expectation.members


def _row(expectation: when.Expectation, now: datetime.datetime) -> tuple[str, ...]:
    return (
        str(expectation.gang),
        str(len(expectation.members)),
        _clock_time(expectation.start, now),
        _until(expectation.start, now),
        _clock_time(expectation.latest, now) if expectation.start is not None else "",
        expectation.why,
    )


def _clock_time(instant: plan.Instant | None, now: datetime.datetime) -> str:
    """The time in the local zone, with the date unless it is today."""
    if instant is None:
        return UNKNOWN
    local_time, local_now = instant.astimezone(), now.astimezone()
    is_today = local_time.date() == local_now.date()
    return local_time.strftime("%H:%M:%S" if is_today else "%Y-%m-%d %H:%M:%S")


def _until(instant: plan.Instant | None, now: datetime.datetime) -> str:
    if instant is None:
        return ""
    return "now" if instant <= now else text.age(now.isoformat(), instant)
