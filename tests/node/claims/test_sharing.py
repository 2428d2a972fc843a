"""Time slicing, MPS and shares: what reaches the hardware, the daemons and the containers, and how it ends."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import pytest

from dovetail.node.kubelet.claim_service import Failed, Prepared
from tests.node.claims.conftest import MakeNode
from tests.node.claims.node import Node, mps, opaque, share, time_slicing
from tests.support.waiting import wait_until

DEFAULT, EXCLUSIVE = 0, 3  # NVML_COMPUTEMODE_*
GIB = 1024**3


def mode(node: Node, gpu: int = 0) -> int:
    return node.hardware.snapshot().gpus[gpu].compute_mode


def time_slice(node: Node, gpu: int = 0) -> int:
    return node.hardware.snapshot().gpus[gpu].time_slice


def running(pid: int) -> bool:
    """Whether a process exists and is no zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text("ascii").rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def memory_limits(node: Node) -> list[str]:
    """The limits that daemons were given, in order."""
    commands = [change.facts for change in node.hardware.history() if change.event == "mps"]
    return [facts["value"] for facts in commands if facts["verb"] == "memory"]


# ---- time slicing


def test_a_time_slice_is_set_and_reset(node: Node) -> None:
    node.prepared("notebook", "gpu-0", configs=[time_slicing("Long")])
    assert time_slice(node) == 3
    assert time_slice(node, 1) == 0
    assert node.unprepare("notebook") is None
    assert time_slice(node) == 0


def test_the_interval_defaults_and_class_configs_yield_to_claim_configs(node: Node) -> None:
    configs = [
        time_slicing("Short", source="FromClaim"),
        time_slicing("Long", source="FromClass"),
    ]
    node.prepared("a", "gpu-0", configs=configs)
    assert time_slice(node) == 1
    node.prepared("b", "gpu-1", configs=[time_slicing()])
    assert time_slice(node, 1) == 0


def test_a_config_for_one_request_leaves_the_others(node: Node) -> None:
    configs = [time_slicing("Medium", requests=["r1"])]
    node.prepared("pair", "gpu-0", "gpu-1", configs=configs)
    assert (time_slice(node, 0), time_slice(node, 1)) == (0, 2)


# ---- configs that are refused


@pytest.mark.parametrize(
    ("device", "config", "words"),
    [
        ("gpu-0", opaque("GpuConfig", sharing={"strategy": "Magic"}), "known: TimeSlicing, MPS"),
        ("gpu-0", opaque("GpuConfig", sharring={}), "unknown field 'sharring'"),
        ("gpu-0", time_slicing("Forever"), "known: Default, Short, Medium, Long"),
        (
            "gpu-0",
            opaque("GpuConfig", sharing={"strategy": "TimeSlicing", "mpsConfig": {}}),
            "not with strategy TimeSlicing",
        ),
        (
            "gpu-0",
            opaque("GpuConfig", sharing={"strategy": "MPS", "timeSlicingConfig": {}}),
            "not with strategy MPS",
        ),
        ("gpu-0", mps(defaultActiveThreadPercentage=101), "101 is not between 0 and 100"),
        ("gpu-0", mps(defaultPinnedDeviceMemoryLimit="1Ki"), "less than 1Mi"),
        ("gpu-0", mps(defaultPinedDeviceMemoryLimit="1Gi"), "defaultPinedDeviceMemoryLimit"),
        ("gpu-0", mps(defaultPerDevicePinnedMemoryLimit={"3": "1Gi"}), "none of the devices"),
        ("gpu-0", opaque("VfioDeviceConfig"), "virtual machines"),
        ("gpu-0", opaque("ComputeDomainChannelConfig"), "compute-domain.nvidia.com"),
        ("gpu-0", opaque("TpuConfig"), "known: GpuConfig, MigDeviceConfig"),
        ("gpu-0", opaque("MigDeviceConfig", requests=["r0"]), "MigDeviceConfig is not for gpu-0"),
        (
            "gpu-0-mig-1g10gb-19-0",
            opaque(
                "MigDeviceConfig",
                sharing={"strategy": "TimeSlicing", "timeSlicingConfig": {}},
            ),
            "timeSlicingConfig",
        ),
        ({"device": "gpu-0", "adminAccess": True}, time_slicing("Long"), "admin access takes no"),
    ],
)
def test_a_config_that_cannot_be_honoured_is_refused_by_name(
    node: Node, device: Any, config: Any, words: str
) -> None:
    before = len(node.hardware.history())
    assert words in node.refused("claim", device, configs=[config])
    assert len(node.hardware.history()) == before, "nothing was done to the hardware"


