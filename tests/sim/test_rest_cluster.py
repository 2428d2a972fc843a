"""The embedded cluster: our scheduler and hollow nodes on the server in memory over HTTPS, in one event loop."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec

from dovetail.boot import clocks, hollow_nodes, scheduler
from dovetail.kube.auth import client_config
from dovetail.kubetypes import registry
from dovetail.model import configuration as configurations
from dovetail.sim.server.api_server import SimApi
from dovetail.sim.server.journal import Journal
from tests.support import rest_place, waiting

Tree = dict[str, Any]
NODES = 2


def configuration() -> configurations.SchedulerConfiguration:
    """Alone, for every pod, with its health on a free port."""
    base = configurations.SchedulerConfiguration(scheduler_names=("default-scheduler",))
    return msgspec.structs.replace(
        base,
        leader_election=msgspec.structs.replace(base.leader_election, enabled=False),
        serving=msgspec.structs.replace(base.serving, port=0),
    )


@contextlib.asynccontextmanager
async def cluster(folder: Path) -> AsyncIterator[SimApi]:
    """A cluster on the state of a folder, for as long as the block lasts."""
    journal = Journal(folder / "state")
    api = SimApi(
        clocks.SystemClock(),
        collects_all_kinds=True,
        restored=journal.open(),
        on_change=journal.note,
    )
    try:
        async with rest_place.served(api, folder, journal=journal) as kubeconfig:
            connection = client_config.load(str(kubeconfig))
            settings = hollow_nodes.Settings(fleet=hollow_nodes.default_fleet(NODES))
            running = [
                asyncio.create_task(scheduler.Process(connection, configuration()).run()),
                asyncio.create_task(
                    hollow_nodes.run(connection, settings, print_line=lambda message: None)
                ),
            ]
            try:
                yield api
            finally:
                for task in running:
                    task.cancel()
                await asyncio.gather(*running, return_exceptions=True)
    finally:
        journal.close()


def template() -> Tree:
    request = {"name": "gpu", "exactly": {"deviceClassName": "gpu.nvidia.com"}}
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaimTemplate",
        "metadata": {"name": "gpu"},
        "spec": {"spec": {"devices": {"requests": [request]}}},
    }


def pod(name: str) -> Tree:
    container = {"name": "main", "image": "none", "resources": {"claims": [{"name": "gpu"}]}}
    claim = {"name": "gpu", "resourceClaimTemplateName": "gpu"}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name},
        "spec": {"resourceClaims": [claim], "containers": [container]},
    }


async def until_running(api: SimApi, name: str) -> None:
    async def is_running() -> bool:
        found = api.find(registry.POD, name, namespace="default")
        return found is not None and found.status.phase == "Running"

    await waiting.until(is_running, f"pod {name} running")


async def until_published(api: SimApi) -> None:
    async def are_there() -> bool:
        return len(api.all(registry.NODE)) == NODES and len(api.all(registry.SLICE)) == NODES

    await waiting.until(are_there, "the fleet")


def test_a_pod_with_a_claim_template_runs_and_still_does_after_a_restart(tmp_path: Path) -> None:
    async def first() -> str:
        async with cluster(tmp_path) as api:
            await until_published(api)
            api.put(template())
            api.put(pod("train"))
            await until_running(api, "train")
            [claim] = api.all(registry.CLAIM)
            assert claim.status.reserved_for[0].name == "train"
            return str(api.find(registry.POD, "train", namespace="default").metadata.uid)

    async def second(uid: str) -> None:
        async with cluster(tmp_path) as api:
            kept = api.find(registry.POD, "train", namespace="default")
            assert (kept.metadata.uid, kept.status.phase) == (uid, "Running")
            api.put(pod("next"))
            await until_running(api, "next")
            devices = [
                (result.pool, result.device)
                for claim in api.all(registry.CLAIM)
                for result in claim.status.allocation.devices.results
            ]
            assert len(set(devices)) == len(devices) == 2

    uid = asyncio.run(first())
    asyncio.run(second(uid))


def test_deleting_a_running_pod_gives_its_devices_back(tmp_path: Path) -> None:
    async def main() -> None:
        async with cluster(tmp_path) as api:
            await until_published(api)
            api.put(template())
            api.put(pod("train"))
            await until_running(api, "train")
            api.shelf.delete(registry.POD, ("default", "train"))

            async def is_over() -> bool:
                return not api.all(registry.POD) and not api.all(registry.CLAIM)

            await waiting.until(is_over, "the end of the pod and its claim")

    asyncio.run(main())
