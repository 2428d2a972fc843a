"""`dovetail scheduler`: schedules pods on a real Kubernetes, or compares itself with the scheduler in charge."""

import asyncio
import sys

import click

from dovetail.cli import output


@click.command()
@click.option(
    "--kubeconfig",
    metavar="FILE",
    help="How to reach the cluster. [default: as kubectl, or in-cluster]",
)
@click.option(
    "--context", metavar="NAME", help="The kubeconfig's context. [default: its current one]"
)
@click.option(
    "--config",
    "file",
    metavar="FILE",
    help="The scheduler's configuration. [default: the defaults]",
)
@click.option(
    "--shadow",
    is_flag=True,
    help="Write nothing; print where we would differ, one JSON line per pod.",
)
@click.option(
    "--print-schema", is_flag=True, help="Print the JSON Schema of the configuration file, and end."
)
def command(
    *,
    kubeconfig: str | None,
    context: str | None,
    file: str | None,
    shadow: bool,
    print_schema: bool,
) -> int:
    """Schedule pods that name us in spec.schedulerName.

    Runs next to other schedulers and is never involved in creating pods. Serves /healthz, /readyz and /metrics on
    loopback unless configured otherwise.
    """
    from dovetail.files import configuration_file

    if print_schema:
        output.write_json(configuration_file.schema())
        return 0
    from dovetail.boot import logs
    from dovetail.model import configuration as model

    configuration = (
        model.SchedulerConfiguration() if file is None else configuration_file.load(file)
    )
    logs.set_up(configuration.logging.format, configuration.logging.level)
    output.say(
        f"schedules pods of {', '.join(configuration.scheduler_names)}"
        if not shadow
        else "shadow: writes nothing"
    )
    from dovetail.boot import scheduler
    from dovetail.kube.auth import client_config

    process = scheduler.Process(client_config.load(kubeconfig, context=context), configuration)
    totals: dict[str, int] = {}
    asyncio.run(process.run(report=scheduler.json_report(sys.stdout, totals) if shadow else None))
    if shadow:
        counted = ", ".join(f"{count} {result}" for result, count in sorted(totals.items()))
        output.say(
            f"compared {sum(totals.values())} pods: {counted}" if totals else "compared no pods"
        )
    return 0
