"""`dovetail doctor`: checks a cluster and shows what to fix, each with the next command. Writes nothing."""

import asyncio
from collections import Counter
from collections.abc import Iterator

import click

from dovetail.cli import output
from dovetail.cli.cluster import cluster_option
from dovetail.doctor import checkup, findings
from dovetail.model import plaintext
from dovetail.tables import text

UNHEALTHY = 1
MOST_ALIKE = 10  # findings of one check and severity in the table
MARKS = {
    findings.Severity.ERROR: "error",
    findings.Severity.WARNING: "warning",
    findings.Severity.NOTE: "note",
}


@click.command()
@click.option(
    "--config",
    "file",
    metavar="FILE",
    help="The scheduler's configuration: names, lease, what is ours.",
)
@click.option(
    "--service-account",
    metavar="NAMESPACE/NAME",
    help="Whose rights are checked; empty: your own. [default: the scheduler's]",
)
@click.option("--strict", is_flag=True, help="Warnings end with exit code 1 too.")
@click.option(
    "-o",
    "--output",
    "form",
    type=click.Choice(("table", "json")),
    default="table",
    show_default=True,
)
@cluster_option.readable
def command(
    *,
    file: str | None,
    service_account: str | None,
    strict: bool,
    form: str,
) -> None:
    """Check a cluster and say what to fix.

    Versions, kinds served, clocks, rights, who leads, other schedulers, slices, classes, GPUs counted or given twice,
    general pods on GPU nodes, claims that are not made, quotas. Reads only. Exit code 1 where something is broken.
    """
    from dovetail.doctor import gather  # the model alone is enough for help

    ours = _ours(file)
    path = cluster_option.snapshot()
    if path is not None:
        saved = cluster_option.read_snapshot(path)
        report = gather.report_on_snapshot(saved, ours or findings.Ours())
    else:
        choice = cluster_option.chosen()
        output.say(f"reading {choice.name}")
        report = asyncio.run(
            gather.report_on_cluster(choice.connection, ours, subject=_subject(service_account))
        )
    if form == "json":
        output.write_json(report)
    else:
        _show(report)
    error_count = report.count(findings.Severity.ERROR)
    if strict:
        error_count += report.count(findings.Severity.WARNING)
    if error_count:
        click.get_current_context().exit(UNHEALTHY)


def _ours(file: str | None) -> findings.Ours | None:
    if file is None:
        return None
    from dovetail.files import configuration_file

    configured = configuration_file.load(file)
    return findings.Ours(
        names=configured.scheduler_names,
        lease_namespace=configured.leader_election.namespace,
        lease_name=configured.leader_election.name,
        node_labels=configured.ownership.node_labels,
        node_taint=configured.ownership.node_taint,
        device_rules=configured.ownership.device_taint_rules,
    )


def _subject(service_account: str | None) -> str | None:
    """The user name of a service account."""
    if not service_account:
        return service_account
    namespace, slash, name = service_account.partition("/")
    if not (namespace and slash and name) or "/" in name:
        raise click.BadParameter(
            "expected NAMESPACE/NAME or nothing", param_hint="--service-account"
        )
    return f"system:serviceaccount:{namespace}:{name}"


def _lines(finding: findings.Finding) -> Iterator[str]:
    yield f"{MARKS[finding.severity]:<8} {finding.check}: {plaintext.escaped(finding.what)}"
    if finding.where:
        yield f"         where: {plaintext.escaped(finding.where)}"
    if finding.next:
        yield f"         next: {plaintext.escaped(finding.next)}"


def _show(report: checkup.Report) -> None:
    lines: list[str] = []
    shown: Counter[tuple[str, str]] = Counter()
    for finding in report.findings:
        shown[finding.severity, finding.check] += 1
        if shown[finding.severity, finding.check] <= MOST_ALIKE:
            lines += _lines(finding)
    if lines:
        output.write_lines(lines)

    for (severity, check), count in shown.items():
        if count > MOST_ALIKE:
            output.say(f"{count - MOST_ALIKE} more: {severity} {check}; -o json lists all")
    output.say(f"checked: {', '.join(report.checked)}")
    for name, why in report.unchecked.items():
        output.say(f"not checked: {name} ({plaintext.escaped(why)})")
    counts = [(severity, report.count(severity)) for severity in findings.Severity]
    output.say(", ".join(text.counted(count, severity.value) for severity, count in counts))
