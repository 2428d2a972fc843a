"""The devices that work could use on a board (MIG profiles, shares, the whole), and the cheapest that suffices.

Given a product and its memory; figures of profiles come from the catalogue. A choice costs what the GPU ledger charges:
the larger of its parts of compute and memory. Of equal cost, a MIG slice comes before a share, which isolates less.
Never proposes a profile whose memory is not known.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

import msgspec

from dovetail.answer.right_size import compute_need, sharing
from dovetail.gpus import board_facts, catalogue
from dovetail.model.accounting.records import MICRO_GPU, Form

GIB: Final = 1024**3


class Choice(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A device, or a part of one."""

    form: Form
    name: str
    memory_bytes: int
    micro_gpu: int  # what it costs
    compute_micro: int  # of a GPU's compute
    bandwidth_micro: int  # of its memory bandwidth
    profile: str = ""
    shared_by: int = 1  # runs on one GPU


class Requirement(NamedTuple):
    """What a device must offer."""

    memory_bytes: int
    compute: compute_need.ComputeNeed
    collisions: dict[int, sharing.Collisions | None]  # by how many runs share one GPU


class Refused(NamedTuple):
    """A cheaper choice, and the first thing that it lacks."""

    choice: Choice
    why: str


class Chosen(NamedTuple):
    """The cheapest choice that suffices, and the cheaper ones that do not, cheapest first."""

    choice: Choice | None
    refused: tuple[Refused, ...]


def board_of(product: str) -> board_facts.Gpu | None:
    """The board of a product as a driver or a node label writes it."""
    board = catalogue.by_product(product)
    if board is not None:
        return board
    words = product.replace("-", " ").lower()  # labels have dashes for blanks
    for each in catalogue.all_gpus():
        if each.product.value.replace("-", " ").lower() == words:
            return each
    return None


def whole(memory_bytes: int) -> Choice:
    """The GPU as a whole."""
    return Choice(
        form=Form.WHOLE,
        name="whole GPU",
        memory_bytes=memory_bytes,
        micro_gpu=MICRO_GPU,
        compute_micro=MICRO_GPU,
        bandwidth_micro=MICRO_GPU,
    )


def choices(product: str, memory_bytes: int) -> list[Choice]:
    """Every choice on a board of this memory, cheapest first; of an unknown board only shares and the whole."""
    board = board_of(product)
    slices = list(_slices(board)) if board is not None and board.mig is not None else []
    shares = [_share(count, memory_bytes) for count in range(2, sharing.MOST_SHARING + 1)]
    offered = [*slices, *shares, whole(memory_bytes)]
    return sorted(offered, key=_rank)


def cheapest(offered: Iterable[Choice], requirement: Requirement) -> Chosen:
    """The first that suffices."""
    refused: list[Refused] = []
    for choice in offered:
        why = lack(choice, requirement)
        if not why:
            return Chosen(choice, tuple(refused))
        refused.append(Refused(choice, why))
    return Chosen(None, tuple(refused))


def lack(choice: Choice, requirement: Requirement) -> str:
    """The first thing that a choice lacks, with numbers; empty where it suffices."""
    need = requirement.compute
    if choice.memory_bytes < requirement.memory_bytes:
        return f"has {gib(choice.memory_bytes)}, needs {gib(requirement.memory_bytes)}"
    if choice.shared_by > 1:
        return _lack_of_share(choice, requirement)
    if choice.compute_micro < need.micro_gpu:
        because = f", because {need.bound_by} is the bound" if need.bound_by else ""
        return (
            f"has {percent(choice.compute_micro)} of the compute, needs {percent(need.micro_gpu)}"
            f"{because}"
        )
    if choice.bandwidth_micro < need.bandwidth_micro_gpu:
        return (
            f"has {percent(choice.bandwidth_micro)} of the memory bandwidth, "
            f"needs {percent(need.bandwidth_micro_gpu)}"
        )
    return ""


def _lack_of_share(choice: Choice, requirement: Requirement) -> str:
    if requirement.compute.bound_by:
        return f"shares the GPU, and {requirement.compute.bound_by} is the bound"
    joint = requirement.collisions.get(choice.shared_by)
    if joint is None:
        return (
            f"fewer than {sharing.FEWEST_JOINT_SAMPLES} samples of {choice.shared_by} runs "
            "at the same time"
        )
    if joint.share > sharing.MOST_COLLISIONS:
        return (
            f"{choice.shared_by} runs together want more than one GPU "
            f"{100 * joint.share:.0f} % of the time, at most {100 * sharing.MOST_COLLISIONS:.0f} % "
            "is accepted"
        )
    return ""


def gib(memory_bytes: int) -> str:
    """Bytes for people."""
    return f"{memory_bytes / GIB:.1f} GiB"


def percent(micro: int) -> str:
    """Millionths for people."""
    return f"{100 * micro / MICRO_GPU:.0f} %"


def _slices(board: board_facts.Gpu) -> Iterable[Choice]:
    mig = board.mig
    assert mig is not None
    most = _multiprocessors(mig.profiles)
    for profile in mig.profiles:
        name = profile.name.value
        if profile.memory_bytes is None or profile.memory_slices is None:
            continue
        if "+" in name or "-" in name:  # with or without media engines: else the same slice
            continue
        if profile.compute_slices.value >= mig.compute_slices:
            continue  # the whole board in one slice costs as much as the whole GPU
        compute = MICRO_GPU * profile.compute_slices.value // mig.compute_slices
        memory = MICRO_GPU * profile.memory_slices.value // mig.memory_slices
        engines = profile.engines.multiprocessors
        yield Choice(
            form=Form.MIG,
            name=f"MIG {name}",
            profile=name,
            memory_bytes=profile.memory_bytes.value,
            micro_gpu=max(compute, memory),
            compute_micro=MICRO_GPU * engines.value // most if engines and most else compute,
            bandwidth_micro=memory,
        )


def _multiprocessors(profiles: Sequence[board_facts.Profile]) -> int:
    known = [profile.engines.multiprocessors for profile in profiles]
    return max((value.value for value in known if value is not None), default=0)


def _share(count: int, memory_bytes: int) -> Choice:
    part = MICRO_GPU // count
    return Choice(
        form=Form.REPLICA,
        name=f"1/{count} GPU, shared",
        memory_bytes=memory_bytes // count,
        micro_gpu=-(-MICRO_GPU // count),
        compute_micro=part,
        bandwidth_micro=part,
        shared_by=count,
    )


def _rank(choice: Choice) -> tuple[int, bool, int, str]:
    # Of equal cost: what isolates more, then more memory.
    return (choice.micro_gpu, choice.shared_by > 1, -choice.memory_bytes, choice.name)
