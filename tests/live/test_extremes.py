"""Pods and claims with amounts that no node has get a reason, and delay no other pod."""

from __future__ import annotations

import pytest

from dovetail.kubetypes import registry
from tests.live.live_scheduler import Stage, Tree, play

EXTREME = ("1e309", "1e1024", "1e1100", "1e1500", "1e2147483646", "9" * 1500)


def named_claim(name: str, amount: str) -> Tree:
    """A claim for a share of a GPU with so much memory."""
    expected = {"deviceClassName": "gpu.nvidia.com", "capacity": {"requests": {"memory": amount}}}
    return {
        "apiVersion": registry.CLAIM.api_version,
        "kind": "ResourceClaim",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"devices": {"requests": [{"name": "gpu", "exactly": expected}]}},
    }


@pytest.mark.parametrize("has_queue", [False, True])
@pytest.mark.parametrize("amount", EXTREME)
def test_amounts_that_no_machine_has_are_refused_with_a_reason(
    amount: str, has_queue: bool
) -> None:
    async def story() -> None:
        stage = Stage(nodes=2, gpus=2)
        stage.template("one")
        if has_queue:
            stage.queue("team", resources={"gpu": {"quota": "4"}})
        labels = {"dovetail.dev/queue": "team"} if has_queue else {}
        resources = ("cpu", "memory", "ephemeral-storage", "nvidia.com/gpu")
        for number, resource in enumerate(resources):
            amounts = {"requests": {resource: amount}, "limits": {resource: amount}}
            stage.pod(f"extreme-{number}", resources=amounts, labels=labels)
        stage.gang("gang", 2, templates=("one",), resources={"limits": {"memory": amount}})
        stage.api.put(named_claim("share", amount))
        stage.pod("sharing", named=("share",), labels=labels)
        stage.pod("honest", templates=("one",), labels=labels)
        async with stage.scheduling():
            await stage.pass_time(10)
        assert stage.ended is None
        assert stage.node_of("honest")
        for name in (
            *(f"extreme-{number}" for number in range(len(resources))),
            "gang-0",
            "sharing",
        ):
            (condition,) = [
                item
                for item in stage.the_pod(name).status.conditions
                if item.type == "PodScheduled"
            ]
            reason = (
                "NoNodeFits" if name == "extreme-3" else "Unschedulable"
            )  # no claim may ask for so many devices
            assert (condition.status, condition.reason) == ("False", reason), name
            assert 0 < len(condition.message) < 1000

    play(story)
