"""Election on a real API server, among ourselves and with client-go as the rival: kube-scheduler on the same Lease."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager, suppress
from typing import Any

import pytest

from dovetail.boot import clocks
from dovetail.devcluster import control_plane
from dovetail.kube import client
from dovetail.kube.auth import client_config
from dovetail.kube.http import transport
from dovetail.live.election import leader_election
from tests.support import cluster
from tests.support.waiting import until

pytestmark = pytest.mark.slow

TIMING = leader_election.Timing(lease_seconds=6, renew_seconds=4.0, retry_seconds=0.5)
RIVAL_FLAGS = (
    "--leader-elect=true",
    "--leader-elect-resource-name=dovetail",
    "--leader-elect-lease-duration=6s",
    "--leader-elect-renew-deadline=4s",
    "--leader-elect-retry-period=500ms",
)


@pytest.fixture(params=cluster.EACH_VERSION, scope="module")
def plane(request: pytest.FixtureRequest) -> control_plane.ControlPlane:
    return cluster.control_plane(request.param)


class Candidate:
    """One replica; remembers every fence it was given."""

    def __init__(self, over: transport.Transport, namespace: str) -> None:
        self.fences: list[leader_election.Fence] = []
        self.election = leader_election.Election(
            client.KubeApi(over),
            clocks.SystemClock(),
            namespace=namespace,
            name="dovetail",
            timing=TIMING,
        )
        self.running = asyncio.ensure_future(self.election.run(self.lead))

    async def lead(self, fence: leader_election.Fence) -> None:
        self.fences.append(fence)
        await asyncio.Event().wait()

    @property
    def is_leading(self) -> bool:
        """It says so, and its work has begun: `run` calls `lead` a moment after it says so."""
        return self.election.status.is_leading and bool(self.fences)

    async def end(self) -> None:
        self.running.cancel()
        with suppress(asyncio.CancelledError):
            await self.running


def run(
    plane: control_plane.ControlPlane,
    story: Callable[[transport.Transport, str], Coroutine[Any, Any, None]],
) -> None:
    namespace = cluster.fresh_namespace(plane)

    async def main() -> None:
        async with transport.Transport(client_config.load(str(plane.kubeconfig))) as over:
            await story(over, namespace)

    asyncio.run(main())


@asynccontextmanager
async def candidate(over: transport.Transport, namespace: str) -> AsyncIterator[Candidate]:
    item = Candidate(over, namespace)
    try:
        yield item
    finally:
        await item.end()


async def spec(plane: control_plane.ControlPlane, namespace: str) -> dict[str, Any]:
    """What the Lease says; asked in a thread, for the renewing must go on."""
    result = await asyncio.to_thread(cluster.get, plane, "lease", "dovetail", "-n", namespace)
    return dict(result["spec"])


async def renewed(plane: control_plane.ControlPlane, namespace: str) -> None:
    """Until the holder has renewed once more."""
    before = (await spec(plane, namespace))["renewTime"]

    async def is_renewed() -> bool:
        return bool((await spec(plane, namespace))["renewTime"] != before)

    await until(is_renewed, "a renewal of the lease")


def test_one_leads_and_hands_over_when_it_leaves(plane: control_plane.ControlPlane) -> None:
    async def story(over: transport.Transport, namespace: str) -> None:
        async with candidate(over, namespace) as first:
            await until(lambda: first.is_leading, "the lease to be taken")
            async with candidate(over, namespace) as second:
                await until(
                    lambda: second.election.status.holder == first.election.identity,
                    "the holder to be seen",
                )
                lease = await spec(plane, namespace)
                assert lease["holderIdentity"] == first.election.identity
                assert (lease["leaseDurationSeconds"], lease["leaseTransitions"]) == (6, 0)
                await renewed(plane, namespace)
                assert not second.is_leading
                await first.end()
                assert first.fences[0].remaining() == 0
                await until(lambda: second.is_leading, "the lease to be taken")
                assert second.fences[0].tenure == 1
        assert "holderIdentity" not in await spec(plane, namespace)

    run(plane, story)


def test_a_lease_changed_by_hand_costs_the_leader_nothing(
    plane: control_plane.ControlPlane,
) -> None:
    async def story(over: transport.Transport, namespace: str) -> None:
        async with candidate(over, namespace) as only:
            await until(lambda: only.is_leading, "the lease to be taken")
            await asyncio.to_thread(
                cluster.kubectl, plane, "annotate", "lease", "dovetail", "-n", namespace, "seen=yes"
            )
            await renewed(plane, namespace)
            assert only.is_leading
            assert len(only.fences) == 1

    run(plane, story)


def test_client_go_and_we_take_turns_on_one_lease(plane: control_plane.ControlPlane) -> None:
    async def story(over: transport.Transport, namespace: str) -> None:
        name = f"rival-{namespace}"
        async with candidate(over, namespace) as ours:
            await until(lambda: ours.is_leading, "the lease to be taken")
            flags = [*RIVAL_FLAGS, f"--leader-elect-resource-namespace={namespace}"]
            await asyncio.to_thread(plane.start_scheduler, name, flags=flags)
            await renewed(plane, namespace)
            assert ours.is_leading  # it waits while we renew
            await ours.end()
            rival = await held_by_another(plane, namespace, ours.election.identity)
        async with candidate(over, namespace) as again:
            await until(lambda: again.election.status.holder == rival, "the holder to be seen")
            assert not again.is_leading
            plane.kill(f"kube-scheduler-{name}")
            await until(lambda: again.is_leading, "the lease to be taken")
            assert again.fences[0].tenure == 2
            assert (await spec(plane, namespace))["holderIdentity"] == again.election.identity

    run(plane, story)


async def held_by_another(plane: control_plane.ControlPlane, namespace: str, ours: str) -> str:
    """The holder, once there is one and it is not ours."""

    async def other() -> str:
        holder = (await spec(plane, namespace)).get("holderIdentity", "")
        return "" if holder == ours else str(holder)

    return await until(other, "another holder of the lease")
