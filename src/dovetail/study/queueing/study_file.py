"""What a study assumes besides the jobs: queues, checkpoints, failures, lost nodes, delays. Data, read from YAML.

Given text. Refuses unknown fields and wrong values with the file and the path. Never opens a file, never decides.
"""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

from dovetail import errors
from dovetail.kubetypes import untyped
from dovetail.manifest import yaml_text

Seconds = Annotated[int, Meta(ge=0, le=3_153_600_000)]
Hours = Annotated[float, Meta(gt=0, le=1_000_000)]


class StudyQueue(
    msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True
):
    """A queue: GPUs it is sure of, the most it may use, its weight beyond the quotas."""

    name: Annotated[str, Meta(pattern=r"^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$")]
    quota: Annotated[int, Meta(ge=0, le=1_000_000)] = 0
    limit: Annotated[int, Meta(ge=0, le=1_000_000)] | None = None
    weight: Annotated[int, Meta(ge=0, le=1_000_000)] = 1


class NodeLoss(
    msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True
):
    """Nodes fail at random, each independently of the others."""

    mean_hours: Hours  # between two losses of one node
    repair_seconds: Seconds = 3600


class Study(msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """The assumptions of one study."""

    queues: tuple[StudyQueue, ...] = ()
    checkpoint_seconds: Annotated[int, Meta(ge=1)] | None = None  # None: none, all work is lost
    restart_seconds: Seconds = 0  # of a start after an interruption, before work goes on
    provisioning_seconds: Seconds = 0  # of every start, before work begins
    failure_mean_gpu_hours: Hours | None = None  # GPU-hours of work between two failures of a job
    node_loss: NodeLoss | None = None
    predicts_runtimes: bool = False  # the engine gets durations predicted from jobs that ended
    decision_seconds: Seconds = 0  # decisions at multiples of it; 0: at every event
    # Gangs without room that the engine promises a start; None: as many as live.
    promises: Annotated[int, Meta(ge=0, le=1000)] | None = None


def read(text: str, *, file: str) -> Study:
    """The study that a YAML document describes."""
    try:
        trees = [document.tree for document in yaml_text.documents(text)]
    except yaml_text.TextError as error:
        raise errors.InputError(f"{file}: {error}") from None
    if len(trees) != 1:
        raise errors.InputError(f"{file}: expected one document, got {len(trees)}")
    try:
        study = msgspec.convert(trees[0], Study)
    except msgspec.ValidationError as error:
        raise errors.InputError(f"{file}: {untyped.path_first(error)}") from None
    queue_names = [queue.name for queue in study.queues]
    for index, name in enumerate(queue_names):
        if name in queue_names[:index]:
            raise errors.InputError(f'{file}: queues[{index}].name: "{name}" stands there twice')
    return study
