"""Whether an image runs on a GPU with a driver: natively, by minor compatibility, with its package, not, or unknown.

Given what the image needs, what the host has, and rows. The steps are those of NVIDIA's compatibility guide, in order:
architecture, CUDA of the driver, minor version, forward-compatibility package. The answer names the row that decided.
A missing fact is `cannot tell`, never a pass. Never looks at a cluster.
"""

from __future__ import annotations

import enum
from collections.abc import Iterator
from typing import Final

import msgspec

from dovetail.answer.stack.compatibility_rows import (
    BOARD,
    CUDA,
    DRIVER,
    GPU,
    Entry,
    Relation,
    Row,
    Rows,
)
from dovetail.answer.stack.image_needs import ImageNeed
from dovetail.answer.stack.stack_facts import Fact
from dovetail.gpus import host_properties, image_requirements
from dovetail.quantity import dotted_versions

# Brands for which NVIDIA's forward-compatibility packages are meant, as public CUDA images list them.
PACKAGE_BRANDS: Final = frozenset(
    [
        "unknown",
        "grid",
        "tesla",
        "nvidia",
        "quadro",
        "quadrortx",
        "nvidiartx",
        "vapps",
        "vpc",
        "vcs",
        "vws",
        "cloudgaming",
    ]
)


class Verdict(enum.StrEnum):
    """How an image runs."""

    NATIVE = "native"
    MINOR = "minor"
    FORWARD = "forward"
    UNKNOWN = "cannot tell"
    NO = "no"


ORDER: Final = tuple(Verdict)  # from best to worst


class Host(msgspec.Struct, frozen=True, kw_only=True):
    """What an image finds on a node."""

    gpu: Fact
    architecture: Fact
    compute: Fact
    brand: Fact
    driver: Fact
    cuda: Fact  # that the loaded driver reports; unknown for a driver that is not there yet


