"""`dovetail cel`: checks and evaluates device selector expressions, for people and for programs.

`eval` shows which devices match and why the others do not; with --cases it reads cases and writes one verdict per line.
`check` shows whether an API server would accept an expression, what it reads and what it may cost.
"""

from collections import Counter
from pathlib import Path

import click

from dovetail import errors
from dovetail.cel import environment, explain_verdict, reads, selectors
from dovetail.cel.evaluate import frame
from dovetail.cel.evaluate.program import Outcome
from dovetail.cli import output
from dovetail.cli.cluster import cluster_option
from dovetail.cli.objects.selector_devices import NamedDevice, from_cluster, from_file, from_sample
from dovetail.kubetypes import object_set, registry
from dovetail.replay import selector_cases
from dovetail.tables import text

REFUSED = 1
MARKS = {"true": "+", "false": "-", "error": "!"}


@click.group(name="cel")
def group() -> None:
    """Check and evaluate device selector expressions."""


@group.command(name="eval")
@click.argument("expression", required=False)
@click.option(
    "-f",
    "--filename",
    metavar="FILE",
    help="Devices from a file with ResourceSlices instead of the cluster.",
)
@click.option(
    "--device", "names", multiple=True, metavar="NAME", help="Only this device (pool/name or name)."
)
@click.option(
    "--cases",
    "case_file",
    metavar="FILE",
    help="Cases as JSON lines, plain or gzip; - for standard input.",
)
@click.option(
    "-o", "--output", "form", type=click.Choice(("table", "json", "jsonl")), default="table"
)
@cluster_option.readable
def evaluate(
    *,
    expression: str | None,
    filename: str | None,
    names: tuple[str, ...],
    case_file: str | None,
    form: str,
) -> int:
    """Evaluate EXPRESSION on devices, and explain each verdict.

    \b
    dovetail cel eval 'device.attributes["gpu.nvidia.com"].architecture == "Hopper"'
    dovetail cel eval --cases cases.jsonl.gz -o jsonl
    """
    if case_file is not None:
        if expression is not None:
            raise click.UsageError("give an EXPRESSION or --cases, not both")
        output.write_json_lines(selector_cases.answers(case_file))
        return 0
    if expression is None:
        raise click.UsageError("an EXPRESSION is missing; for many at once use --cases FILE")

    selector = selectors.selector(expression)
    devices = from_file(Path(filename)) if filename else _cluster_devices()
    devices = _named_devices(devices, names)
    if form == "table":
        _show_groups(selector, devices)
    else:
        _write([_verdict(selector, device) for device in devices], form)
    return 0


def _cluster_devices() -> list[NamedDevice]:
    """The devices of the chosen cluster; those of the sample fleet where there is no cluster."""
    try:
        seen = cluster_option.view((object_set.Read(registry.SLICE),))
    except errors.StateError as error:
        if cluster_option.snapshot() is not None:
            raise
        output.say(f"{str(error).splitlines()[0]}; these are the devices of the sample fleet")
        return from_sample()
    return from_cluster(seen.objects)


def _named_devices(devices: list[NamedDevice], names: tuple[str, ...]) -> list[NamedDevice]:
    """The devices of these names, or all. Raises InputError if there are none."""
    if names:
        requested_names = set(names)
        devices = [
            device
            for device in devices
            if requested_names & {device.name, device.name.split("/")[-1]}
        ]
    if devices:
        return devices
    suffix = f" named {', '.join(names)}" if names else ""
    raise errors.InputError(f"no device to evaluate{suffix}")


def _verdict(selector: selectors.Selector, device: NamedDevice) -> dict[str, object]:
    result = selector.evaluate(device.view)
    return {
        "device": device.name,
        "outcome": str(result.outcome),
        "cost": result.cost,
        "reason": result.reason or None,
    }


def _show_groups(selector: selectors.Selector, devices: list[NamedDevice]) -> None:
    """One paragraph per group of devices that look the same to the expression."""
    groups: dict[tuple[str, object], list[NamedDevice]] = {}
    for device in devices:
        key = device.view.problem or selector.project(device.view)
        groups.setdefault((str(selector.match(device.view)), key), []).append(device)

    counts = Counter(dict.fromkeys(Outcome, 0))
    for (outcome, _), members in groups.items():
        counts[Outcome(outcome)] += len(members)
    lines = [
        f"{text.counted(len(devices), 'device')}: {counts[Outcome.MATCH]} match, "
        f"{counts[Outcome.NO_MATCH]} do not, {counts[Outcome.ERROR]} cannot be judged"
    ]
    order = {str(Outcome.MATCH): 0, str(Outcome.NO_MATCH): 1, str(Outcome.ERROR): 2}
    ordered = sorted(groups.items(), key=lambda group: (order[group[0][0]], -len(group[1])))
    for (outcome, _), members in ordered:
        like_it = f" and {len(members) - 1} like it" if len(members) > 1 else ""
        lines += ["", f"{outcome}: {members[0].name}{like_it}"]
        lines += _explanation(selector, members[0])
    output.write_lines(lines)


def _explanation(selector: selectors.Selector, device: NamedDevice) -> list[str]:
    lines = []
    for part in explain_verdict.explain(selector.program, device.view):
        values_read = ", ".join(f"{read.name} = {read.value}" for read in part.reads)
        why = f" ({part.reason})" if part.reason else ""
        lines.append(f"  {MARKS[part.verdict]} {part.verdict:<5} {part.text}{why}")
        if values_read:
            lines.append(f"          {values_read}")
    return lines


@group.command()
@click.argument("expression")
@click.option("-o", "--output", "form", type=click.Choice(("table", "json")), default="table")
def check(*, expression: str, form: str) -> int:
    """Say whether an API server would accept EXPRESSION, what it reads and what it may cost."""
    fault = selectors.problem(expression)
    compiled = selectors.problem(expression, is_stored=True)
    looked_at: list[str] = []
    cost = None
    if compiled is None or compiled.is_too_costly:
        checked = environment.stored().check(expression)
        cost = environment.stored().estimated_cost(checked)
        looked_at = [_shown_path(path) for path in sorted(reads.reads(checked))]
    if form == "json":
        reason = fault.message if fault else None
        verdict = {
            "valid": fault is None,
            "reason": reason,
            "estimatedCost": cost,
            "reads": looked_at,
        }
        output.write_json(verdict)
        return 0 if fault is None else REFUSED
    if fault is not None:
        output.write_lines(fault.message.split("\n"))
        if compiled is None:
            output.say(
                "an object that already holds this expression keeps working; a new one is refused"
            )
        return REFUSED
    limit = frame.COST_LIMIT
    output.write_lines(
        [f"valid; may cost {cost} of {limit}", *(f"reads {name}" for name in looked_at)]
    )
    return 0


def _write(rows: list[dict[str, object]], form: str) -> None:
    """Rows for programs: a JSON list, or one JSON object per line."""
    if form == "json":
        output.write_json(rows)
        return
    for row in rows:
        output.write_json_line(row)


def _shown_path(path: reads.Path) -> str:
    if not path:
        return "the whole device"
    if len(path) == 1:
        is_scalar = path[0] in ("driver", "allowMultipleAllocations")
        return path[0] if is_scalar else f"all of device.{path[0]}"
    domain = "device.driver" if path[1] == reads.OWN_DOMAIN else f'"{path[1]}"'
    return f"device.{path[0]}[{domain}]" + (f".{path[2]}" if len(path) == 3 else " as a whole")
