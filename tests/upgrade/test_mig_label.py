"""The MIG manager's label protocol: a change, a refusal, a manager that hangs, and its repair."""

from __future__ import annotations

from dovetail.upgrade.adapters import adapter
from dovetail.upgrade.adapters.adapter import Applied, ApplyFailed, Outcome, Target, Working
from dovetail.upgrade.adapters.mig_label_adapter import MigLabelAdapter
from tests.upgrade import trees
from tests.upgrade.mig_manager_player import CLIENTS, CONFIG, KNOWN, STATE, MigManager

MIG = MigLabelAdapter(stuck_seconds=1800)
MANAGER = trees.pod("nvidia-mig-manager", "test/mig-manager:v0.15.0", "a")
PLUGIN = trees.pod("nvidia-device-plugin-daemonset", "test/plugin:v0.20.0", "a", is_going=True)
TARGET = Target(mig_config="all-1g.10gb")


class Story:
    """A node with a manager, and the adapter beside it."""

    def __init__(self, config: str = "all-disabled") -> None:
        labels = {CONFIG: config, STATE: "success", **dict.fromkeys(CLIENTS, "true")}
        self.manager = MigManager(trees.node("a", labels))
        self.outcomes: list[Outcome] = []

    def step(self, seconds: int, target: Target = TARGET) -> Outcome:
        """The adapter's answer and its writes, then the manager."""
        facts = trees.facts("a", self.manager.node, MANAGER, PLUGIN, seconds=seconds)
        outcome = MIG.apply(facts, target)
        for write in outcome.writes if isinstance(outcome, Working) else ():
            self.manager.node = trees.written(self.manager.node, write)
        self.manager.act()
        self.outcomes.append(outcome)
        return outcome


def test_a_manager_whose_image_names_no_version_governs_its_node() -> None:
    manager = trees.pod("nvidia-mig-manager", "test/mig-manager@sha256:0123", "a")
    node = trees.node("a", {CONFIG: "all-disabled"})
    assert MIG.governs(trees.facts("a", node, manager), TARGET)
    assert not MIG.governs(trees.facts("a", node), TARGET)


def test_a_change_ends_with_the_managers_word_and_never_with_an_older_one() -> None:
    story = Story()
    asked = story.step(0)
    assert isinstance(asked, Working)
    assert asked.writes[0] == adapter.NodePatch(
        node="a",
        labels={CONFIG: "all-1g.10gb", STATE: None},
        annotations={"dovetail.dev/mig-repaired": None},
        why="the geometry is to change",
    )
    assert isinstance(story.step(1), Applied)


def test_a_manager_that_hangs_is_woken_up_and_the_client_that_does_not_end_is_named() -> None:
    story = Story()
    story.manager.client_ends = False
    story.step(0)
    waiting = story.step(600)
    assert isinstance(waiting, Working)
    assert not waiting.writes

    repair = story.step(1800)
    assert isinstance(repair, Working)
    assert "nvidia-device-plugin-daemonset-a (deleted, does not end)" in repair.waiting_for
    assert story.manager.labels[STATE] == "failed"  # refused, and its clients resumed
    assert [story.manager.labels[client] for client in CLIENTS] == ["true", "true"]

    story.manager.client_ends = True
    story.step(1810)
    assert isinstance(story.step(1820), Applied)


def test_a_second_hanging_has_its_own_time_and_is_then_a_failure() -> None:
    story = Story()
    story.manager.client_ends = False
    for seconds in (0, 1800, 1810):
        story.step(seconds)
    assert story.manager.labels[STATE] == "pending"
    assert isinstance(story.step(1820), Working)
    failed = story.step(3600)
    assert isinstance(failed, ApplyFailed)
    assert "hangs in all-1g.10gb a second time" in failed.reason


def test_a_refused_configuration_is_asked_for_once_more_and_fails_with_the_manager_to_ask() -> None:
    story = Story()
    target = Target(mig_config="broken")
    story.step(0, target)
    assert isinstance(story.step(1, target), Working)
    assert story.manager.labels[CONFIG] == "broken"
    story.step(120, target)
    assert story.manager.labels[CONFIG] == "dovetail-no-such-config"
    story.step(121, target)
    failed = story.step(122, target)
    assert isinstance(failed, ApplyFailed)
    assert failed.next_step == "kubectl logs -n gpu-operator nvidia-mig-manager-a"


def test_a_manager_that_read_its_file_too_early_gets_a_second_look() -> None:
    story = Story()
    story.manager.known = ("all-disabled",)
    story.step(0)
    story.step(119)
    assert story.manager.labels[STATE] == "failed"
    story.manager.known = KNOWN
    for seconds in (120, 121):
        assert isinstance(story.step(seconds), Working)
    assert isinstance(story.step(122), Applied)


def test_clients_left_paused_are_found_before_and_resumed_after_a_change() -> None:
    story = Story("all-1g.10gb")
    story.manager.labels[CLIENTS[0]] = "paused-for-mig-change"
    facts = trees.facts("a", story.manager.node, MANAGER)
    assert [problem.code for problem in MIG.unready(facts, TARGET)] == ["ClientsPaused"]
    assert isinstance(story.step(0), Working)
    assert isinstance(story.step(1), Applied)
    assert story.manager.labels[CLIENTS[0]] == "true"
