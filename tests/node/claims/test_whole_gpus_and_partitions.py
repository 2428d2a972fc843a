"""Whole GPUs and MIG devices, from the kubelet's request to the hardware and back."""

from __future__ import annotations

from dovetail.devcluster.fake_gpus.hardware_state import Process
from dovetail.node.kubelet.claim_service import ClaimReference, Failed, Prepared
from tests.node.claims.conftest import MakeNode
from tests.node.claims.node import Node
from tests.support.waiting import wait_until

UNKNOWN_CODE = 999  # NVML_ERROR_UNKNOWN


def test_a_whole_gpu_is_prepared_and_leaves_nothing_behind(node: Node) -> None:
    answer = node.prepared("train", "gpu-0")
    (device,) = answer.devices
    assert device.device_name == "gpu-0"
    assert device.request_names == ("r0",)
    assert device.cdi_device_ids == (f"k8s.gpu.nvidia.com/claim={node.uid('train')}-gpu-0",)
    assert node.cdi_files() == [f"k8s.gpu.nvidia.com-claim_{node.uid('train')}.yaml"]
    assert node.unprepare("train") is None
    node.assert_clean()


def test_a_partition_is_made_for_its_claim_and_destroyed_with_it(node: Node) -> None:
    node.prepared("eval", "gpu-0-mig-3g40gb-9-4")
    assert node.instances() == [("3g.40gb", 4)]
    assert node.is_mig_on()
    assert node.unprepare("eval") is None
    node.assert_clean()
    assert not node.is_mig_on(), "the agent switched MIG mode on, so it switches it off"


def test_preparing_twice_gives_the_same_answer_and_makes_nothing_twice(node: Node) -> None:
    first = node.prepared("eval", "gpu-0-mig-1g10gb-19-0")
    before = len(node.hardware.history())
    assert node.prepare("eval") == first
    assert len(node.hardware.history()) == before


def test_a_whole_node_of_partitions_fits_side_by_side(node: Node) -> None:
    for start in range(7):
        node.prepared(f"slice-{start}", f"gpu-0-mig-1g10gb-19-{start}")
    assert len(node.instances()) == 7
    for start in range(7):
        assert node.unprepare(f"slice-{start}") is None
        assert node.is_mig_on() == (start < 6), "MIG mode goes off with the last partition"
    node.assert_clean()


def test_one_claim_can_have_several_devices(node: Node) -> None:
    answer = node.prepared("mixed", "gpu-1", "gpu-0-mig-2g20gb-14-0", "gpu-0-mig-2g20gb-14-4")
    assert answer.devices[0].device_name == "gpu-1"
    assert node.instances() == [("2g.20gb", 0), ("2g.20gb", 4)]
    assert node.unprepare("mixed") is None
    node.assert_clean((0, 1))


# ---- the last line against double use


def test_the_same_gpu_is_not_prepared_for_two_claims(node: Node) -> None:
    node.prepared("first", "gpu-0")
    assert node.uid("first") in node.refused("second", "gpu-0")
    assert node.unprepare("first") is None
    assert isinstance(node.prepare("second"), Prepared)


def test_partitions_of_other_names_with_the_same_silicon_are_refused(node: Node) -> None:
    node.prepared("first", "gpu-0-mig-3g40gb-9-4")
    assert "in use" in node.refused("inside", "gpu-0-mig-1g10gb-19-6")
    assert "in use" in node.refused("whole", "gpu-0")
    node.prepared("beside", "gpu-0-mig-4g40gb-5-0")


def test_a_claim_cannot_have_the_same_silicon_twice(node: Node) -> None:
    message = node.refused("both", "gpu-0", "gpu-0-mig-1g10gb-19-0")
    assert "same silicon" in message
    assert node.instances() == []


def test_admin_access_goes_beside_the_owner(node: Node) -> None:
    node.prepared("owner", "gpu-0")
    node.prepared("monitor", {"device": "gpu-0", "adminAccess": True})
    node.prepared("slice", "gpu-1-mig-1g10gb-19-0")
    node.prepared("monitor-1", {"device": "gpu-1", "adminAccess": True})
    assert node.instances(1) == [("1g.10gb", 0)]
    message = node.refused("odd", {"device": "gpu-1-mig-1g10gb-19-1", "adminAccess": True})
    assert "admin access is for whole GPUs" in message


