"""Resets and reboots by hooks: only of GPUs that nothing holds, once for a request, with an answer in any case."""

from __future__ import annotations

import datetime
import sys
from pathlib import Path

import pytest

from dovetail.devcluster.fake_gpus import hardware_state
from dovetail.model.node_annotations import HealRequest, HealResponse
from dovetail.node import gpu_control
from dovetail.node.claims import checkpoint_file
from dovetail.node.requests import heal_hooks, hook_command
from dovetail.node.requests.heal_journal import HealJournal
from tests.node.claims.conftest import MakeNode
from tests.node.claims.node import Node

SMI = ("{smi}", "--gpu-reset", "-i", "{gpus}")


class SetClock:
    """A clock that stands where a story puts it."""

    def __init__(self) -> None:
        self.seconds = 1_000.0

    def now(self) -> datetime.datetime:
        return datetime.datetime.fromtimestamp(self.seconds, datetime.UTC)

    def monotonic(self) -> float:
        return self.seconds

    async def sleep(self, seconds: float) -> None:
        self.seconds += seconds


class Ward:
    """A node and its hooks; `restart` is another process of the agent."""

    def __init__(
        self, node: Node, *, reset: tuple[str, ...] = SMI, reboot: tuple[str, ...] = ()
    ) -> None:
        self.node = node
        self.clock = SetClock()
        self.resets: list[int] = []
        smi = str(node.hardware.nvidia_smi)
        words = tuple(word.replace("{smi}", smi) for word in reset)
        self.hooks = heal_hooks.Hooks(reset=words, reboot=reboot, seconds=60.0)
        self.restart()

    def restart(self) -> None:
        state = heal_hooks.NodeState(
            inventory=self.node.control.inventory,
            held_back=self.node.agent.held_back,
            processes=self.node.control.processes,
            paused=self.node.session.paused,
            note_reset=self.resets.extend,
        )
        self.healer = heal_hooks.HealHooks(
            self.hooks,
            state,
            HealJournal(self.node.plugin),
            boot_id=checkpoint_file.boot_id_of(self.node.boot_id_file),
            clock=self.clock,
        )

    def ask(self, action: str = "reset-gpu", *gpus: str, id_: str = "r-1") -> HealResponse | None:
        request = HealRequest(id=id_, action=action, gpus=gpus or ("gpu-0",))
        return self.node.run(self.healer.answer(request))

    def refused(self, action: str = "reset-gpu", *gpus: str) -> str:
        """The reason of a refusal, after the time that ending programs get."""
        first = self.ask(action, *gpus)
        if first is None:
            self.clock.seconds += heal_hooks.PATIENCE_SECONDS
            first = self.ask(action, *gpus)
        assert first is not None
        assert first.result == "refused", first
        return first.message

    @property
    def hardware_resets(self) -> list[int | None]:
        return [change.gpu for change in self.node.hardware.history() if change.event == "reset"]


def test_without_a_hook_a_request_is_refused(node: Node) -> None:
    ward = Ward(node, reset=())
    assert ward.refused() == "no hook for reset-gpu is configured"
    assert ward.refused("reboot") == "no hook for reboot is configured"
    assert ward.ask("replace") is None  # a person's work, whatever is configured


def test_the_hook_resets_the_gpu_that_was_asked_for_and_no_other(node: Node) -> None:
    ward = Ward(node)
    node.prepared("neighbour", "gpu-1")
    answer = ward.ask()
    assert answer is not None
    assert (answer.id, answer.result) == ("r-1", "done"), answer
    assert ward.hardware_resets == [0]
    assert ward.resets == [0]
    assert len(node.control.inventory().gpus) == 2  # the session is back


def test_a_gpu_that_a_claim_holds_is_not_reset_until_the_claim_has_ended(node: Node) -> None:
    ward = Ward(node)
    node.prepared("train", "gpu-0")
    assert ward.ask() is None  # its pod may be ending
    node.unprepare("train")
    answer = ward.ask()
    assert answer is not None
    assert answer.result == "done"
    node.run(ward.healer.answered())
    node.prepared("again", "gpu-0")
    assert "claim default/again" in ward.refused()
    assert ward.hardware_resets == [0]


def test_a_program_that_stays_on_the_gpu_is_named(node: Node) -> None:
    ward = Ward(node)
    process = hardware_state.Process(pid=4711, kind="compute", memory_bytes=1 << 30)
    node.hardware.set_processes(0, [process])
    assert ward.refused() == "after 120 s 1 processes hold gpu-0: 4711"
    assert ward.hardware_resets == []
    node.hardware.set_processes(0, [])
    answer = ward.ask()
    assert answer is not None
    assert answer.result == "done"


