"""Random lives of a machine: after every change the agent reads what the hardware itself states."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dovetail.devcluster.fake_gpus.hardware import Hardware, Refused
from dovetail.node import gpu_control, inventory
from tests.node.nvml.conftest import Machine, require_compiler

pytestmark = pytest.mark.slow

GPUS = 2
PROFILES = (19, 20, 15, 14, 9, 5, 0)

minors = st.integers(0, GPUS - 1)
deeds = st.one_of(
    st.tuples(st.just("lose"), minors),
    st.tuples(st.just("restore"), minors),
    st.tuples(st.just("mig on by hand"), minors),
    st.tuples(st.just("mig off by hand"), minors),
    st.tuples(st.just("cut by hand"), minors, st.sampled_from(PROFILES)),
    st.tuples(st.just("mig on"), minors),
    st.tuples(st.just("mig off"), minors),
    st.tuples(st.just("cut"), minors, st.sampled_from(PROFILES), st.integers(0, 7)),
    st.tuples(st.just("remove"), minors, st.integers(0, 14)),
    st.tuples(st.just("reload"), st.sampled_from(["580.95.05", "590.44.01"])),
)
Deed = tuple[str | int, ...]


@settings(max_examples=40)
@given(life=st.lists(deeds, min_size=1, max_size=12))
def test_the_inventory_is_what_the_hardware_states(life: list[Deed]) -> None:
    require_compiler()
    with tempfile.TemporaryDirectory(prefix="dovetail-life-") as folder:
        machine = Machine(Hardware.create(Path(folder) / "machine", machine="dgx-h100", gpus=GPUS))
        for deed in life:
            perform(machine, deed)
            assert stated(machine.control.inventory()) == expected(machine.hardware)
        machine.session.close()


def perform(machine: Machine, deed: Deed) -> None:
    """Does it, or not if the hardware or the agent refuses."""
    hardware, control = machine.hardware, machine.control
    try:
        match deed:
            case ("lose", int(minor)):
                hardware.lose(minor)
            case ("restore", int(minor)):
                hardware.restore(minor)
            case ("mig on by hand" | "mig off by hand" as words, int(minor)):
                hardware.set_mig_mode(minor, words == "mig on by hand")
            case ("cut by hand", int(minor), int(profile)):
                hardware.create_mig(minor, profile)
            case ("mig on" | "mig off" as words, int(minor)):
                control.set_mig_mode(minor, enabled=words == "mig on")
            case ("cut", int(minor), int(profile), int(start)):
                control.create_mig_device(minor, gi_profile_id=profile, start=start)
            case ("remove", int(minor), int(gi_id)):
                control.destroy_mig_device(minor, gi_id=gi_id)
            case ("reload", str(version)):
                hardware.reload_driver(version)
            case _:
                raise AssertionError(deed)
    except (Refused, gpu_control.GpuFailure):
        return


def stated(read: inventory.Inventory) -> object:
    """What the agent read, in the hardware's own words."""
    gpus = [
        (
            gpu.uuid,
            gpu.is_mig_enabled,
            sorted(
                (mig.gi_id, mig.ci_id, mig.uuid, mig.gi_profile_id, mig.placement.start)
                for mig in gpu.mig_devices
            ),
        )
        for gpu in read.gpus
    ]
    return (read.driver_version, gpus, [gpu.index for gpu in read.unread])


def expected(hardware: Hardware) -> object:
    """The same from the hardware's state."""
    machine = hardware.snapshot()
    gpus = [
        (
            gpu.uuid,
            bool(gpu.mig_mode),
            sorted(
                (instance.id, compute.id, compute.uuid, instance.profile_id, instance.start)
                for instance in gpu.gpu_instances
                for compute in instance.compute_instances
            ),
        )
        for gpu in machine.gpus
        if not gpu.lost
    ]
    lost = [index for index, gpu in enumerate(machine.gpus) if gpu.lost]
    return (machine.driver_version, gpus, lost)