def test_an_unscoped_config_for_another_kind_of_device_is_passed_over(node: Node) -> None:
    configs = [time_slicing("Long"), opaque("MigDeviceConfig")]
    node.prepared("mixed", "gpu-0", "gpu-1-mig-1g10gb-19-0", configs=configs)
    assert time_slice(node) == 3


def test_configs_of_other_drivers_are_not_ours_to_judge(node: Node) -> None:
    config = opaque("Whatever")
    config["opaque"]["driver"] = "nic.example.com"
    node.prepared("train", "gpu-0", configs=[config])


# ---- MPS


def test_an_mps_daemon_runs_for_as_long_as_its_claim(node: Node) -> None:
    config = mps(
        defaultActiveThreadPercentage=40,
        defaultPinnedDeviceMemoryLimit="10Gi",
        defaultPerDevicePinnedMemoryLimit={"1": "2Gi"},
    )
    node.prepared("infer", "gpu-0", "gpu-1", configs=[config])
    state = node.hardware.snapshot()
    (daemon,) = state.mps_daemons
    assert daemon.active_thread_percentage == 40
    assert daemon.visible_devices == ",".join(gpu.uuid for gpu in state.gpus)
    assert [gpu.compute_mode for gpu in state.gpus] == [EXCLUSIVE, EXCLUSIVE]
    first, second = (gpu.uuid for gpu in state.gpus)
    assert set(memory_limits(node)) == {f"{first}=10240M", f"{second}=2048M"}

    edits = node.cdi_spec("infer")["devices"][0]["containerEdits"]
    home = node.plugin / "mps" / node.uid("infer")
    assert edits["env"] == ["CUDA_MPS_PIPE_DIRECTORY=/tmp/nvidia-mps"]
    mounts = {mount["containerPath"]: mount["hostPath"] for mount in edits["mounts"]}
    assert mounts == {"/dev/shm": str(home / "shm"), "/tmp/nvidia-mps": str(home / "pipe")}
    assert os.path.ismount(home / "shm")

    assert node.unprepare("infer") is None
    assert not home.exists()
    assert [gpu.compute_mode for gpu in node.hardware.snapshot().gpus] == [DEFAULT, DEFAULT]
    node.assert_clean((0, 1))


def test_a_daemon_that_died_is_started_again_with_its_limits(node: Node) -> None:
    node.prepared("infer", "gpu-0", configs=[mps(defaultActiveThreadPercentage=30)])
    (daemon,) = node.hardware.snapshot().mps_daemons
    os.kill(daemon.pid, signal.SIGKILL)
    wait_until(lambda: not running(daemon.pid), "the daemon has died")
    node.run(node.agent.maintain())
    *_, again = (
        node.hardware.snapshot().mps_daemons
    )  # the machine still lists the one that was killed
    assert running(again.pid)
    assert again.active_thread_percentage == 30
    assert node.unprepare("infer") is None


@pytest.mark.slow
def test_a_daemon_that_hangs_is_ended_with_its_claim(node: Node) -> None:
    node.prepared("infer", "gpu-0", configs=[mps()])
    (daemon,) = node.hardware.snapshot().mps_daemons
    os.kill(daemon.pid, signal.SIGSTOP)
    assert node.unprepare("infer") is None
    wait_until(lambda: not running(daemon.pid), "the daemon has ended")
    assert mode(node) == DEFAULT
    assert not list((node.plugin / "mps").iterdir())


def test_a_limit_the_daemon_does_not_take_fails_the_claim(node: Node) -> None:
    config = mps(defaultActiveThreadPercentage=0)  # MPS itself wants more than that
    assert "active thread percentage" in node.refused("infer", "gpu-0", configs=[config])
    node.assert_clean()
    assert mode(node) == DEFAULT


def test_an_agent_that_starts_keeps_running_daemons_and_ends_strays(node: Node) -> None:
    node.prepared("infer", "gpu-0", configs=[mps()])
    (daemon,) = node.hardware.snapshot().mps_daemons
    node.restart()
    node.run(node.agent.maintain())
    assert [kept.pid for kept in node.hardware.snapshot().mps_daemons] == [daemon.pid]
    assert node.unprepare("infer") is None


def test_mps_runs_inside_a_partition(node: Node) -> None:
    node.prepared("infer", "gpu-0-mig-3g40gb-9-0", configs=[mps("MigDeviceConfig")])
    state = node.hardware.snapshot()
    (daemon,) = state.mps_daemons
    assert daemon.visible_devices == state.gpus[0].gpu_instances[0].compute_instances[0].uuid
    assert state.gpus[0].compute_mode == DEFAULT
    assert node.unprepare("infer") is None
    node.assert_clean()


