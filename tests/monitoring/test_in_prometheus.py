"""In a real Prometheus: every query of every dashboard has data, and an alert reaches those it is for."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator
from typing import Any

import pytest

from dovetail.monitoring.dashboards import all_dashboards, grafana_json
from dovetail.monitoring.dashboards.panel import Choice, Dashboard
from dovetail.monitoring.rules import rules_file
from tests.monitoring import real_prometheus
from tests.monitoring.real_prometheus import Watching
from tests.support import waiting

pytestmark = pytest.mark.slow

# What Grafana puts in for its own variables.
BUILT_IN = {"$__rate_interval": "1m", "$__range_s": "300", "$__range": "5m", "$__interval": "5s"}
LABEL_VALUES = re.compile(r"label_values\((?P<series>.+), (?P<label>\w+)\)")
FAULT = 79


@pytest.fixture(scope="module")
def prometheus(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Watching]:
    with real_prometheus.watching(tmp_path_factory.mktemp("watching")) as running:
        waiting.wait_until(
            lambda: running.samples('ALERTS{alertname="GpuXidApplication"}'),
            "the rules to be evaluated",
        )
        # Rates need two samples of everything.
        waiting.wait_until(lambda: running.exporter.scrapes >= 6, "six scrapes")
        # Subqueries look at whole multiples of their interval: one must lie after the first sample.
        for series in sorted(subqueried()):
            waiting.wait_until(
                functools.partial(running.samples, f"{series} offset {BUILT_IN['$__interval']}"),
                f"older samples of {series}",
            )
        yield running


def subqueried() -> set[str]:
    """The series that some dashboard's query looks at in steps of `$__interval`."""
    queries = [query for each in all_dashboards.DASHBOARDS for query in queries_of(each)]
    stepped = " ".join(query for query in queries if "$__interval" in query)
    exported = {recording.record for recording in rules_file.recordings()}
    return {name for name in exported if name in stepped}


def values_of(choice: Choice, prometheus: Watching, chosen: dict[str, str]) -> list[str]:
    """What Grafana offers for a variable: the values of a label."""
    query = LABEL_VALUES.fullmatch(filled_in(choice.query, chosen))
    assert query is not None, choice.query
    return list(prometheus.ask(f"label/{query['label']}/values", **{"match[]": query["series"]}))


def filled_in(query: str, chosen: dict[str, str]) -> str:
    """The query with all variables replaced, longest names first, as `$__range` is part of `$__range_s`."""
    replacements = {**BUILT_IN, **{f"${name}": value for name, value in chosen.items()}}
    for name in sorted(replacements, key=len, reverse=True):
        query = query.replace(name, replacements[name])
    return query


@pytest.mark.parametrize(
    "dashboard", all_dashboards.DASHBOARDS, ids=lambda dashboard: dashboard.name
)
def test_every_query_of_a_dashboard_has_data(dashboard: Dashboard, prometheus: Watching) -> None:
    chosen = {choice.name: ".*" for choice in dashboard.choices}
    chosen |= {entry.name: entry.default for entry in dashboard.entries}
    empty = []
    for query in queries_of(dashboard):
        if not prometheus.samples(filled_in(query, chosen)):
            empty.append(query)
    assert empty == []


@pytest.mark.parametrize(
    "dashboard", all_dashboards.DASHBOARDS, ids=lambda dashboard: dashboard.name
)
def test_variables_offer_values_and_narrow_what_is_shown(
    dashboard: Dashboard, prometheus: Watching
) -> None:
    chosen = {entry.name: entry.default for entry in dashboard.entries}
    everything = chosen | {choice.name: ".*" for choice in dashboard.choices}
    for choice in dashboard.choices:
        offered = values_of(choice, prometheus, chosen)
        assert len(offered) > 1, f"{choice.query} offers {offered}"
        chosen[choice.name] = offered[-1]
        named = [query for query in queries_of(dashboard) if f"${choice.name}" in query]
        assert named, f"${choice.name} is in no query"
        for query in named:
            narrowed = prometheus.samples(filled_in(query, everything | {choice.name: offered[-1]}))
            shown = prometheus.samples(filled_in(query, everything))
            assert amount(narrowed) <= amount(shown), query
        assert any(
            amount(prometheus.samples(filled_in(query, everything | {choice.name: offered[-1]})))
            < amount(prometheus.samples(filled_in(query, everything)))
            for query in named
        ), f"${choice.name} changes nothing"


def amount(samples: list[dict[str, Any]]) -> tuple[int, float]:
    """How many series there are, and the sum of their values: choosing less shows less."""
    return len(samples), sum(float(sample["value"][1]) for sample in samples)


def queries_of(dashboard: Dashboard) -> list[str]:
    tree = grafana_json.tree(dashboard)
    return [target["expr"] for panel in tree["panels"] for target in panel.get("targets", ())]


def test_prometheus_evaluates_every_rule_without_an_error(prometheus: Watching) -> None:
    groups = prometheus.ask("rules")["groups"]
    rules = [rule for group in groups for rule in group["rules"]]
    assert len(rules) == sum(len(group.rules) for group in rules_file.GROUPS)
    broken = {rule["name"]: rule.get("lastError") for rule in rules if rule["health"] == "err"}
    assert broken == {}


def test_labels_of_devices_have_one_form(prometheus: Watching) -> None:
    for sample in prometheus.samples("accelerator_active_ratio"):
        assert sample["metric"]["node"] == sample["metric"]["Hostname"]
        assert sample["metric"]["vendor"] == "nvidia"
    of_slices = prometheus.samples('accelerator_memory_total_bytes{GPU_I_ID!=""}')
    assert {sample["value"][1] for sample in of_slices} == {str(80_000 * 1024 * 1024)}


def test_a_broken_gpu_wakes_someone_and_its_end_is_reported(prometheus: Watching) -> None:
    """From the exporter through rule, Prometheus, Alertmanager and its routes to a webhook, and back to quiet."""
    prometheus.exporter.xid = FAULT
    notice = waiting.wait_until(lambda: notice_of(prometheus, "firing"), "the alert at the pager")
    (alert,) = notice["alerts"]
    assert alert["labels"]["node"] == "n1"
    assert alert["labels"]["pod"] == "llama-n1"
    assert alert["labels"]["xid"] == str(FAULT)
    assert alert["annotations"]["summary"].startswith(f"XID {FAULT}: ")
    assert "(pod train/llama-n1)" in alert["annotations"]["description"]
    assert alert["annotations"]["runbook_url"] == "docs/runbooks/GpuXidHardware.md"
    held = real_prometheus.answer(f"{prometheus.alertmanager}/api/v2/alerts")
    assert "GpuXidHardware" in {alert["labels"]["alertname"] for alert in held}

    prometheus.exporter.xid = 0
    waiting.wait_until(lambda: notice_of(prometheus, "resolved"), "the end at the pager")


def test_what_programs_cause_goes_to_their_owners(prometheus: Watching) -> None:
    waiting.wait_until(
        lambda: any(
            path == "/owners" and notice["groupLabels"]["alertname"] == "GpuXidApplication"
            for path, notice in prometheus.exporter.notices
        ),
        "the notice for the owners",
    )
    paths = {
        path
        for path, notice in prometheus.exporter.notices
        if notice["groupLabels"]["alertname"] == "GpuXidApplication"
    }
    assert paths == {"/owners"}


def notice_of(prometheus: Watching, status: str) -> dict[str, Any] | None:
    for path, notice in prometheus.exporter.notices:
        name = notice["groupLabels"]["alertname"]
        if (path, name, notice["status"]) == ("/pager", "GpuXidHardware", status):
            return notice
    return None
