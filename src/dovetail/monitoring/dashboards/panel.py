"""Panels, rows, variables and dashboards, in the few forms that ours use. Data only."""

from __future__ import annotations

from enum import StrEnum

import msgspec


class Form(StrEnum):
    """How a panel shows its queries; the values are Grafana's names of panel types."""

    CURVES = "timeseries"
    FIGURE = "stat"
    BARS = "bargauge"
    TABLE = "table"


class Unit(StrEnum):
    """Units as Grafana names them."""

    COUNT = "none"
    RATIO = "percentunit"
    PERCENT = "percent"
    BYTES = "bytes"
    WATTS = "watt"
    CELSIUS = "celsius"
    HERTZ = "hertz"
    SECONDS = "s"
    PER_SECOND = "ops"
    HOURS = "h"
    KILOWATT_HOURS = "kwatth"
    MONEY = "currencyUSD"


class Query(msgspec.Struct, frozen=True):
    """One PromQL expression and what its series are called: `{{queue}}`."""

    expr: str
    legend: str = ""


class Panel(msgspec.Struct, frozen=True, kw_only=True):
    """A picture of queries; its width in 24ths of the page. Orange from `warns_at` on, red from `alarms_at` on."""

    title: str
    meaning: str
    queries: tuple[Query, ...]
    form: Form = Form.CURVES
    unit: Unit = Unit.COUNT
    width: int = 12
    height: int = 8
    is_stacked: bool = False
    warns_at: float | None = None
    alarms_at: float | None = None
    top: float | None = None  # of the scale


class Row(msgspec.Struct, frozen=True):
    """A heading and the panels below it."""

    title: str
    panels: tuple[Panel, ...]


class Choice(msgspec.Struct, frozen=True, kw_only=True):
    """A variable that people choose from the values of a label; any number of them, or all."""

    name: str
    label: str
    query: str  # label_values(METRIC, LABEL)


class Entry(msgspec.Struct, frozen=True, kw_only=True):
    """A variable that people type in."""

    name: str
    label: str
    default: str


class Dashboard(msgspec.Struct, frozen=True, kw_only=True):
    """One page of Grafana. `name` is the file's name, and the end of its address."""

    name: str
    title: str
    meaning: str
    rows: tuple[Row, ...]
    choices: tuple[Choice, ...] = ()
    entries: tuple[Entry, ...] = ()
    since: str = "now-6h"
