"""Metrics: what is reported comes out, mistakes are found by tests and never by users, names are kube-scheduler's."""

from __future__ import annotations

import ast
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from prometheus_client import parser

from dovetail.devcluster import kube_binaries
from dovetail.ports import meter
from dovetail.telemetry import metrics, node_metrics
from tests.support import cluster, real

ROOT = Path(__file__).resolve().parents[2]
KINDS = {"count": "counter", "observe": "histogram", "gauge": "gauge"}


class Hands:
    """A clock set by hand."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def samples(made: metrics.Metrics) -> dict[str, float]:
    """Everything rendered, as Prometheus would read it: `name{label=value}` to value."""
    result: dict[str, float] = {}
    for family in parser.text_string_to_metric_families(made.text().decode()):
        for sample in family.samples:
            labels = ",".join(f"{key}={value}" for key, value in sorted(sample.labels.items()))
            result[f"{sample.name}{{{labels}}}" if labels else sample.name] = sample.value
    return result


def test_what_is_reported_comes_out() -> None:
    made = metrics.Metrics(is_strict=True)
    as_port: meter.Meter = made
    as_port.count("dovetail_writes_total", what="binding", result="done")
    as_port.count("dovetail_writes_total", 2, result="done", what="binding")
    as_port.gauge("dovetail_leader", 1)
    as_port.observe("dovetail_cycle_pods", 3)
    result = samples(made)
    assert result["dovetail_writes_total{result=done,what=binding}"] == 3
    assert result["dovetail_leader"] == 1
    assert result["dovetail_cycle_pods_bucket{le=2.0}"] == 0
    assert result["dovetail_cycle_pods_bucket{le=4.0}"] == 1
    assert result["dovetail_cycle_pods_sum"] == 3


def test_known_series_are_there_at_zero_from_the_start() -> None:
    result = samples(metrics.Metrics())
    assert {
        queue: result[f"scheduler_pending_pods{{queue={queue}}}"]
        for queue in ("active", "backoff", "gated")
    } == {
        "active": 0,
        "backoff": 0,
        "gated": 0,
    }
    assert result["scheduler_schedule_attempts_total{profile=dovetail,result=error}"] == 0
    assert result["process_resident_memory_bytes"] > 0
    assert not [name for name in result if "_created" in name]


MISTAKES = [
    ("undeclared", lambda made: made.count("dovetail_nothing_total")),
    ("kind", lambda made: made.gauge("dovetail_undecided_total", 1)),
    ("labels", lambda made: made.count("dovetail_writes_total", what="binding")),
    ("labels", lambda made: made.observe("dovetail_cycle_seconds", 1.0, kind="Pod")),
    ("value", lambda made: made.count("dovetail_undecided_total", -1)),
    ("value", lambda made: made.gauge("dovetail_leader", "yes")),
]


@pytest.mark.parametrize(("reason", "mistake"), MISTAKES)
def test_a_mistake_raises_in_tests_and_is_counted_in_production(reason, mistake) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises((metrics.MeterError, ValueError)):
        mistake(metrics.Metrics(is_strict=True))
    lenient = metrics.Metrics()
    mistake(lenient)
    mistake(lenient)
    assert samples(lenient)[f"{metrics.ERRORS}{{reason={reason}}}"] == 2


def test_names_without_end_end_in_one_series() -> None:
    made = metrics.Metrics()
    for number in range(metrics.MAX_SERIES + 50):
        made.count("dovetail_fields_dropped_total", field=f"spec.f{number}")
    made.count("dovetail_fields_dropped_total", field="spec.f0")
    result = samples(made)
    mine = {
        name: value
        for name, value in result.items()
        if name.startswith("dovetail_fields_dropped_total")
    }
    assert len(mine) == metrics.MAX_SERIES + 1
    assert mine["dovetail_fields_dropped_total{field=other}"] == 50
    assert mine["dovetail_fields_dropped_total{field=spec.f0}"] == 2
    assert result[f"{metrics.ERRORS}{{reason=too many}}"] == 50


def test_text_is_made_once_a_second() -> None:
    hands = Hands()
    made = metrics.Metrics(monotonic=hands)
    first = made.text()
    made.gauge("dovetail_leader", 1)
    hands.now += 0.9
    assert made.text() is first
    hands.now += 0.2
    assert b"dovetail_leader 1.0" in made.text()


def test_every_metric_reported_in_the_code_is_declared_with_its_kind_and_labels() -> None:
    every = (*metrics.DECLARED, *node_metrics.DECLARED)
    declared = {metric.name: metric for metric in every}
    wrong = []
    seen = set()
    for path in sorted((ROOT / "src" / "dovetail").rglob("*.py")):
        if path.name in ("metrics.py", "node_metrics.py"):
            continue
        for name, kind, labels in reports(path):
            seen.add(name)
            metric = declared.get(name)
            if metric is None or (kind and (metric.kind, set(metric.labels)) != (kind, labels)):
                wrong.append(f"{path.relative_to(ROOT)}: {name} {kind} {sorted(labels)}")
    assert not wrong, "\n".join(wrong)
    assert len(seen) > 10  # the search finds something


def reports(path: Path) -> list[tuple[str, str, set[str]]]:
    """Names of metrics in a file; with kind and labels where the meter itself is called."""
    result: list[tuple[str, str, set[str]]] = []
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if (
            not isinstance(node, ast.Call)
            or not node.args
            or not isinstance(node.func, ast.Attribute)
        ):
            continue
        first = node.args[0]
        if not isinstance(first, ast.Constant) or not re.fullmatch(
            r"(dovetail|scheduler)_\w+", str(first.value)
        ):
            continue
        labels = {keyword.arg or "**" for keyword in node.keywords} - {"amount", "value"}
        if "count" in node.func.attr or node.func.attr in KINDS:
            result.append((str(first.value), KINDS.get(node.func.attr, ""), labels))
    return result


def test_every_metric_is_on_the_metrics_page() -> None:
    page = (ROOT / "docs" / "reference" / "metrics.md").read_text(encoding="utf-8")
    missing = []
    for metric in (*metrics.DECLARED, *node_metrics.DECLARED):
        shown = (
            f"`{metric.name}{{{','.join(metric.labels)}}}`" if metric.labels else f"`{metric.name}`"
        )
        if shown not in page:
            missing.append(shown)
    assert not missing, missing


@pytest.mark.slow
@pytest.mark.parametrize("version", cluster.EACH_VERSION)
def test_names_and_labels_of_kube_scheduler_are_its_own(version: str) -> None:
    upstream = upstream_metrics(version)
    ours = [metric for metric in metrics.DECLARED if metric.name.startswith("scheduler_")]
    assert ours
    for metric in ours:
        assert upstream.get(metric.name) == (metric.kind, metric.labels, metric.buckets), (
            metric.name
        )


def upstream_metrics(version: str) -> dict[str, tuple[str, tuple[str, ...], tuple[float, ...]]]:
    """Name to kind, labels and buckets, read from kube-scheduler's source in the module cache."""
    if shutil.which("go") is None:
        real.missing("go")
    cache = subprocess.run(
        ["go", "env", "GOMODCACHE"], capture_output=True, text=True, check=True
    ).stdout.strip()
    module = Path(cache) / f"k8s.io/kubernetes@{kube_binaries.pinned(version)}"
    source = module / "pkg/scheduler/metrics/metrics.go"
    if not source.is_file():
        real.missing(f"the source of Kubernetes {kube_binaries.pinned(version)}")
    made = re.compile(
        r"metrics\.New(?P<kind>Counter|Gauge|Histogram)(?:Vec)?\(.*?Name:\s*\"(?P<name>\w+)\".*?\n\t\t?\}"
        r",?\s*(?:\[\]string\{(?P<labels>[^}]*)\})?",
        re.DOTALL,
    )
    return {
        f"scheduler_{result['name']}": (
            result["kind"].lower(),
            tuple(re.findall(r'"(\w+)"', result["labels"] or "")),
            buckets(result[0]),
        )
        for result in made.finditer(source.read_text(encoding="utf-8"))
    }


def buckets(source: str) -> tuple[float, ...]:
    result = re.search(r"ExponentialBuckets\(([\d.]+), 2, (\d+)\)", source)
    return metrics.doubling_buckets(float(result[1]), int(result[2])) if result else ()
