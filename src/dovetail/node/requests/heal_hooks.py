"""Carries out a reset or a reboot that the healer asks for, through commands that the node's owner configured.

Given a request, answers done, failed or refused, or nothing yet. A command runs only while no claim and no process
holds the GPUs, with nothing prepared on them meanwhile and the agent's own session with the driver closed; it runs once
for a request, whatever becomes of the agent. Without a command the request is refused. Never decides what helps.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from typing import Final, NamedTuple

from dovetail import errors
from dovetail.model.node_annotations import DONE, FAILED, REFUSED, HealRequest, HealResponse
from dovetail.node.claims import checkpoint
from dovetail.node.inventory import Gpu, Inventory
from dovetail.node.requests import hook_command
from dovetail.node.requests.heal_journal import Begun, HealJournal
from dovetail.ports import clock as clocks

PATIENCE_SECONDS: Final = 120.0  # for programs that are ending
REBOOT_SECONDS: Final = 600.0  # from a command that succeeded to the end of this boot
RESETS: Final = frozenset({"reset-gpu", "drain-and-reset"})  # as the healer names its remedies
REBOOT: Final = "reboot"
MOST_WORDS: Final = 400  # of a command's output in an answer

LOG = logging.getLogger("dovetail.node.requests")


class Hooks(NamedTuple):
    """The commands of the node's owner; empty ones are not there."""

    reset: tuple[str, ...] = ()
    reboot: tuple[str, ...] = ()
    seconds: float = 300.0  # until a command is ended

    def of(self, action: str) -> tuple[str, ...]:
        """The command for an action."""
        return self.reboot if action == REBOOT else self.reset


class NodeState(NamedTuple):
    """What the hooks ask the rest of the agent."""

    inventory: Callable[[], Inventory]
    held_back: Callable[[Iterable[int]], AbstractAsyncContextManager[tuple[checkpoint.Claim, ...]]]
    processes: Callable[[int], Sequence[int]]  # blocks; raises GpuFailure
    paused: Callable[[], AbstractContextManager[None]]  # blocks; closes the session with the driver
    note_reset: Callable[[Iterable[int]], None]


