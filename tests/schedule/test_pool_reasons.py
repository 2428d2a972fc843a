"""Refusals name the pools of the nodes they speak of, where that tells them from the rest."""

from __future__ import annotations

from typing import Any

import pytest

from dovetail.kubetypes.core import nodes
from dovetail.model import policy
from tests.schedule import build

POOL = "kubernetes.azure.com/agentpool"
TAINTED: dict[str, Any] = {"taints": [{"key": "sku", "value": "gpu", "effect": "NoSchedule"}]}


def of_pool(pool: str, count: int, **facts: Any) -> list[nodes.Node]:
    return [build.node(f"{pool}-{number}", labels={POOL: pool}, **facts) for number in range(count)]


@pytest.mark.parametrize("memo", [True, False])
def test_pools_of_tainted_nodes_are_named_with_the_reason(memo: bool) -> None:
    result = [*of_pool("h100", 3, **TAINTED), *of_pool("a100", 2, **TAINTED), *of_pool("cpu", 4)]
    world = build.world(*result, build.pod("p", cpu="100"))
    refusal = build.decided(world, policy=policy.Policy(memo=memo)).refusals[0]
    assert refusal.summary == (
        "9 nodes: 4 lack cpu (needs 100, at most 64 free), "
        "5 have taint sku=gpu:NoSchedule that the pod does not tolerate (of pool h100 3, a100 2)"
    )
    assert refusal.obstacles[1].pools == (("h100", 3), ("a100", 2))
    assert refusal.obstacles[1].reason.pool == ""


def test_a_reason_about_every_node_names_no_pools() -> None:
    world = build.world(*of_pool("h100", 2, **TAINTED), build.pod("p"))
    assert build.summary_of(build.decided(world), "p") == (
        "2 nodes: 2 have taint sku=gpu:NoSchedule that the pod does not tolerate"
    )


def test_nodes_of_no_pool_are_counted_without_one() -> None:
    result = [build.node("bare", **TAINTED), *of_pool("h100", 1, **TAINTED), build.node("small")]
    world = build.world(*result, build.pod("p", cpu="100"))
    assert (
        "2 have taint sku=gpu:NoSchedule that the pod does not tolerate (of pool h100 1)"
        in build.summary_of(build.decided(world), "p")
    )


def test_many_pools_are_cut() -> None:
    result = [node for number in range(5) for node in of_pool(f"p{number}", 1, **TAINTED)]
    world = build.world(*result, build.node("small"), build.pod("p", cpu="100"))
    assert "(of pool p0 1, p1 1, p2 1 and 2 more)" in build.summary_of(build.decided(world), "p")
