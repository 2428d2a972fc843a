"""`dovetail monitoring`: prints alerts, dashboards and settings for Prometheus, Alertmanager, DCGM and Grafana."""

from pathlib import Path

import click

from dovetail.cli import output


@click.group()
def group() -> None:
    """Print what Prometheus and Grafana need to watch the cluster.

    The chart installs the same rules and dashboards for the Prometheus operator and Grafana's sidecar
    (monitoring.rules.enabled, monitoring.dashboards.enabled).
    """


@group.command()
@click.option(
    "--runbooks",
    default="docs/runbooks/",
    show_default=True,
    metavar="URL",
    help="What the links to runbooks begin with.",
)
def rules(*, runbooks: str) -> None:
    """Print alerts and recorded series as a rules file of Prometheus.

    \b
    dovetail monitoring rules > dovetail-rules.yaml
    promtool check rules dovetail-rules.yaml
    """
    from dovetail.monitoring.rules import rules_file

    output.write_text(rules_file.text(runbooks))


@group.command()
@click.option(
    "-o",
    "--output",
    "form",
    type=click.Choice(("table", "json")),
    default="table",
    show_default=True,
)
def alerts(*, form: str) -> None:
    """List the alerts: name, severity, how long it must last, summary."""
    from dovetail.monitoring.rules import rules_file
    from dovetail.tables import text

    known = list(rules_file.alerts())
    if form == "json":
        output.write_json(known)
        return
    rows = [
        (alert.name, alert.severity.value, alert.audience.value, alert.hold or "-", alert.summary)
        for alert in known
    ]
    output.write_table(text.table(("NAME", "SEVERITY", "FOR", "AFTER", "SUMMARY"), rows))


@group.command()
@click.argument("name", required=False)
@click.option(
    "-d",
    "--directory",
    type=click.Path(file_okay=False, path_type=Path),
    help="Write all of them there instead.",
)
def dashboards(*, name: str | None, directory: Path | None) -> None:
    """Print a dashboard as Grafana's JSON, or write all of them into a directory.

    \b
    dovetail monitoring dashboards
    dovetail monitoring dashboards fleet > fleet.json
    dovetail monitoring dashboards --directory dashboards
    """
    from dovetail.monitoring.dashboards import all_dashboards

    files = all_dashboards.files()
    names = [file.removesuffix(".json") for file in files]
    if directory is not None:
        if name is not None:
            raise click.UsageError("a NAME and --directory exclude each other")
        directory.mkdir(parents=True, exist_ok=True)
        for file, content in files.items():
            (directory / f"dovetail-{file}").write_text(content, encoding="utf-8")
            output.say(f"{directory / f'dovetail-{file}'} written")
    elif name is None:
        output.write_lines(names)
    elif name not in names:
        raise output.BadInput(f'there is no dashboard "{name}"; there are {", ".join(names)}')
    else:
        output.write_text(files[f"{name}.json"])


@group.command()
def counters() -> None:
    """Print the counters that DCGM's exporter must collect, as its CSV file."""
    from dovetail.monitoring import dcgm_counters

    output.write_text(dcgm_counters.text())


@group.command()
def routes() -> None:
    """Print an example of routes for Alertmanager: pager, platform, owners of work."""
    from dovetail.monitoring import alertmanager_routes

    output.write_text(alertmanager_routes.text())
