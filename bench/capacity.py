"""How long `capacity` takes as a cluster grows: one shape, fragmentation, and the work in the way of a gang.

`python -m bench capacity` prints for every number of nodes the processor seconds of each answer, and how often that is
what half the nodes took. The cluster is that of `what-if`: nineteen of twenty nodes are full.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from typing import Any, Final

from bench import what_if
from dovetail.answer.capacity import blockers, fragmentation, room_left, shapes
from dovetail.answer.replica.replica import Replica
from dovetail.kubetypes import codec, object_set
from dovetail.kubetypes.core import pods
from dovetail.kubetypes.resource import claims
from dovetail.model import policy

SIZES: Final = (250, 500, 1000, 2000)
GANG: Final = 8


def main(arguments: list[str]) -> int:
    """Measures and prints."""
    parser = argparse.ArgumentParser(prog="python -m bench capacity", description=__doc__)
    parser.add_argument("--sizes", type=int, nargs="+", default=SIZES, help="numbers of nodes")
    chosen = parser.parse_args(arguments)
    before: dict[str, float] = {}
    for size in chosen.sizes:
        stored = [codec.decode(tree) for tree in what_if.cluster_of(size)]
        replica = Replica(object_set.of("bench", stored), policy.DEFAULT, what_if.NOW)
        for name, question in _questions(replica).items():
            began = time.process_time()
            answer = question()
            seconds = time.process_time() - began
            growth = (
                f"  {seconds / before[name]:.2f} times the size before" if name in before else ""
            )
            before[name] = seconds
            print(f"{name:14} {size:5} nodes  {seconds:6.2f} s  {answer}{growth}", flush=True)
    return 0


def _questions(replica: Replica) -> dict[str, Callable[[], str]]:
    def shape(gpus: int) -> Callable[[], str]:
        return lambda: f"{room_left.of_shape(replica, _shape(gpus), moves=False).now} fit"

    def moving() -> str:
        answer = room_left.of_shape(replica, _shape(8))
        return f"{answer.now}, {answer.after_moving}, {answer.if_lower_yields} fit"

    def unusable() -> str:
        measured = fragmentation.fragmentation(replica, fragmentation.observed_mix(replica))
        return f"{measured.unusable:g} of {measured.free:g} unusable"

    def in_the_way() -> str:
        answer = blockers.blockers(replica, _shape(8), GANG)
        return f"{len(answer.work)} in the way"

    return {
        "8 GPUs now": shape(8),
        "1 GPU now": shape(1),
        "8 GPUs moving": moving,
        "fragmentation": unusable,
        "gang of 8": in_the_way,
    }


def _shape(gpus: int) -> shapes.Shape:
    pod: dict[str, Any] = {
        "metadata": {"name": "asked", "namespace": "default"},
        "spec": {
            "containers": [{"name": "main", "resources": {"claims": [{"name": "gpus"}]}}],
            "resourceClaims": [{"name": "gpus", "resourceClaimTemplateName": "gpus"}],
        },
    }
    exactly = {
        "deviceClassName": "gpu.nvidia.com",
        "allocationMode": "ExactCount",
        "count": gpus,
    }
    spec = {"devices": {"requests": [{"name": "gpus", "exactly": exactly}]}}
    claim = codec.decode_struct(claims.ResourceClaimSpec, codec.encode_tree(spec))
    struct = codec.decode_struct(pods.Pod, codec.encode_tree(pod))
    return shapes.Shape(f"{gpus} GPUs", struct, {"gpus": claim})