def test_partitions_of_an_administrator_are_not_destroyed_by_a_reset(make_node: MakeNode) -> None:
    node = make_node(mig="static", mig_mode=True, gpus=1)
    node.hardware.create_mig(0, 19, 0)
    assert "1 MIG devices on them belong to no claim" in Ward(node).refused()
    assert node.instances() == [("1g.10gb", 0)]


def test_an_unknown_gpu_is_refused(node: Node) -> None:
    assert Ward(node).refused("reset-gpu", "gpu-7") == "the driver does not know gpu-7"


@pytest.mark.parametrize(
    ("command", "words"),
    [
        ((sys.executable, "-c", "print('no luck'); raise SystemExit(3)"), "ended with 3: no luck"),
        (("/nowhere/nvidia-smi",), "/nowhere/nvidia-smi: No such file or directory"),
    ],
)
def test_a_hook_that_fails_is_reported(node: Node, command: tuple[str, ...], words: str) -> None:
    ward = Ward(node, reset=command)
    answer = ward.ask()
    assert answer is not None
    assert answer.result == "failed"
    assert words in answer.message
    assert ward.resets == []
    assert node.control.inventory().gpus


def test_a_hook_that_hangs_is_ended_with_its_children() -> None:
    # The child holds the pipe of the output: `run` would wait for it as long as it lives.
    ended = hook_command.run(["/bin/sh", "-c", "sleep 3600 & wait"], seconds=0.5)
    assert not ended.is_success
    assert "did not end within 0.5 s and was killed" in ended.said


def test_an_agent_killed_during_the_command_does_not_run_it_again(node: Node) -> None:
    ward = Ward(node)

    def die(*_: object) -> None:
        raise KeyboardInterrupt

    setattr(ward.healer, "_run", die)  # noqa: B010 a method of this object alone
    with pytest.raises(KeyboardInterrupt):
        ward.ask()
    ward.restart()
    answer = ward.ask()
    assert answer is not None
    assert answer.result == "failed"
    assert "the agent ended while the command ran" in answer.message
    ward.node.run(ward.healer.answered())
    assert ward.ask() is not None  # asked again, it is a new request


def test_an_answer_that_was_not_delivered_is_repeated_and_the_reset_is_not(node: Node) -> None:
    ward = Ward(node)
    first = ward.ask()
    ward.restart()
    assert ward.ask() == first
    assert ward.hardware_resets == [0]


def test_a_reboot_is_done_when_the_node_has_another_boot_id(node: Node, tmp_path: Path) -> None:
    mark = tmp_path / "rebooting"
    ward = Ward(node, reboot=("/bin/sh", "-c", f"echo now >> {mark}"))
    node.prepared("train", "gpu-1")
    assert ward.ask("reboot") is None
    assert not mark.exists()
    node.unprepare("train")
    assert ward.ask("reboot") is None
    assert ward.ask("reboot") is None  # under way
    assert mark.read_text() == "now\n"
    node.boot_id_file.write_text("boot-2\n")
    ward.restart()
    answer = ward.ask("reboot")
    assert answer is not None
    assert (answer.result, answer.message) == ("done", "the node has restarted")


def test_a_reboot_that_does_not_come_fails(node: Node) -> None:
    ward = Ward(node, reboot=("/bin/true",))
    assert ward.ask("reboot") is None
    ward.clock.seconds += 60 + heal_hooks.REBOOT_SECONDS
    answer = ward.ask("reboot")
    assert answer is not None
    assert answer.result == "failed"


def test_a_journal_that_cannot_be_read_begins_nothing(node: Node) -> None:
    ward = Ward(node)
    (node.plugin / "heal-request.json").write_text("{")
    answer = ward.ask()
    assert answer is not None
    assert answer.result == "failed"
    assert "heal-request.json cannot be read" in answer.message
    assert ward.hardware_resets == []


def test_while_a_gpu_is_reset_the_agent_keeps_away_from_the_driver(node: Node) -> None:
    with node.session.paused():
        with pytest.raises(gpu_control.DriverPaused):
            node.control.inventory()
        with pytest.raises(gpu_control.DriverPaused):
            node.control.processes(0)
    assert node.control.processes(0) == ()
