"""`dovetail cel`: device selector expressions, checked and evaluated for people and for programs.

`eval` says which devices match and why the others do not; with --cases it reads cases and writes verdicts line by
line. `check` says what an API server would say, what an expression reads and what it may cost.
"""

from collections import Counter
from pathlib import Path

import click

from dovetail import errors
from dovetail.cel import environment, explain, frame, reads, selectors
from dovetail.cel.program import Outcome
from dovetail.cli import cases, options, output, text
from dovetail.cli.devices import NamedDevice, from_cluster, from_file

REFUSED = 1
MARKS = {"true": "+", "false": "-", "error": "!"}


@click.group(name="cel")
def group() -> None:
    """Check and evaluate device selector expressions."""


@group.command(name="eval")
@click.argument("expression", required=False)
@click.option(
    "-f", "--filename", metavar="FILE", help="Devices from a file with ResourceSlices instead of the cluster."
)
@click.option("--device", "names", multiple=True, metavar="NAME", help="Only this device (pool/name or name).")
@click.option("--cases", "case_file", metavar="FILE", help="Cases as JSON lines, plain or gzip; - for standard input.")
@click.option("-o", "--output", "form", type=click.Choice(("table", "json", "jsonl")), default="table")
@options.state
def evaluate(
    *,
    expression: str | None,
    filename: str | None,
    names: tuple[str, ...],
    case_file: str | None,
    form: str,
    state: str | None,
) -> int:
    """Evaluate EXPRESSION on devices, and explain each verdict.

    \b
    dovetail cel eval 'device.attributes["gpu.nvidia.com"].architecture == "Hopper"'
    dovetail cel eval --cases cases.jsonl.gz -o jsonl
    """
    if case_file is not None:
        if expression is not None:
            raise click.UsageError("give an EXPRESSION or --cases, not both")
        return cases.run(case_file)
    if expression is None:
        raise click.UsageError("an EXPRESSION is missing; for many at once use --cases FILE")
    chosen = selectors.selector(expression)
    devices = from_file(Path(filename)) if filename else from_cluster(options.opened(state))
    devices = [d for d in devices if not names or d.name in names or d.name.split("/")[-1] in names]
    if not devices:
        raise errors.InputError("no device to evaluate" + (f" named {', '.join(names)}" if names else ""))
    if form == "table":
        _show_groups(chosen, devices)
    else:
        _write(
            [
                {"device": d.name, "outcome": str(r.outcome), "cost": r.cost, "reason": r.reason or None}
                for d in devices
                for r in [chosen.evaluate(d.view)]
            ],
            form,
        )
    return 0


def _show_groups(chosen: selectors.Selector, devices: list[NamedDevice]) -> None:
    """One paragraph per way the devices differ in what the expression sees."""
    groups: dict[tuple[str, object], list[NamedDevice]] = {}
    for device in devices:
        key = device.view.problem or chosen.project(device.view)
        groups.setdefault((str(chosen.match(device.view)), key), []).append(device)
    counts = Counter(dict.fromkeys(Outcome, 0))
    for (outcome, _), members in groups.items():
        counts[Outcome(outcome)] += len(members)
    lines = [
        f"{text.counted(len(devices), 'device')}: {counts[Outcome.MATCH]} match, "
        f"{counts[Outcome.NO_MATCH]} do not, {counts[Outcome.ERROR]} cannot be judged"
    ]
    order = {str(Outcome.MATCH): 0, str(Outcome.NO_MATCH): 1, str(Outcome.ERROR): 2}
    for (outcome, _), members in sorted(groups.items(), key=lambda item: (order[item[0][0]], -len(item[1]))):
        others = f" and {len(members) - 1} like it" if len(members) > 1 else ""
        lines += ["", f"{outcome}: {members[0].name}{others}"]
        lines += _explained(chosen, members[0])
    output.write_lines(lines)


def _explained(chosen: selectors.Selector, device: NamedDevice) -> list[str]:
    lines = []
    for part in explain.explain(chosen.program, device.view):
        seen = ", ".join(f"{read.name} = {read.value}" for read in part.reads)
        why = f" ({part.reason})" if part.reason else ""
        lines.append(f"  {MARKS[part.verdict]} {part.verdict:<5} {part.text}{why}")
        if seen:
            lines.append(f"          {seen}")
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
        verdict = {"valid": fault is None, "reason": reason, "estimatedCost": cost, "reads": looked_at}
        output.write_json(verdict)
        return 0 if fault is None else REFUSED
    if fault is not None:
        output.write_lines(fault.message.split("\n"))
        if compiled is None:
            output.say("an object that already holds this expression keeps working; a new one is refused")
        return REFUSED
    limit = frame.COST_LIMIT
    output.write_lines([f"valid; may cost {cost} of {limit}", *(f"reads {name}" for name in looked_at)])
    return 0


def _write(rows: list[dict[str, object]], form: str) -> None:
    """Rows for programs: a JSON list, or one JSON object a line."""
    if form == "json":
        output.write_json(rows)
        return
    for row in rows:
        output.write_json_line(row)


def _shown_path(path: reads.Path) -> str:
    if not path:
        return "the whole device"
    if len(path) == 1:
        return path[0] if path[0] in ("driver", "allowMultipleAllocations") else f"all of device.{path[0]}"
    domain = "device.driver" if path[1] == reads.OWN_DOMAIN else f'"{path[1]}"'
    return f"device.{path[0]}[{domain}]" + (f".{path[2]}" if len(path) == 3 else " as a whole")
