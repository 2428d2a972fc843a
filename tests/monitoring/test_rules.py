"""Every alert has words, a page and stories, and reads series that something exports."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from dovetail.monitoring.rules import rules_file
from dovetail.monitoring.rules.rule import Alert
from tests.monitoring import stories

ROOT = Path(__file__).resolve().parents[2]
PAGES = ROOT / "docs" / "runbooks"
ALERTS = list(rules_file.alerts())


@pytest.mark.parametrize("alert", ALERTS, ids=lambda alert: alert.name)
def test_every_alert_fires_ends_and_has_a_near_miss(alert: Alert) -> None:
    told = stories.of_alert(alert.name)
    assert any(story.fires and len(story.quiet) == 2 for story in told)
    assert any(not story.fires and story.quiet for story in told)


@pytest.mark.parametrize("alert", ALERTS, ids=lambda alert: alert.name)
def test_the_words_of_an_alert_use_labels_that_it_has(alert: Alert) -> None:
    used = set(re.findall(r"\$labels\.(\w+)", alert.summary + alert.description))
    optional = set(re.findall(r"with \$labels\.(\w+)", alert.description))
    if "pod" in optional:
        optional.add("namespace")
    for story in stories.of_alert(alert.name):
        if story.fires:
            assert used - optional <= set(story.labels)


def test_names_stand_once() -> None:
    names = [alert.name for alert in ALERTS]
    names += [recording.record for recording in rules_file.recordings()]
    assert len(names) == len(set(names))


def test_every_alert_has_a_page_and_every_page_an_alert() -> None:
    pages = {path.stem for path in PAGES.glob("*.md")} - {"index"}
    assert pages == {alert.name for alert in ALERTS}


@pytest.mark.parametrize("alert", ALERTS, ids=lambda alert: alert.name)
def test_a_page_says_what_it_means_how_to_see_it_what_to_do_and_when_to_ignore_it(
    alert: Alert,
) -> None:
    text = (PAGES / f"{alert.name}.md").read_text(encoding="utf-8")
    assert text.startswith(f"# {alert.name}\n")
    headings = re.findall(r"^## (.+)$", text, re.MULTILINE)
    assert headings == ["What it means", "How to see it", "What to do", "When to ignore it"]
    assert re.search(r"^ {0,4}(kubectl|dovetail) ", text, re.MULTILINE), "it shows no command"
    assert f"`{alert.severity.value}`" in text


def test_the_runbook_of_an_alert_is_a_link_to_its_page() -> None:
    for group in rules_file.tree()["groups"]:
        for rule in group["rules"]:
            if "alert" in rule:
                assert (ROOT / rule["annotations"]["runbook_url"]).is_file()

    (first, *_) = [
        rule
        for group in rules_file.tree("https://docs.example.com/")["groups"]
        for rule in group["rules"]
        if "alert" in rule
    ]
    assert first["annotations"]["runbook_url"] == f"https://docs.example.com/{first['alert']}.md"
