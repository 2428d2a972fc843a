"""`dovetail run`: a job on GPUs without YAML. Shows what the engine would do with it, then submits and follows it."""

from __future__ import annotations

import re
import secrets
import sys
from collections.abc import Sequence
from typing import Any, Final

import click
import msgspec

from dovetail import errors
from dovetail.ask import cluster_view, scheduler_policy
from dovetail.ask.submission import gpu_products, gpu_requests, job_manifest, submission_forecast
from dovetail.cli import output
from dovetail.cli.cluster import cluster_option
from dovetail.cli.work.submission import forecast_text
from dovetail.kubetypes import codec, names, object_set, registry
from dovetail.kubetypes.resource import device_classes
from dovetail.model import policy
from dovetail.ports import failures
from dovetail.quantity import durations, quantity
from dovetail.tables import missing_names
from dovetail.world.owners import facts_of_objects

REFUSED: Final = 1
SUFFIX_CHARACTERS: Final = "bcdfghjklmnpqrstvwxz2456789"  # as Kubernetes' own suffixes: no words
SCHEDULER: Final = "dovetail"  # of pods, where every pod is ours
MOST_NODES: Final = 10_000
MOST_GPUS: Final = 32  # AllocationResultsMaxSize, resource.k8s.io/v1
PRIORITY_CLASS: Final = registry.Kind(
    "scheduling.k8s.io/v1", "PriorityClass", "priorityclasses", False, codec.Generic
)
# Without these no job can be built.
NEEDED: Final = (
    registry.NODE,
    registry.SLICE,
    registry.DEVICE_CLASS,
    registry.QUEUE,
    PRIORITY_CLASS,
)
FORBIDDEN: Final = 403
_NOT_IN_NAMES: Final = re.compile(r"[^a-z0-9]+")

Tree = dict[str, Any]


class RunOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The command line, as click reads it."""

    command_line: tuple[str, ...]
    gpus: int
    gpu_type: str | None
    nodes: int
    mig: str
    gpu_memory: str
    queue: str
    run_time: str
    image: str
    name: str
    cpu: str
    memory: str
    priority: str
    environment: tuple[str, ...]
    namespace: str | None
    show: str | None
    yes: bool
    dry_run: bool
    detach: bool
    form: str
    file: str | None


@click.command(name="run")
@click.argument("command_line", metavar="-- COMMAND [ARGS]...", nargs=-1, type=click.UNPROCESSED)
@click.option(
    "-g",
    "--gpus",
    "--gpus-per-node",
    type=click.IntRange(0, MOST_GPUS),
    default=1,
    show_default=True,
    help="GPUs on every node; with --mig or --gpu-memory, parts of that size.",
)
@click.option("--type", "gpu_type", metavar="TYPE", help="The GPU: h100, a100-80gb. [default: any]")
@click.option(
    "-N",
    "--nodes",
    type=click.IntRange(1, MOST_NODES),
    default=1,
    show_default=True,
    help="Nodes, with one pod on each; all start together or none.",
)
@click.option("--mig", metavar="PROFILE", default="", help="A MIG slice instead: 3g.40gb.")
@click.option("--gpu-memory", metavar="AMOUNT", default="", help="A part with that memory: 20Gi.")
@click.option("-q", "--queue", metavar="NAME", default="", help="[default: the namespace's]")
@click.option(
    "-t",
    "--time",
    "run_time",
    metavar="DURATION",
    default="",
    help="How long it may run: 2h, 1:30:00. Short jobs start earlier.",
)
@click.option("--image", required=True, help="The container image.")
@click.option("--name", default="", help="[default: made of the command]")
@click.option("--cpu", metavar="AMOUNT", default="", help="CPU of every pod: 16.")
@click.option("--memory", "--mem", metavar="AMOUNT", default="", help="Memory of every pod: 64Gi.")
@click.option("--priority", metavar="CLASS", default="", help="The PriorityClass.")
@click.option("--env", "environment", multiple=True, metavar="NAME=VALUE", help="May repeat.")
@click.option("-n", "--namespace", help="Namespace of the job. [default: the context's]")
@click.option(
    "--show",
    type=click.Choice(("summary", "yaml")),
    help="yaml: the objects above the plan, as before the question; summary: the plan alone.",
)
@click.option("-y", "--yes", is_flag=True, help="Submit without asking.")
@click.option("--dry-run", is_flag=True, help="Show the plan and submit nothing.")
@click.option("-d", "--detach", is_flag=True, help="End once the job is submitted.")
@click.option(
    "-o",
    "--output",
    "form",
    type=click.Choice(("table", "json", "yaml", "name")),
    default="table",
    help="json and yaml print the objects and submit nothing; name prints the job's.",
)
@click.option("--config", "file", metavar="FILE", help="The scheduler's configuration.")
@cluster_option.readable
def command(**options: Any) -> None:
    """Run a job on GPUs: shows what would happen now, asks, submits it, and follows it.

    \b
    dovetail run --gpus 8 --type h100 --nodes 2 --time 2h --image train:1 -- python train.py
    """
    asked = RunOptions(**options)
    _check_usage(asked)
    configured = scheduler_policy.configured(asked.file)
    seen, sees_everything = _read()
    rules = configured or scheduler_policy.default(seen)
    try:
        request = _request(asked, seen, rules, sees_everything=sees_everything)
    except errors.InputError as error:
        raise output.BadInput(str(error)) from None
    trees = job_manifest.trees(request)
    if asked.form in ("json", "yaml"):
        output.write_documents(trees, asked.form)
        return

    forecast = None
    if sees_everything:
        forecast = submission_forecast.forecast(seen.objects, trees, rules=rules, now=seen.now)
    if asked.form == "table":
        shows_objects = asked.show == "yaml" or (asked.show is None and not asked.yes)
        if shows_objects:  # first, so that the plan stays in sight above the question
            output.write_documents(trees, "yaml")
            output.write_lines([""])
        output.write_lines(forecast_text.lines_of(request, forecast, now=seen.now))
    if asked.dry_run:
        cluster_option.say_cluster(seen.name)
        output.say("nothing was submitted (dry run)")
        return
    if not asked.yes and not _agrees():
        output.say("nothing was submitted")
        raise click.exceptions.Exit(REFUSED)
    is_detached = asked.detach or asked.form == "name"
    code = _submit(request, trees, form=asked.form, is_detached=is_detached)
    if code:
        raise click.exceptions.Exit(code)


def _check_usage(asked: RunOptions) -> None:
    """Refuses what is wrong whatever the cluster is like."""
    amounts = {"--cpu": asked.cpu, "--memory": asked.memory, "--gpu-memory": asked.gpu_memory}
    for option, amount in amounts.items():
        _check_amount(option, amount)
    if asked.mig and asked.gpu_memory:
        raise click.UsageError("--mig names a slice, --gpu-memory its size; give one of them")
    if asked.run_time and durations.seconds(asked.run_time) is None:
        raise click.BadParameter(
            f'"{asked.run_time}": expected a duration such as 90s, 10m, 2h or 1:30:00',
            param_hint="--time",
        )
    if asked.queue and not names.is_label_value(asked.queue):
        raise click.BadParameter(f'"{asked.queue}" is no name of a queue', param_hint="--queue")
    if asked.name and not names.is_dns_label(asked.name):
        raise click.BadParameter(
            f'"{asked.name}": expected lower case letters, digits and -', param_hint="--name"
        )
    _variables(asked.environment)
    is_only_shown = asked.dry_run or asked.form in ("json", "yaml")
    if cluster_option.snapshot() is not None and not is_only_shown:
        raise click.UsageError("a snapshot runs nothing; add --dry-run")


def _request(
    asked: RunOptions, seen: cluster_view.View, rules: policy.Policy, *, sees_everything: bool
) -> job_manifest.RunRequest:
    """The job in terms of this cluster. Raises InputError for what the cluster does not have."""
    if asked.queue:
        _check_queue(asked.queue, seen.objects)
    if asked.priority:
        _check_priority(asked.priority, seen)
    types = gpu_products.types_of(seen.objects)
    if asked.gpu_type:
        types = gpu_products.matching(asked.gpu_type, types, has_counts=sees_everything)
    wish = gpu_requests.Wish(
        count=asked.gpus,
        types=types,
        is_any_type=not asked.gpu_type,
        profile=asked.mig,
        memory=asked.gpu_memory,
    )
    structs = [stored.struct for stored in seen.objects.listed(registry.DEVICE_CLASS.name)]
    classes = [each for each in structs if isinstance(each, device_classes.DeviceClass)]
    return job_manifest.RunRequest(
        name=asked.name or _name_of(asked.command_line, asked.image),
        namespace=asked.namespace or cluster_option.default_namespace(),
        image=asked.image,
        command=asked.command_line,
        devices=gpu_requests.request_for(wish, classes),
        nodes=asked.nodes,
        queue=asked.queue,
        time=asked.run_time,
        cpu=asked.cpu,
        memory=asked.memory,
        priority_class=asked.priority,
        environment=_variables(asked.environment),
        user=job_manifest.user(),
        scheduler_name=rules.scheduler_names[0] if rules.scheduler_names else SCHEDULER,
    )


def _read() -> tuple[cluster_view.View, bool]:
    """The cluster, and whether all of it: users who may not list the work of others get no plan, but may submit."""
    everything = (*facts_of_objects.KINDS, registry.INTENT, PRIORITY_CLASS)
    try:
        return cluster_option.view([object_set.Read(kind) for kind in everything]), True
    except failures.Refused as error:
        if error.status != FORBIDDEN:
            raise
        output.say(f"no plan, because it needs the right to list all work: {error}")
    return cluster_option.view([object_set.Read(kind) for kind in NEEDED]), False


def _check_amount(option: str, amount: str) -> None:
    is_amount = not amount or (quantity.is_quantity(amount) and quantity.parse(amount).nanos > 0)
    if not is_amount:
        raise click.BadParameter(
            f'"{amount}": expected an amount such as 16, 500m or 64Gi', param_hint=option
        )


def _variables(environment: Sequence[str]) -> tuple[tuple[str, str], ...]:
    variables = []
    for entry in environment:
        name, equals, value = entry.partition("=")
        if not name or not equals:
            raise click.BadParameter(f'"{entry}": expected NAME=VALUE', param_hint="--env")
        variables.append((name, value))
    return tuple(variables)


def _check_queue(queue: str, objects: object_set.ObjectSet) -> None:
    queues = [stored.struct.metadata.name for stored in objects.listed(registry.QUEUE.name)]
    if queue in queues:
        return
    known = f"; there are {', '.join(queues)}" if queues else "; the cluster has none"
    hint = missing_names.near_words(queue, queues) or known
    raise errors.InputError(f'no queue "{queue}"{hint}')


def _check_priority(priority: str, seen: cluster_view.View) -> None:
    """A snapshot holds no priority classes, so there the name is taken as it is."""
    if cluster_option.snapshot() is not None:
        output.say(f"the snapshot does not hold the priority of {priority}: it counts as 0")
        return
    classes = [stored.struct.metadata.name for stored in seen.objects.listed(PRIORITY_CLASS.name)]
    if priority not in classes:
        raise errors.InputError(f'no priority class "{priority}"; there are {", ".join(classes)}')


def _name_of(command_line: Sequence[str], image: str) -> str:
    """A name that says what runs, with a suffix that no other job has."""
    words = [word.rpartition("/")[2] for word in command_line if not word.startswith("-")]
    scripts = [word.rpartition(".")[0] for word in words if word.endswith((".py", ".sh"))]
    plain = scripts or words or [image.rpartition("/")[2].partition(":")[0]]
    stem = _NOT_IN_NAMES.sub("-", plain[0].lower()).strip("-")[:40].strip("-")
    suffix = "".join(secrets.choice(SUFFIX_CHARACTERS) for _ in range(5))
    return f"{stem or 'job'}-{suffix}" if not stem[:1].isdigit() else f"job-{stem}-{suffix}"


def _agrees() -> bool:
    """Asks on a terminal; a script has to say --yes."""
    if not sys.stdin.isatty():
        raise click.UsageError(
            "there is no terminal to ask on; add --yes, or --dry-run to look only"
        )
    return click.confirm("submit?", default=False, err=True)


def _submit(
    request: job_manifest.RunRequest, trees: Sequence[Tree], *, form: str, is_detached: bool
) -> int:
    from dovetail.cli.work.submission import job_following, job_submission

    choice = cluster_option.chosen()
    job_submission.submit(choice, trees, namespace=request.namespace)
    label = f"job.batch/{request.name}"
    if form == "name":
        output.write_lines([label])
        return 0
    output.write_lines([f"{label} submitted"])
    cluster_option.say_cluster(choice.name)
    if is_detached:
        output.next_step(f"queue {request.name}{_namespace_option(request.namespace)}")
        return 0
    return job_following.follow(choice, request.namespace, request.name)


def _namespace_option(namespace: str) -> str:
    return "" if namespace == object_set.DEFAULT_NAMESPACE else f" -n {namespace}"
