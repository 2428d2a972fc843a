"""Whole upgrades by the lifecycle process on a real API server, with NVIDIA's upgrade library at work beside it."""

from __future__ import annotations

import pytest

from tests.upgrade.driver_player import driver_image
from tests.upgrade.fleet.fleet_story import Fleet, fleet
from tests.upgrade.operator_story import NEW, OLD

pytestmark = pytest.mark.slow
TWO = {"maxUnavailable": "2", "canary": 1, "parallel": 2}
HOUR = 3600
VALIDATOR = "nvidia.com/gpu.deploy.operator-validator"


def with_work(story: Fleet) -> None:
    """Gangs across nodes, lone pods under a budget, and pods that stay."""
    story.gang("train", "bc")
    story.gang("tune", "cde")
    story.lone("serve", "af")
    story.budget("serve", maxUnavailable=1)
    story.bare("shell", "b")
    story.daemon("agent")


def test_a_fleet_is_upgraded_beside_the_library_and_nothing_is_left_over() -> None:
    with fleet(6) as story:
        with_work(story)
        story.taint("d")
        name = story.upgrade(waves=TWO)
        story.lives.begin()
        status = story.wait_ended()
        assert status["phase"] == "Completed", status
        assert set(story.phases().values()) == {"Done"}
        assert set(story.drivers().values()) == {driver_image(NEW)}
        checker = story.checked(most=2)
        assert checker.evictions >= 7
        assert checker.unfenced == 6

        story.api.delete("stackupgrades", name)
        story.wait(lambda: not story.exists(name), "the object to be released")


def test_a_driver_that_is_never_ready_stops_its_wave_and_one_that_recovers_does_not() -> None:
    with fleet(6) as story:
        story.gang("train", "cf")
        broken = {story.name("c"): 3, story.name("e"): 11}
        story.scene.player.broken = dict(broken)
        story.upgrade(waves=TWO, stop={"applySeconds": HOUR, "failures": 3})
        story.lives.begin()

        # c waits for its driver until the rule has had enough of it; an hour passes between two lives.
        def is_alone() -> bool:
            return "3 restarts, driver is in use" in story.reason("c") and story.moving() == {"c"}

        story.wait(is_alone, "c alone to be under way, with its reason")
        story.lives.stop()
        story.lives.set_clock(HOUR + 60)
        story.lives.begin()
        story.wait(lambda: story.phases()["c"] == "Failed", "c to fail")
        assert "driver pod" in story.reason("c")
        assert "3 restarts, driver is in use" in story.reason("c")

        # e is given up by the library after more than ten restarts, and goes on by itself when its pod is ready.
        story.wait_reason("e", "upgrade-failed: driver pod")
        assert "11 restarts" in story.reason("e")
        story.scene.player.broken = {story.name("c"): 3}

        status = story.wait_ended()
        assert status["phase"] == "Completed", status
        assert story.phases() == dict.fromkeys("abdef", "Done") | {"c": "Failed"}
        assert [wave["state"] for wave in status["waves"]].count("Stopped") == 1
        story.checked(most=2)


def test_a_missing_validator_a_silent_node_and_a_reboot_each_have_their_reason_and_end_well() -> (
    None
):
    with fleet(5) as story:
        c, d = story.name("c"), story.name("d")
        story.cordon("e")
        story.gang("train", "bcd")
        story.scene.label("b", {VALIDATOR: "false"})
        player = story.scene.player
        player.broken = {c: 1, d: 1}  # until they have had their accident
        story.upgrade(waves={"maxUnavailable": "5", "canary": 0}, stop={"applySeconds": HOUR})
        story.lives.begin()
        story.wait_reason("c", "1 restart")
        player.down = {c}
        story.wait_reason("c", "NotReady (KubeletStopped)")
        story.wait_reason("d", "1 restart")
        before = story.boot_id("d")
        player.reboot(d, turns=30)
        story.wait_reason("d", "NotReady")
        story.wait(lambda: story.boot_id("d") not in ("", before), "d to be back")
        story.wait_reason("b", "no validator pod")
        story.wait(lambda: story.phases()["a"] == "Done", "a to be done beside them")

        player.down, player.broken = set(), {}
        story.scene.label("b", {VALIDATOR: "true"})
        status = story.wait_ended()
        assert status["phase"] == "Completed", status
        assert set(story.phases().values()) == {"Done"}
        story.checked(most=5)  # nodes that went down are out of service beside those that we fenced


def test_clocks_that_are_set_by_hours_fail_no_node() -> None:
    with fleet(3) as story:
        story.gang("train", "bc")
        story.scene.player.broken = {story.name("b"): 1}
        story.upgrade(waves=TWO, stop={"applySeconds": HOUR})
        story.lives.begin()
        written = []
        for restarts, hours in enumerate((5, -7, 30), start=2):
            story.lives.set_clock(hours * HOUR)
            story.scene.player.broken = {story.name("b"): restarts}
            story.wait_reason("b", f"{restarts} restarts")
            written.append(story.status()["updatedAt"])
        assert written == sorted(written)
        story.scene.player.broken = {}
        status = story.wait_ended()
        assert status["phase"] == "Completed", status
        assert set(story.phases().values()) == {"Done"}
        story.checked(most=2)


@pytest.mark.long
def test_without_the_library_we_end_the_drivers_pods_and_all_go_back_after_a_failure() -> None:
    with fleet(4, autoUpgrade=False) as story:
        story.gang("train", "bd")
        story.player.faulty = {story.name("c"): NEW}
        story.upgrade(waves=TWO, rollback="AllNodes", stop={"failures": 1})
        story.lives.begin()
        status = story.wait_ended()
        assert status["phase"] == "Stopped"
        assert "XID 79" in status["reason"]
        assert set(story.drivers().values()) == {driver_image(OLD)}
        assert "Failed" not in story.phases().values()
        story.checked(most=2)
