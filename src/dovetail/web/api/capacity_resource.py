"""`GET /capacity`: how many more pods of a shape start: the answer of `dovetail capacity -o json`."""

from __future__ import annotations

from typing import Annotated

import msgspec

from dovetail import errors
from dovetail.answer.capacity import room_left
from dovetail.ask import capacity_asked, shapes_asked
from dovetail.kubetypes import object_set
from dovetail.web import asked, endpoints
from dovetail.web.api import hidden_names, read_kinds

MOST_GPUS = 1024  # of one pod; more than any node has
MOST_PODS = 10_000  # of a gang


class CapacityParams(
    msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True
):
    """The shape, as the options of `dovetail capacity` say it; without one, whole GPUs of every type."""

    gpus: Annotated[int, msgspec.Meta(ge=0, le=MOST_GPUS)] | None = None
    type: str = ""
    mig: str = ""
    gpu_memory: str = ""
    cpu: str = ""
    memory: str = ""
    queue: str = ""
    priority: Annotated[int, msgspec.Meta(ge=-(2**31), le=2**31 - 1)] = 0
    gang: Annotated[int, msgspec.Meta(ge=1, le=MOST_PODS)] | None = None
    level: str = ""
    namespace: str = ""


def answer(question: asked.Asked, params: CapacityParams) -> room_left.Capacity:
    """The answer. Raises 400 for a shape that contradicts itself."""
    if params.namespace:
        question.may.must_see(params.namespace, f"namespace {params.namespace}")
    shape = shapes_asked.ShapeAsked(
        gpus=params.gpus,
        gpu_type=params.type,
        mig=params.mig,
        gpu_memory=params.gpu_memory,
        cpu=params.cpu,
        memory=params.memory,
        queue=params.queue,
        priority=params.priority,
        namespace=params.namespace or object_set.DEFAULT_NAMESPACE,
    )
    hidden = hidden_names.of(question)
    try:
        capacity = capacity_asked.capacity(
            question.replica(),
            question.view.objects,
            shape,
            gang=params.gang,
            level=params.level,
        )
    except errors.InputError as error:
        raise hidden.refusal(error) from None
    return hidden.without(capacity)


ENDPOINTS = (
    endpoints.Endpoint(
        "/capacity",
        CapacityParams,
        room_left.Capacity,
        answer,
        summary="How many more pods of a shape start",
        reads=read_kinds.ENGINE,
    ),
)