def test_an_instance_of_an_administrator_is_left_alone_and_blocks_its_silicon(node: Node) -> None:
    node.hardware.set_mig_mode(0, True)
    node.hardware.create_mig(0, 9, 4)
    node.restart()
    assert "not made by the agent" in node.refused("over", "gpu-0-mig-1g10gb-19-5")
    assert "not made by the agent" in node.refused("whole", "gpu-0")
    node.prepared("beside", "gpu-0-mig-1g10gb-19-0")
    assert node.unprepare("beside") is None
    assert node.instances() == [("3g.40gb", 4)]
    assert node.is_mig_on(), "an administrator switched it on"


def test_idle_mig_mode_gives_way_to_a_claim_for_the_whole_gpu(node: Node) -> None:
    node.hardware.set_mig_mode(0, True)
    node.prepared("train", "gpu-0")
    assert not node.is_mig_on()


def test_a_monitor_that_holds_a_gpu_blocks_mig_mode_and_not_the_end_of_a_claim(node: Node) -> None:
    node.prepared("eval", "gpu-0-mig-1g10gb-19-0")
    node.hardware.set_holders(0, 1)
    assert node.unprepare("eval") is None
    node.assert_clean()
    assert node.is_mig_on()
    assert "in use" in node.refused("train", "gpu-0").lower()
    node.run(node.agent.maintain())
    assert node.is_mig_on()
    node.hardware.set_holders(0, 0)
    node.run(node.agent.maintain())
    assert not node.is_mig_on()
    node.hardware.set_holders(1, 1)
    assert "in use" in node.refused("late", "gpu-1-mig-1g10gb-19-0").lower()
    node.assert_clean((0, 1))


# ---- generations of hardware


def test_ampere_needs_mig_mode_before_and_keeps_it(make_node: MakeNode) -> None:
    off = make_node("dgx-a100-40")
    assert "reset" in off.refused("eval", "gpu-0-mig-3g20gb-9-0")
    off.assert_clean()
    ready = make_node("dgx-a100-40", mig_mode=True)
    ready.prepared("eval", "gpu-0-mig-3g20gb-9-0")
    assert ready.unprepare("eval") is None
    assert ready.is_mig_on()
    assert "reset" in ready.refused("whole", "gpu-0")


def test_static_partitions_are_used_and_never_destroyed(make_node: MakeNode) -> None:
    node = make_node(mig="static", mig_mode=True)
    node.hardware.create_mig(0, 9, 0)
    node.restart()
    assert "has no MIG device 3g.40gb at memory slice 4" in node.refused(
        "absent", "gpu-0-mig-3g40gb-9-4"
    )
    node.prepared("eval", "gpu-0-mig-3g40gb-9-0")
    assert "in use" in node.refused("again", "gpu-0-mig-3g40gb-9-0")
    assert "MIG mode is on" in node.refused("whole", "gpu-1")
    assert node.unprepare("eval") is None
    assert node.instances() == [("3g.40gb", 0)]


def test_a_node_without_partitions_refuses_them(make_node: MakeNode) -> None:
    node = make_node(mig="off")
    assert "--mig off" in node.refused("eval", "gpu-0-mig-1g10gb-19-0")
    without = make_node("l4", gpus=1)
    without.prepared("infer", "gpu-0")
    assert "has no GPU instance profile" in without.refused("eval", "gpu-0-mig-1g10gb-19-0")


# ---- claims that are not what they seem


def test_claims_that_cannot_be_read_as_asked_fail_with_a_reason(node: Node) -> None:
    reference = node.allocate("train", "gpu-0")
    stale = ClaimReference("default", "train", "another-uid")
    absent = ClaimReference("default", "absent", "no-uid")
    answers = node.run(node.agent.prepare([stale, absent, reference]))
    assert "is another one now" in answers["another-uid"].message  # type: ignore[union-attr]
    assert "no such claim" in answers["no-uid"].message  # type: ignore[union-attr]
    assert isinstance(answers[reference.uid], Prepared)
    assert node.run(node.agent.unprepare([stale, absent])) == {"another-uid": None, "no-uid": None}
    assert len(node.cdi_files()) == 1, "what belongs to the claim of that uid stays"


def test_a_claim_without_devices_of_this_driver_is_ready_at_once(node: Node) -> None:
    answer = node.prepared("nic", {"device": "eth0", "driver": "nic.example.com"})
    assert answer == Prepared(())
    assert node.cdi_files() == []


