"""`dovetail when`: when everything that waits starts, and how late it may get; or why nobody can know."""

from __future__ import annotations

import asyncio
import datetime

import click

from dovetail import errors
from dovetail.answer import when
from dovetail.boot import local
from dovetail.cli import options, output, text
from dovetail.model import plan, policy
from dovetail.sim import cluster as clusters
from dovetail.sim import control
from dovetail.world.events import Object

FORMS = ("table", "json")
HEADERS = ("gang", "pods", "start", "in", "latest", "why")
NOBODY_KNOWS = "?"


@click.command(name="when")
@click.argument("name", required=False)
@click.option("-n", "--namespace", metavar="NAME", help="Only gangs of this namespace. [default: all]")
@click.option("-o", "--output", "form", type=click.Choice(FORMS), default="table", show_default=True)
@click.option("--kubeconfig", metavar="FILE", help="Ask about a real cluster: the one this kubeconfig leads to.")
@click.option("--context", metavar="NAME", help="Ask about a real cluster: the kubeconfig's context of this name.")
@click.option("--config", "file", metavar="FILE", help="The scheduler's configuration: whose pods, how queues share.")
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
    rules = _rules(file, is_live=is_live)  # a file that is wrong is told before anybody is asked
    promised: tuple[plan.Promise, ...] = ()
    if is_live:
        facts, promised = _live(kubeconfig, context)
        now = datetime.datetime.now(datetime.UTC)
    else:
        facts, now = _local(options.opened(state))
    found = [one for one in when.when(facts, rules, now, promises=promised) if _is_meant(one, name, namespace)]
    if name is not None and not found:
        raise errors.InputError(f'nothing called "{name}" waits for its start')
    if form == "json":
        output.write_json(found)
        return
    if found:
        output.write_lines(text.table(HEADERS, [_row(one, now) for one in found]))
    else:
        output.say("nothing waits")
    output.say(f"next: {'kubectl' if is_live else 'dovetail'} get pods -A")


def _rules(file: str | None, *, is_live: bool) -> policy.Policy:
    """As the scheduler decides. In the local cluster every pod is its own; a real one may have other schedulers."""
    from dovetail.model import configuration  # the local cluster needs none

    if file is not None:
        from dovetail.boot import configuration as files

        return configuration.policy_of(files.load(file))
    return configuration.policy_of(configuration.SchedulerConfiguration()) if is_live else policy.DEFAULT


def _local(opened: local.Local) -> tuple[list[Object], datetime.datetime]:
    """The local cluster as it is now, or a saved one as it was when it was saved."""
    cluster = opened.cluster()
    if cluster is None:
        raise errors.StateError(f"no cluster in {opened.store.directory}\nnext: dovetail up")
    now = opened.now()
    if (directory := options.snapshot()) is not None:
        from dovetail.boot import snapshot  # most commands read none

        now = snapshot.moment_of(snapshot.checked(directory))
    return control.facts_of(cluster), now


def _live(kubeconfig: str | None, context: str | None) -> tuple[list[Object], tuple[plan.Promise, ...]]:
    """What is there, and what its scheduler promised."""
    from dovetail.boot import fetched  # the local cluster needs no HTTP
    from dovetail.kube import config
    from dovetail.model import kinds

    wanted = (*kinds.WATCHED, *kinds.OURS, *kinds.OWNERS, *kinds.PARENTS)
    connection = config.load(kubeconfig, context=context)
    found: clusters.Cluster = asyncio.run(fetched.cluster(connection, wanted))
    return control.facts_of(found), asyncio.run(fetched.promises(connection))


def _is_meant(one: when.Expectation, name: str | None, namespace: str | None) -> bool:
    if namespace is not None and one.gang.namespace != namespace:
        return False
    if name is None or name in (one.gang.name, one.gang.name.partition("/")[2], str(one.gang)):
        return True
    return name.removeprefix("pod/") in one.members


def _row(one: when.Expectation, now: datetime.datetime) -> tuple[str, ...]:
    return (
        str(one.gang),
        str(len(one.members)),
        _hour(one.start, now),
        _until(one.start, now),
        _hour(one.latest, now) if one.start is not None else "",
        one.why,
    )


def _hour(moment: plan.Instant | None, now: datetime.datetime) -> str:
    """An hour of today as such, another with its day; in the zone of whoever reads."""
    if moment is None:
        return NOBODY_KNOWS
    there, here = moment.astimezone(), now.astimezone()
    return there.strftime("%H:%M:%S" if there.date() == here.date() else "%Y-%m-%d %H:%M:%S")


def _until(moment: plan.Instant | None, now: datetime.datetime) -> str:
    if moment is None:
        return ""
    return "now" if moment <= now else text.age(now.isoformat(), moment)
