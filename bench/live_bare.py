"""Binds pods as our scheduler does, without thinking: the same requests, the same watches open, devices given.

A process of its own: `python -m bench.live_bare --kubeconfig F --devices F`. What no scheduler that writes through
this API server with this client can beat. Bodies are prepared beforehand; `forms` knows other ways to say the same.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import datetime
import gc
import signal
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from bench import live_cluster, live_forms
from dovetail.kube import api as kube_api
from dovetail.kube import config, paths, transport
from dovetail.model import claims, kinds, pods
from dovetail.ports import api


class Errand(NamedTuple):
    """All that is sent for one pod."""

    claim: str
    binding: str
    bodies: live_forms.Bodies
    events: str
    event: bytes


async def main(arguments: argparse.Namespace) -> None:
    """Binds all waiting pods, then keeps its watches open until it is told to go."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    gpus = msgspec.json.decode(Path(arguments.devices).read_bytes(), type=list[live_cluster.Gpu])
    form = live_forms.FORMS[arguments.form]
    over = transport.Transport(config.load(arguments.kubeconfig), concurrency=arguments.in_flight)
    async with over, contextlib.AsyncExitStack() as stack:
        errands = await _errands(over, form, gpus)
        for kind in kinds.WATCHED:
            await _watch(stack, over, kind)
        gc.collect()
        gc.freeze()
        waiting = iter(errands)
        workers = [_run(over, form, waiting, with_events=arguments.events) for _ in range(arguments.in_flight)]
        await asyncio.gather(*workers)
        await stop.wait()


async def _run(over: transport.Transport, form: live_forms.Form, waiting: Any, *, with_events: bool) -> None:
    """One of those who carry errands out: finalizer, status, binding, one after the other."""
    for errand in waiting:
        answer = await _sent(over, form.finalizer, errand.claim, errand.bodies.finalizer)
        body = form.with_version(errand.bodies.status, form.version_of(answer))
        await _sent(over, form.status, f"{errand.claim}/status", body)
        await _sent(over, form.binding, errand.binding, errand.bodies.binding)
        if with_events:
            await _sent(over, live_forms.EVENT, errand.events, errand.event)


async def _sent(over: transport.Transport, way: live_forms.Way, path: str, body: bytes) -> bytes:
    answer = await over.request(
        way.method, path, params=way.params, body=body, content_type=way.content_type, accept=way.accept
    )
    return live_cluster.checked(answer, path)


async def _errands(over: transport.Transport, form: live_forms.Form, gpus: list[live_cluster.Gpu]) -> list[Errand]:
    space = live_cluster.WORK
    held, _ = await kube_api.list_all(over, kinds.CLAIM, namespace=space)
    waiting, _ = await kube_api.list_all(over, kinds.POD, namespace=space)
    documents = await form.documents(over, space)
    by_name: dict[str, claims.ResourceClaim] = {claim.metadata.name: claim for claim in held}
    now = datetime.datetime.now(datetime.UTC)
    errands = []
    for pod, gpu in zip(sorted(waiting, key=lambda pod: str(pod.metadata.name)), gpus, strict=False):
        name = pod.metadata.name
        wish = live_forms.Wish(by_name[name], pod, gpu, now, documents.get(name, b""))
        errands.append(
            Errand(
                claim=paths.of(api.Target(kinds.CLAIM, space, name)),
                binding=paths.of(api.Target(kinds.POD, space, name, "binding")),
                bodies=form.bodies(wish),
                events=paths.collection(kinds.EVENT, space),
                event=_event(pod, gpu, now),
            )
        )
    return errands


async def _watch(stack: contextlib.AsyncExitStack, over: transport.Transport, kind: kinds.Kind) -> None:
    """Opens a watch on everything of a kind and lets what comes go by."""
    path = paths.collection(kind)
    listed = live_cluster.checked(await over.request("GET", path, params={"limit": "1"}), path)
    version = msgspec.json.decode(listed)["metadata"]["resourceVersion"]
    params = {"watch": "true", "allowWatchBookmarks": "true", "resourceVersion": version}
    opened = asyncio.Event()

    async def consume() -> None:
        async for _ in over.lines(path, params, opened=opened.set):
            pass

    task = asyncio.create_task(consume())
    stack.callback(task.cancel)
    await opened.wait()


def _event(pod: pods.Pod, gpu: live_cluster.Gpu, now: datetime.datetime) -> bytes:
    """What a pod's owner is told."""
    place = {"namespace": pod.metadata.namespace, "name": pod.metadata.name}
    event = {
        "apiVersion": kinds.EVENT.api_version,
        "kind": "Event",
        "metadata": {**place, "name": f"{pod.metadata.name}.{pod.metadata.uid[:16]}"},
        "eventTime": now.strftime("%Y-%m-%dT%H:%M:%S.%fZ"),
        "reportingController": "dovetail",
        "reportingInstance": "dovetail",
        "action": "Scheduling",
        "reason": "Scheduled",
        "regarding": {"apiVersion": "v1", "kind": "Pod", **place, "uid": pod.metadata.uid},
        "note": f"Successfully assigned {place['namespace']}/{place['name']} to {gpu.node}",
        "type": "Normal",
    }
    return msgspec.json.encode(event)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--kubeconfig", required=True)
    parser.add_argument("--devices", required=True, help="a file with the GPUs to give, in the order of pod names")
    parser.add_argument("--in-flight", type=int, default=64)
    parser.add_argument("--form", choices=sorted(live_forms.FORMS), default=live_forms.OURS)
    parser.add_argument("--events", action="store_true")
    asyncio.run(main(parser.parse_args()))
