"""Sets up the log of a long-running process on stderr: text lines for people, or JSON for programs.

One record is one line, whatever it quotes: names, messages and annotations come from users, and a control character in
them could start a new line or control a terminal. Every line of one scheduling cycle carries its id as `cycle`.
"""

from __future__ import annotations

import datetime
import logging
import sys
from typing import Any, Final

import msgspec

from dovetail.model import plaintext
from dovetail.ports import tracing

_STANDARD: Final = frozenset(logging.makeLogRecord({}).__dict__) | {
    "message",
    "asctime",
    "taskName",
}
# Characters that need no quotes: they cannot end a field or pass for another one.
_BARE: Final = frozenset(
    "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_./:@+%~,<>*#$&!?;()[]{}|^'"
)
MOST_CHARACTERS: Final = 16_384  # of one value: a megabyte in a message must not fill the disk
_BELOW: Final = "  | "  # marks a line that belongs to the one above


def set_up(form: str, level: str) -> None:
    """Makes every logger write to stderr in this form, from this level on."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonLines() if form == "json" else TextLines())
    handler.addFilter(with_cycle)
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)
    logging.getLogger("aiohttp").setLevel(logging.WARNING)


def with_cycle(record: logging.LogRecord) -> bool:
    """Adds the scheduling cycle to every record; filters none out."""
    cycle = tracing.CYCLE.get()
    if cycle and "cycle" not in record.__dict__:
        record.cycle = cycle
    return True


def fields_of(record: logging.LogRecord) -> dict[str, Any]:
    """The extra fields of a record."""
    return {name: value for name, value in record.__dict__.items() if name not in _STANDARD}


class TextLines(logging.Formatter):
    """`12:00:01.250 INFO schedule: bound pod=a/b node=n1`."""

    def format(self, record: logging.LogRecord) -> str:
        """One line; a traceback follows with marked lines, so that none of them can pass for a record."""
        created = datetime.datetime.fromtimestamp(record.created, datetime.UTC)
        time = created.strftime("%H:%M:%S.%f")[:-3]
        logger = record.name.removeprefix("dovetail.")
        message = plaintext.escaped(_cut(record.getMessage()))
        extra = "".join(f" {name}={_plain(value)}" for name, value in fields_of(record).items())
        lines = [f"{time} {record.levelname} {logger}: {message}{extra}"]

        if record.exc_info:
            traceback = self.formatException(record.exc_info).split("\n")
            lines += [_BELOW + plaintext.escaped(_cut(line)) for line in traceback]
        return "\n".join(lines)


class JsonLines(logging.Formatter):
    """One JSON object a line."""

    def format(self, record: logging.LogRecord) -> str:
        """Time, level, logger, message and every field."""
        time = datetime.datetime.fromtimestamp(record.created, datetime.UTC).isoformat()
        fields = {"time": time, "level": record.levelname.lower(), "logger": record.name}
        fields |= {"message": record.getMessage()} | fields_of(record)
        if record.exc_info:
            fields["error"] = self.formatException(record.exc_info)

        encodable = {name: _encodable(value) for name, value in fields.items()}
        text = msgspec.json.encode(encodable, enc_hook=str).decode()
        return plaintext.escaped_json(text)  # the file may be shown on a terminal


def _plain(value: Any) -> str:
    """A value that cannot run into the next field: quoted where it has anything but plain characters."""
    if isinstance(value, float):
        return f"{value:.3g}"
    text = _cut(str(value))
    if text and _BARE.issuperset(text):
        return text
    return '"' + plaintext.escaped(text.replace("\\", "\\\\").replace('"', '\\"')) + '"'


def _encodable(value: Any) -> Any:
    """Lone surrogates, as in broken text, would keep the whole record from being encoded."""
    if not isinstance(value, str):
        return value
    return _cut(value).encode("utf-8", "backslashreplace").decode()


def _cut(text: str) -> str:
    if len(text) <= MOST_CHARACTERS:
        return text
    return f"{text[:MOST_CHARACTERS]}... ({len(text)} characters)"
