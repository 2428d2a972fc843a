"""What is left of a gang that fell below its minimum, while one of its pods is on its way to a node."""

from __future__ import annotations

import msgspec

from dovetail.world.events import Changed
from tests.batch import simulated_cluster
from tests.batch.simulated_cluster import Ask, Cluster
from tests.schedule import build


def test_a_pod_on_its_way_is_left_alone_and_taken_back_once_it_is_there() -> None:
    cluster = Cluster([build.node("n0"), build.gpu_slice("n0", 4)])
    cluster.put(simulated_cluster.queue("a", gpu=(4,)))
    work = simulated_cluster.gang("g", Ask(gpus=1), Ask(gpus=1), Ask(gpus=1), queue="a")
    cluster.submit(work)
    given = {
        placement.pod.uid: {
            (part.claim.namespace, part.claim.name): part.result for part in placement.allocations
        }
        for placement in cluster.decided().placements
    }
    first, second, third = (pod.metadata.uid for pod in cluster.members(work.name))
    cluster.bind(first, "n0", given[first])
    cluster.world.assume(cluster.world.pods[second], "n0", given[second])
    cluster.remove(third)
    cluster.world.apply(
        Changed(msgspec.structs.replace(work.gang, stale_since=simulated_cluster.stamp(0)))
    )
    cluster.second = 10**6
    assert [eviction.pod.uid for eviction in cluster.decided().evictions] == [first]
    cluster.bind(second, "n0", given[second])
    assert {eviction.pod.uid for eviction in cluster.decided().evictions} == {first, second}
