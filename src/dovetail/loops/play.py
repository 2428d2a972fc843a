"""Plays the kubelets of nodes that have none: renews their leases, walks bound pods through stages, lets go of them.

Given an API, a clock, stages, and what watches of nodes, pods and claims tell. A pod starts only when its claims are
allocated and reserved for it, as a kubelet would have it; what was bound against that rule stays Pending and is
recorded as a violation. A node that is to be silent is left alone until it is not. Never places a pod.
"""

from __future__ import annotations

import asyncio
import datetime
import hashlib
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Iterable
from typing import Any, Final, NamedTuple

from dovetail.loops import hollow, preparing, stages
from dovetail.loops.duties import Duties
from dovetail.model import claims, eventing, kinds, meta, nodes, objects, pods
from dovetail.ports import api as apis
from dovetail.ports import clock as clocks
from dovetail.ports import failures, meter
from dovetail.world.events import ObjectKey, key_of

LOG = logging.getLogger("dovetail.play")
HOLLOW: Final = "dovetail.dev/hollow"  # annotation or label of a node: it has no kubelet, play it
SILENT: Final = "dovetail.dev/silent"  # annotation or label of a node: it is cut off, do not play it
WATCHED: Final = (kinds.NODE, kinds.CLAIM, kinds.POD)  # what a player must be told about, in reading order
RENEW_SECONDS: Final = 10.0  # between two renewals of a lease, as a kubelet does
LARGE_FLEET: Final = 500  # nodes from which leases are renewed half as often, unless told otherwise
RENEW_SECONDS_LARGE: Final = 20.0  # half of a lease's duration
RETRY_SECONDS: Final = 2.0  # until a pod that could not start is looked at again
MOST_VIOLATIONS: Final = 10_000
_SECOND: Final = datetime.timedelta(seconds=1)

LetGo = Callable[[apis.Target, str], Awaitable[None]]  # deletes the pod of this uid without grace, as only a node may


class Violation(NamedTuple):
    """A pod that was bound although it cannot start there."""

    namespace: str
    pod: str
    uid: str
    node: str
    code: str
    message: str


def is_hollow(node: nodes.Node) -> bool:
    """Whether the node says that it has no kubelet."""
    return _says(node, HOLLOW)


def is_silent(node: nodes.Node) -> bool:
    """Whether the node is to be cut off."""
    return _says(node, SILENT)


