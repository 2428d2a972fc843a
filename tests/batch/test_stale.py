"""What is left of a gang that fell below its minimum, while one of its pods is on its way to a node."""

from __future__ import annotations

import msgspec

from dovetail.world.events import Changed
from tests.batch import simulated_cluster
from tests.batch.simulated_cluster import Ask, Cluster
from tests.schedule import build


def test_a_pod_on_its_way_is_left_alone_and_taken_back_once_it_is_there() -> None:
    found = Cluster([build.node("n0"), build.gpu_slice("n0", 4)])
    found.put(simulated_cluster.queue("a", gpu=(4,)))
    work = simulated_cluster.gang("g", Ask(gpus=1), Ask(gpus=1), Ask(gpus=1), queue="a")
    found.submit(work)
    given = {
        one.pod.uid: {
            (part.claim.namespace, part.claim.name): part.result for part in one.allocations
        }
        for one in found.decided().placements
    }
    first, second, third = (pod.metadata.uid for pod in found.members(work.name))
    found.bind(first, "n0", given[first])
    found.world.assume(found.world.pods[second], "n0", given[second])
    found.remove(third)
    found.world.apply(
        Changed(msgspec.structs.replace(work.gang, stale_since=simulated_cluster.stamp(0)))
    )
    found.second = 10**6
    assert [one.pod.uid for one in found.decided().evictions] == [first]
    found.bind(second, "n0", given[second])
    assert {one.pod.uid for one in found.decided().evictions} == {first, second}
