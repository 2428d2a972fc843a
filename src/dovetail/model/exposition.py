"""Prometheus' text format (version 0.0.4): families of metrics and lines of series.

Given names, labels and values; returns text. Label values come from clusters and may hold anything: they are escaped,
so that no value can end a line or a label. Never validates names, never reads a registry.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, Literal, NamedTuple, TypeAlias

Kind: TypeAlias = Literal["counter", "gauge"]
Labels: TypeAlias = Mapping[str, str]

_ESCAPES: Final = str.maketrans({"\\": r"\\", '"': r"\"", "\n": r"\n"})


class Family(NamedTuple):
    """What is said once about a metric."""

    name: str
    kind: Kind
    help: str

    @property
    def head(self) -> str:
        """The lines before its series."""
        return f"# HELP {self.name} {self.help}\n# TYPE {self.name} {self.kind}\n"


class Series(NamedTuple):
    """One value."""

    name: str
    labels: Labels
    value: float


def line(name: str, labels: Labels, value: float) -> str:
    """One series, with its newline. Labels keep their order; empty ones are left out, which means the same."""
    written = ",".join(
        f'{label}="{content.translate(_ESCAPES)}"' for label, content in labels.items() if content
    )
    return f"{name}{{{written}}} {number(value)}\n" if written else f"{name} {number(value)}\n"


def number(value: float) -> str:
    """Integers without a point, so that large counters keep every digit."""
    if isinstance(value, int):
        return str(value)
    return str(int(value)) if value.is_integer() and abs(value) < 2**53 else repr(value)


def text(families: Iterable[Family], series: Iterable[Series]) -> str:
    """All series under the heads of their families, in the order of the families; those without series are left out."""
    lines: dict[str, list[str]] = {}
    for name, labels, value in series:
        lines.setdefault(name, []).append(line(name, labels, value))
    parts: list[str] = []
    for family in families:
        if family.name in lines:
            parts.append(family.head)
            parts.extend(lines[family.name])
    return "".join(parts)
