"""The three ways NVIDIA boards are cut: shapes of profiles, their GI ids, starts and limits.

Builds `facts.Mig` from a shape and one board's columns of figures. Every column names its source; a hole in a
column is None. Never fills a hole.
"""

from collections.abc import Sequence
from typing import TypeVar

import msgspec

from dovetail.gpus import board_facts

MIB = 1024**2

GUIDE_PLACEMENTS = "NVIDIA MIG user guide, listed placements"
CAPTURED_PLACEMENTS = "nvidia-smi mig -lgipp capture"
MIG_DRIVERS = "NVIDIA MIG user guide r620, deployment considerations"
TRANSCRIBED = "transcribed from NVIDIA's placement diagrams; not captured on this board"

T = TypeVar("T")


class Shape(msgspec.Struct, frozen=True):
    """What a profile looks like on every board of a geometry."""

    label: str
    gi_profile_id: int | None
    compute_slices: int
    memory_slices: int | None
    starts: tuple[int, ...] | None
    max_instances: int


class Column(msgspec.Struct, frozen=True):
    """One figure per profile, in the order of the shapes; `other` gives single entries another source."""

    figures: tuple[int | None, ...]
    source: str
    other: dict[int, str] = {}


SEVEN_SLICE = (  # A100, H100, H200, GH200, B200, GB200, B300
    Shape("1g", 19, 1, 1, (0, 1, 2, 3, 4, 5, 6), 7),
    Shape("1g+me", 20, 1, 1, (0, 1, 2, 3, 4, 5, 6), 1),
    Shape("1g double memory", 15, 1, 2, (0, 2, 4, 6), 4),
    Shape("2g", 14, 2, 2, (0, 2, 4), 3),
    Shape("3g", 9, 3, 4, (0, 4), 2),
    Shape("4g", 5, 4, 4, (0,), 1),
    Shape("7g", 0, 7, 8, (0,), 1),
)

A30 = (
    Shape("1g", 14, 1, 1, (0, 1, 2, 3), 4),
    Shape("1g+me", 21, 1, 1, (0, 1, 2, 3), 1),
    Shape("2g", 5, 2, 2, (0, 2), 2),
    Shape("2g+me", 6, 2, 2, (0, 2), 1),
    Shape("4g", 0, 4, 4, (0,), 1),
)

RTX_PRO_6000 = (  # four slices; no placement listing was found, so starts and widths stay unknown
    Shape("1g", 14, 1, None, None, 4),
    Shape("1g+me", 21, 1, None, None, 1),
    Shape("1g+gfx", 47, 1, None, None, 4),
    Shape("1g+me.all", 65, 1, None, None, 1),
    Shape("1g-me", None, 1, None, None, 4),
    Shape("2g", None, 2, None, None, 2),
    Shape("2g+gfx", None, 2, None, None, 2),
    Shape("2g+me.all", None, 2, None, None, 1),
    Shape("2g-me", None, 2, None, None, 2),
    Shape("4g", None, 4, None, None, 1),
    Shape("4g+gfx", None, 4, None, None, 1),
)


class Cut(msgspec.Struct, frozen=True, kw_only=True):
    """One board's figures over a geometry."""

    names: tuple[str, ...]
    names_source: str
    shapes_source: str
    placements_source: str
    memory_mib: Column
    multiprocessors: Column
    copy_engines: Column
    decoders: Column
    encoders: Column
    jpeg_engines: Column
    ofa_engines: Column


def mig(
    shapes: Sequence[Shape], cut: Cut, *, slices: tuple[int, int], minimum_driver: str | None
) -> board_facts.Mig:
    """The partitioning of one board; `slices` are (compute, memory)."""
    return board_facts.Mig(
        compute_slices=slices[0],
        memory_slices=slices[1],
        minimum_driver=None
        if minimum_driver is None
        else board_facts.Known(minimum_driver, MIG_DRIVERS),
        profiles=tuple(_profile(shape, cut, index) for index, shape in enumerate(shapes)),
    )


def column(source: str, *figures: int | None, other: dict[int, str] | None = None) -> Column:
    """A column of figures; write None where nothing is known."""
    return Column(figures, source, other or {})


def _profile(shape: Shape, cut: Cut, index: int) -> board_facts.Profile:
    memory_mib = _at(cut.memory_mib, index)
    return board_facts.Profile(
        name=board_facts.Known(cut.names[index], cut.names_source),
        gi_profile_id=_known(shape.gi_profile_id, cut.shapes_source),
        compute_slices=board_facts.Known(shape.compute_slices, cut.shapes_source),
        memory_slices=_known(shape.memory_slices, cut.placements_source),
        starts=_known(shape.starts, cut.placements_source),
        max_instances=board_facts.Known(shape.max_instances, cut.shapes_source),
        memory_bytes=None
        if memory_mib is None
        else board_facts.Known(memory_mib.value * MIB, memory_mib.source),
        engines=board_facts.Engines(
            multiprocessors=_at(cut.multiprocessors, index),
            copy_engines=_at(cut.copy_engines, index),
            decoders=_at(cut.decoders, index),
            encoders=_at(cut.encoders, index),
            jpeg_engines=_at(cut.jpeg_engines, index),
            ofa_engines=_at(cut.ofa_engines, index),
        ),
    )


def _at(figures: Column, index: int) -> board_facts.Known[int] | None:
    return _known(figures.figures[index], figures.other.get(index, figures.source))


def _known(value: T | None, source: str) -> board_facts.Known[T] | None:
    return None if value is None else board_facts.Known(value, source)
