"""Our own rules for queues and topologies refuse what the definitions on a real server refuse, and nothing else."""

from __future__ import annotations

from typing import Any

import pytest

from dovetail.admission import admit
from dovetail.kubetypes import codec, field_errors, meta
from dovetail.kubetypes.custom import queues
from tests.deploy.queue_cases import LEVELS, REFUSED, REFUSED_LEVELS, WHOLE

TERMS = field_errors.Terms(check_selector=lambda expression: None, now="2026-01-01T00:00:00Z")


def judged(kind: str, spec: dict[str, Any], name: str = "a") -> tuple[str, ...]:
    tree = {
        "apiVersion": "dovetail.dev/v1alpha1",
        "kind": kind,
        "metadata": {"name": name},
        "spec": spec,
    }
    try:
        stored = codec.decode(tree)
    except codec.DecodeError as error:
        return tuple(f"{misfit.path}: {misfit.message}" for misfit in error.misfits)
    return tuple(map(str, admit.create(stored.struct, TERMS).problems))


def test_a_whole_queue_and_an_empty_one_are_taken() -> None:
    assert judged("Queue", WHOLE) == ()
    assert judged("Queue", {}) == ()
    assert judged("Topology", {"levels": LEVELS}) == ()


# By case, how each problem begins: the field, then what is wrong with it in our words. The server's own words are in
# the tables of cases.
PROBLEMS: dict[str, tuple[str, ...]] = {
    "quota above limit": ("spec.resources[cpu].limit: limit must be at least quota",),
    "negative quota": ("spec.resources[cpu].quota: quota must not be negative",),
    "negative limit": ("spec.resources[cpu].limit: limit must not be negative",),
    "quota no quantity": (
        "spec.resources[cpu].quota: expected a quantity such as 80Gi or 500m: 'lots' is not",
    ),
    "limit no quantity": (
        "spec.resources[cpu].limit: expected a quantity such as 80Gi or 500m: '8 GB' is not",
    ),
    "negative weight": ("spec.resources[cpu].weight: must be between 0 and 1000000",),
    "bad resource name": (
        "spec.resources[nvidia.com/gpu/x]: expected cpu, memory, an extended resource",
    ),
    "bad part of GPUs": (
        "spec.resources[gpu/vendor.x]: expected cpu, memory, an extended resource",
    ),
    "GPUs twice": (
        "spec.resources: gpu and nvidia.com/gpu are the same resource; keep one of them",
    ),
    "bad parent name": ('spec.parent: "Research_1" must be a DNS label',),
    "bad alias": ("spec.aliases[0]: an alias must be a label value",),
    "alias of three parts": ("spec.aliases[0]: an alias must be a label value",),
    "alias twice": ('spec.aliases[1]: "a" occurs more than once',),
    "runtimes crossed": (
        "spec.minRuntimeSeconds: minRuntimeSeconds must not be larger than maxRuntimeSeconds",
    ),
    "preemption crossed": (
        "spec.preemptMinRuntimeSeconds: preemptMinRuntimeSeconds must not be larger than max",
    ),
    "reclaim crossed": (
        "spec.reclaimMinRuntimeSeconds: reclaimMinRuntimeSeconds must not be larger than max",
    ),
    "idle beyond all": ("spec.idle.thresholdPercent: must be between 0 and 100",),
    "no power": ("spec.powerCapWatts: must be at least 1",),
    "runtime beyond the calendar": ("spec.maxRuntimeSeconds: must be at most 3153600000",),
    "idle beyond the calendar": ("spec.idle.windowSeconds: must be at most 3153600000",),
    "negative runtime": ("spec.minRuntimeSeconds: must not be negative",),
    "values missing": (
        "spec.namespaceSelector.matchExpressions[0].values: In and NotIn need values",
    ),
    "values too many": (
        "spec.namespaceSelector.matchExpressions[0].values: In and NotIn need values",
    ),
    "operator unknown": (
        'spec.namespaceSelector.matchExpressions[0].operator: "Like" is not one of In, NotIn',
    ),
    "unknown field": (),  # warned of, not refused
    "priority out of range": ("spec.priority: must be between -1000000000 and 1000000000",),
}
LEVEL_PROBLEMS: dict[str, tuple[str, ...]] = {
    "no power": ("spec.levels[0].powerCapWatts: must be at least 1",),
    "none": ("spec.levels: at least one level is required",),
    "too many": ("spec.levels: has 17 entries, at most 16 are allowed",),
    "a label twice": (
        'spec.levels[0].nodeLabel: "example.com/rack" occurs more than once',
        'spec.levels[1].nodeLabel: "example.com/rack" occurs more than once',
    ),
    "an alias twice": (
        'spec.levels[0].alias: "rack" occurs more than once',
        'spec.levels[1].alias: "rack" occurs more than once',
    ),
    "an alias that is a label": (
        "spec.levels[1].alias: an alias must be a label value",
        'spec.levels[1].alias: "topology.kubernetes.io/zone" occurs more than once',
    ),
    "a node first": (
        "spec.levels[0].nodeLabel: kubernetes.io/hostname is the node itself and can only be the last",
    ),
    "no label": ('spec.levels[0].nodeLabel: "not a key" must be a label key',),
}


def assert_begin(problems: tuple[str, ...], expected: tuple[str, ...]) -> None:
    """Each problem begins as expected, and there is no other."""
    shortened = tuple(
        problem[: len(start)] for problem, start in zip(problems, expected, strict=False)
    )
    assert (len(problems), shortened) == (len(expected), expected), problems


@pytest.mark.parametrize("what", REFUSED)
def test_what_the_definition_refuses_is_refused_here(what: str) -> None:
    spec, _ = REFUSED[what]
    assert_begin(judged("Queue", spec), PROBLEMS[what])


@pytest.mark.parametrize("what", REFUSED_LEVELS)
def test_levels_the_definition_refuses_are_refused_here(what: str) -> None:
    levels, _ = REFUSED_LEVELS[what]
    assert_begin(judged("Topology", {"levels": levels}), LEVEL_PROBLEMS[what])


def test_problems_name_the_field() -> None:
    assert judged("Queue", {"parent": "a"}) == ("spec.parent: a queue cannot be its own parent",)
    (messages,) = judged("Queue", {"resources": {"gpu/vendor.x": {}}})
    assert messages.startswith("spec.resources[gpu/vendor.x]: expected cpu, memory,")
    assert judged("Queue", {}, name="a.b")
    assert judged("Queue", {}, name="a" * 64)


def test_a_status_is_not_written_with_the_queue_nor_the_queue_with_its_status() -> None:
    old = queues.Queue(kind="Queue", metadata=meta.ObjectMeta(name="a", uid="u", generation=1))
    queue_status = queues.QueueStatus(pending=3)
    new = queues.Queue(
        kind="Queue", metadata=old.metadata, spec=queues.QueueSpec(priority=7), status=queue_status
    )
    created = admit.create(new, TERMS).object
    assert isinstance(created, queues.Queue)
    assert created.status == queues.QueueStatus()
    updated = admit.update(new, old, terms=TERMS).object
    assert isinstance(updated, queues.Queue)
    assert (updated.spec.priority, updated.status) == (7, old.status)
    messages = admit.update_status(new, old, terms=TERMS).object
    assert isinstance(messages, queues.Queue)
    assert (messages.spec.priority, messages.status) == (0, queue_status)
