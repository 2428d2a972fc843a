"""What the chart gives to Prometheus and Grafana: the rules, the dashboards, and where the metrics are."""

from __future__ import annotations

import json
from typing import Any

import pytest

from dovetail import errors
from dovetail.cli.processes import node_agent_command
from dovetail.install import chart, chart_templates
from dovetail.monitoring.dashboards import all_dashboards
from dovetail.monitoring.rules import rules_file
from tests.deploy import build

AGENT = ("nodeAgent.enabled=true", "nodeAgent.metricsPort=9400")


def test_nothing_of_it_is_there_unless_wanted() -> None:
    rendered = build.objects()
    assert build.of_kind(rendered, "ServiceMonitor", "PrometheusRule") == []
    assert len(build.of_kind(rendered, "ConfigMap")) == 1


def test_the_rules_of_the_chart_are_those_of_the_code() -> None:
    (rule,) = build.of_kind(build.objects("monitoring.rules.enabled=true"), "PrometheusRule")
    assert rule["spec"] == rules_file.tree()


def test_runbooks_are_linked_where_they_are_published() -> None:
    base = "https://docs.example.com/gpu/"
    (rule,) = build.of_kind(
        build.objects(
            "monitoring.rules.enabled=true",
            f"monitoring.rules.runbooks={base}",
            "monitoring.rules.labels={release: prometheus}",
        ),
        "PrometheusRule",
    )
    assert rule["spec"] == rules_file.tree(base)
    assert rule["metadata"]["labels"]["release"] == "prometheus"


def test_every_dashboard_has_a_config_map_that_the_sidecar_finds() -> None:
    rendered = build.objects(
        "monitoring.dashboards.enabled=true",
        "monitoring.dashboards.annotations={grafana_folder: GPUs}",
    )
    maps = [
        item
        for item in build.of_kind(rendered, "ConfigMap")
        if "grafana" in item["metadata"]["name"]
    ]
    shipped: dict[str, Any] = {}
    for item in maps:
        assert item["metadata"]["labels"]["grafana_dashboard"] == "1"
        assert item["metadata"]["annotations"] == {"grafana_folder": "GPUs"}
        (name,) = item["data"]
        shipped[name] = json.loads(item["data"][name])
        # More does not fit the annotation that `kubectl apply` keeps.
        assert len(item["data"][name]) < 200_000
    assert shipped == {
        f"dovetail-{name}": json.loads(text) for name, text in all_dashboards.files().items()
    }


def test_service_monitors_select_services_that_exist() -> None:
    rendered = build.objects("monitoring.serviceMonitors.enabled=true", *AGENT)
    services = build.of_kind(rendered, "Service")
    monitors = {
        item["metadata"]["name"]: item for item in build.of_kind(rendered, "ServiceMonitor")
    }
    assert set(monitors) == {"dovetail-scheduler", "dovetail-exporter", "dovetail-node-agent"}
    for name in ("dovetail-scheduler", "dovetail-node-agent"):
        (endpoint,) = monitors[name]["spec"]["endpoints"]
        wanted = monitors[name]["spec"]["selector"]["matchLabels"]
        (service,) = [
            item for item in services if wanted.items() <= item["metadata"]["labels"].items()
        ]
        assert endpoint["port"] in {port["name"] for port in service["spec"]["ports"]}


def test_metrics_about_other_pods_keep_the_labels_of_those() -> None:
    rendered = build.objects("monitoring.serviceMonitors.enabled=true", *AGENT)
    for item in build.of_kind(rendered, "ServiceMonitor"):
        (endpoint,) = item["spec"]["endpoints"]
        is_about_others = item["metadata"]["name"] != "dovetail-scheduler"
        assert endpoint.get("honorLabels", False) is is_about_others
        if is_about_others:
            (drop,) = endpoint["relabelings"]
            assert drop["action"] == "labeldrop"
            assert {"namespace", "pod", "container"} <= set(drop["regex"].split("|"))


def test_an_agent_without_a_port_has_no_monitor_and_no_service() -> None:
    rendered = build.objects("monitoring.serviceMonitors.enabled=true", "nodeAgent.enabled=true")
    names = {
        item["metadata"]["name"] for item in build.of_kind(rendered, "Service", "ServiceMonitor")
    }
    assert "dovetail-node-agent" not in names


def test_an_agent_with_metrics_may_ask_who_reads_them() -> None:
    rendered = build.objects(*AGENT)
    (role,) = [
        item
        for item in build.of_kind(rendered, "ClusterRole")
        if item["metadata"]["name"] == "dovetail-node-agent"
    ]
    resources = {resource for rule in role["rules"] for resource in rule["resources"]}
    assert {"tokenreviews", "subjectaccessreviews"} <= resources
    (agent,) = build.of_kind(rendered, "DaemonSet")
    (container,) = agent["spec"]["template"]["spec"]["containers"]
    assert "--metrics=0.0.0.0:9400" in container["args"]
    known = {word for parameter in node_agent_command.command.params for word in parameter.opts}
    given = {option.partition("=")[0] for option in container["args"][1:]}
    assert given <= known


def test_a_file_that_the_chart_does_not_have_is_refused() -> None:
    rendering = chart_templates.Rendering({"t": '{{ .Files.Get "a.yaml" | replace "x" "y" }}'})
    assert rendering.render("t", {"Files": {"a.yaml": "x: 1"}}) == "y: 1"
    with pytest.raises(errors.InputError, match=r'the chart has no file "a\.yaml"'):
        rendering.render("t", {"Files": {}})


def test_kinds_of_the_operator_are_pruned_with_the_installation() -> None:
    assert {"ServiceMonitor", "PrometheusRule"} <= set(chart.VERSIONS)
