"""The laws of partitioning, as nvidia-ml-py meets them, against a model that shares no code with the library."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as draw

from dovetail.devcluster.fake_gpus.hardware import Hardware
from dovetail.devcluster.fake_gpus.hardware_state import Process
from tests.fakenvml import mig_model, nvml
from tests.fakenvml.conftest import MakeHardware

pytestmark = pytest.mark.slow

INSUFFICIENT, INVALID, IN_USE = "InsufficientResources", "InvalidArgument", "InUse"

HELPERS = """
def place(start, size):
    placement = nvml.c_nvmlGpuInstancePlacement_t()
    placement.start, placement.size = start, size
    return placement
def create(profile, start, size, gpu=0):
    return nvml.nvmlDeviceCreateGpuInstanceWithPlacement(gpus[gpu], profile, nvml.byref(place(start, size)))
def create_mig(profile, start, size, compute, gpu=0):
    gi = create(profile, start, size, gpu)
    return gi, nvml.nvmlGpuInstanceCreateComputeInstance(gi, compute)
def uuid(ci):
    return nvml.nvmlDeviceGetUUID(nvml.nvmlComputeInstanceGetInfo_v2(ci).device)
def info(gi):
    found = nvml.nvmlGpuInstanceGetInfo(gi)
    return [found.id, found.profileId, found.placement.start, found.placement.size]
