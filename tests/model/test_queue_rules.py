"""Our own rules for queues and topologies refuse what the definitions on a real server refuse, and nothing else."""

from __future__ import annotations

from typing import Any

import pytest

from dovetail.model import meta, objects, queues
from dovetail.model.validation import admission, fields
from tests.deploy.queue_cases import LEVELS, REFUSED, REFUSED_LEVELS, WHOLE

TERMS = fields.Terms(check_selector=lambda expression: None, now="2026-01-01T00:00:00Z")


def judged(kind: str, spec: dict[str, Any], name: str = "a") -> tuple[str, ...]:
    tree = {"apiVersion": "dovetail.dev/v1alpha1", "kind": kind, "metadata": {"name": name}, "spec": spec}
    try:
        stored = objects.decode(tree)
    except objects.DecodeError as error:
        return tuple(str(misfit) for misfit in error.misfits)
    return tuple(map(str, admission.create(stored.struct, TERMS).problems))


def test_a_whole_queue_and_an_empty_one_are_taken() -> None:
    assert judged("Queue", WHOLE) == ()
    assert judged("Queue", {}) == ()
    assert judged("Topology", {"levels": LEVELS}) == ()


@pytest.mark.parametrize("what", [what for what in REFUSED if what != "unknown field"])  # warned of, not refused
def test_what_the_definition_refuses_is_refused_here(what: str) -> None:
    spec, _ = REFUSED[what]
    assert judged("Queue", spec)


@pytest.mark.parametrize("what", REFUSED_LEVELS)
def test_levels_the_definition_refuses_are_refused_here(what: str) -> None:
    levels, _ = REFUSED_LEVELS[what]
    assert judged("Topology", {"levels": levels})


def test_problems_name_the_field() -> None:
    assert judged("Queue", {"parent": "a"}) == ("spec.parent: a queue cannot be its own parent",)
    (told,) = judged("Queue", {"resources": {"gpu/vendor.x": {}}})
    assert told.startswith("spec.resources[gpu/vendor.x]: expected cpu, memory,")
    assert judged("Queue", {}, name="a.b")
    assert judged("Queue", {}, name="a" * 64)


def test_a_status_is_not_written_with_the_queue_nor_the_queue_with_its_status() -> None:
    old = queues.Queue(kind="Queue", metadata=meta.ObjectMeta(name="a", uid="u", generation=1))
    said = queues.QueueStatus(pending=3)
    new = queues.Queue(kind="Queue", metadata=old.metadata, spec=queues.QueueSpec(priority=7), status=said)
    created = admission.create(new, TERMS).object
    assert isinstance(created, queues.Queue)
    assert created.status == queues.QueueStatus()
    updated = admission.update(new, old, terms=TERMS).object
    assert isinstance(updated, queues.Queue)
    assert (updated.spec.priority, updated.status) == (7, old.status)
    told = admission.update_status(new, old, terms=TERMS).object
    assert isinstance(told, queues.Queue)
    assert (told.spec.priority, told.status) == (0, said)
