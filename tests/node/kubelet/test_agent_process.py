"""The agent as a process: signals while it works, two instances during a rolling update, a kill and a new start."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.node.kubelet import kubelet_side, services
from tests.support import waiting

pytestmark = pytest.mark.slow


class Agent:
    """One process of the agent under a kubelet's root."""

    def __init__(self, root: Path, pod_uid: str = "") -> None:
        self.registry = root / "plugins_registry"
        ending = f"{pod_uid}-reg.sock" if pod_uid else "com-reg.sock"
        self._ending = ending
        self.log = root / f"log-{pod_uid}"
        command = [sys.executable, "-m", "tests.node.kubelet.agent_process", str(root)]
        with self.log.open("a") as log:
            self.process = subprocess.Popen([*command, *([pod_uid] if pod_uid else [])], stderr=log)

    def wait_for_registration(self) -> Path:
        """The registration socket, once it is there."""
        path: Path = waiting.wait_until(
            self._registration, "the registration socket", so_far=self.log.read_text
        )
        return path

    def _registration(self) -> Path | None:
        assert self.process.poll() is None, self.log.read_text()
        paths = kubelet_side.registrations(self.registry)
        return next((path for path in paths if path.name.endswith(self._ending)), None)

    def exit_code(self) -> int:
        """How it ended."""
        return self.process.wait(timeout=waiting.GIVE_UP_SECONDS)


@contextlib.contextmanager
def agent(root: Path, pod_uid: str = "") -> Iterator[Agent]:
    """A process that does not outlive the test."""
    running = Agent(root, pod_uid)
    try:
        yield running
    finally:
        if running.process.poll() is None:
            running.process.kill()
        running.process.wait()


def steps(root: Path) -> list[str]:
    path = root / "steps"
    return path.read_text().splitlines() if path.exists() else []


def test_sigterm_during_a_slow_preparation_finishes_it_and_ends_with_zero(
    kubelet_root: Path,
) -> None:
    hold = kubelet_root / "hold"
    hold.touch()

    async def talk(running: Agent) -> None:
        registration = running.wait_for_registration()
        endpoint = await kubelet_side.service_of(registration)
        async with kubelet_side.connected(endpoint) as client:
            call = asyncio.create_task(client.prepare(services.claim(1)))
            await waiting.until(lambda: steps(kubelet_root), "the preparation to begin")
            running.process.send_signal(signal.SIGTERM)
            await waiting.until(lambda: not registration.exists(), "the registration to go")
            assert running.process.poll() is None
            hold.unlink()
            entries = await call
            assert entries["uid-1"].devices

    with agent(kubelet_root) as running:
        asyncio.run(talk(running))
        assert running.exit_code() == 0
        log = running.log.read_text()
    assert "agent.stopped" in log
    assert "Traceback" not in log
    assert not [path for path in kubelet_root.rglob("*") if path.is_socket()]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_an_idle_agent_ends_with_zero_and_leaves_no_socket(
    kubelet_root: Path, number: signal.Signals
) -> None:
    with agent(kubelet_root) as running:
        running.wait_for_registration()
        running.process.send_signal(number)
        assert running.exit_code() == 0
    assert not [path for path in kubelet_root.rglob("*") if path.is_socket()]


def test_during_a_rolling_update_both_serve_and_the_old_one_finishes_its_call(
    kubelet_root: Path,
) -> None:
    hold = kubelet_root / "hold"
    hold.touch()

    async def talk(old: Agent, new: Agent) -> None:
        old_endpoint = await kubelet_side.service_of(old.wait_for_registration())
        new_endpoint = await kubelet_side.service_of(new.wait_for_registration())
        assert old_endpoint != new_endpoint
        async with (
            kubelet_side.connected(old_endpoint) as to_old,
            kubelet_side.connected(new_endpoint) as to_new,
        ):
            first = asyncio.create_task(to_old.prepare(services.claim(1)))
            await waiting.until(lambda: steps(kubelet_root), "the old instance to begin")
            old.process.send_signal(signal.SIGTERM)
            await waiting.until(
                lambda: names(kubelet_root) == ["gpu.nvidia.com-new-reg.sock"],
                "the old registration to go",
            )
            second = asyncio.create_task(to_new.prepare(services.claim(2)))
            await waiting.until(lambda: len(steps(kubelet_root)) == 2, "the new one to begin")
            hold.unlink()
            assert (await first)["uid-1"].devices
            assert (await second)["uid-2"].devices

    with agent(kubelet_root, "old") as old, agent(kubelet_root, "new") as new:
        asyncio.run(talk(old, new))
        assert old.exit_code() == 0
        assert new.process.poll() is None
        assert names(kubelet_root) == ["gpu.nvidia.com-new-reg.sock"]


def names(root: Path) -> list[str]:
    return [path.name for path in kubelet_side.registrations(root / "plugins_registry")]


def test_after_a_kill_a_new_process_takes_the_same_sockets(
    kubelet_root: Path,
) -> None:
    hold = kubelet_root / "hold"
    hold.touch()

    async def begin(running: Agent) -> None:
        endpoint = await kubelet_side.service_of(running.wait_for_registration())
        async with kubelet_side.connected(endpoint) as client:
            call = asyncio.create_task(client.prepare(services.claim(1)))
            await waiting.until(lambda: steps(kubelet_root), "the preparation to begin")
            running.process.kill()
            running.exit_code()
            with pytest.raises(Exception, match="UNAVAILABLE"):
                await call

    async def again(running: Agent) -> None:
        await waiting.until(
            lambda: "sockets.serving" in running.log.read_text()[before:], "the new process"
        )
        endpoint = await kubelet_side.service_of(running.wait_for_registration())
        async with kubelet_side.connected(endpoint) as client:
            assert (await client.prepare(services.claim(1)))["uid-1"].devices

    with agent(kubelet_root) as killed:
        asyncio.run(begin(killed))
        before = len(killed.log.read_text())
    hold.unlink()
    with agent(kubelet_root) as restarted:
        asyncio.run(again(restarted))


def test_a_second_process_without_a_pod_uid_says_who_is_there_and_ends(kubelet_root: Path) -> None:
    with agent(kubelet_root) as first:
        first.wait_for_registration()
        with agent(kubelet_root) as second:
            assert second.exit_code() != 0
        assert "another process serves here" in first.log.read_text()
        assert first.process.poll() is None