instances = {}
"""


@pytest.fixture
def board(client: nvml.Nvml) -> nvml.Nvml:
    """A client with short names for what these tests do often."""
    client.do(HELPERS)
    return client


def test_an_occupied_place_is_insufficient_resources_and_an_unlisted_one_invalid(
    board: nvml.Nvml,
) -> None:
    assert board.do("info(create(9, 4, 4))") == [2, 9, 4, 4]
    assert board.refusal("create(19, 5, 1)") == INSUFFICIENT
    assert board.refusal("create(14, 6, 2)") == INVALID
    assert board.refusal("create(14, 0, 3)") == INVALID
    assert board.refusal("create(77, 0, 1)") == INVALID


def test_only_one_instance_has_the_media_engines(board: nvml.Nvml) -> None:
    board.do("create(20, 0, 1)")
    assert board.refusal("create(20, 1, 1)") == INSUFFICIENT
    assert board.do("nvml.nvmlDeviceGetGpuInstanceRemainingCapacity(gpus[0], 20)") == 0
    assert board.do("nvml.nvmlDeviceGetGpuInstanceRemainingCapacity(gpus[0], 19)") == 6


def test_an_instance_goes_only_after_what_is_inside_it(hopper: Hardware, board: nvml.Nvml) -> None:
    board.do("gi, ci = create_mig(9, 0, 4, 2)")
    assert board.refusal("nvml.nvmlGpuInstanceDestroy(gi)") == IN_USE
    hopper.set_processes(0, [Process(pid=4711, gi=1, ci=0, memory_bytes=1 << 30)])
    assert board.refusal("nvml.nvmlComputeInstanceDestroy(ci)") == IN_USE
    assert board.refusal("nvml.nvmlDeviceSetMigMode(gpus[0], 0)") == IN_USE
    hopper.set_processes(0, [])
    board.do("nvml.nvmlComputeInstanceDestroy(ci); nvml.nvmlGpuInstanceDestroy(gi)")
    assert hopper.snapshot().gpus[0].gpu_instances == ()


def test_ids_are_used_again_but_a_new_instance_has_a_new_uuid(board: nvml.Nvml) -> None:
    board.do("gi, ci = create_mig(19, 3, 1, 0); first = [info(gi), uuid(ci)]")
    board.do("mig = nvml.nvmlDeviceGetMigDeviceHandleByIndex(gpus[0], 0)")
    board.do("nvml.nvmlComputeInstanceDestroy(ci); nvml.nvmlGpuInstanceDestroy(gi)")
    board.do(
        "other_gi, other_ci = create_mig(19, 3, 1, 0); second = [info(other_gi), uuid(other_ci)]"
    )
    first, second = board.do("[first, second]")
    assert first[0] == second[0]
    assert first[1] != second[1]
    # The old handles name nothing, although an instance with the same ids exists.
    assert board.refusal("nvml.nvmlGpuInstanceGetInfo(gi)") == INVALID
    assert board.refusal("nvml.nvmlComputeInstanceDestroy(ci)") == INVALID
    assert board.refusal("nvml.nvmlDeviceGetUUID(mig)") == INVALID
    assert board.refusal("nvml.nvmlDeviceGetHandleByUUID(first[1])") == "NotFound"
    assert (
        board.do("nvml.nvmlDeviceGetUUID(nvml.nvmlDeviceGetHandleByUUID(second[1]))") == second[1]
    )


def test_a_mig_device_shows_its_share(board: nvml.Nvml) -> None:
    board.do("gi, ci = create_mig(9, 4, 4, 2); mig = nvml.nvmlComputeInstanceGetInfo_v2(ci).device")
    assert board.do("nvml.nvmlDeviceIsMigDeviceHandle(mig).value") == 1
    assert board.do("nvml.nvmlDeviceGetName(mig)") == "NVIDIA H100 80GB HBM3 MIG 3g.40gb"
    assert board.do("nvml.nvmlDeviceGetMemoryInfo(mig).total") == 40448 << 20
    assert board.do("nvml.nvmlDeviceGetAttributes(mig).multiprocessorCount") == 60
    assert (
        board.do("nvml.nvmlDeviceGetIndex(nvml.nvmlDeviceGetDeviceHandleFromMigDeviceHandle(mig))")
        == 0
    )
    assert board.do(
        "[nvml.nvmlDeviceGetGpuInstanceId(mig), nvml.nvmlDeviceGetComputeInstanceId(mig)]"
    ) == [2, 0]


def test_a_gpu_instance_may_hold_several_compute_instances(board: nvml.Nvml) -> None:
    board.do("gi = create(9, 0, 4)")
    board.do("[nvml.nvmlGpuInstanceCreateComputeInstance(gi, 0) for _ in range(3)]")
    assert board.refusal("nvml.nvmlGpuInstanceCreateComputeInstance(gi, 0)") == INSUFFICIENT
    board.do("handles, count = (nvml.c_nvmlComputeInstance_t * 8)(), nvml.c_uint()")
    board.do("nvml.nvmlGpuInstanceGetComputeInstances(gi, 0, handles, nvml.byref(count))")
    assert board.do("count.value") == 3
    assert board.refusal("nvml.nvmlGpuInstanceCreateComputeInstance(gi, 3)") == "NotSupported"
    names = board.do(
        "[nvml.nvmlDeviceGetName(nvml.nvmlDeviceGetMigDeviceHandleByIndex(gpus[0], i)) for i in range(3)]"
    )
    assert set(names) == {"NVIDIA H100 80GB HBM3 MIG 1c.3g.40gb"}


def test_a_1g_with_double_memory_offers_two_compute_instances_of_which_one_has_all(
    board: nvml.Nvml,
) -> None:
    figures = "nvml.nvmlGpuInstanceGetComputeInstanceProfileInfo(gi, {}, 0).multiprocessorCount"
    board.do("gi = create(15, 6, 2)")
    assert board.do(figures.format(0)) == 16
    assert board.do(figures.format(7)) == 26
    board.do("gi = create(19, 0, 1)")
    assert board.refusal(figures.format(7)) == "NotSupported"


def test_placement_and_id_without_a_wish_come_from_the_driver(board: nvml.Nvml) -> None:
    order = "[info(nvml.nvmlDeviceCreateGpuInstance(gpus[0], 19))[2] for _ in range(7)]"
    assert sorted(board.do(order)) == [0, 1, 2, 3, 4, 5, 6]
    assert board.refusal("nvml.nvmlDeviceCreateGpuInstance(gpus[0], 19)") == INSUFFICIENT


def test_hopper_switches_mig_mode_at_once_unless_it_is_used(make_hardware: MakeHardware) -> None:
    hardware = make_hardware(machine="dgx-h100", gpus=1)
    with nvml.client(hardware) as client:
        client.do(HELPERS)
        assert client.refusal("create(19, 0, 1)") == "NotSupported"
        hardware.set_processes(0, [Process(pid=4711)])
        assert client.refusal("nvml.nvmlDeviceSetMigMode(gpus[0], 1)") == IN_USE
        hardware.set_processes(0, [])
        assert client.do("nvml.nvmlDeviceSetMigMode(gpus[0], 1)") == 0
        assert client.do("list(nvml.nvmlDeviceGetMigMode(gpus[0]))") == [1, 1]
        client.do("gi = create(19, 0, 1)")
        assert client.refusal("nvml.nvmlDeviceSetMigMode(gpus[0], 0)") == IN_USE


def test_ampere_switches_mig_mode_at_the_next_reset(make_hardware: MakeHardware) -> None:
    hardware = make_hardware(machine="dgx-a100", gpus=1)
    reset_required, in_use = 16, 19
    with nvml.client(hardware) as client:
        assert client.do("nvml.nvmlDeviceSetMigMode(gpus[0], 1)") == reset_required
        assert client.do("list(nvml.nvmlDeviceGetMigMode(gpus[0]))") == [0, 1]
        hardware.set_holders(0, 1)
        assert client.do("nvml.nvmlDeviceSetMigMode(gpus[0], 1)") == in_use
        hardware.set_holders(0, 0)
        hardware.reset(0)
        assert client.do("list(nvml.nvmlDeviceGetMigMode(gpus[0]))") == [1, 1]


def test_a_board_without_mig_says_so(make_hardware: MakeHardware) -> None:
    with nvml.client(make_hardware(machine="l4", gpus=1)) as client:
        assert client.refusal("nvml.nvmlDeviceGetMigMode(gpus[0])") == "NotSupported"
        assert (
            client.refusal("nvml.nvmlDeviceGetGpuInstanceProfileInfo(gpus[0], 0)") == "NotSupported"
        )
        assert client.do("nvml.nvmlDeviceGetMaxMigDeviceCount(gpus[0])") == 0


def test_a30_is_cut_into_four(make_hardware: MakeHardware) -> None:
    with nvml.client(make_hardware(machine="a30", gpus=1, mig=True)) as client:
        client.do(HELPERS)
        assert client.do("[info(create(14, start, 1))[0] for start in range(4)]") == [3, 4, 5, 6]
        assert client.refusal("create(5, 0, 2)") == INSUFFICIENT


STEPS = draw.lists(
    draw.tuples(draw.sampled_from([*mig_model.PLACES, (9, 2), (14, 6), (5, 4)]), draw.booleans()),
    max_size=14,
)


@settings(
    max_examples=40,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(steps=STEPS)
def test_the_library_allows_exactly_what_the_model_allows(
    steps: list[tuple[tuple[int, int], bool]], hopper: Hardware, board: nvml.Nvml
) -> None:
    """Creates at the drawn places, or destroys what stands there; the other GPU never notices."""
    for gi in hopper.snapshot().gpus[0].gpu_instances:
        hopper.destroy_mig(0, gi.id)
    layout: mig_model.Layout = frozenset()
    for (profile, start), is_removal in steps:
        if is_removal and (profile, start) in layout:
            board.do(f"nvml.nvmlGpuInstanceDestroy(instances.pop(({profile}, {start})))")
            layout -= {(profile, start)}
            continue
        order = f"instances[{profile}, {start}] = create({profile}, {start}, {mig_model.KINDS[profile].width})"
        if not mig_model.is_listed(profile, start):
            assert board.refusal(order) == INVALID
        elif mig_model.fits(layout, profile, start):
            board.do(order)
            layout |= {(profile, start)}
        elif (profile, start) not in layout:
            assert board.refusal(order) == INSUFFICIENT
    state = hopper.snapshot()
    assert {(gi.profile_id, gi.start) for gi in state.gpus[0].gpu_instances} == layout
    assert state.gpus[1].gpu_instances == ()


WALK = """
def is_allowed(profile, start, size):
    try:
        nvml.nvmlGpuInstanceDestroy(create(profile, start, size))
    except nvml.NVMLError_InsufficientResources:
        return False
    return True
def walk(layouts, places):
    for layout in layouts:
        standing = [create(*place) for place in layout]
        yield [place[:2] for place in places if is_allowed(*place)]
        for gi in standing:
            nvml.nvmlGpuInstanceDestroy(gi)
"""


def test_the_library_goes_on_from_any_layout_as_the_model_does(board: nvml.Nvml) -> None:
    """From every twelfth layout: all of them take a minute and a half."""
    layouts = sorted(mig_model.all_layouts(), key=sorted)
    assert len(layouts) == 1 + 2318  # the empty board, and what others have counted
    widths = {profile: kind.width for profile, kind in mig_model.KINDS.items()}
    places = [(profile, start, widths[profile]) for profile, start in mig_model.PLACES]
    board.do(WALK)
    some = layouts[::12]
    standing = [[(*place, widths[place[0]]) for place in layout] for layout in some]
    allowed = board.do(f"list(walk({standing!r}, {places!r}))")
    for layout, goes_on in zip(some, allowed, strict=True):
        expected = [list(place) for place in mig_model.PLACES if mig_model.fits(layout, *place)]
        assert goes_on == expected, layout