def test_devices_this_node_does_not_have_are_refused_by_name(node: Node) -> None:
    assert "reports gpu-0, gpu-1" in node.refused("a", "gpu-9")
    assert "named like that" in node.refused("b", "tpu-0")
    assert "cannot start at memory slice 3" in node.refused("c", "gpu-0-mig-3g40gb-9-3")
    assert "is named gpu-0-mig-3g40gb-9-0" in node.refused("d", "gpu-0-mig-3g71gb-9-0")
    assert "virtual machines" in node.refused("e", "gpu-vfio-0")
    assert "pool other" in node.refused("f", "gpu-0", pool="other")


def test_a_claim_allocated_elsewhere_since_gives_its_first_devices_back(node: Node) -> None:
    node.prepared("moving", "gpu-0-mig-1g10gb-19-0")
    node.reallocate("moving", "gpu-1")
    answer = node.prepare("moving")
    assert isinstance(answer, Prepared)
    assert answer.devices[0].device_name == "gpu-1"
    assert node.instances() == []
    node.prepared("next", "gpu-0")


def test_unpreparing_works_after_the_claim_was_deleted(node: Node) -> None:
    node.prepared("eval", "gpu-0-mig-1g10gb-19-0")
    node.delete("eval")
    assert node.unprepare("eval") is None
    assert node.unprepare("eval") is None
    node.assert_clean()


# ---- hardware that fails


def test_a_partition_that_a_driver_reload_took_away_is_made_again(node: Node) -> None:
    node.prepared("eval", "gpu-0-mig-1g10gb-19-0")
    node.hardware.reload_driver()
    assert node.instances() == []
    assert isinstance(node.prepare("eval"), Prepared)
    assert node.instances() == [("1g.10gb", 0)]


def test_a_partition_in_use_is_kept_until_its_process_ends(node: Node) -> None:
    node.prepared("eval", "gpu-0-mig-1g10gb-19-0")
    gi = node.hardware.snapshot().gpus[0].gpu_instances[0].id
    node.hardware.set_processes(0, [Process(pid=4711, gi=gi, ci=0)])
    failure = node.unprepare("eval")
    assert isinstance(failure, Failed)
    assert "in use" in failure.message.lower()
    assert "in use" in node.refused("next", "gpu-0")
    node.hardware.set_processes(0, [])
    assert node.unprepare("eval") is None
    node.assert_clean()


def test_a_failed_creation_is_rolled_back_at_once(node: Node) -> None:
    node.hardware.fail("nvmlGpuInstanceCreateComputeInstance", UNKNOWN_CODE)
    message = node.refused("eval", "gpu-0-mig-1g10gb-19-0")
    assert "create MIG device" in message
    node.assert_clean()
    assert not node.is_mig_on()
    node.hardware.release()
    assert isinstance(node.prepare("eval"), Prepared)


def test_a_lost_gpu_is_refused_and_its_claims_can_end(node: Node) -> None:
    node.prepared("eval", "gpu-0-mig-1g10gb-19-0")
    node.prepared("train", "gpu-1")
    node.hardware.lose(0)
    node.hardware.lose(1)
    assert "gpu-1" in node.refused("next", "gpu-1")
    assert node.unprepare("eval") is None
    assert node.unprepare("train") is None
    assert node.checkpoint()["claims"] == {}


def test_a_partition_left_on_a_lost_gpu_is_destroyed_when_the_gpu_is_back(node: Node) -> None:
    node.prepared("eval", "gpu-0-mig-1g10gb-19-0")
    node.hardware.lose(0)
    assert node.unprepare("eval") is None
    node.restart()
    node.hardware.restore(0)
    node.session.reopen()
    assert node.instances() == [("1g.10gb", 0)]
    node.prepared("next", "gpu-0-mig-3g40gb-9-0")
    assert node.instances() == [("3g.40gb", 0)]
    assert node.unprepare("next") is None
    assert node.checkpoint().get("orphans") is None


def test_a_driver_that_hangs_fails_the_claim_and_not_the_agent(make_node: MakeNode) -> None:
    node = make_node(keeps_inventory=True)
    patience = node.session.call_seconds
    node.hardware.hang("nvmlDeviceGetComputeMode")
    node.session.call_seconds = 0.5
    assert "did not answer" in node.refused("train", "gpu-0")
    node.session.call_seconds = patience
    node.hardware.release()
    assert isinstance(_prepared_in_the_end(node, "train"), Prepared)


def _prepared_in_the_end(node: Node, name: str) -> Prepared | Failed:
    """The lane of a GPU is free again once its overdue call has returned."""

    def attempt() -> Prepared | None:
        answer = node.prepare(name)
        return answer if isinstance(answer, Prepared) else None

    answer = wait_until(attempt, "the claim is prepared after the driver answers again")
    assert isinstance(answer, Prepared)
    return answer
