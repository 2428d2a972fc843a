"""The oracle's allocation benchmark does the work it counts: first node that fits, and what is taken stays taken."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support import oracle as upstream

pytestmark = pytest.mark.slow

DRIVER = "gpu.example.com"


def asked(**more: Any) -> dict[str, Any]:
    """Two nodes of two GPUs, five claims for one each."""
    exactly = {"deviceClassName": "gpu", "allocationMode": "ExactCount", "count": 1}
    return {
        "op": "bench",
        "what": "allocate",
        "nodes": [{"metadata": {"name": name}} for name in "ab"],
        "deviceClasses": [{"metadata": {"name": "gpu"}}],
        "resourceSlices": [
            {
                "metadata": {"name": name},
                "spec": {
                    "driver": DRIVER,
                    "nodeName": name,
                    "pool": {"name": name, "resourceSliceCount": 1},
                    "devices": [{"name": "gpu-0"}, {"name": "gpu-1"}],
                },
            }
            for name in "ab"
        ],
        "claims": [
            {
                "metadata": {"name": f"c{at}"},
                "spec": {"devices": {"requests": [{"name": "r", "exactly": exactly}]}},
            }
            for at in range(5)
        ],
        **more,
    }


def test_nodes_are_tried_in_order(oracle: upstream.Oracle) -> None:
    answer = oracle.ask(asked())
    assert (answer["count"], answer["placed"], answer["tries"]) == (
        5,
        [0, 1, 2, 3],
        1 + 1 + 2 + 2 + 2,
    )
    assert answer["outcomes"] == {"allocated": 4, "none": 4}


def test_rotating_begins_after_the_last_node_taken(oracle: upstream.Oracle) -> None:
    answer = oracle.ask(asked(rotate=True))
    assert (answer["count"], answer["placed"], answer["tries"]) == (
        5,
        [0, 1, 2, 3],
        1 + 1 + 1 + 1 + 2,
    )


def test_what_is_in_use_counts(oracle: upstream.Oracle) -> None:
    answer = oracle.ask(asked(inUse={"devices": [f"{DRIVER}/a/gpu-0", f"{DRIVER}/b/gpu-1"]}))
    assert answer["placed"] == [0, 1]


def test_claims_are_required(oracle: upstream.Oracle) -> None:
    assert "failure" in oracle.ask(asked(claims=[]))