class HealHooks:
    """The remedies of one node."""

    def __init__(
        self,
        hooks: Hooks,
        state: NodeState,
        journal: HealJournal,
        *,
        boot_id: str,
        clock: clocks.Clock,
    ) -> None:
        self._hooks = hooks
        self._state = state
        self._journal = journal
        self._boot_id = boot_id
        self._clock = clock
        self._asked: tuple[str, float] = ("", 0.0)  # the request, and since when it waits

    async def answer(self, request: HealRequest) -> HealResponse | None:
        """What became of the request; None while it goes on, waits, or is a person's. Raises OSError or StateError."""
        is_ours = request.action in RESETS or request.action == REBOOT
        if not is_ours:
            return None
        begun = await asyncio.to_thread(self._journal.read, request.id)
        if begun is not None:
            return begun.answer or self._after(begun, request)
        command = self._hooks.of(request.action)
        if not command:
            return _answer(request, REFUSED, f"no hook for {request.action} is configured")
        return await self._begin(request, command)

    async def answered(self) -> None:
        """The answer is on the Node: the same request, asked again, is a new one."""
        await asyncio.to_thread(self._journal.clear)

    async def _begin(self, request: HealRequest, command: Sequence[str]) -> HealResponse | None:
        inventory = self._state.inventory()
        gpus = inventory.gpus
        if request.action in RESETS:
            gpus = tuple(gpu for gpu in inventory.gpus if gpu.name in request.gpus)
            missing = sorted(set(request.gpus) - {gpu.name for gpu in gpus})
            if missing or not gpus:
                return _answer(request, REFUSED, f"the driver does not know {', '.join(missing)}")
        async with self._free(gpus, is_reset=request.action in RESETS) as holder:
            if holder:
                return self._held(request, holder)
            began = self._clock.now().timestamp()
            begun = Begun(id=request.id, boot_id=self._boot_id, began=began)
            await asyncio.to_thread(self._journal.write, begun)
            LOG.warning("heal.begun", extra={"action": request.action, "gpus": request.gpus})
            answer = await asyncio.to_thread(self._run, request, command, gpus)
            if answer is not None:
                done = Begun(id=request.id, boot_id=self._boot_id, began=began, answer=answer)
                await asyncio.to_thread(self._journal.write, done)
            return answer

    @contextlib.asynccontextmanager
    async def _free(self, gpus: Sequence[Gpu], *, is_reset: bool) -> AsyncIterator[str]:
        """Holds back claims on the GPUs; what still holds them, empty if nothing does."""
        async with self._state.held_back([gpu.minor for gpu in gpus]) as claims:
            if claims:
                yield f"claim {claims[0]} is prepared on them"
                return
            partitions = [device for gpu in gpus for device in gpu.mig_devices]
            if is_reset and partitions:
                yield (
                    f"{len(partitions)} MIG devices on them belong to no claim, and a reset would "
                    "destroy them"
                )
                return
            yield await asyncio.to_thread(self._processes_on, gpus)

    def _processes_on(self, gpus: Sequence[Gpu]) -> str:
        for gpu in gpus:
            try:
                processes = self._state.processes(gpu.minor)
            except errors.DovetailError as error:
                return f"whether processes hold {gpu.name} is not known: {error}"
            if processes:
                listed = ", ".join(map(str, processes[:4]))
                return f"{len(processes)} processes hold {gpu.name}: {listed}"
        return ""

    def _held(self, request: HealRequest, holder: str) -> HealResponse | None:
        """Programs that are ending get time; what stays is a person's business."""
        now = self._clock.monotonic()
        if self._asked[0] != request.id:
            self._asked = (request.id, now)
        waited = now - self._asked[1]
        if waited < PATIENCE_SECONDS:
            LOG.info("heal.waits", extra={"action": request.action, "why": holder})
            return None
        self._asked = ("", 0.0)
        return _answer(request, REFUSED, f"after {waited:.0f} s {holder}")

    def _run(
        self, request: HealRequest, command: Sequence[str], gpus: Sequence[Gpu]
    ) -> HealResponse | None:
        """Blocks until the command has ended. None where the end of this boot is waited for."""
        words = hook_command.filled(command, gpus)
        if request.action == REBOOT:
            ended = hook_command.run(words, seconds=self._hooks.seconds)
            return None if ended.is_success else _answer(request, FAILED, ended.said)
        try:
            with self._state.paused():
                ended = hook_command.run(words, seconds=self._hooks.seconds)
        except errors.DovetailError as error:
            return _answer(request, FAILED, str(error))
        if not ended.is_success:
            return _answer(request, FAILED, ended.said)
        self._state.note_reset([gpu.minor for gpu in gpus])
        names = ", ".join(gpu.name for gpu in gpus)
        return _answer(request, DONE, f"{names} reset: {ended.said}")

    def _after(self, begun: Begun, request: HealRequest) -> HealResponse | None:
        """Of a remedy that was begun: the node has restarted, is about to, or the agent was killed."""
        if begun.boot_id != self._boot_id:
            return _answer(request, DONE, "the node has restarted")
        waited = self._clock.now().timestamp() - begun.began
        if request.action == REBOOT and waited < self._hooks.seconds + REBOOT_SECONDS:
            return None
        if request.action == REBOOT:
            return _answer(request, FAILED, f"the node has not restarted for {waited:.0f} s")
        return _answer(
            request, FAILED, "the agent ended while the command ran; what it did is not known"
        )


def _answer(request: HealRequest, result: str, message: str) -> HealResponse:
    return HealResponse(id=request.id, result=result, message=message[:MOST_WORDS])