def test_one_daemon_does_not_serve_two_partitions(node: Node) -> None:
    devices = ("gpu-0-mig-1g10gb-19-0", "gpu-0-mig-1g10gb-19-1")
    message = node.refused("infer", *devices, configs=[mps("MigDeviceConfig")])
    assert "a daemon serves one MIG device" in message
    configs = [
        mps("MigDeviceConfig", {"requests": ["r0"]}),
        mps("MigDeviceConfig", {"requests": ["r1"]}),
    ]
    node.prepared("apart", *devices, configs=configs)
    assert len(node.hardware.snapshot().mps_daemons) == 2
    assert node.unprepare("apart") is None
    node.assert_clean()


def test_a_driver_without_mps_programs_is_a_clear_failure(node: Node) -> None:
    node.hardware.mps_control.unlink()
    assert "has no nvidia-cuda-mps-control" in node.refused("infer", "gpu-0", configs=[mps()])
    assert mode(node) == DEFAULT
    assert node.checkpoint()["claims"] == {}


# ---- shares of a device


def test_shares_of_a_gpu_fit_until_its_memory_is_used_up(node: Node) -> None:
    node.prepared("a", share("gpu-0", memory="40Gi"))
    node.prepared("b", share("gpu-0", memory="30Gi"))
    message = node.refused("c", share("gpu-0", memory="20Gi"))
    assert "would take 90Gi of memory" in message
    assert "in use" in node.refused("whole", "gpu-0")
    assert "in use" in node.refused("slice", "gpu-0-mig-1g10gb-19-0")
    assert node.unprepare("a") is None
    assert isinstance(node.prepare("c"), Prepared)


def test_shares_in_parts_of_a_gpu_fit_until_it_is_whole(node: Node) -> None:
    node.prepared("a", share("gpu-0", share="500m"))
    node.prepared("b", share("gpu-0", share="500m"))
    assert "of dovetail.dev/share" in node.refused("c", share("gpu-0", share="10m"))


def test_one_claim_can_have_two_shares_of_a_gpu(node: Node) -> None:
    answer = node.prepared("a", share("gpu-0", memory="4Gi"), share("gpu-0", memory="8Gi"))
    assert len({device.share_id for device in answer.devices}) == 2
    assert len(node.cdi_spec("a")["devices"]) == 1


def test_shares_of_a_partition_use_one_instance_until_the_last_ends(node: Node) -> None:
    device = "gpu-0-mig-3g40gb-9-0"
    node.prepared("a", share(device, memory="10Gi"))
    node.prepared("b", share(device, memory="10Gi"))
    assert node.instances() == [("3g.40gb", 0)]
    assert node.unprepare("a") is None
    assert node.instances() == [("3g.40gb", 0)]
    assert node.unprepare("b") is None
    node.assert_clean()


def test_the_memory_of_a_share_is_enforced_by_the_daemon_of_its_claim(node: Node) -> None:
    node.prepared("a", share("gpu-0", memory="10Gi", share="250m"), configs=[mps()])
    config = mps(defaultPinnedDeviceMemoryLimit="4Gi")
    node.prepared("b", share("gpu-0", memory="20Gi"), configs=[config])
    uuid = node.hardware.snapshot().gpus[0].uuid
    assert memory_limits(node) == [f"{uuid}=10240M", f"{uuid}=4096M"]
    assert mode(node) == DEFAULT, "two MPS servers share the GPU, so none has it alone"
    first = node.hardware.snapshot().mps_daemons[0]
    assert first.active_thread_percentage == 25
    assert node.unprepare("a") is None
    assert len(node.hardware.snapshot().mps_daemons) == 1


def test_claims_on_one_gpu_must_agree_how_to_share_it(node: Node) -> None:
    node.prepared("a", share("gpu-0", memory="1Gi"), configs=[time_slicing("Short")])
    message = node.refused("b", share("gpu-0", memory="1Gi"), configs=[time_slicing("Long")])
    assert "must agree" in message
    assert "must agree" in node.refused("c", share("gpu-0", memory="1Gi"), configs=[mps()])
    node.prepared("d", share("gpu-0", memory="1Gi"), configs=[time_slicing("Short")])
    assert node.unprepare("a") is None
    assert time_slice(node) == 1, "another claim still wants it"
    assert node.unprepare("d") is None
    assert time_slice(node) == 0


def test_mps_can_serve_several_users(make_node: MakeNode) -> None:
    node = make_node("t4", gpus=1)
    node.prepared("infer", "gpu-0", configs=[mps(multiUser=True)])
    assert not isinstance(node.unprepare("infer"), Failed)
