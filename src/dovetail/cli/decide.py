"""`dovetail decide`: runs the scenarios of a file through the engine: which pods start, wait or are evicted."""

import sys
from collections import Counter
from collections.abc import Iterator

import click

from dovetail import errors
from dovetail.cli import output
from dovetail.replay import json_lines
from dovetail.replay.scenarios import run_scenario, scenario_format, scenario_outcome

REFUSED = 1
_COLUMNS = tuple(scenario_outcome.Change)
_EVERY = 10  # scenarios between two progress messages


@click.command(name="decide")
@click.option(
    "--scenarios",
    "file",
    required=True,
    metavar="FILE",
    help="Scenarios as JSON lines, plain or gzip; - for standard input.",
)
@click.option("-o", "--output", "form", type=click.Choice(("table", "jsonl")), default="table")
def command(*, file: str, form: str) -> None:
    """Decide every scenario of FILE: who starts, who waits, who is evicted.

    \b
    dovetail decide --scenarios scenarios.jsonl.gz -o jsonl
    """
    answered = failed = 0
    for answer in _progress(_answers(file)):
        if isinstance(answer, str):  # the other scenarios still run
            failed += 1
            output.say(f"error: {answer}")
            continue
        answered += 1
        if form == "jsonl":
            output.write_json_line(answer)
            continue
        if answered == 1:
            output.write_lines([_row([word.upper() for word in _COLUMNS], "ID")])
        output.write_lines([_row(_numbers(answer), answer.id)])
    if not answered and not failed:
        raise errors.InputError(
            f"{json_lines.shown(file)}: no scenarios in it; expected one JSON object a line"
        )
    if failed:
        click.get_current_context().exit(REFUSED)


def _answers(file: str) -> Iterator[scenario_outcome.ScenarioReport | str]:
    """The result of every line, or its problem."""
    for place, line in json_lines.numbered(file):
        try:
            scenario = scenario_format.read(line, place=place)
        except errors.InputError as error:
            yield str(error)
            continue
        try:
            yield scenario_outcome.report(scenario, run_scenario.run(scenario))
        except errors.DovetailError as error:
            yield f"{place}: {error}"
        except Exception as error:  # an error in one scenario must not stop the others
            yield f"{place}: the engine failed, which is a defect of it: {type(error).__name__}: {error}"


def _progress(
    answers: Iterator[scenario_outcome.ScenarioReport | str],
) -> Iterator[scenario_outcome.ScenarioReport | str]:
    """Reports progress if stderr is a terminal and the results go elsewhere."""
    speaks = sys.stderr.isatty() and not sys.stdout.isatty()
    number = 0
    for number, answer in enumerate(answers, start=1):
        if speaks and number % _EVERY == 0:
            output.progress(f"{number} scenarios")
        yield answer
    if speaks and number >= _EVERY:
        output.progress(f"{number} scenarios", is_last=True)


def _numbers(answer: scenario_outcome.ScenarioReport) -> list[str]:
    total: Counter[str] = Counter()
    for job in answer.jobs.values():
        total.update(job.changes)
    return [str(total[word]) if total[word] else "-" for word in _COLUMNS]


def _row(cells: list[str], name: str) -> str:
    """Columns of fixed width with the name last, so that a row can be printed before the next is known."""
    return "   ".join(
        (*(cell.rjust(len(word)) for cell, word in zip(cells, _COLUMNS, strict=True)), name)
    )
