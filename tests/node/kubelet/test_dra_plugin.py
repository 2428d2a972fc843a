"""The driver over its real sockets: registration, claims in both versions, health streams, hostile requests."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
import stat
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import grpc
import pytest

from dovetail import errors
from dovetail.node.kubelet import dra_plugin, socket_paths, unix_server
from dovetail.node.kubelet.claim_service import ClaimService, HealthService, HealthState
from tests.node.kubelet import kubelet_side, services
from tests.support import waiting

VERSIONS = ("v1", "v1beta1")
HEALTH_VERSIONS = ("v1", "v1alpha1")


def paths_under(root: Path, *, pod_uid: str = "") -> socket_paths.SocketPaths:
    return socket_paths.socket_paths(root, kubelet_side.DRIVER, pod_uid=pod_uid)


@contextlib.asynccontextmanager
async def plugin(
    root: Path,
    claims: ClaimService | None = None,
    health: HealthService | None = None,
    *,
    pod_uid: str = "",
) -> AsyncIterator[dra_plugin.DraPlugin]:
    """A plugin that serves under a kubelet's root."""
    served = dra_plugin.DraPlugin(
        paths_under(root, pod_uid=pod_uid), claims or services.GpuClaims(), health
    )
    await served.start()
    try:
        yield served
    finally:
        await served.stop(grace_seconds=5)


def story(
    talk: Callable[[kubelet_side.Client], Awaitable[None]], root: Path, **options: object
) -> None:
    """Runs a story with a client of a plugin that the kubelet has registered."""

    async def run() -> None:
        async with plugin(root, **options):  # type: ignore[arg-type]
            (registration,) = kubelet_side.registrations(root / "plugins_registry")
            endpoint = await kubelet_side.service_of(registration)
            async with kubelet_side.connected(endpoint) as client:
                await talk(client)

    asyncio.run(run())


def test_the_kubelet_learns_name_socket_and_versions(kubelet_root: Path) -> None:
    async def run() -> None:
        async with plugin(kubelet_root, health=services.Healths()) as served:
            socket_ = kubelet_root / "plugins_registry" / "gpu.nvidia.com-reg.sock"
            async with kubelet_side.connected(socket_) as client:
                info = await client.info()
                assert info.type == "DRAPlugin"
                assert info.name == "gpu.nvidia.com"
                assert info.endpoint == str(
                    kubelet_root / "plugins" / "gpu.nvidia.com" / "dra.sock"
                )
                assert list(info.supported_versions) == [
                    "v1.DRAPlugin",
                    "v1beta1.DRAPlugin",
                    "v1.DRAResourceHealth",
                    "v1alpha1.DRAResourceHealth",
                ]
                assert not served.registration.registered.is_set()
                await client.notify(registered=True)
                assert served.registration.registered.is_set()

    asyncio.run(run())


