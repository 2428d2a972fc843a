"""The page about the health of GPUs shows the rules that are in force, and its example is one that is understood."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from dovetail import errors
from dovetail.boot.node import node_health
from dovetail.node.health import policy_table
from dovetail.node.health.policy_table import Advice, Effect, Over, Rule

PAGE = Path(__file__).resolve().parents[3] / "docs" / "reference" / "node-agent-health.md"


def rows() -> list[str]:
    """The table of the page: faults with one rule together, Xids as numbers."""
    by_rule: dict[Rule, list[str]] = {}
    for name, rule in policy_table.DEFAULTS.items():
        by_rule.setdefault(rule, []).append(name)
    return [_row(rule, names) for rule, names in by_rule.items()]


def _row(rule: Rule, names: list[str]) -> str:
    xids = sorted(int(name[4:]) for name in names if re.fullmatch(r"xid-\d+", name))
    words = [f"`{name}`" for name in names if not re.fullmatch(r"xid-\d+", name)]
    if xids:
        words.insert(0, "Xid " + ", ".join(map(str, xids)))
    over = (
        rule.over.value
        if rule.over in (Over.RESET, Over.NEVER)
        else f"{rule.over}, {rule.seconds:g} s"
    )
    effect = "-" if rule.effect is None else f"`{rule.effect}`"
    return f"| {', '.join(words)} | {effect} | {over} | {rule.advice} |"


def test_the_page_has_every_rule() -> None:
    text = PAGE.read_text(encoding="utf-8")
    missing = [row for row in rows() if row not in text]
    assert not missing, "\n".join(missing)
    flowing = " ".join(text.split())
    assert all(advice.value in flowing for advice in Advice)


def test_the_example_of_the_page_is_understood(tmp_path: Path) -> None:
    (example,) = re.findall(r"```yaml\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    (tmp_path / "health.yaml").write_text(example, encoding="utf-8")
    policy = node_health.policy_of(tmp_path / "health.yaml")
    assert policy.rule("xid-94").effect is Effect.NO_SCHEDULE
    assert policy.rule("throttle-hw-power-brake").effect is None
    assert policy.rule("xid-95") == policy_table.DEFAULTS["xid-95"]


def test_rules_that_cannot_be_read_name_their_file(tmp_path: Path) -> None:
    file = tmp_path / "health.yaml"
    with pytest.raises(errors.InputError, match=r"health\.yaml: No such file"):
        node_health.policy_of(file)
    file.write_text("xid-13: {advise: nothing to do}", encoding="utf-8")
    with pytest.raises(errors.InputError, match=r"health\.yaml: health policy: .*advise"):
        node_health.policy_of(file)
