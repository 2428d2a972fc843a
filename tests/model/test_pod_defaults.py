"""What a server writes into a new pod's affinity: label keys with the values of the pod itself."""

from __future__ import annotations

from typing import Any

from dovetail.admission import defaults
from dovetail.kubetypes import codec
from dovetail.kubetypes.core import pods


def pod(**term: Any) -> pods.Pod:
    expected = {"topologyKey": "zone", "labelSelector": {"matchLabels": {"app": "web"}}} | term
    side = {"requiredDuringSchedulingIgnoredDuringExecution": [expected]}
    spec = {"containers": [], "affinity": {"podAffinity": side}}
    metadata = {"name": "p", "labels": {"app": "web", "rev": "2"}}
    struct = codec.decode(
        {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}
    ).struct
    assert isinstance(struct, pods.Pod)
    return struct


def expressions(spec: pods.PodSpec) -> list[tuple[str, str, tuple[str, ...]]]:
    assert spec.affinity is not None
    assert spec.affinity.pod_affinity is not None
    (term,) = spec.affinity.pod_affinity.required_during_scheduling_ignored_during_execution
    assert term.label_selector is not None
    return [
        (expression.key, expression.operator, expression.values)
        for expression in term.label_selector.match_expressions
    ]


def test_keys_become_tests_once_and_keys_the_pod_lacks_do_not() -> None:
    made = pod(matchLabelKeys=["rev", "none"], mismatchLabelKeys=["app"])
    once = defaults.pod_spec(made.spec, made.metadata.labels)
    assert expressions(once) == [("rev", "In", ("2",)), ("app", "NotIn", ("web",))]
    assert defaults.pod_spec(once, made.metadata.labels) == once


def test_without_keys_nothing_changes() -> None:
    made = pod()
    assert defaults.pod_spec(made.spec, made.metadata.labels) == made.spec