class Player:
    """All hollow nodes. Tell it what there is through `feed`, then `run` it."""

    def __init__(
        self,
        api: apis.Api,
        clock: clocks.Clock,
        *,
        let_go: LetGo,
        walk: stages.Stages = stages.DEFAULT,
        plays: Callable[[nodes.Node], bool] = is_hollow,
        renew_seconds: float | None = None,
        concurrency: int = 32,
        told: Callable[[Violation], None] | None = None,
        meter_: meter.Meter | None = None,
    ) -> None:
        self._api = api
        self._clock = clock
        self._let_go = let_go
        self._walk = walk
        self._plays = plays
        self._renew_seconds = renew_seconds
        self._told = told
        self._meter = meter_ or meter.NoMeter()
        self._nodes: dict[str, nodes.Node] = {}
        self._pods: dict[ObjectKey, pods.Pod] = {}
        self._claims: dict[ObjectKey, claims.ResourceClaim] = {}
        self._by_node: dict[str, set[ObjectKey]] = {}
        self._stuck: dict[ObjectKey, set[ObjectKey]] = {}  # pods that wait for a claim
        self._since: dict[str, datetime.datetime] = {}  # by uid, finer than what objects say
        self._holdings = preparing.Holdings()
        self._objected: dict[str, set[str]] = {}  # by uid, what was said against a pod
        self.violations: deque[Violation] = deque(maxlen=MOST_VIOLATIONS)
        # Leases have hands of their own: however many pods start at once, no node may seem dead for it.
        self.tending = Duties(clock, self._tend, concurrency=max(1, concurrency // 4), name="node")
        self.playing = Duties(clock, self._play, concurrency=concurrency, name="pod")

    async def run(self) -> None:
        """For ever."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self.tending.run())
            group.create_task(self.playing.run())

    def feed(self, kind: kinds.Kind) -> Feed:
        """Where a watch of the kind tells what it sees."""
        return Feed(self, kind)

    def known(self, kind: kinds.Kind) -> Iterable[Any]:
        """Every object of the kind that was told."""
        tables: dict[str, dict[Any, Any]] = {"Node": self._nodes, "Pod": self._pods, "ResourceClaim": self._claims}
        return list(tables[kind.name].values())

    def changed(self, found: nodes.Node | pods.Pod | claims.ResourceClaim) -> None:
        """An object is there, new or different from before."""
        match found:
            case nodes.Node():
                self._node_changed(found)
            case pods.Pod():
                self._pod_changed(found)
            case claims.ResourceClaim():
                key = key_of(found)
                self._claims[key] = found
                for waiting in self._stuck.pop(key, ()):
                    self.playing.put(waiting)

    def deleted(self, found: nodes.Node | pods.Pod | claims.ResourceClaim) -> None:
        """An object is gone."""
        match found:
            case nodes.Node():
                self._nodes.pop(found.metadata.name, None)
                self.tending.drop(found.metadata.name)
            case pods.Pod():
                self._pod_gone(key_of(found))
            case claims.ResourceClaim():
                self._claims.pop(key_of(found), None)

    # Nodes

    def _node_changed(self, node: nodes.Node) -> None:
        name = node.metadata.name
        before = self._nodes.get(name)
        self._nodes[name] = node
        if not self._is_played(node):
            return
        if not hollow.is_ready(node):
            self.tending.put(name)
        if before is None or not self._is_played(before):
            self.tending.put(name, _share(name) * self._period())  # spread, so that no second has them all
            for key in self._by_node.get(name, ()):
                self.playing.put(key)

    def _is_played(self, node: nodes.Node) -> bool:
        return self._plays(node) and not is_silent(node)

    def _period(self) -> float:
        if self._renew_seconds is not None:
            return self._renew_seconds
        return RENEW_SECONDS if len(self._nodes) < LARGE_FLEET else RENEW_SECONDS_LARGE

    async def _tend(self, name: str) -> float | None:
        """Says that the node is alive."""
        node = self._nodes.get(name)
        if node is None or not self._is_played(node):
            return None
        began = self._clock.monotonic()
        await self._renew(node)
        if not hollow.is_ready(node):
            patch = objects.encode_tree(hollow.node_status(node, now=self._clock.now()))
            await self._api.patch(apis.Target(kinds.NODE, "", name, "status"), patch, brief=True)
        return max(0.1, self._period() - (self._clock.monotonic() - began))

    async def _renew(self, node: nodes.Node) -> None:
        now, name = self._clock.now(), node.metadata.name
        collection = apis.Target(kinds.LEASE, hollow.LEASE_NAMESPACE)
        try:
            patch = objects.encode_tree(hollow.renewal(now))
            await self._api.patch(collection._replace(name=name), patch, brief=True)
        except failures.Missing:
            await self._api.create(collection, objects.encode_tree(hollow.lease(node, now=now)), brief=True)
        self._meter.count("dovetail_player_renewals_total")

    # Pods

    def _pod_changed(self, pod: pods.Pod) -> None:
        key, node = key_of(pod), pod.spec.node_name
        before = self._pods.get(key)
        if before is not None and before.metadata.uid != pod.metadata.uid:
            self._pod_gone(key)
        if not node:
            return
        self._pods[key] = pod
        self._by_node.setdefault(node, set()).add(key)
        if pod.status.phase in stages.TERMINAL:
            self._holdings.release(pod)
        self.playing.put(key)

    def _pod_gone(self, key: ObjectKey) -> None:
        pod = self._pods.pop(key, None)
        if pod is None:
            return
        self._by_node[pod.spec.node_name].discard(key)
        self._holdings.release(pod)
        self._since.pop(pod.metadata.uid, None)
        self._objected.pop(pod.metadata.uid, None)
        self.playing.drop(key)

    async def _play(self, key: ObjectKey) -> float | None:
        """The pod's next step, if it is due; else when."""
        pod = self._pods.get(key)
        node = None if pod is None else self._nodes.get(pod.spec.node_name)
        if pod is None or node is None or not self._is_played(node):
            return None
        now = self._clock.now()
        self._remember(pod)
        step = stages.next_step(pod, self._walk, since=self._entered(pod, now), now=now)
        if step is None or step.wait_seconds > 0:
            await self._restore(pod, now=now)
            return None if step is None else step.wait_seconds
        match step.action:
            case stages.LetGo(first=first):
                if first is not None:
                    await self._become(pod, first, now=now)
                await self._let_go(apis.Target(kinds.POD, *key), pod.metadata.uid)
            case stages.Become() as become:
                if become.phase == stages.RUNNING and not await self._prepare(pod, node):
                    return RETRY_SECONDS
                await self._become(pod, become, now=now)
        return None

    async def _restore(self, pod: pods.Pod, *, now: datetime.datetime) -> None:
        """A pod the control plane took for lost with its node is ready again."""
        if pod.status.phase == stages.RUNNING and hollow.is_unready(pod):
            patch = objects.encode_tree(hollow.pod_status(pod, stages.Become(phase=stages.RUNNING), now=now))
            await self._api.patch(apis.Target(kinds.POD, *key_of(pod), "status"), patch, brief=True)

    async def _become(self, pod: pods.Pod, become: stages.Become, *, now: datetime.datetime) -> None:
        target = apis.Target(kinds.POD, *key_of(pod), "status")
        patch = objects.encode_tree(hollow.pod_status(pod, become, now=now))
        await self._api.patch(target, patch, brief=True)
        self._since[pod.metadata.uid] = now
        self._meter.count("dovetail_player_phases_total", phase=become.phase)

    def _entered(self, pod: pods.Pod, now: datetime.datetime) -> datetime.datetime:
        """When the pod entered its phase. Objects tell whole seconds: what is that fresh began when we saw it."""
        known = self._since.get(pod.metadata.uid)
        if known is None:
            told = stages.entered(pod)
            known = now if told is None or now - told < _SECOND else told
            self._since[pod.metadata.uid] = known
        return known

    # Claims

    def _remember(self, pod: pods.Pod) -> None:
        """Whoever runs holds what it uses, also if an earlier player started it."""
        if pod.status.phase == stages.RUNNING and not self._holdings.has(pod):
            self._holdings.take(pod, self._claims_of(pod))

    def _claims_of(self, pod: pods.Pod) -> list[claims.ResourceClaim]:
        uses = [use for use in preparing.uses_of(pod) if isinstance(use, preparing.Use)]
        return [self._claims[use.key] for use in uses if use.key in self._claims]

    async def _prepare(self, pod: pods.Pod, node: nodes.Node) -> bool:
        """Whether the pod may start. Asks the server before it objects: watches of two kinds do not run in step."""
        objection = preparing.objection_to(pod, node, self._claims.get)
        while objection is not None and objection.claim is not None:
            key = objection.claim
            await self._look_up(key)
            again = preparing.objection_to(pod, node, self._claims.get)
            if again is not None and again.claim == key:
                objection = again
                break
            objection = again
        wanted = self._claims_of(pod)
        objection = objection or self._holdings.objection(pod, node, wanted)
        if objection is None:
            self._holdings.take(pod, wanted)
            return True
        if objection.claim is not None:
            self._stuck.setdefault(objection.claim, set()).add(key_of(pod))
        await self._object(pod, objection)
        return False

    async def _look_up(self, key: ObjectKey) -> None:
        try:
            document = await self._api.get(apis.Target(kinds.CLAIM, *key))
        except failures.Missing:
            self._claims.pop(key, None)
            return
        self._claims[key] = objects.decode_struct(claims.ResourceClaim, document)

    async def _object(self, pod: pods.Pod, objection: preparing.Objection) -> None:
        """Records a violation, once per pod and kind of objection, where everybody sees it."""
        metadata = pod.metadata
        codes = self._objected.setdefault(metadata.uid, set())
        if objection.code in codes:
            return
        codes.add(objection.code)
        node = pod.spec.node_name
        found = Violation(metadata.namespace, metadata.name, metadata.uid, node, objection.code, objection.message)
        self.violations.append(found)
        self._meter.count("dovetail_player_violations_total", code=objection.code)
        LOG.error("violation", extra={"pod": "/".join(key_of(pod)), "node": node, "why": found.message})
        if self._told is not None:
            self._told(found)
        try:
            place = apis.Target(kinds.EVENT, metadata.namespace)
            await self._api.create(place, objects.encode_struct(_event(pod, objection, self._clock.now())), brief=True)
        except failures.ApiFailure as failure:
            LOG.warning("event not written", extra={"pod": metadata.name, "why": str(failure)})


class Feed:
    """What a watch of one kind tells, passed on to the player. Trouble is logged: the next list makes it whole."""

    def __init__(self, player: Player, kind: kinds.Kind) -> None:
        self._player = player
        self._kind = kind
        self.synced = asyncio.Event()  # the kind was listed once

    def replaced(self, found: Iterable[Any], resource_version: str) -> None:
        """Everything there is."""
        listed = list(found)
        keys = {key_of(one) for one in listed}
        for old in self._player.known(self._kind):
            if key_of(old) not in keys:
                self._player.deleted(old)
        for one in listed:
            self._player.changed(one)
        self.synced.set()

    def changed(self, found: Any) -> None:
        """One object is there, or differs."""
        self._player.changed(found)

    def deleted(self, found: Any) -> None:
        """One object is gone."""
        self._player.deleted(found)

    def broken(self, reason: str) -> None:
        """The connection is lost for now."""
        LOG.warning("watch broken", extra={"kind": self._kind.name, "why": reason})

    def unreadable(self, name: str, problem: str) -> None:
        """An object that cannot be read: it does not exist for us."""
        LOG.error("unreadable", extra={"kind": self._kind.name, "object": name, "why": problem})


def _says(node: nodes.Node, key: str) -> bool:
    return "true" in (node.metadata.annotations.get(key), node.metadata.labels.get(key))


def _share(name: str) -> float:
    """A place between 0 and 1, the same one for the same name."""
    return int.from_bytes(hashlib.sha256(name.encode()).digest()[:8], "big") / 2**64


def _event(pod: pods.Pod, objection: preparing.Objection, now: datetime.datetime) -> eventing.Event:
    metadata = pod.metadata
    regarding = eventing.ObjectReference(
        api_version="v1", kind="Pod", namespace=metadata.namespace, name=metadata.name, uid=metadata.uid
    )
    suffix = hashlib.sha256(f"{metadata.uid}/{objection.code}/{now}".encode()).hexdigest()[:16]
    return eventing.Event(
        api_version=kinds.EVENT.api_version,
        kind="Event",
        metadata=meta.ObjectMeta(name=f"{metadata.name[:200]}.{suffix}", namespace=metadata.namespace),
        event_time=now.astimezone(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ"),
        reporting_controller="dovetail-player",
        reporting_instance=pod.spec.node_name,
        action="Preparing",
        reason="FailedPrepareDynamicResources",  # kubelet's own word for it
        regarding=regarding,
        note=f"{objection.code}: {objection.message}"[: eventing.MAX_NOTE_BYTES // 4],
        type="Warning",
    )
