"""The filters of a drain against kubectl's own drain package, on generated pods."""

from __future__ import annotations

import datetime
from typing import Any

import pytest

from dovetail.answer.drain import drain_filters, pod_details
from dovetail.kubetypes import codec
from dovetail.kubetypes.core import pods
from dovetail.tables import label_option
from tests.answer.drain import random_drains
from tests.support import kubectl_drain

pytestmark = pytest.mark.slow

DRAINS = 600
PODS = 20  # of each drain, on two nodes


def test_drains_of_generated_nodes_end_as_with_kubectls_own_package() -> None:
    now = datetime.datetime.now(datetime.UTC)
    requests = [random_drains.drain(seed, pods=PODS, now=now) for seed in range(DRAINS)]

    with kubectl_drain.start() as kubectl:
        answers = kubectl.ask_many(requests)

    differences = [
        (request["id"], ours, theirs)
        for request, theirs in zip(requests, answers, strict=True)
        if (ours := our_answer(request, now)) != canonical(theirs)
    ]
    assert differences == []
    # The generated drains cover every outcome, else the comparison would prove little.
    assert sum(bool(answer["calls"]) for answer in answers) > DRAINS / 10
    assert sum(bool(answer["errors"]) for answer in answers) > DRAINS / 10
    assert sum(bool(answer["warnings"]) for answer in answers) > DRAINS / 10


def our_answer(request: dict[str, Any], now: datetime.datetime) -> dict[str, Any]:
    """The same in the words of `answer/drain`."""
    options = drain_filters.Options(
        force=request["options"]["force"],
        ignore_daemon_sets=request["options"]["ignoreDaemonSets"],
        delete_empty_dir_data=request["options"]["deleteEmptyDirData"],
        disable_eviction=request["options"]["disableEviction"],
        grace_period_seconds=request["options"]["gracePeriodSeconds"],
        skip_deleted_seconds=request["options"]["skipDeletedSeconds"],
    )
    names = {tuple(name.split("/")) for name in request["daemonSets"]}
    filters = drain_filters.DrainFilters(options, drain_filters.DaemonSets(names), now)
    stored = {tree["metadata"]["uid"]: codec.decode(tree) for tree in request["pods"]}
    present = [
        each.struct
        for each in stored.values()
        if isinstance(each.struct, pods.Pod) and each.struct.spec.node_name == request["node"]
    ]
    selects = label_option.selector(request["options"]["podSelector"])
    leaving: list[str] = []
    said: dict[drain_filters.Outcome, dict[str, list[str]]] = {}
    for pod in drain_filters.in_order(present, selects):
        verdict = filters.verdict(pod, pod_details.of(stored[pod.metadata.uid]))
        name = f"{pod.metadata.namespace}/{pod.metadata.name}"
        if verdict.leaves:
            leaving.append(name)
        if verdict.message:
            said.setdefault(verdict.outcome, {}).setdefault(verdict.message, []).append(name)
    refused = said.get(drain_filters.Outcome.ERROR, {})
    warned = said.get(drain_filters.Outcome.WARNING, {})
    verb = "delete" if options.disable_eviction else "evict"
    grace = options.grace_period_seconds if options.grace_period_seconds >= 0 else None
    calls = [{"verb": verb, "pod": name, "grace": grace} for name in leaving]
    return {
        "leaving": leaving,
        "errors": sorted(f"cannot delete {text}: {', '.join(on)}" for text, on in refused.items()),
        "warnings": sorted(f"{text}: {', '.join(on)}" for text, on in warned.items()),
        "calls": [] if refused else in_order_of(calls, is_sequence=options.disable_eviction),
    }


def canonical(answer: dict[str, Any]) -> dict[str, Any]:
    """kubectl joins warnings in the random order of a map."""
    assert "failure" not in answer, answer
    warnings = sorted(part for text in answer["warnings"] for part in text.split("; "))
    kept = {key: answer[key] for key in ("leaving", "errors", "calls")}
    return kept | {"warnings": warnings}


def in_order_of(calls: list[dict[str, Any]], *, is_sequence: bool) -> list[dict[str, Any]]:
    """Deletions are sent one after the other, evictions all at once."""
    return calls if is_sequence else sorted(calls, key=lambda call: str(call["pod"]))
