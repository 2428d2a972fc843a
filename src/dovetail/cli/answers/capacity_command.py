"""`dovetail capacity`: how much more work fits now, after moving other work, or if lower work yielded."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence

import click
import msgspec

from dovetail import errors
from dovetail.answer.capacity import room_left
from dovetail.ask import capacity_asked, replicas, shapes_asked
from dovetail.cli import output
from dovetail.cli.answers import asked_cluster, asked_shape
from dovetail.cli.cluster import cluster_option
from dovetail.tables.answers import capacity_text

FORMS = ("table", "wide", "json", "yaml")


@click.command(name="capacity")
@asked_shape.shape_options
@click.option("--gang", type=click.IntRange(1), help="Also: which work blocks a gang of so many.")
@click.option("--level", metavar="LEVEL", default="", help="The gang must fit one domain of it.")
@click.option("-n", "--namespace", metavar="NAME", default="", help="Namespace of the pod.")
@click.option(
    "-o", "--output", "form", type=click.Choice(FORMS), default="table", show_default=True
)
@asked_cluster.configurable
@cluster_option.readable
def command(
    *,
    gpus: int | None,
    gpu_type: str,
    mig: str,
    gpu_memory: str,
    cpu: str,
    memory: str,
    queue: str,
    priority: int,
    like: str,
    gang: int | None,
    level: str,
    namespace: str,
    form: str,
    file: str | None,
) -> None:
    """Say how many more pods of a shape start: now, after other work moves, and if lower work yields.

    \b
    dovetail capacity                              whole GPUs of every type
    dovetail capacity --gpus 8 --type h100         pods with eight H100
    dovetail capacity --gpus 8 --gang 8 --level rack   which work blocks 64 GPUs in one rack
    """
    shape = shapes_asked.ShapeAsked(
        gpus=gpus,
        gpu_type=gpu_type,
        mig=mig,
        gpu_memory=gpu_memory,
        cpu=cpu,
        memory=memory,
        queue=queue,
        priority=priority,
        like=like,
        namespace=namespace or cluster_option.default_namespace(),
    )
    with _bad_input():
        capacity_asked.check(shape, gang=gang, level=level)  # before any request
    seen, rules = asked_cluster.view(file)
    replica = replicas.replica_of(seen, rules)
    with _bad_input():
        shapes = capacity_asked.shapes_of(replica, seen.objects, shape, level=level)
    rooms = capacity_asked.rooms(replica, shapes)
    shown = 0
    if form in ("table", "wide"):  # what is known already: the rest takes as long again
        first = room_left.Capacity(shapes=rooms, queues=(), fragmentation=None, blockers=None)
        shown = _show(capacity_text.sections(first, is_wide=form == "wide"))
    answer = capacity_asked.completed(replica, shapes, rooms, shape, gang=gang, level=level)
    if form in ("json", "yaml"):
        tree = msgspec.json.decode(msgspec.json.encode(answer))
        output.write_object(tree, form)
        return
    _show(capacity_text.sections(answer, is_wide=form == "wide")[shown:])
    cluster_option.say_cluster(seen.name)
    if shape.is_empty:
        cluster_option.next_step("capacity --gpus 8 -o wide")


def _show(sections: Sequence[capacity_text.Section]) -> int:
    for section in sections:
        output.write_table(section.lines)
        output.write_lines([""])
    return len(sections)


@contextlib.contextmanager
def _bad_input() -> Iterator[None]:
    try:
        yield
    except errors.InputError as error:
        raise output.BadInput(str(error)) from None
