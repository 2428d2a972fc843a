"""Log lines: one record a line whatever others wrote, unforgeable fields, the cycle on every line of a turn."""

from __future__ import annotations

import asyncio
import io
import json
import logging

import pytest

from dovetail.boot import logs
from dovetail.ports import tracing

HOSTILE = (
    "a\n12:00:00.000 ERROR schedule: everything is lost",
    "a\r\nb",
    "\x1b[2J\x1b[31mred",
    "\x9b31m",  # the same in one sign
    "\u202egnp.exe",  # turns the direction of what follows
    "a\u2028b\u2029c\x85d\x0be",
    "\x00\x07\x08\x7f",
    "half \ud800 a sign",
    'x" level=error pod="y',
    "back\\",
    " ",
    "",
)


def record(message: str, **extra: object) -> logging.LogRecord:
    made = logging.makeLogRecord(
        {"name": "dovetail.schedule", "levelname": "INFO", "levelno": 20, "msg": message}
    )
    made.__dict__.update(extra)
    return made


@pytest.mark.parametrize("text", HOSTILE)
@pytest.mark.parametrize("form", [logs.TextLines(), logs.JsonLines()])
def test_text_of_others_stays_on_its_line_and_steers_nothing(
    text: str, form: logging.Formatter
) -> None:
    for line in (form.format(record("bound", pod=text)), form.format(record(text, node="n"))):
        assert line.isprintable()
        line.encode()


@pytest.mark.parametrize("text", HOSTILE)
def test_text_of_others_cannot_pass_for_another_field(text: str) -> None:
    line = logs.TextLines().format(record("bound", pod=text, node="n1"))
    assert line.endswith('" node=n1')
    head, _, quoted = line.removesuffix(" node=n1").partition(' pod="')
    assert head.endswith("INFO schedule: bound")
    inside = quoted.removesuffix('"').replace("\\\\", "").replace('\\"', "")
    assert '"' not in inside  # every quote inside is escaped, so the value ends where it seems to
    assert not inside.endswith("\\")


@pytest.mark.parametrize("text", [item for item in HOSTILE if "\ud800" not in item])
def test_json_gives_back_exactly_what_was_written(text: str) -> None:
    messages = json.loads(logs.JsonLines().format(record("bound", pod=text)))
    assert messages["pod"] == text
    assert (messages["message"], messages["level"], messages["logger"]) == (
        "bound",
        "info",
        "dovetail.schedule",
    )


def test_a_traceback_stands_below_its_line_and_cannot_pass_for_one() -> None:
    try:
        raise ValueError("a\n12:00:00.000 ERROR schedule: forged\x1b[2J")
    except ValueError as error:
        result = record("failed", exc_info=(ValueError, error, error.__traceback__))
    first, *below = logs.TextLines().format(result).split("\n")
    assert first.endswith("failed")
    assert below
    assert all(line.startswith("  | ") and line.isprintable() for line in below)
    assert "\n" not in logs.JsonLines().format(result)


def test_plain_values_need_no_quotes() -> None:
    line = logs.TextLines().format(
        record("bound", pod="a/b", seconds=0.12345, count=3, why="two words")
    )
    assert line.endswith('bound pod=a/b seconds=0.123 count=3 why="two words"')


def test_every_line_of_a_turn_carries_its_cycle_also_from_what_it_started() -> None:
    stream = io.StringIO()
    handler = logging.StreamHandler(stream)
    handler.setFormatter(logs.JsonLines())
    handler.addFilter(logs.with_cycle)
    logger = logging.getLogger("dovetail.test-cycles")
    logger.propagate = False
    logger.addHandler(handler)
    logger.setLevel(logging.DEBUG)

    async def write(name: str) -> None:
        await asyncio.sleep(0)
        logger.info("wrote", extra={"pod": name})

    async def main() -> None:
        tracing.CYCLE.set("t-1")
        first = asyncio.create_task(write("a"))
        tracing.CYCLE.set("t-2")
        logger.info("decided")
        await first

    asyncio.run(main())
    logger.info("outside")
    logger.removeHandler(handler)
    messages = [json.loads(line) for line in stream.getvalue().splitlines()]
    assert [message.get("cycle") for message in messages] == ["t-2", "t-1", None]
