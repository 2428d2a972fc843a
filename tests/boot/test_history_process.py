"""Recorder and exporter beside a scheduler at work on an embedded API server: what they say, and what it cost."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from dovetail import errors
from dovetail.answer.cost import cost_keys, cost_ledger, cost_table, cost_window, price_list
from dovetail.boot import embedded_cluster, embedded_setup
from dovetail.boot.observing import exporter, history_process, price_file_watch
from dovetail.files import private_files
from dovetail.history import stores
from dovetail.model import workload_annotations
from dovetail.model.accounting.records import MICRO_GPU, Records
from dovetail.sim.fleet import fleet_spec
from tests.support import waiting

pytestmark = pytest.mark.slow

ALWAYS = 1 << 50
PRICES = "currency: USD\nprices: [{perHour: 2}]\nbudgets: [{queue: research, perMonth: 70}]\n"
FLEET = fleet_spec.Fleet(
    name="one",
    pools=(fleet_spec.Pool(name="n", count=1, gpu="H100-SXM5-80GB", gpus_per_node=2),),
)


def pod_with(name: str, gpus: int, *, runtime: str) -> list[dict[str, Any]]:
    """A pod that is scheduled alone, and the template of its claim."""
    request = {"name": "gpus", "exactly": {"deviceClassName": "gpu.nvidia.com", "count": gpus}}
    return [
        {
            "apiVersion": "resource.k8s.io/v1",
            "kind": "ResourceClaimTemplate",
            "metadata": {"namespace": "default", "name": name},
            "spec": {"spec": {"devices": {"requests": [request]}}},
        },
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {
                "namespace": "default",
                "name": name,
                "annotations": {workload_annotations.MAX_RUNTIME: runtime},
            },
            "spec": {
                "containers": [{"name": "main", "image": "x"}],
                "resourceClaims": [{"name": "gpus", "resourceClaimTemplateName": name}],
            },
        },
    ]


@contextlib.asynccontextmanager
async def scheduled(directory: Path) -> AsyncIterator[embedded_cluster.Server]:
    """An API server with one node of two GPUs, and a scheduler."""
    private_files.make_directory(directory)
    embedded_setup.write(directory, embedded_setup.Setup(name="one", fleet=FLEET))
    async with embedded_cluster.serving(directory) as server:
        clients = asyncio.create_task(embedded_cluster.run_clients(server.connection))
        try:
            yield server
        finally:
            clients.cancel()
            await asyncio.gather(clients, return_exceptions=True)


@contextlib.asynccontextmanager
async def recording(
    server: embedded_cluster.Server, settings: history_process.Settings
) -> AsyncIterator[history_process.HistoryProcess]:
    process = history_process.HistoryProcess(server.connection, settings)
    task = asyncio.create_task(process.run())
    try:
        yield process
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


@contextlib.asynccontextmanager
async def exporting(server: embedded_cluster.Server) -> AsyncIterator[Callable[[], str]]:
    """Returns what a scrape would read now."""
    watcher = exporter.Exporter(server.connection, pause_seconds=0.05)
    async with watcher.transport:
        task = asyncio.create_task(watcher.watch())
        try:
            yield lambda: watcher.text().decode()
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)


def whole(store: Path) -> Records:
    with contextlib.suppress(errors.NotFound), stores.open_store(str(store)) as opened:
        return opened.records(0, ALWAYS)
    return Records()


def test_fragments_promises_and_prices_are_recorded_beside_a_scheduler(tmp_path: Path) -> None:
    store, prices = tmp_path / "history.sqlite", tmp_path / "prices.yaml"
    prices.write_text(PRICES)
    settings = history_process.Settings(
        str(store), prices=price_file_watch.PriceFileWatch(str(prices)), unusable_seconds=0.05
    )

    async def story() -> None:
        async with (
            scheduled(tmp_path / "state") as server,
            recording(server, settings) as recorder,
            exporting(server) as metrics,
        ):
            for tree in pod_with("small", 1, runtime="1h"):
                server.api.put(tree)
            await waiting.until(lambda: whole(store).allocations, "a pod that holds a GPU")
            for tree in pod_with("wide", 2, runtime="1m"):
                server.api.put(tree)
            await waiting.until(lambda: whole(store).promises, "a promised start")
            await waiting.until(lambda: whole(store).unusable, "an unusable part of a GPU")
            await waiting.until(
                lambda: 'dovetail_gpus_unusable{product="H100-80GB-HBM3"} 0.5' in metrics(),
                "the same in the metrics",
            )
            promised = "dovetail_promised_start_timestamp_seconds"
            shown = recorder.shown.text().decode()
            assert "dovetail_history_recording 1.0" in shown
            assert 'dovetail_queue_budget{currency="USD",queue="research"} 70.0' in shown
            assert f'{promised}{{namespace="default",gang="pod/wide"}}' in metrics()

    asyncio.run(story())
    records = whole(store)

    # Of the free GPU, a second small pod could use all and a wide one nothing: half of it on average.
    last = records.unusable[-1]
    assert (last.node, last.micro_gpu, last.why) == ("n-0", MICRO_GPU // 2, "fragmented")
    [promise] = [each for each in records.promises if each.promised_start is not None]
    assert (promise.owner.pod, promise.nodes) == ("wide", ("n-0",))
    assert promise.promised_start is not None
    assert promise.promised_start > promise.start + 3_000_000
    assert [(each.name, each.document) for each in records.prices] == [("prices.yaml", PRICES)]

    window = cost_window.Window(last.start, last.start + 1_000)
    question = cost_ledger.Question(price_list.PriceList(), (window,), cost_keys.parse("namespace"))
    table = cost_table.cost(records, question, window.end)
    assert (table.currency, table.total.gpu_hours.unusable > 0) == ("USD", True)
    assert table.total.exact_cost == table.asset_cost