class Judgement(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The verdict, why, and the row that decided."""

    verdict: Verdict
    why: str
    row: Row | None = None
    notes: tuple[str, ...] = ()


def judge(need: ImageNeed, host: Host, rows: Rows) -> Judgement:
    """The verdict for one image on one host."""
    judgement = _judged(need, host, rows)
    notes = tuple(_notes(need, host, rows))
    return msgspec.structs.replace(judgement, notes=notes) if notes else judgement


def cuda_of(host: Host, rows: Rows) -> tuple[str, Entry | None]:
    """The CUDA of the host's driver: as the driver reports it, else by the rows; empty where neither knows."""
    if host.cuda.is_present:
        return host.cuda.value, None
    if not host.driver.is_present or not dotted_versions.is_version(host.driver.value):
        return "", None
    entry = rows.decides(Relation.CONTAINS, DRIVER, host.driver.value, other=CUDA)
    return (entry.row.range.partition(" ")[2], entry) if entry is not None else ("", None)


def board_entries(product: str, component: str, rows: Rows) -> Iterator[Entry]:
    """Rows about a board whose name stands in a product's name, word by word."""
    words = product.lower().replace("-", " ").split()
    for entry in rows.named(Relation.NEEDS, component):
        name = entry.name.split()
        starts = range(len(words) - len(name) + 1)
        if any(words[start : start + len(name)] == name for start in starts):
            yield entry


def _judged(need: ImageNeed, host: Host, rows: Rows) -> Judgement:
    # The GPU first: a driver that does not serve it runs no image, whatever that needs.
    refusal = (
        _missing(host.driver, "the driver")
        or _driver_on_gpu(host, rows)
        or _missing(need.cuda, "the CUDA of the image")
        or _cuda_on_gpu(need, host, rows)
    )
    if refusal is not None:
        return refusal

    offered, entry = cuda_of(host, rows)
    if not offered:
        why = f"no row says which CUDA driver {host.driver} contains"
        return Judgement(verdict=Verdict.UNKNOWN, why=why)
    needed = dotted_versions.shortened(need.cuda.value, 2)
    row = entry.row if entry is not None else None
    if dotted_versions.compare(offered, needed) >= 0:
        why = f"driver {host.driver} has CUDA {offered}, the image needs {needed}"
        return Judgement(verdict=Verdict.NATIVE, why=why, row=row)

    floor = rows.decides(Relation.MINOR_FLOOR, CUDA, needed, other=DRIVER)
    if floor is not None and floor.others is not None and host.driver.value in floor.others:
        why = f"CUDA {needed} on driver {host.driver} with CUDA {offered}: no new functions, no PTX"
        return Judgement(verdict=Verdict.MINOR, why=why, row=floor.row)
    return _forward(need, host, rows, needed=needed, offered=offered, floor=floor)


def _missing(version: Fact, what: str) -> Judgement | None:
    if version.is_present and dotted_versions.is_version(version.value):
        return None
    why = version.unknown or f"{version} is no version"
    return Judgement(verdict=Verdict.UNKNOWN, why=f"{what} is not known: {why}")


def _driver_on_gpu(host: Host, rows: Rows) -> Judgement | None:
    """A refusal where the driver does not serve the GPU."""
    if not host.architecture.is_present:
        why = f"the architecture of the GPU is not known: {host.architecture.unknown}"
        return Judgement(verdict=Verdict.UNKNOWN, why=why)
    for name in host.architecture.value.split(" + "):
        drivers = rows.decides(Relation.SUPPORTS, GPU, "0", other=DRIVER, name=name)
        if drivers is None or drivers.others is None:
            return Judgement(verdict=Verdict.UNKNOWN, why=f"no row speaks of GPUs of {name}")
        if host.driver.value not in drivers.others:
            why = f"driver {host.driver} does not serve {name} GPUs"
            return Judgement(verdict=Verdict.NO, why=why, row=drivers.row)
    for entry in board_entries(host.gpu.value, BOARD, rows):
        if entry.others is not None and host.driver.value not in entry.others:
            why = f"driver {host.driver} does not serve {host.gpu}"
            return Judgement(verdict=Verdict.NO, why=why, row=entry.row)
    return None


def _cuda_on_gpu(need: ImageNeed, host: Host, rows: Rows) -> Judgement | None:
    """A refusal where the image's CUDA has no code for the GPU."""
    for name in host.architecture.value.split(" + "):
        cudas = rows.decides(Relation.SUPPORTS, GPU, "0", other=CUDA, name=name)
        if cudas is None or cudas.others is None:
            return Judgement(verdict=Verdict.UNKNOWN, why=f"no row says which CUDA {name} GPUs run")
        if need.cuda.value not in cudas.others:
            return _outside(need.cuda.value, name, cudas)
    return None


def _outside(cuda: str, architecture: str, entry: Entry) -> Judgement:
    """A CUDA after the last one of an architecture has no code for it; one before the first may carry PTX."""
    assert entry.others is not None
    lower = [bound for each in entry.others.alternatives for bound in each if bound.sign == ">="]
    if any(dotted_versions.parse(cuda) < bound.numbers for bound in lower):
        why = f"CUDA {cuda} is older than {architecture}: it runs only if the image carries PTX"
        return Judgement(verdict=Verdict.UNKNOWN, why=why, row=entry.row)
    why = f"CUDA {cuda} has no code for {architecture} GPUs"
    return Judgement(verdict=Verdict.NO, why=why, row=entry.row)


def _forward(
    need: ImageNeed,
    host: Host,
    rows: Rows,
    *,
    needed: str,
    offered: str,
    floor: Entry | None,
) -> Judgement:
    below = f"CUDA {needed} is newer than the {offered} of driver {host.driver}"
    floor_row = floor.row if floor is not None else None
    if need.requirements:
        outcome = image_requirements.evaluate(need.requirements, properties(host, offered))
        match outcome.state:
            case image_requirements.State.MET if not need.compatibility_package.is_known:
                pass  # nothing that it declares is about drivers
            case image_requirements.State.MET:
                met = ",".join(map(str, outcome.met_by[0])) if outcome.met_by else "nothing"
                why = f"{below}; the image's package serves {met} (NVIDIA_REQUIRE_CUDA)"
                return Judgement(verdict=Verdict.FORWARD, why=why)
            case image_requirements.State.UNMET:
                why = f"{below}; NVIDIA_REQUIRE_CUDA lists no package for it: {outcome.problem}"
                return Judgement(verdict=Verdict.NO, why=why, row=floor_row)
            case _:
                why = f"{below}; NVIDIA_REQUIRE_CUDA: {outcome.problem}"
                return Judgement(verdict=Verdict.UNKNOWN, why=why, row=floor_row)

    if floor is None:
        why = f"{below}, and no row says which drivers run it by minor compatibility"
        return Judgement(verdict=Verdict.UNKNOWN, why=why)
    listed = rows.decides(Relation.FORWARD, CUDA, needed, other=DRIVER)
    if listed is None or listed.others is None:
        why = f"{below}, and no row says for which drivers CUDA {needed} has a package"
        return Judgement(verdict=Verdict.UNKNOWN, why=why, row=floor_row)
    if host.driver.value not in listed.others:
        why = f"{below}, below the floor, and CUDA {needed} has no package for it"
        return Judgement(verdict=Verdict.NO, why=why, row=listed.row)
    if host.brand.is_present and host.brand.value not in PACKAGE_BRANDS:
        why = f"{below}; compatibility packages are not for {host.brand} boards"
        return Judgement(verdict=Verdict.NO, why=why, row=listed.row)
    if not need.compatibility_package.is_known or not host.brand.is_present:
        missing = need.compatibility_package.unknown or f"brand: {host.brand.unknown}"
        why = f"{below}; it runs only with a compatibility package: {missing}"
        return Judgement(verdict=Verdict.UNKNOWN, why=why, row=listed.row)
    why = f"{below}; the image's compatibility package serves it"
    return Judgement(verdict=Verdict.FORWARD, why=why, row=listed.row)


def properties(host: Host, cuda: str) -> dict[str, str | None]:
    """The host as NVIDIA_REQUIRE_* sees it. Leading zeros are dropped: the toolkit's versions have none."""
    offered = host_properties.Properties(
        cuda=cuda or None,
        driver=host_properties.driver_property(host.driver.value),
        # A node with several kinds of GPUs has no single answer.
        arch=None if " " in host.compute.value else host.compute.value or None,
        brand=host.brand.value or None,
    )
    return offered.by_name()


def _notes(need: ImageNeed, host: Host, rows: Rows) -> Iterator[str]:
    """What a toolkit in legacy mode would say: with CDI nothing evaluates the image's requirements."""
    if not need.requirements:
        return
    outcome = image_requirements.evaluate(
        need.requirements, properties(host, cuda_of(host, rows)[0])
    )
    if outcome.state in (image_requirements.State.UNMET, image_requirements.State.INVALID):
        yield f"a toolkit in legacy mode refuses to start it: {outcome.problem}"
