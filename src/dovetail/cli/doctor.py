"""`dovetail doctor`: looks at a cluster and says what to fix, each with the command that comes next. Writes nothing."""

import asyncio
from collections import Counter
from pathlib import Path

import click

from dovetail.cli import output, text
from dovetail.model import plaintext
from dovetail.model.health import facts, judge

UNHEALTHY = 1
MOST_ALIKE = 10  # findings of one check and severity in the table
MARKS = {facts.Severity.ERROR: "error", facts.Severity.WARNING: "warning", facts.Severity.NOTE: "note"}


@click.command()
@click.option("--kubeconfig", metavar="FILE", help="How to reach the cluster. [default: as kubectl, or in-cluster]")
@click.option("--context", metavar="NAME", help="The kubeconfig's context. [default: its current one]")
@click.option("--config", "file", metavar="FILE", help="The scheduler's configuration: names, lease, what is ours.")
@click.option(
    "--service-account",
    metavar="NAMESPACE/NAME",
    help="Whose rights are checked; empty: your own. [default: the scheduler's]",
)
@click.option("--snapshot", metavar="DIR", type=click.Path(path_type=Path), help="Look at a saved cluster instead.")
@click.option("--strict", is_flag=True, help="Warnings end with exit code 1 too.")
@click.option("-o", "--output", "form", type=click.Choice(("table", "json")), default="table", show_default=True)
def command(
    *,
    kubeconfig: str | None,
    context: str | None,
    file: str | None,
    service_account: str | None,
    snapshot: Path | None,
    strict: bool,
    form: str,
) -> None:
    """Check a cluster and say what to fix.

    Versions, kinds served, clocks, rights, who leads, other schedulers, slices, classes, GPUs counted or given twice,
    general pods on GPU nodes, claims that are not made, quotas. Reads only. Exit code 1 where something is broken.
    """
    from dovetail.boot import doctor  # the model alone is enough for help

    ours = _ours(file)
    if snapshot is not None:
        if kubeconfig is not None or context is not None:
            raise click.UsageError("give --snapshot or a live cluster, not both")
        report = doctor.of_snapshot(snapshot, ours or facts.Ours())
    else:
        from dovetail.kube import config

        connection = config.load(kubeconfig, context=context)
        output.say(f"reading {connection.server}")
        report = asyncio.run(doctor.live(connection, ours, subject=_subject(service_account)))
    if form == "json":
        output.write_json(report)
    else:
        _show(report)
    if report.count(facts.Severity.ERROR) or (strict and report.count(facts.Severity.WARNING)):
        click.get_current_context().exit(UNHEALTHY)


def _ours(file: str | None) -> facts.Ours | None:
    if file is None:
        return None
    from dovetail.boot import configuration

    given = configuration.load(file)
    return facts.Ours(
        names=given.scheduler_names,
        lease_namespace=given.leader_election.namespace,
        lease_name=given.leader_election.name,
        node_labels=given.ownership.node_labels,
        node_taint=given.ownership.node_taint,
        device_rules=given.ownership.device_taint_rules,
    )


def _subject(service_account: str | None) -> str | None:
    """The user a service account is to the server."""
    if not service_account:
        return service_account
    namespace, slash, name = service_account.partition("/")
    if not (namespace and slash and name) or "/" in name:
        raise click.BadParameter("expected NAMESPACE/NAME or nothing", param_hint="--service-account")
    return f"system:serviceaccount:{namespace}:{name}"


def _show(report: judge.Report) -> None:
    lines: list[str] = []
    shown: Counter[tuple[str, str]] = Counter()
    for one in report.findings:
        shown[one.severity, one.check] += 1
        if shown[one.severity, one.check] > MOST_ALIKE:
            continue
        lines.append(f"{MARKS[one.severity]:<8} {one.check}: {plaintext.escaped(one.what)}")
        lines += [f"         where: {plaintext.escaped(one.where)}"] if one.where else []
        lines += [f"         next: {plaintext.escaped(one.next)}"] if one.next else []
    if lines:
        output.write_lines(lines)
    for (severity, check), count in shown.items():
        if count > MOST_ALIKE:
            output.say(f"{count - MOST_ALIKE} more: {severity} {check}; -o json lists all")
    output.say(f"checked: {', '.join(report.checked)}")
    for name, why in report.unchecked.items():
        output.say(f"not checked: {name} ({plaintext.escaped(why)})")
    counts = [(severity, report.count(severity)) for severity in facts.Severity]
    output.say(", ".join(text.counted(count, severity.value) for severity, count in counts))
