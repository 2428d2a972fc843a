"""The GPU catalogue: sources for every figure, the driver's naming rule, geometry against an enumeration."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

from dovetail import gpus
from tests.support import shared

WANTED = (
    "A30", "A100-SXM4-40GB", "A100-SXM4-80GB", "A100-PCIE-80GB", "H100-SXM5-80GB", "H100-PCIE-80GB",
    "H100-NVL-94GB", "H200-SXM-141GB", "GH200-96GB", "GH200-144GB", "B200", "GB200", "B300", "L4", "L40S",
    "T4", "RTX-PRO-6000-SE",
)  # fmt: skip
GEOMETRIES = {"seven-slice": "H100-SXM5-80GB", "a30-four-slice": "A30"}
SEVEN_SLICE_BOARDS = [gpu.name for gpu in gpus.all_gpus() if gpu.mig and gpu.mig.memory_slices == 8]
COUNTED_BOARDS = [gpu.name for gpu in gpus.all_gpus() if gpus.is_fully_known(gpu)]

Spot = tuple[int, int]  # profile index, start


def board(name: str) -> gpus.Gpu:
    result = gpus.by_name(name)
    assert result is not None
    return result


def known_values(thing: object) -> Iterator[gpus.Known[Any]]:
    if isinstance(thing, gpus.Known):
        yield thing
    elif isinstance(thing, msgspec.Struct):
        for name in thing.__struct_fields__:
            yield from known_values(getattr(thing, name))
    elif isinstance(thing, tuple):
        for item in thing:
            yield from known_values(item)


# Identity ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", WANTED)
def test_a_wanted_board_is_found_by_name_product_and_pci_id(name: str) -> None:
    gpu = board(name)
    assert gpus.by_product(gpu.product.value) is gpu
    assert gpu.pci_device_ids is not None
    for device_id in gpu.pci_device_ids.value:
        assert gpus.by_pci_id(device_id) is gpu


def test_names_products_and_pci_ids_are_unique() -> None:
    boards = gpus.all_gpus()
    for values in (
        [gpu.name for gpu in boards],
        [gpu.product.value for gpu in boards],
        [
            device_id
            for gpu in boards
            if gpu.pci_device_ids
            for device_id in gpu.pci_device_ids.value
        ],
    ):
        assert [value for value, times in Counter(values).items() if times > 1] == []


@pytest.mark.parametrize(
    "text", ["2330", "0x2330", "0X2330", "10de:2330", "10DE:2330", "0x233010DE", " 2330 "]
)
def test_a_pci_id_is_read_in_every_common_spelling(text: str) -> None:
    assert gpus.by_pci_id(text) is board("H100-SXM5-80GB")


@pytest.mark.parametrize(
    "text", ["", "233", "1002:2330", "0x23301002", "20F3", "233G", "2330:10de:1", "gpu"]
)
def test_a_foreign_or_unknown_pci_id_finds_nothing(text: str) -> None:
    assert gpus.by_pci_id(text) is None


def test_an_unknown_product_is_not_taken_for_a_similar_one() -> None:
    assert gpus.by_product("NVIDIA H100 80GB") is None
    assert gpus.by_product("nvidia h100 pcie") is None
    assert gpus.by_product("NVIDIA GH200 120GB") is board("GH200-96GB")


# Provenance -------------------------------------------------------------------------------------------------


def test_every_value_carries_a_source() -> None:
    values = [known for gpu in gpus.all_gpus() for known in known_values(gpu)]
    assert len(values) > 1000
    assert [known for known in values if not known.source.strip() or known.value is None] == []


@pytest.mark.parametrize("name", ["B200", "GB200", "GH200-144GB", "B300"])
def test_unknown_facts_of_a_profile_are_absent(name: str) -> None:
    largest = gpus.profiles(board(name))[-1]
    assert largest.memory_bytes is None
    assert largest.engines.multiprocessors is None
    assert not gpus.is_fully_known(board(name))


def test_boards_without_mig_have_no_profiles() -> None:
    for name in ("T4", "L4", "L40S"):
        assert gpus.profiles(board(name)) == ()
        assert list(gpus.placements(board(name))) == []
        assert not gpus.is_fully_known(board(name))


def test_a_board_with_unknown_places_offers_none() -> None:
    assert len(gpus.profiles(board("RTX-PRO-6000-SE"))) == 11
    assert list(gpus.placements(board("RTX-PRO-6000-SE"))) == []


# Names of profiles ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name", [gpu.name for gpu in gpus.all_gpus() if gpu.mig and gpu.memory_bytes]
)
def test_profile_names_follow_from_the_memory_a_driver_reports(name: str) -> None:
    gpu = board(name)
    assert gpu.memory_bytes is not None
    checked = 0
    for profile in gpus.profiles(gpu):
        if profile.memory_bytes is None:
            continue
        suffix = profile.name.value.partition("gb")[2]
        slices = profile.compute_slices.value
        computed = gpus.profile_name(
            slices, profile.memory_bytes.value, board_bytes=gpu.memory_bytes.value, suffix=suffix
        )
        assert computed == profile.name.value
        checked += 1
    assert checked or name == "B300"


@pytest.mark.parametrize(
    ("eighths", "board_gib", "gigabytes"),
    [
        (4, 141, 71),
        (2, 141, 35),
        (1, 141, 18),
        (1, 180, 23),
        (2, 186, 47),
        (1, 36, 5),
        (1, 4, 1),
        (8, 80, 80),
    ],
)
def test_a_half_gigabyte_rounds_up(eighths: int, board_gib: int, gigabytes: int) -> None:
    board_bytes = board_gib * 1024**3
    assert (
        gpus.profile_name(1, board_bytes * eighths // 8, board_bytes=board_bytes)
        == f"1g.{gigabytes}gb"
    )


def test_a_begun_eighth_and_a_begun_gibibyte_count_whole() -> None:
    board_bytes = 80 * 1024**3
    assert gpus.profile_name(1, board_bytes // 8 + 1, board_bytes=board_bytes) == "1g.20gb"
    assert gpus.profile_name(7, board_bytes - 1, board_bytes=board_bytes - 1) == "7g.80gb"


@pytest.mark.parametrize(("instance", "whole"), [(0, 10), (-1, 10), (11, 10)])
def test_an_instance_must_fit_its_board(instance: int, whole: int) -> None:
    with pytest.raises(ValueError, match="does not fit"):
        gpus.profile_name(1, instance, board_bytes=whole)


# Geometry against the enumeration ---------------------------------------------------------------------------


def spots(gpu: gpus.Gpu, *, with_media: bool) -> list[Spot]:
    """(profile index, start) of every placement, taken from our table."""
    order = list(gpus.profiles(gpu))
    return [
        (order.index(profile), place.start)
        for profile, place in gpus.placements(gpu)
        if with_media or not is_media(profile)
    ]


def is_media(profile: gpus.Profile) -> bool:
    return profile.name.value.endswith("+me")


def mask(gpu: gpus.Gpu, spot: Spot) -> int:
    width = gpus.profiles(gpu)[spot[0]].memory_slices
    assert width is not None
    return ((1 << width.value) - 1) << spot[1]


def layouts(gpu: gpus.Gpu, offered: list[Spot]) -> list[tuple[Spot, ...]]:
    """Every set of placements without a shared memory slice, the empty one left out."""
    result: list[tuple[Spot, ...]] = []

    def extend(taken: int, chosen: tuple[Spot, ...], rest: list[Spot]) -> None:
        for index, spot in enumerate(rest):
            if taken & mask(gpu, spot):
                continue
            layout = (*chosen, spot)
            result.append(layout)
            extend(taken | mask(gpu, spot), layout, rest[index + 1 :])

    extend(0, (), offered)
    return result


def media_count(gpu: gpus.Gpu, layout: tuple[Spot, ...]) -> int:
    return sum(is_media(gpus.profiles(gpu)[index]) for index, _ in layout)


@pytest.mark.parametrize("geometry", GEOMETRIES)
def test_profile_shapes_agree_with_the_recorded_geometry(geometry: str) -> None:
    recorded = shared.document("conformance/mig/placements.json")["geometries"][geometry]
    gpu = board(GEOMETRIES[geometry])
    assert gpu.mig is not None
    assert (gpu.mig.compute_slices, gpu.mig.memory_slices) == (
        recorded["compute_slices"],
        recorded["memory_slices"],
    )
    ours = {
        profile.gi_profile_id.value: (
            profile.compute_slices.value,
            profile.memory_slices.value,
            list(profile.starts.value),
            profile.max_instances.value,
        )
        for profile in gpus.profiles(gpu)
        if profile.gi_profile_id and profile.memory_slices and profile.starts
    }
    theirs = {}
    for row in recorded["profiles"]:
        shape = (row["compute_slices"], row["memory_slices"], row["starts"], row["max"])
        theirs[row["gi_profile_id"]] = shape
        if "me_variant_gi_profile_id" in row:
            theirs[row["me_variant_gi_profile_id"]] = (*shape[:3], 1)
    assert ours == theirs


@pytest.mark.parametrize("geometry", GEOMETRIES)
def test_an_enumeration_of_our_table_gives_the_recorded_counts(geometry: str) -> None:
    recorded = shared.document("conformance/mig/placements.json")["geometries"][geometry]
    counts = recorded["counts"]
    gpu = board(GEOMETRIES[geometry])
    plain = layouts(gpu, spots(gpu, with_media=False))
    every = layouts(gpu, spots(gpu, with_media=True))
    masks = {0} | {sum(mask(gpu, spot) for spot in layout) for layout in plain}
    per_profile = [
        layout
        for layout in every
        if all(
            times <= 1
            for index, times in Counter(i for i, _ in layout).items()
            if media_count(gpu, ((index, 0),))
        )
    ]
    patterns = {
        (sum(mask(gpu, spot) for spot in layout), tuple(sorted(start for _, start in layout)))
        for layout in plain
    }
    assert len(spots(gpu, with_media=False)) == counts["placements"]
    assert len(plain) == counts["layouts_without_me_nonempty"]
    assert len(every) == counts["layouts_if_memory_slices_were_the_only_rule_nonempty"]
    assert len(per_profile) == counts["layouts_with_at_most_one_instance_per_me_profile_nonempty"]
    assert (
        sum(media_count(gpu, layout) <= 1 for layout in every)
        == counts["layouts_with_at_most_one_me_instance_per_gpu_nonempty"]
    )
    assert sorted(masks) == recorded["reachable_masks"]
    assert (
        len({tuple(sorted(index for index, _ in layout)) for layout in plain})
        == counts["profile_multisets_nonempty"]
    )
    assert len(patterns) + 1 == counts["distinct_extent_patterns"]
    full = [
        layout
        for layout in plain
        if all(
            mask(gpu, other) & sum(mask(gpu, spot) for spot in layout)
            for other in spots(gpu, with_media=False)
        )
    ]
    assert len(full) == counts["maximal_layouts"]


@pytest.mark.parametrize("name", SEVEN_SLICE_BOARDS)
def test_all_seven_slice_boards_share_one_geometry(name: str) -> None:
    shapes = [
        (p.gi_profile_id, p.compute_slices, p.memory_slices, p.starts, p.max_instances)
        for p in gpus.profiles(board("A100-SXM4-40GB"))
    ]
    ours = [
        (p.gi_profile_id, p.compute_slices, p.memory_slices, p.starts, p.max_instances)
        for p in gpus.profiles(board(name))
    ]
    assert [[known and known.value for known in row] for row in ours] == [
        [known and known.value for known in row] for row in shapes
    ]


@pytest.mark.parametrize("name", COUNTED_BOARDS)
def test_engines_and_memory_never_forbid_what_the_slices_allow(name: str) -> None:
    """A counter set holds the largest value of any profile, so a wrong figure would refuse real layouts."""
    gpu = board(name)
    rows = [figures(profile) for profile in gpus.profiles(gpu)]
    whole = [max(column) for column in zip(*rows, strict=True)]
    allowed = [
        layout
        for layout in layouts(gpu, spots(gpu, with_media=True))
        if media_count(gpu, layout) <= 1
    ]
    refused = [
        layout
        for layout in allowed
        if any(
            used > have
            for used, have in zip(
                map(sum, zip(*(rows[i] for i, _ in layout), strict=True)), whole, strict=True
            )
        )
    ]
    assert refused == []


@pytest.mark.parametrize("name", COUNTED_BOARDS)
def test_the_optical_flow_engine_alone_limits_media_instances(name: str) -> None:
    gpu = board(name)
    for profile in gpus.profiles(gpu):
        engines = profile.engines.ofa_engines
        assert engines is not None
        whole = profile.memory_slices is not None and gpu.mig is not None
        whole = whole and profile.memory_slices.value == gpu.mig.memory_slices
        assert engines.value == (1 if is_media(profile) or whole else 0)


def figures(profile: gpus.Profile) -> list[int]:
    engines = profile.engines
    values = [getattr(engines, name) for name in engines.__struct_fields__]
    return [known.value for known in (*values, profile.memory_bytes) if known is not None]
