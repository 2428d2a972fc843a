"""Writes the files that are made of dovetail.monitoring: rules, dashboards, a page; `--check` only compares.

Given nothing. The chart ships rules and dashboards from its own directory, because Helm reads no other.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Final

from dovetail.monitoring import alertmanager_routes, dcgm_counters
from dovetail.monitoring.dashboards import all_dashboards
from dovetail.monitoring.rules import rules_file

ROOT: Final = Path(__file__).resolve().parent.parent
DASHBOARDS: Final = ROOT / "deploy" / "chart" / "grafana"
RULES: Final = ROOT / "deploy" / "chart" / "prometheus" / "rules.yaml"
COUNTERS: Final = ROOT / "deploy" / "prometheus" / "dcgm-counters.csv"
PAGE: Final = ROOT / "docs" / "reference" / "alerts.md"
BEGIN: Final = "<!-- alerts: made by tools/monitoring.py, do not edit -->"
END: Final = "<!-- end of alerts -->"
ROUTES: Final = ROOT / "deploy" / "prometheus" / "alertmanager.yaml"


def main() -> int:
    """Writes what differs, or with `--check` says what does; 1 if anything does."""
    wanted = files()
    differing = [path for path, text in wanted.items() if _content(path) != text]
    surplus = [path for path in DASHBOARDS.glob("*") if path not in wanted]
    if "--check" not in sys.argv[1:]:
        for path in differing:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(wanted[path], encoding="utf-8")
        for path in surplus:
            path.unlink()
        return 0

    for path in (*differing, *surplus):
        print(f"{path.relative_to(ROOT)}: is not what dovetail.monitoring says")
    if differing or surplus:
        print("next: .venv/bin/python tools/monitoring.py")
        return 1
    return 0


def files() -> dict[Path, str]:
    """Every file with its content."""
    made = {DASHBOARDS / name: text for name, text in all_dashboards.files().items()}
    return {
        **made,
        PAGE: _page(),
        RULES: rules_file.text(),
        COUNTERS: dcgm_counters.text(),
        ROUTES: alertmanager_routes.text(),
    }


def _page() -> str:
    """The page about alerts with its table made again."""
    head, _, after = _content(PAGE).partition(BEGIN)
    tail = after.partition(END)[2]
    lines = ["| alert | severity | audience | after | |", "|---|---|---|---|---|"]
    for alert in rules_file.alerts():
        link = f"[{alert.name}](../runbooks/{alert.name}.md)"
        cells = (link, alert.severity.value, alert.audience.value, alert.hold or "-")
        lines.append(f"| {' | '.join(cells)} | {_plain(alert.summary)} |")
    table = "\n".join(lines)
    return f"{head}{BEGIN}\n\n{table}\n\n{END}{tail}"


def _plain(summary: str) -> str:
    """A summary for people: its placeholders as dots."""
    return re.sub(r"\{\{.*?\}\}", "...", summary)


def _content(path: Path) -> str:
    return path.read_text(encoding="utf-8") if path.is_file() else ""


if __name__ == "__main__":
    sys.exit(main())
