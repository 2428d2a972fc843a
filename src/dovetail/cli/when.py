"""`dovetail when`: when pending work starts and how late that may get, or why it cannot be known."""

from __future__ import annotations

import datetime

import click

from dovetail import errors
from dovetail.answer import when
from dovetail.cli import output
from dovetail.cli.cluster import cluster_option
from dovetail.cli.tables import text
from dovetail.kubetypes import object_set, registry
from dovetail.live.gangs import facts_of_objects
from dovetail.live.intents import stored_promises
from dovetail.model import plan, policy

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
    "--config",
    "file",
    metavar="FILE",
    help="The scheduler's configuration: whose pods, how queues share.",
)
@cluster_option.readable
def command(
    *,
    name: str | None,
    namespace: str | None,
    form: str,
    file: str | None,
) -> None:
    """Say when waiting work starts: all of it, or the gang or pod NAME (train, job/train, pod/train-0).

    Runs the cluster forward on paper with the runtimes that work states: once as expected, once at its longest.
    """
    configured = _configured(file)  # first: a wrong file is reported before any request
    reads = [object_set.Read(kind) for kind in facts_of_objects.KINDS]
    seen = cluster_option.view([*reads, object_set.Read(registry.INTENT)])
    now = seen.now
    rules = configured or _default_policy(seen)
    facts = facts_of_objects.facts_of(seen.objects)
    promised = stored_promises.promises_of(seen.objects)

    all_expectations = when.when(facts, rules, now, promises=promised)
    expectations = [each for each in all_expectations if _is_selected(each, name, namespace)]
    if name is not None and not expectations:
        raise errors.InputError(f'nothing called "{name}" waits for its start')
    if form == "json":
        output.write_json(expectations)
        return
    if expectations:
        rows = [_row(expectation, now) for expectation in expectations]
        output.write_table(text.table(HEADERS, rows))
    else:
        output.say("nothing waits")
    cluster_option.say_cluster(seen.name)
    output.next_step("get pods -A")


def _configured(file: str | None) -> policy.Policy | None:
    """The policy of the scheduler's configuration file, if one was given."""
    if file is None:
        return None
    from dovetail.files import configuration_file
    from dovetail.model import configuration

    return configuration.policy_of(configuration_file.load(file))


def _default_policy(seen: cluster_option.View) -> policy.Policy:
    """Every pod of the embedded cluster and of a snapshot is ours; elsewhere there may be other schedulers."""
    from dovetail.model import configuration

    if seen.is_embedded or cluster_option.snapshot() is not None:
        return policy.DEFAULT
    return configuration.policy_of(configuration.SchedulerConfiguration())


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
