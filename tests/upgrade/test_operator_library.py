"""Our adapter drives NVIDIA's own upgrade library through waves, and says why a node is stuck."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from dovetail.upgrade.adapters import adapter
from dovetail.upgrade.adapters.adapter import Applied, ApplyFailed, Working
from tests.support.waiting import wait_until
from tests.upgrade.driver_player import DRIVER, driver_image
from tests.upgrade.operator_story import NEW, OLD, STATE, Story, story

pytestmark = pytest.mark.slow
VALIDATOR_LABEL = "nvidia.com/gpu.deploy.operator-validator"


def is_applied(outcome: adapter.Outcome) -> bool:
    return isinstance(outcome, Applied)


def has_failed(outcome: adapter.Outcome) -> bool:
    return isinstance(outcome, ApplyFailed)


def waits_for(*words: str) -> Callable[[adapter.Outcome], bool]:
    def says(outcome: adapter.Outcome) -> bool:
        return isinstance(outcome, Working) and all(word in outcome.waiting_for for word in words)

    return says


def test_a_wave_goes_through_the_library_and_back_while_other_nodes_keep_their_driver() -> None:
    with (
        story("a", "b", "c") as scene,
        scene.api.record("nodes") as seen,
        scene.library_beside(),
    ):
        untouched = scene.driver("c")
        scene.drive("a", to=NEW, until=is_applied)
        assert (scene.driver("a")[1], scene.driver("b")[1]) == (
            driver_image(NEW),
            driver_image(OLD),
        )
        scene.drive("b", to=NEW, until=is_applied)
        assert scene.driver("c") == untouched
        assert scene.state("c") == "upgrade-required"

        # Back: the nodes that changed go through the library again, the other is found as it was.
        scene.drive("a", "b", "c", to=OLD, until=is_applied)
        assert [scene.driver(node)[1] for node in "abc"] == [driver_image(OLD)] * 3
        assert scene.driver("c") == untouched
        nodes = scene.fleet().of_nodes.values()
        assert [facts.name for facts in nodes if "driver-skip" in str(facts.annotations)] == []
        assert [facts.name for facts in nodes if facts.node.spec.unschedulable] == []

        states = [
            each.object["metadata"]["labels"].get(STATE, "") for each in seen.of(scene.name("c"))
        ]
        assert set(states) == {"upgrade-required", "upgrade-done"}


def test_a_pod_that_is_never_ready_is_named_and_after_more_than_10_restarts_fails_and_recovers() -> (
    None
):
    with story("a", "b") as scene:
        scene.player.working = OLD
        scene.player.broken = {scene.name("a"): 3}
        [waiting] = scene.drive("a", to=NEW, until=waits_for("driver pod", "3 restarts"))
        assert (
            "to be ready: container driver: CrashLoopBackOff, 3 restarts, driver is in use"
            in str(waiting)
        )

        scene.player.broken = {scene.name("a"): 11}
        wait_until(
            lambda: scene.turn(("a",), NEW) and scene.state("a") == "upgrade-failed", "a failure"
        )
        failed = scene.apply("a", NEW)
        assert isinstance(failed, ApplyFailed)
        assert failed.may_recover
        assert "upgrade-failed: driver pod" in failed.reason
        assert "11 restarts, driver is in use" in failed.reason

        # The only slot is held: the next node waits, and the library publishes no reason.
        [blocked] = scene.drive("b", to=NEW, until=waits_for("a slot of the operator"))
        assert isinstance(blocked, Working)
        assert f"upgrade-failed counts as in progress: {scene.name('a')}" in blocked.waiting_for

        scene.player.broken = {}
        scene.drive("a", "b", to=NEW, until=is_applied)
        assert scene.state("a") == "upgrade-done"


def test_a_missing_validator_a_node_that_is_not_ready_and_a_reboot_each_have_their_reason() -> None:
    with story("a") as scene:
        scene.label("a", {VALIDATOR_LABEL: "false"})
        [failed] = scene.drive("a", to=NEW, until=has_failed)
        assert isinstance(failed, ApplyFailed)
        assert (
            f"no validator pod, and the operator waits for one forever: its label {VALIDATOR_LABEL}"
            in failed.reason
        )
        assert scene.state("a") == "validation-required"

        # It reboots in the middle of its wave: no heartbeat, and the driver's container begins again.
        scene.player.down = {scene.name("a")}
        [waiting] = scene.drive("a", to=NEW, until=waits_for("Ready again"))
        assert "NotReady (KubeletStopped) in state validation-required" in str(waiting)
        scene.player.down = set()
        scene.label("a", {VALIDATOR_LABEL: "true"})
        scene.drive("a", to=NEW, until=is_applied)


def test_a_failed_eviction_names_the_pod_and_is_tried_again_when_the_pod_is_gone() -> None:
    with story("a") as scene:
        _bare_gpu_pod(scene, "a")
        [failed] = scene.drive("a", to=NEW, until=has_failed)
        assert isinstance(failed, ApplyFailed)
        assert f"could not evict 1 pods that request GPUs: {scene.namespace}/train" in failed.reason
        assert scene.driver("a")[1] == driver_image(OLD)

        scene.api.delete("pods", "train", scene.namespace, gracePeriodSeconds=0)
        scene.drive("a", to=NEW, until=is_applied)


def test_a_skip_label_does_not_hold_a_restart_and_the_next_plan_says_so() -> None:
    with story("a", "b") as scene:
        scene.drive("a", to=NEW, until=is_applied)
        uid, _ = scene.driver("b")
        pods = scene.api.list("pods", scene.namespace, labelSelector=f"app={DRIVER}")
        restarted = next(pod for pod in pods if pod["metadata"]["uid"] == uid)
        scene.api.delete("pods", restarted["metadata"]["name"], scene.namespace)
        wait_until(
            lambda: scene.turn((), NEW) == [] and scene.driver("b")[1] == driver_image(NEW),
            "the new driver on the skipped node",
        )
        problems = scene.adapter.unready(scene.facts("b"), adapter.Target(driver=NEW))
        assert "DriverChangedBeforeItsTurn" in [problem.code for problem in problems]
        scene.drive("b", to=NEW, until=is_applied)


def test_a_driver_pod_goes_at_once_when_a_label_moves_its_node_to_another_daemon_set() -> None:
    with story("a") as scene:
        before = scene.driver("a")
        scene.label("a", {"nvidia.com/gpu.deploy.driver": "another-daemon-set"})
        wait_until(lambda: scene.driver("a") == ("", ""), "the end of the driver's pod")
        assert before != ("", "")
        assert scene.state("a") == "upgrade-done"  # the upgrade controller had no part in it
        assert not scene.facts("a").node.spec.unschedulable


def test_without_auto_upgrade_the_pod_is_deleted_and_the_daemon_set_brings_the_driver() -> None:
    with story("a", "b") as scene:
        scene.set_policy(autoUpgrade=False)
        untouched = scene.driver("b")
        scene.drive("a", to=NEW, until=is_applied)
        assert scene.driver("b") == untouched
        assert [type(write) for write in scene.writes] == [adapter.ObjectPatch, adapter.PodDelete]


def _bare_gpu_pod(scene: Story, node: str) -> None:
    container = {
        "name": "main",
        "image": "test/train:1",
        "resources": {"limits": {"nvidia.com/gpu": "1"}},
    }
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "train", "labels": {"app": "train"}},
        "spec": {
            "nodeName": scene.name(node),
            "tolerations": [{"operator": "Exists"}],
            "containers": [container],
        },
    }
    scene.api.create("pods", pod, scene.namespace)
