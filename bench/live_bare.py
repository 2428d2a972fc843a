"""Binds pods as our scheduler does, without thinking: the same requests, the same watches open, devices given.

A process of its own: `python -m bench.live_bare --kubeconfig F --devices F`. What no scheduler that writes through
this API server with this client can beat. Bodies are prepared beforehand; `live_forms` knows other ways
to say the same.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import datetime
import gc
import signal
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import msgspec

from bench import live_cluster, live_forms
from dovetail.kube import client
from dovetail.kube.auth import client_config
from dovetail.kube.http import paths, transport
from dovetail.kubetypes import registry
from dovetail.kubetypes.resource import claims
from dovetail.ports import api


class Errand(NamedTuple):
    """One pod and what should become of it."""

    claim: api.Target
    pod: api.Target
    wish: live_forms.Wish


Carry = Callable[[], Awaitable[None]]


async def main(arguments: argparse.Namespace) -> None:
    """Binds all waiting pods, then keeps its watches open until it is stopped."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    gpus = msgspec.json.decode(Path(arguments.devices).read_bytes(), type=list[live_cluster.Gpu])
    over = transport.Transport(
        client_config.load(arguments.kubeconfig), concurrency=arguments.in_flight
    )
    async with over, contextlib.AsyncExitStack() as stack:
        errands = await _errands(over, arguments.form, gpus)
        if arguments.form == live_forms.OURS:
            carries = [_as_ours(client.KubeApi(over), errand) for errand in errands]
        else:
            carries = [
                _in_form(over, live_forms.FORMS[arguments.form], errand) for errand in errands
            ]
        if arguments.events:
            carries = [
                _then(carry, _event_sent(over, errand))
                for carry, errand in zip(carries, errands, strict=True)
            ]
        for kind in registry.WATCHED:
            await _watch(stack, over, kind)
        gc.collect()
        gc.freeze()
        waiting = iter(carries)
        await asyncio.gather(*(_work(waiting) for _ in range(arguments.in_flight)))
        await stop.wait()


async def _work(waiting: Iterator[Carry]) -> None:
    for carry in waiting:
        await carry()


def _as_ours(client: client.KubeApi, errand: Errand) -> Carry:
    """Finalizer, status, binding, one after the other: the requests of our scheduler, its client included."""
    first, second = live_forms.steps(errand.wish)
    body = live_forms.binding(errand.wish)
    status = errand.claim._replace(subresource=second.subresource)
    binding = errand.pod._replace(subresource="binding")

    async def carry() -> None:
        answer = await client.patch(
            errand.claim, first.patch, brief=first.after is not None, adds=first.adds
        )
        patch = second.patch.replace(live_forms.VERSION, live_forms.json_version(answer))
        await client.patch(status, patch, brief=second.after is not None, adds=second.adds)
        await client.create(binding, body)

    return carry


def _in_form(over: transport.Transport, form: live_forms.Form, errand: Errand) -> Carry:
    """The same three in another form."""
    bodies = form.bodies(errand.wish)
    claim, binding = paths.of(errand.claim), paths.of(errand.pod._replace(subresource="binding"))

    async def carry() -> None:
        answer = await _sent(over, form.finalizer, claim, bodies.finalizer)
        body = form.with_version(bodies.status, form.version_of(answer))
        await _sent(over, form.status, f"{claim}/status", body)
        await _sent(over, form.binding, binding, bodies.binding)

    return carry


def _event_sent(over: transport.Transport, errand: Errand) -> Carry:
    path, body = paths.collection(registry.EVENT, live_cluster.WORK), _event(errand.wish)

    async def carry() -> None:
        await _sent(over, live_forms.EVENT, path, body)

    return carry


def _then(first: Carry, second: Carry) -> Carry:
    async def carry() -> None:
        await first()
        await second()

    return carry


async def _sent(over: transport.Transport, way: live_forms.Way, path: str, body: bytes) -> bytes:
    answer = await over.request(
        way.method,
        path,
        params=way.params,
        body=body,
        content_type=way.content_type,
        accept=way.accept,
    )
    return live_cluster.checked(answer, path)


async def _errands(
    over: transport.Transport, form: str, gpus: list[live_cluster.Gpu]
) -> list[Errand]:
    space = live_cluster.WORK
    held, _ = await client.list_all(over, registry.CLAIM, namespace=space)
    waiting, _ = await client.list_all(over, registry.POD, namespace=space)
    documents = (
        await live_forms.FORMS[form].documents(over, space) if form in live_forms.FORMS else {}
    )
    by_name: dict[str, claims.ResourceClaim] = {claim.metadata.name: claim for claim in held}
    now = datetime.datetime.now(datetime.UTC)
    errands = []
    for pod, gpu in zip(
        sorted(waiting, key=lambda pod: str(pod.metadata.name)), gpus, strict=False
    ):
        name = pod.metadata.name
        wish = live_forms.Wish(by_name[name], pod, gpu, now, documents.get(name, b""))
        errands.append(
            Errand(
                api.Target(registry.CLAIM, space, name), api.Target(registry.POD, space, name), wish
            )
        )
    return errands


async def _watch(
    stack: contextlib.AsyncExitStack, over: transport.Transport, kind: registry.Kind
) -> None:
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


def _event(wish: live_forms.Wish) -> bytes:
    """The Scheduled event of a pod."""
    pod, gpu, now = wish.pod, wish.gpu, wish.now
    place = {"namespace": pod.metadata.namespace, "name": pod.metadata.name}
    event = {
        "apiVersion": registry.EVENT.api_version,
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
    parser.add_argument(
        "--devices", required=True, help="a file with the GPUs to give, in the order of pod names"
    )
    parser.add_argument("--in-flight", type=int, default=64)
    parser.add_argument(
        "--form", choices=[live_forms.OURS, *live_forms.FORMS], default=live_forms.OURS
    )
    parser.add_argument("--events", action="store_true")
    asyncio.run(main(parser.parse_args()))
