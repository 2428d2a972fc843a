"""Writes a dashboard as the JSON that Grafana imports and its sidecar loads.

Given the data of a dashboard. Places panels from left to right and row by row; every query goes to the data source that
the variable `datasource` names, so that the file fits any Grafana. Never asks Grafana.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import msgspec

from dovetail.monitoring.dashboards.panel import (
    Choice,
    Dashboard,
    Entry,
    Form,
    Panel,
    Row,
)

PAGE_WIDTH: Final = 24
SCHEMA_VERSION: Final = 39  # Grafana 11; later ones convert it
PREFIX: Final = "dovetail-"  # of uids, by which dashboards are linked
TAGS: Final = ["dovetail", "gpu"]
SOURCE: Final = {"type": "prometheus", "uid": "${datasource}"}
REFRESH: Final = "1m"
# As Grafana's colour of a state is called.
GOOD, WARNING, ALARM = "green", "orange", "red"

Tree = dict[str, Any]


def text(dashboard: Dashboard) -> str:
    """The file."""
    return msgspec.json.format(msgspec.json.encode(tree(dashboard)), indent=1).decode() + "\n"


def tree(dashboard: Dashboard) -> Tree:
    """The dashboard as Grafana stores it."""
    return {
        "uid": PREFIX + dashboard.name,
        "title": dashboard.title,
        "description": dashboard.meaning,
        "tags": TAGS,
        "schemaVersion": SCHEMA_VERSION,
        "editable": True,
        "graphTooltip": 1,  # one crosshair over all panels
        "refresh": REFRESH,
        "time": {"from": dashboard.since, "to": "now"},
        "timezone": "browser",
        "links": [_link()],
        "annotations": {"list": [_firing_alerts()]},
        "templating": {"list": list(_variables(dashboard))},
        "panels": list(_panels(dashboard.rows)),
    }


def _panels(rows: tuple[Row, ...]) -> Iterator[Tree]:
    """Rows and panels with their numbers and places."""
    number = 0
    y = 0
    for row in rows:
        number += 1
        yield _heading(row, number, y)
        y += 1
        x = height = 0
        for panel in row.panels:
            if x + panel.width > PAGE_WIDTH:
                x, y, height = 0, y + height, 0
            number += 1
            place = {"x": x, "y": y, "w": panel.width, "h": panel.height}
            yield {"id": number, "gridPos": place, **_panel(panel)}
            x += panel.width
            height = max(height, panel.height)
        y += height


def _heading(row: Row, number: int, y: int) -> Tree:
    return {
        "id": number,
        "type": "row",
        "title": row.title,
        "collapsed": False,
        "gridPos": {"x": 0, "y": y, "w": PAGE_WIDTH, "h": 1},
        "panels": [],
    }


def _panel(panel: Panel) -> Tree:
    return {
        "type": panel.form.value,
        "title": panel.title,
        "description": panel.meaning,
        "datasource": SOURCE,
        "targets": list(_targets(panel)),
        "fieldConfig": {"defaults": _defaults(panel), "overrides": []},
        "options": _options(panel),
        **_table_parts(panel),
    }


def _targets(panel: Panel) -> Iterator[Tree]:
    is_table = panel.form is Form.TABLE
    for index, query in enumerate(panel.queries):
        yield {
            "refId": chr(ord("A") + index),
            "datasource": SOURCE,
            "expr": query.expr,
            "legendFormat": query.legend or "__auto",
            "instant": panel.form is not Form.CURVES,
            "range": panel.form is Form.CURVES,
            "format": "table" if is_table else "time_series",
        }


def _defaults(panel: Panel) -> Tree:
    steps: list[Tree] = [{"value": None, "color": GOOD}]
    for value, colour in ((panel.warns_at, WARNING), (panel.alarms_at, ALARM)):
        if value is not None:
            steps.append({"value": value, "color": colour})
    has_limits = len(steps) > 1
    is_curve = panel.form is Form.CURVES

    defaults: Tree = {
        "unit": panel.unit.value,
        "color": {"mode": "thresholds" if has_limits and not is_curve else "palette-classic"},
        "thresholds": {"mode": "absolute", "steps": steps},
        "min": 0,
    }
    if panel.top is not None:
        defaults["max"] = panel.top
    if is_curve:
        defaults["custom"] = _curve(panel, has_limits=has_limits)
    return defaults


def _curve(panel: Panel, *, has_limits: bool) -> Tree:
    return {
        "drawStyle": "line",
        "lineWidth": 1,
        "fillOpacity": 30 if panel.is_stacked else 5,
        "showPoints": "never",
        "spanNulls": False,  # a gap in the measurements stays one
        "stacking": {"mode": "normal" if panel.is_stacked else "none", "group": "A"},
        "thresholdsStyle": {"mode": "dashed" if has_limits else "off"},
    }


def _options(panel: Panel) -> Tree:
    last = {"calcs": ["lastNotNull"], "fields": "", "values": False}
    match panel.form:
        case Form.CURVES:
            return {
                "legend": {
                    "displayMode": "table",
                    "placement": "bottom",
                    "showLegend": True,
                    "calcs": ["lastNotNull", "max"],
                },
                "tooltip": {"mode": "multi", "sort": "desc"},
            }
        case Form.FIGURE:
            return {
                "reduceOptions": last,
                "colorMode": "value",
                "graphMode": "none",
                "justifyMode": "auto",
                "textMode": "auto",
                "wideLayout": True,
                "orientation": "auto",
            }
        case Form.BARS:
            return {
                "reduceOptions": last,
                "legend": {
                    "displayMode": "list",
                    "placement": "bottom",
                    "showLegend": False,
                    "calcs": [],
                },
                "displayMode": "gradient",
                "orientation": "horizontal",
                "showUnfilled": True,
                "valueMode": "color",
                "namePlacement": "auto",
                "sizing": "auto",
                "minVizWidth": 8,
                "minVizHeight": 16,
                "maxVizHeight": 300,
            }
        case Form.TABLE:
            return {"showHeader": True, "cellHeight": "sm", "frameIndex": 0}


def _table_parts(panel: Panel) -> Tree:
    """Tables hide what every row has: the time, and the number 1 of metrics that only name something."""
    if panel.form is not Form.TABLE:
        return {}
    hidden = {"Time": True, "__name__": True, "instance": True, "job": True, "vendor": True}
    return {
        "transformations": [
            {"id": "organize", "options": {"excludeByName": hidden, "renameByName": {}}}
        ]
    }


def _variables(dashboard: Dashboard) -> Iterator[Tree]:
    yield {
        "name": "datasource",
        "label": "Data source",
        "type": "datasource",
        "query": "prometheus",
        "hide": 0,
        "multi": False,
        "includeAll": False,
        "refresh": 1,
        "regex": "",
        "options": [],
    }
    for choice in dashboard.choices:
        yield _choice(choice)
    for entry in dashboard.entries:
        yield _entry(entry)


def _choice(choice: Choice) -> Tree:
    return {
        "name": choice.name,
        "label": choice.label,
        "type": "query",
        "datasource": SOURCE,
        "query": {"query": choice.query, "refId": choice.name},
        "definition": choice.query,
        "hide": 0,
        "multi": True,
        "includeAll": True,
        "allValue": ".*",
        "refresh": 2,
        "regex": "",
        "sort": 1,
        "options": [],
        "current": {"selected": True, "text": ["All"], "value": ["$__all"]},
    }


def _entry(entry: Entry) -> Tree:
    value = {"selected": True, "text": entry.default, "value": entry.default}
    return {
        "name": entry.name,
        "label": entry.label,
        "type": "textbox",
        "query": entry.default,
        "hide": 0,
        "options": [value],
        "current": value,
    }


def _link() -> Tree:
    """To the other dashboards, with the time and the variables kept."""
    return {
        "title": "Dovetail",
        "type": "dashboards",
        "tags": TAGS,
        "asDropdown": True,
        "includeVars": True,
        "keepTime": True,
        "targetBlank": False,
        "icon": "external link",
        "tooltip": "",
        "url": "",
    }


def _firing_alerts() -> Tree:
    """Marks over the curves while an alert of ours that wakes people fires."""
    expr = 'ALERTS{alertstate="firing", severity="critical", audience!=""}'
    return {
        "name": "Critical alerts",
        "datasource": SOURCE,
        "enable": True,
        "hide": False,
        "iconColor": ALARM,
        "expr": expr,
    }