def test_a_refused_registration_is_logged_with_the_kubelets_reason(
    kubelet_root: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def run() -> None:
        async with plugin(kubelet_root) as served:
            (registration,) = kubelet_side.registrations(kubelet_root / "plugins_registry")
            async with kubelet_side.connected(registration) as client:
                await client.notify(registered=True)
                await client.notify(registered=False, error="endpoint already registered")
            assert not served.registration.registered.is_set()

    with caplog.at_level(logging.ERROR):
        asyncio.run(run())
    (record,) = [record for record in caplog.records if "registration.refused" in record.message]
    assert record.__dict__["why"] == "endpoint already registered"


@pytest.mark.parametrize("version", VERSIONS)
def test_a_claim_is_prepared_and_unprepared(kubelet_root: Path, version: str) -> None:
    claims = services.GpuClaims()

    async def talk(client: kubelet_side.Client) -> None:
        entries = await client.prepare(services.claim(1), version=version)
        (device,) = entries["uid-1"].devices
        assert list(device.request_names) == ["gpu"]
        assert (device.pool_name, device.device_name) == ("node-a", "gpu-0")
        assert list(device.cdi_device_ids) == ["k8s.gpu.nvidia.com/claim=uid-1-gpu-0"]
        assert entries["uid-1"].error == ""

        removed = await client.unprepare(services.claim(1), version=version)
        assert {uid: entry.error for uid, entry in removed.items()} == {"uid-1": ""}

    story(talk, kubelet_root, claims=claims)
    assert claims.asked[0] == ("train", "claim-1", "uid-1")
    assert not claims.prepared


def test_a_share_is_named_in_v1_and_left_out_of_v1beta1(kubelet_root: Path) -> None:
    claims = services.GpuClaims()
    claims.share = "share-7"

    async def talk(client: kubelet_side.Client) -> None:
        new = await client.prepare(services.claim(1))
        old = await client.prepare(services.claim(1), version="v1beta1")
        assert new["uid-1"].devices[0].share_id == "share-7"
        assert old["uid-1"].devices[0].device_name == "gpu-0"

    story(talk, kubelet_root, claims=claims)


def test_a_claim_that_fails_is_a_message_beside_those_that_succeed(kubelet_root: Path) -> None:
    claims = services.GpuClaims(refused=["claim-2"])

    async def talk(client: kubelet_side.Client) -> None:
        entries = await client.prepare(services.claim(1), services.claim(2))
        assert entries["uid-1"].devices
        assert entries["uid-2"].error == "claim train/claim-2 (uid-2): gpu-0 is in use"
        removed = await client.unprepare(services.claim(1), services.claim(2))
        assert removed["uid-1"].error == ""
        assert removed["uid-2"].error == "a process still uses gpu-0"

    story(talk, kubelet_root, claims=claims)


def test_a_defect_is_a_message_and_a_log_line_and_the_next_call_is_served(
    kubelet_root: Path, caplog: pytest.LogCaptureFixture
) -> None:
    claims = services.GpuClaims(broken=["claim-2"])

    async def talk(client: kubelet_side.Client) -> None:
        entries = await client.prepare(services.claim(1), services.claim(2))
        assert set(entries) == {"uid-1", "uid-2"}
        assert all("the disk is on fire" in entry.error for entry in entries.values())
        removed = await client.unprepare(services.claim(2))
        assert "the disk is on fire" in removed["uid-2"].error
        assert (await client.prepare(services.claim(3)))["uid-3"].devices

    story(talk, kubelet_root, claims=claims)
    first = next(record.message for record in caplog.records if record.exc_info)
    assert first.startswith("claims.prepare.broken")


def test_a_claim_without_an_outcome_has_failed(kubelet_root: Path) -> None:
    async def talk(client: kubelet_side.Client) -> None:
        entries = await client.prepare(services.claim(1))
        assert "no outcome for claim train/claim-1 (uid-1)" in entries["uid-1"].error

    story(talk, kubelet_root, claims=services.ForgetfulClaims())


@pytest.mark.parametrize(
    "uid", ["", "../../../etc/cron.d/x", "a/b", "..", "x" * 300, "a\0b", "a\nb"]
)
def test_a_uid_that_could_leave_a_directory_never_reaches_the_claims(
    kubelet_root: Path, uid: str
) -> None:
    claims = services.GpuClaims()

    async def talk(client: kubelet_side.Client) -> None:
        entries = await client.prepare(("train", "claim", uid), services.claim(1))
        assert "usable uid" in entries[uid].error
        assert entries["uid-1"].devices
        assert "usable uid" in (await client.unprepare(("train", "claim", uid)))[uid].error

    story(talk, kubelet_root, claims=claims)
    assert [claim.uid for claim in claims.asked] == ["uid-1"]


def test_an_empty_request_gets_an_empty_response(kubelet_root: Path) -> None:
    async def talk(client: kubelet_side.Client) -> None:
        assert await client.prepare() == {}
        assert await client.unprepare() == {}

    story(talk, kubelet_root)


def test_a_huge_request_is_refused_and_the_next_call_is_served(kubelet_root: Path) -> None:
    async def talk(client: kubelet_side.Client) -> None:
        with pytest.raises(grpc.aio.AioRpcError) as refusal:
            await client.prepare(("train", "x" * 8_000_000, "uid-9"))
        assert refusal.value.code() == grpc.StatusCode.RESOURCE_EXHAUSTED
        assert (await client.prepare(services.claim(1)))["uid-1"].devices

    story(talk, kubelet_root)


def test_many_claims_in_one_request_each_get_an_entry(kubelet_root: Path) -> None:
    async def talk(client: kubelet_side.Client) -> None:
        entries = await client.prepare(*(services.claim(number) for number in range(2000)))
        assert len(entries) == 2000
        assert all(entry.devices for entry in entries.values())

    story(talk, kubelet_root)


def test_bytes_that_are_no_message_and_unknown_methods_are_refused(kubelet_root: Path) -> None:
    service = "/k8s.io.kubelet.pkg.apis.dra.v1.DRAPlugin"

    async def talk(client: kubelet_side.Client) -> None:
        with pytest.raises(grpc.aio.AioRpcError):
            await client.raw(f"{service}/NodePrepareResources", b"\xff" * 100)
        with pytest.raises(grpc.aio.AioRpcError) as refusal:
            await client.raw(f"{service}/NodeExplodeResources", b"")
        assert refusal.value.code() == grpc.StatusCode.UNIMPLEMENTED
        assert (await client.prepare(services.claim(1)))["uid-1"].devices

    story(talk, kubelet_root)


def test_fields_of_a_newer_kubelet_are_ignored(kubelet_root: Path) -> None:
    async def talk(client: kubelet_side.Client) -> None:
        request = kubelet_side.DRA["v1"].NodePrepareResourcesRequest()
        request.claims.add(namespace="train", name="claim-1", uid="uid-1")
        unknown = b"\x9a\x06\x03new"  # field 99, text
        method = "/k8s.io.kubelet.pkg.apis.dra.v1.DRAPlugin/NodePrepareResources"
        answer = await client.raw(method, request.SerializeToString() + unknown)
        response = kubelet_side.DRA["v1"].NodePrepareResourcesResponse.FromString(answer)
        assert response.claims["uid-1"].devices

    story(talk, kubelet_root)


def test_a_call_the_kubelet_gives_up_still_finishes(kubelet_root: Path) -> None:
    async def run() -> None:
        claims = services.SlowClaims()
        async with plugin(kubelet_root, claims) as served:
            async with kubelet_side.connected(paths_under(kubelet_root).service) as client:
                with pytest.raises(grpc.aio.AioRpcError) as given_up:
                    await client.prepare(services.claim(1), seconds=0.5)
                assert given_up.value.code() == grpc.StatusCode.DEADLINE_EXCEEDED
                assert claims.entered.is_set()
            stopping = asyncio.create_task(served.stop(grace_seconds=60))
            await waiting.until(
                lambda: not paths_under(kubelet_root).service.exists(), "the socket to disappear"
            )
            assert not stopping.done()
            claims.released.set()
            await stopping
            assert claims.prepared == {"uid-1"}

    asyncio.run(run())


@pytest.mark.parametrize("version", HEALTH_VERSIONS)
def test_the_health_stream_sends_the_list_and_each_change(kubelet_root: Path, version: str) -> None:
    async def run() -> None:
        health = services.Healths()
        async with plugin(kubelet_root, health=health):
            async with kubelet_side.connected(paths_under(kubelet_root).service) as client:
                stream = client.health(version)
                first = await stream.read()
                assert [device.health for device in first.devices] == [1]
                assert first.devices[0].device.pool_name == "node-a"
                assert first.devices[0].device.device_name == "gpu-0"
                assert first.devices[0].last_updated_time == 1_800_000_000
                assert first.devices[0].health_check_timeout_seconds >= 30

                await health.set(HealthState.UNHEALTHY, "XID 79" + "!" * 2000)
                second = await stream.read()
                assert [device.health for device in second.devices] == [2]
                assert len(second.devices[0].message) == 1024
                stream.cancel()
            await waiting.until(lambda: health.open_count == 0, "the stream to be closed")

    asyncio.run(run())


def test_an_open_health_stream_does_not_keep_the_plugin_from_stopping(kubelet_root: Path) -> None:
    async def run() -> None:
        health = services.Healths()
        async with (
            plugin(kubelet_root, health=health) as served,
            kubelet_side.connected(paths_under(kubelet_root).service) as client,
        ):
            stream = client.health()
            await stream.read()
            await served.stop(grace_seconds=3600)
            assert await stream.read() is grpc.aio.EOF
        assert health.open_count == 0

    asyncio.run(run())


def test_without_health_the_stream_is_neither_offered_nor_served(kubelet_root: Path) -> None:
    async def talk(client: kubelet_side.Client) -> None:
        with pytest.raises(grpc.aio.AioRpcError) as refusal:
            await client.health().read()
        assert refusal.value.code() == grpc.StatusCode.UNIMPLEMENTED

    story(talk, kubelet_root)


def test_sockets_of_a_dead_instance_are_removed_and_those_of_a_live_one_stay(
    kubelet_root: Path,
) -> None:
    dead = paths_under(kubelet_root, pod_uid="dead")
    for path in (dead.registration, dead.service):
        path.parent.mkdir(parents=True)
        with socket.socket(socket.AF_UNIX) as left:
            left.bind(str(path))

    async def run() -> None:
        async with plugin(kubelet_root, pod_uid="old"), plugin(kubelet_root, pod_uid="new"):
            names = [
                path.name for path in kubelet_side.registrations(kubelet_root / "plugins_registry")
            ]
            assert names == ["gpu.nvidia.com-new-reg.sock", "gpu.nvidia.com-old-reg.sock"]
            assert not dead.service.exists()

    asyncio.run(run())


def test_a_stale_socket_of_the_same_name_is_replaced(kubelet_root: Path) -> None:
    path = paths_under(kubelet_root).service
    path.parent.mkdir(parents=True)
    with socket.socket(socket.AF_UNIX) as left:
        left.bind(str(path))

    async def talk(client: kubelet_side.Client) -> None:
        assert (await client.prepare(services.claim(1)))["uid-1"].devices

    story(talk, kubelet_root)


def test_a_second_instance_without_a_pod_uid_is_refused_and_the_first_goes_on(
    kubelet_root: Path,
) -> None:
    async def talk(client: kubelet_side.Client) -> None:
        with pytest.raises(
            errors.InputError, match=r"dra\.sock: another process serves here.*POD_UID"
        ):
            async with plugin(kubelet_root):
                pass
        assert (await client.prepare(services.claim(1)))["uid-1"].devices
        assert kubelet_side.registrations(kubelet_root / "plugins_registry")

    story(talk, kubelet_root)


def test_nothing_is_left_behind_and_sockets_are_private(kubelet_root: Path) -> None:
    async def run() -> None:
        async with plugin(kubelet_root):
            for path in (paths_under(kubelet_root).service, paths_under(kubelet_root).registration):
                assert stat.S_IMODE(path.stat().st_mode) == 0o600

    asyncio.run(run())
    left = [path.name for path in kubelet_root.rglob("*") if path.is_socket()]
    assert left == []


def test_an_instance_that_ends_leaves_the_socket_of_its_successor(kubelet_root: Path) -> None:
    path = kubelet_root / "dra.sock"

    async def run() -> None:
        first = unix_server.UnixServer(path, [])
        await first.start()
        path.unlink()  # as a kubelet that cleans up, or a hand
        second = unix_server.UnixServer(path, [])
        await second.start()
        assert not first.is_in_place()
        await first.stop(grace_seconds=0)
        assert second.is_in_place()
        await second.stop(grace_seconds=0)
        assert not path.exists()

    asyncio.run(run())


def test_a_directory_that_cannot_be_used_is_named(kubelet_root: Path) -> None:
    (kubelet_root / "plugins").write_text("in the way")

    async def run() -> None:
        async with plugin(kubelet_root):
            pass

    with pytest.raises(errors.InputError, match=r"plugins/gpu\.nvidia\.com/dra\.sock"):
        asyncio.run(run())
