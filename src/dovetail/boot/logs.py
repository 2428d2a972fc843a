"""Sets up what a long-running process writes about itself on stderr: lines for people, or JSON for programs.

A line belongs to one record, whatever text of others it carries: names, messages and annotations come from users, and
a control character in them could start a line of its own or steer a terminal. Every line of one turn of deciding
carries the turn's id as `cycle`.
"""

from __future__ import annotations

import datetime
import logging
import sys
from typing import Any, Final

import msgspec

from dovetail.model import plaintext
from dovetail.ports import tracing

_STANDARD: Final = frozenset(logging.makeLogRecord({}).__dict__) | {"message", "asctime", "taskName"}
_BARE: Final = frozenset(  # what needs no quotes: it cannot end a field or pass for another one
    "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_./:@+%~,<>*#$&!?;()[]{}|^'"
)
MOST_CHARACTERS: Final = 16_384  # of one value: whoever writes a megabyte into a message fills no disk with it
_BELOW: Final = "  | "  # a line that belongs to the one above


def set_up(form: str, level: str) -> None:
    """Every logger writes to stderr in this form, from this level on."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonLines() if form == "json" else TextLines())
    handler.addFilter(with_cycle)
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)
    logging.getLogger("aiohttp").setLevel(logging.WARNING)


def with_cycle(record: logging.LogRecord) -> bool:
    """Lets every record pass, with the turn of deciding it belongs to."""
    cycle = tracing.CYCLE.get()
    if cycle and "cycle" not in record.__dict__:
        record.cycle = cycle
    return True


def fields_of(record: logging.LogRecord) -> dict[str, Any]:
    """What a record carries besides its message."""
    return {name: value for name, value in record.__dict__.items() if name not in _STANDARD}


class TextLines(logging.Formatter):
    """`12:00:01.250 INFO schedule: bound pod=a/b node=n1`."""

    def format(self, record: logging.LogRecord) -> str:
        """One line; a traceback stands below it, marked, so that no line of it can pass for a record."""
        moment = datetime.datetime.fromtimestamp(record.created, datetime.UTC).strftime("%H:%M:%S.%f")[:-3]
        extra = "".join(f" {name}={_plain(value)}" for name, value in fields_of(record).items())
        room = record.name.removeprefix("dovetail.")
        line = f"{moment} {record.levelname} {room}: {plaintext.escaped(_cut(record.getMessage()))}{extra}"
        below = self.formatException(record.exc_info).split("\n") if record.exc_info else []
        return "\n".join([line, *(_BELOW + plaintext.escaped(_cut(one)) for one in below)])


class JsonLines(logging.Formatter):
    """One JSON object a line."""

    def format(self, record: logging.LogRecord) -> str:
        """Time, level, logger, message and every field."""
        moment = datetime.datetime.fromtimestamp(record.created, datetime.UTC).isoformat()
        told = {"time": moment, "level": record.levelname.lower(), "logger": record.name}
        told |= {"message": record.getMessage()} | fields_of(record)
        if record.exc_info:
            told["error"] = self.formatException(record.exc_info)
        sound = {name: _encodable(value) for name, value in told.items()}
        return plaintext.escaped_json(msgspec.json.encode(sound, enc_hook=str).decode())  # somebody may `cat` it


def _plain(value: Any) -> str:
    """A value such that the next field is told from it: quoted where it holds anything but plain signs."""
    if isinstance(value, float):
        return f"{value:.3g}"
    text = _cut(str(value))
    if text and _BARE.issuperset(text):
        return text
    return '"' + plaintext.escaped(text.replace("\\", "\\\\").replace('"', '\\"')) + '"'


def _encodable(value: Any) -> Any:
    """Half a character, as broken text has it, would keep the whole record from being written."""
    return _cut(value).encode("utf-8", "backslashreplace").decode() if isinstance(value, str) else value


def _cut(text: str) -> str:
    return text if len(text) <= MOST_CHARACTERS else f"{text[:MOST_CHARACTERS]}... ({len(text)} characters)"
