"""Generates the chart's values.schema.json from the structs of its values and configuration."""

from __future__ import annotations

import sys
from pathlib import Path

import msgspec

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "src"))

from dovetail.install import chart  # noqa: E402


def text() -> str:
    """The file's content."""
    return msgspec.json.format(msgspec.json.encode(chart.schema()), indent=2).decode() + "\n"


if __name__ == "__main__":
    (ROOT / "deploy" / "chart" / "values.schema.json").write_text(text(), encoding="utf-8")
