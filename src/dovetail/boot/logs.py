"""Sets up what a long-running process writes about itself on stderr: lines for people, or JSON for programs."""

from __future__ import annotations

import datetime
import logging
import sys
from typing import Any, Final

import msgspec

_STANDARD: Final = frozenset(logging.makeLogRecord({}).__dict__) | {"message", "asctime", "taskName"}


def set_up(form: str, level: str) -> None:
    """Every logger writes to stderr in this form, from this level on."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonLines() if form == "json" else TextLines())
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)
    logging.getLogger("aiohttp").setLevel(logging.WARNING)


def fields_of(record: logging.LogRecord) -> dict[str, Any]:
    """What a record carries besides its message."""
    return {name: value for name, value in record.__dict__.items() if name not in _STANDARD}


class TextLines(logging.Formatter):
    """`12:00:01.250 INFO schedule: bound pod=a/b node=n1`."""

    def format(self, record: logging.LogRecord) -> str:
        """One line, and a traceback below it if there is one."""
        moment = datetime.datetime.fromtimestamp(record.created, datetime.UTC).strftime("%H:%M:%S.%f")[:-3]
        extra = "".join(f" {name}={_plain(value)}" for name, value in fields_of(record).items())
        room = record.name.removeprefix("dovetail.")
        line = f"{moment} {record.levelname} {room}: {_one_line(record.getMessage())}{extra}"
        return f"{line}\n{self.formatException(record.exc_info)}" if record.exc_info else line


class JsonLines(logging.Formatter):
    """One JSON object a line."""

    def format(self, record: logging.LogRecord) -> str:
        """Time, level, logger, message and every field."""
        moment = datetime.datetime.fromtimestamp(record.created, datetime.UTC).isoformat()
        told = {"time": moment, "level": record.levelname.lower(), "logger": record.name}
        told |= {"message": record.getMessage()} | fields_of(record)
        if record.exc_info:
            told["error"] = self.formatException(record.exc_info)
        return msgspec.json.encode(told, enc_hook=str).decode()


def _plain(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.3g}"
    text = _one_line(str(value))
    return f'"{text}"' if " " in text else text


def _one_line(text: str) -> str:
    """Text of others cannot start a line of its own, nor steer a terminal."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)
