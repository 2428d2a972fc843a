"""Servers that drop fields they do not know: what is lost decides whether devices may be published at all."""

from __future__ import annotations

import pytest

from dovetail.kubetypes import node_selectors
from dovetail.node.slices import layout, options
from tests.node import build
from tests.node.slices import servers
from tests.node.slices.test_publisher import devices_of, publisher_on
from tests.support import cluster

pytestmark = pytest.mark.slow

OFF = {
    "DRAPartitionableDevices": False,
    "DRADeviceTaints": False,
    "DRADeviceTaintRules": False,
    "DRAConsumableCapacity": False,
}
STATIC = options.SliceOptions()
XID = node_selectors.DeviceTaint(key="gpu.nvidia.com/xid", value="79", effect="NoSchedule")


def test_a_server_without_these_features() -> None:
    with cluster.private_plane(feature_gates=OFF) as plane:
        place = servers.Real(plane)
        servers.run(place, partitions_without_counters_are_never_published)
        servers.run(place, dropped_taints_and_shares_are_written_once)


async def partitions_without_counters_are_never_published(node: servers.Node) -> None:
    """They would be handed out together although they are the same silicon."""
    pool = publisher_on(node)
    dynamic = layout.contents(build.machine(gpus=2), options.SliceOptions(is_mig_dynamic=True))
    for _ in range(2):
        pool.publish(dynamic)
        await pool.sync()
        assert await node.slices() == []
        assert pool.has_dropped_counters
        assert "DRAPartitionableDevices" in pool.problem
    pool.publish(layout.contents(build.machine(gpus=2), STATIC))
    await pool.sync()
    assert devices_of(await node.slices()) == [["gpu-0", "gpu-1"]]
    assert pool.problem == ""


async def dropped_taints_and_shares_are_written_once(node: servers.Node) -> None:
    """The server will not store them next time either."""
    pool = publisher_on(node)
    shared = options.SliceOptions(shares=options.shares_from("memory"))
    for chosen, taints in ((STATIC, {"gpu-0": (XID,)}), (shared, {})):
        wanted = layout.contents(build.machine(gpus=2), chosen, taints=taints)
        pool.publish(wanted)
        await pool.sync()
        count = pool.write_count
        pool.publish(wanted)
        await pool.sync()
        assert pool.write_count == count
        assert devices_of(await node.slices()) == [["gpu-0", "gpu-1"]]
