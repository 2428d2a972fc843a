"""The real Helm reads the chart as we do: it lints, it refuses the same values, it renders the same objects."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from dovetail.install import chart
from tests.deploy import build
from tests.support import helm

pytestmark = pytest.mark.slow

# Values files that between them turn every switch and fill in every list.
VARIANTS: dict[str, dict[str, Any]] = {
    "defaults": {},
    "names": {"schedulerNames": ["dovetail", "kai-scheduler"], "replicas": 1, "port": 9000},
    "digest": {
        "image": {"digest": f"sha256:{'0' * 64}", "pullPolicy": "Always"},
        "imagePullSecrets": ["a", "b"],
    },
    "bare": {
        "podDisruptionBudget": {"enabled": False},
        "networkPolicy": {"enabled": False},
        "defaulting": {"enabled": False},
        "crds": {"enabled": False},
        "serviceAccount": {"create": False, "name": "given"},
        "priorityClassName": "",
    },
    "full": {
        "image": {"tag": "v9"},
        "configuration": {
            "leaderElection": {"leaseDurationSeconds": 20, "retryPeriodSeconds": 2.5},
            "ownership": {
                "nodeLabels": {"pool": "gpu", "quoted": "yes"},
                "deviceTaintRules": ["ours"],
            },
            "logging": {"level": "debug"},
        },
        "serviceAccount": {"annotations": {"example.com/a": "1", "example.com/b": "<&>"}},
        "env": [
            {"name": "A", "value": "on"},
            {"name": "B", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}},
        ],
        "podLabels": {"team": "gpu"},
        "podAnnotations": {"example.com/note": "two\nlines: yes"},
        "nodeSelector": {"node-role.kubernetes.io/control-plane": ""},
        "tolerations": [{"key": "a", "operator": "Exists", "effect": "NoSchedule"}],
        "affinity": {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": []}},
        "resources": {"limits": {"cpu": 2}},
        "networkPolicy": {
            "from": [
                {
                    "namespaceSelector": {
                        "matchLabels": {"kubernetes.io/metadata.name": "monitoring"}
                    }
                }
            ],
            "apiServerPorts": [6443],
            "extraEgress": [{"ports": [{"port": 4318}]}],
        },
        "metrics": {
            "readers": [{"namespace": "monitoring", "name": "prometheus"}],
        },
        "monitoring": {
            "serviceMonitors": {
                "enabled": True,
                "interval": "15s",
                "labels": {"release": "prometheus"},
            },
            "rules": {
                "enabled": True,
                "labels": {"release": "prometheus"},
                "runbooks": "https://docs.example.com/runbooks/",
            },
            "dashboards": {"enabled": True, "annotations": {"grafana_folder": "GPUs"}},
        },
        "nodeAgent": {"enabled": True, "metricsPort": 9400},
        "lifecycle": {
            "enabled": True,
            "checks": {"checks": ["gpu-count", {"check": "driver", "required": False}]},
            "operator": {"enabled": True, "namespace": "nvidia"},
            "priorityClassName": "system-cluster-critical",
            "nodeSelector": {"node-role.kubernetes.io/control-plane": ""},
            "tolerations": [{"operator": "Exists"}],
        },
        "defaulting": {"claims": False, "resourcePrefixes": ["nvidia.com/", "example.com/gpu"]},
        "keepGeneralPodsOff": {"enabled": True, "exemptNamespaces": ["kube-system", "mine"]},
        "crds": {"keep": False},
    },
}


def test_the_chart_lints() -> None:
    text = helm.said("lint", "--strict", str(helm.CHART), "--set", build.IMAGE)
    assert "0 chart(s) failed" in text


@pytest.mark.parametrize("served", [(), chart.OPTIONAL], ids=["plain", "policies"])
@pytest.mark.parametrize("variant", VARIANTS)
def test_helm_renders_the_objects_we_render(
    variant: str, served: tuple[str, ...], tmp_path: Path
) -> None:
    """As sets of objects; the one difference is who is said to manage them."""
    file = tmp_path / "values.yaml"
    file.write_text(yaml.safe_dump(VARIANTS[variant]), encoding="utf-8")
    versions = [f"--api-versions={name}" for name in served]
    theirs = helm.template("-f", str(file), "--set", build.IMAGE, *versions)
    values = chart.values_of([file], settings=[build.IMAGE])
    ours = chart.objects(values, api_versions=served)
    assert _by_name(theirs) == _by_name(ours)


def test_helm_wants_an_image_too() -> None:
    done = helm.run("template", "dovetail", str(helm.CHART))
    assert done.returncode != 0
    assert "image.repository is required: name the image you built" in done.stderr


@pytest.mark.parametrize(
    "setting", [one for one, _ in build.WRONG if one not in build.BEYOND_A_SCHEMA]
)
def test_helm_refuses_what_we_refuse(setting: str, tmp_path: Path) -> None:
    path, _, value = setting.partition("=")
    tree: Any = yaml.safe_load(value)
    for name in reversed(path.split(".")):
        tree = {name: tree}
    file = tmp_path / "values.yaml"
    file.write_text(yaml.safe_dump(tree), encoding="utf-8")
    done = helm.run("template", "dovetail", str(helm.CHART), "--set", build.IMAGE, "-f", str(file))
    assert done.returncode != 0
    assert "values don't meet the specifications of the schema" in done.stderr


def test_the_notes_name_the_next_commands() -> None:
    done = helm.said(
        "install",
        "dovetail",
        str(helm.CHART),
        "--dry-run=client",
        "--set",
        build.IMAGE,
        "-n",
        "gpu",
    )
    assert "kubectl -n gpu rollout status deployment/dovetail-scheduler" in done


def _by_name(objects: list[dict[str, Any]]) -> dict[tuple[str, str, str], dict[str, Any]]:
    """Objects by kind and name, the configuration inside read, the manager's name left out."""
    result = {}
    for item in objects:
        if item["kind"] == "ConfigMap":
            item = {
                **item,
                "data": {name: yaml.safe_load(text) for name, text in item["data"].items()},
            }
        labels = item["metadata"]["labels"]
        assert labels.pop(chart.MANAGER_LABEL) in ("Helm", chart.SERVICE)
        key = (item["kind"], item["metadata"].get("namespace", ""), item["metadata"]["name"])
        assert key not in result
        result[key] = item
    return result
