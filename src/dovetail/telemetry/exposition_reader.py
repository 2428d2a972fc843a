"""Reads Prometheus' text format (version 0.0.4), as far as series of given names need it.

Given the text of one scrape and its time. Each series has one sample, at the time of the scrape; a time that the target
states itself is passed over. A line that is not a series of one of the names is passed over, whatever it is: a broken
target has no series, and never wrong ones. Pure.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import Final

from dovetail.telemetry.prometheus_api import RawSeries

_LINE: Final = re.compile(r"([A-Za-z_:][\w:]*)(?:\{(.*)\})?[ \t]+(\S+)(?:[ \t]+-?\d+)?[ \t]*")
_LABEL: Final = re.compile(r'\s*([A-Za-z_]\w*)\s*=\s*"((?:[^"\\]|\\.)*)"\s*(,|$)')
_ESCAPE: Final = re.compile(r"\\(.)")
_ESCAPED: Final = {"n": "\n"}


def read(text: str, names: Collection[str], *, at: float) -> list[RawSeries]:
    """The series of these names. `at`: seconds since 1970."""
    series: list[RawSeries] = []
    # Label values may hold any character but a plain newline, so lines are ended by that alone.
    for line in text.split("\n"):
        match = _LINE.fullmatch(line)
        if match is None or match[1] not in names:
            continue
        labels = _labels(match[2] or "")
        value = _number(match[3])
        if labels is not None and value is not None:
            series.append(RawSeries({"__name__": match[1], **labels}, [(at, value)]))
    return series


def _labels(text: str) -> dict[str, str] | None:
    """The labels between braces; None where they cannot be read."""
    labels: dict[str, str] = {}
    place = 0
    while place < len(text):
        match = _LABEL.match(text, place)
        if match is None:
            return None
        labels[match[1]] = _ESCAPE.sub(lambda escape: _ESCAPED.get(escape[1], escape[1]), match[2])
        place = match.end()
    return labels


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None
