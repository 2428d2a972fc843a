"""Puts together what answers requests to the node: dry runs of a prepare, resets and reboots through hooks.

Given options and the parts of the agent. Starts nothing. Never decides.
"""

from __future__ import annotations

import functools
from pathlib import Path

from dovetail import errors
from dovetail.boot import clocks
from dovetail.boot.node import node_agent, node_gpus, node_health, node_publication
from dovetail.kube import client
from dovetail.model import node_annotations
from dovetail.model.node_annotations import Rehearsal
from dovetail.node.claims import checkpoint_file
from dovetail.node.claims.rehearsal import DevicesOf
from dovetail.node.claims.service import NodeClaims
from dovetail.node.health import gpu_health
from dovetail.node.requests import heal_hooks, hook_command, request_loop
from dovetail.node.requests.heal_journal import HealJournal


def requests(
    options: node_agent.Options,
    gpus: node_gpus.NodeGpus,
    claims: NodeClaims,
    *,
    health: node_health.NodeHealth,
    publication: node_publication.Publication,
    api: client.KubeApi,
    folder: Path,
    clock: clocks.SystemClock,
) -> request_loop.RequestLoop:
    """The loop that answers them."""
    hooks = heal_hooks.HealHooks(
        _hooks(options),
        heal_hooks.NodeState(
            inventory=gpus.inventory,
            held_back=claims.held_back,
            processes=gpus.control.processes,
            paused=gpus.session.paused,
            note_reset=health.source.note_reset,
        ),
        HealJournal(folder),
        boot_id=checkpoint_file.boot_id_of(options.boot_id_file),
        clock=clock,
    )

    def is_unwell() -> bool:
        return not all(
            gpu_health.is_fit(each, health.policy) for each in health.monitor.healths.values()
        )

    loop = request_loop.RequestLoop(
        api,
        clock,
        node_name=options.node_name,
        rehearse=functools.partial(rehearsed, claims, publication.device_names),
        heal=hooks.answer,
        answered=hooks.answered,
        is_unwell=is_unwell,
    )
    gpus.on_change(lambda _: loop.notice())
    return loop


async def rehearsed(claims: NodeClaims, devices_of: DevicesOf, request_id: str) -> Rehearsal:
    """The answer to a rehearsal: whether a claim on each free GPU could be prepared."""
    try:
        ready = await claims.rehearse(devices_of)
    except (errors.DovetailError, OSError) as error:
        where = f"{error.filename}: {error.strerror}" if isinstance(error, OSError) else str(error)
        return Rehearsal(id=request_id, result=node_annotations.REFUSED, message=where)
    names = ", ".join(each.device for each in ready)
    said = f"could prepare {names}" if ready else "claims hold every GPU; all else is in order"
    device = ready[0].device if ready else ""
    return Rehearsal(id=request_id, result=node_annotations.OK, device=device, message=said)


def _hooks(options: node_agent.Options) -> heal_hooks.Hooks:
    return heal_hooks.Hooks(
        reset=hook_command.parsed(options.reset_command),
        reboot=hook_command.parsed(options.reboot_command),
        seconds=options.hook_seconds,
    )
