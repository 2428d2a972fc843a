"""Requests on the Node, answered by `dovetail node-agent` as a process: a rehearsal, a reset, and what no hook does."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from dovetail.kubetypes import registry
from dovetail.model import node_annotations
from dovetail.model.node_annotations import HealRequest, HealResponse, Rehearsal
from dovetail.ports.api import Target
from tests.node.agent import agent_node
from tests.node.agent.agent_node import Agent, AgentNode, run
from tests.node.kubelet import kubelet_side

pytestmark = pytest.mark.slow

NODE = Target(registry.NODE, name=agent_node.NODE)


async def annotations(node: AgentNode) -> dict[str, str]:
    tree: dict[str, Any] = msgspec.json.decode(await node.api.get(NODE))
    return dict(tree["metadata"].get("annotations", {}))


async def ask(node: AgentNode, **marks: str | None) -> None:
    await node.api.patch(NODE, msgspec.json.encode({"metadata": {"annotations": marks}}))


async def rehearsed(node: AgentNode, agent: Agent, request: str) -> Rehearsal:
    """The answer to a rehearsal."""
    await ask(node, **{node_annotations.REHEARSE: request})

    async def answer() -> Rehearsal | None:
        return node_annotations.rehearsal_of(await annotations(node))

    answered: Rehearsal = await agent.until(answer, f"the answer to {request}")
    return answered


async def healed(node: AgentNode, agent: Agent, request: str, action: str) -> HealResponse:
    """The answer to a request for gpu-1."""
    asked = HealRequest(id=request, action=action, gpus=("gpu-1",))
    await ask(node, **{node_annotations.HEAL_REQUEST: msgspec.json.encode(asked).decode()})

    async def answer() -> HealResponse | None:
        response = node_annotations.heal_response_of(await annotations(node))
        return response if response is not None and response.id == request else None

    answered: HealResponse = await agent.until(answer, f"the answer to {request}")
    return answered


def test_the_agent_answers_what_is_asked_of_its_node() -> None:
    async def story(node: AgentNode) -> None:
        smi = node.hardware.nvidia_smi
        agent = node.start(f"--reset-command={smi} --gpu-reset -i {{gpus}}")
        endpoint = await agent.registered()
        first = await rehearsed(node, agent, "before")
        assert (first.result, first.device) == ("ok", "gpu-0")
        assert first.message == "could prepare gpu-0, gpu-1"

        refused = await healed(node, agent, "r-1", "reboot")
        assert (refused.result, refused.message) == (
            "refused",
            "no hook for reboot is configured",
        )

        whole = await node.claim("whole", "gpu-0")
        async with kubelet_side.connected(endpoint) as client:
            assert [entry.error for entry in (await client.prepare(whole)).values()] == [""]
            node.hardware.inject_xid(1, 48)

            async def is_tainted() -> bool:
                return bool((await node.devices())["gpu-1"].get("taints"))

            await agent.until(is_tainted, "the taint")
            done = await healed(node, agent, "r-2", "reset-gpu")
            assert done.result == "done", done

            async def is_well() -> bool:
                return not (await node.devices())["gpu-1"].get("taints")

            await agent.until(is_well, "the end of the taint")
            resets = [each.gpu for each in node.hardware.history() if each.event == "reset"]
            assert resets == [1]
            again = await rehearsed(node, agent, "after")
            assert again.message == "could prepare gpu-1"
            await client.unprepare(whole)
        assert await agent.stop() == 0
        assert "Traceback" not in agent.log.read_text()

    run(story)
