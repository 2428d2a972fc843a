"""`dovetail decide`: what the engine makes of scenarios given in a file: who starts, who waits, who yields."""

import sys
from collections import Counter
from collections.abc import Iterator

import click

from dovetail import errors
from dovetail.cli import jsonlines, output
from dovetail.sim.scenarios import reading, running, telling

REFUSED = 1
_COLUMNS = tuple(telling.Change)
_EVERY = 10  # scenarios between two words about how far it is


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
        if isinstance(answer, str):  # the others are answered all the same
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
        raise errors.InputError(f"{jsonlines.shown(file)}: no scenarios in it; expected one JSON object a line")
    if failed:
        click.get_current_context().exit(REFUSED)


def _answers(file: str) -> Iterator[telling.Told | str]:
    """An answer for every line, or what is wrong with it."""
    for place, line in jsonlines.numbered(file):
        try:
            scenario = reading.read(line, place=place)
        except errors.InputError as error:
            yield str(error)
            continue
        try:
            yield telling.told(scenario, running.run(scenario))
        except errors.DovetailError as error:
            yield f"{place}: {error}"
        except Exception as error:  # what one scenario trips over must not cost the others their answers
            yield f"{place}: the engine failed, which is a defect of it: {type(error).__name__}: {error}"


def _progress(answers: Iterator[telling.Told | str]) -> Iterator[telling.Told | str]:
    """Says how far it is where somebody looks and the answers go elsewhere."""
    speaks = sys.stderr.isatty() and not sys.stdout.isatty()
    number = 0
    for number, answer in enumerate(answers, start=1):
        if speaks and number % _EVERY == 0:
            output.progress(f"{number} scenarios")
        yield answer
    if speaks and number >= _EVERY:
        output.progress(f"{number} scenarios", is_last=True)


def _numbers(answer: telling.Told) -> list[str]:
    total: Counter[str] = Counter()
    for job in answer.jobs.values():
        total.update(job.changes)
    return [str(total[word]) if total[word] else "-" for word in _COLUMNS]


def _row(cells: list[str], name: str) -> str:
    """Columns of a fixed width and the name last, so that a row can be printed before the next is known."""
    return "   ".join((*(cell.rjust(len(word)) for cell, word in zip(cells, _COLUMNS, strict=True)), name))
