"""Acts as the kubelet of nodes that have none: renews leases, moves bound pods through their phases, deletes them.

Given an API, a clock, stages, and watches of nodes, pods and claims. A pod starts only when its claims are allocated
and reserved for it, as with a real kubelet; a pod bound against that rule stays Pending and is recorded as a violation.
A node marked silent is not served. Never places a pod.
"""

from __future__ import annotations

import asyncio
import datetime
import hashlib
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Iterable
from typing import Any, Final, NamedTuple

from dovetail import timestamps
from dovetail.hollow import hollow_status, node_marks, pod_admission, pod_stages
from dovetail.kubetypes import codec, meta, registry
from dovetail.kubetypes.core import api_events, nodes, pods
from dovetail.kubetypes.resource import claims
from dovetail.live.workqueue import WorkQueue
from dovetail.ports import api as apis
from dovetail.ports import clock as clocks
from dovetail.ports import failures, meter
from dovetail.world.events import ObjectKey, key_of

LOG = logging.getLogger("dovetail.hollow")
WATCHED: Final = (registry.NODE, registry.CLAIM, registry.POD)  # listed in this order
RENEW_SECONDS: Final = 10.0  # between two renewals of a lease, as a kubelet does
LARGE_FLEET: Final = 500  # nodes from which leases are renewed half as often by default
RENEW_SECONDS_LARGE: Final = 20.0  # half of a lease's duration
RETRY_SECONDS: Final = 2.0  # until a pod that could not start is tried again
MAX_VIOLATIONS: Final = 10_000
_SECOND: Final = datetime.timedelta(seconds=1)

# Deletes the pod of this uid without grace, as only its node may.
DeletePod = Callable[[apis.Target, str], Awaitable[None]]


class Violation(NamedTuple):
    """A pod that was bound although it cannot start there."""

    namespace: str
    pod: str
    uid: str
    node: str
    code: str
    message: str


class HollowKubelets:
    """The kubelets of all hollow nodes. Connect watches through `feed`, then `run` it."""

    def __init__(
        self,
        api: apis.Api,
        clock: clocks.Clock,
        *,
        let_go: DeletePod,
        stages: pod_stages.Stages = pod_stages.DEFAULT,
        plays: Callable[[nodes.Node], bool] = node_marks.is_hollow,
        renew_seconds: float | None = None,
        concurrency: int = 32,
        on_violation: Callable[[Violation], None] | None = None,
        meter_: meter.Meter | None = None,
    ) -> None:
        self._api = api
        self._clock = clock
        self._let_go = let_go
        self._stages = stages
        self._plays = plays
        self._renew_seconds = renew_seconds
        self._on_violation = on_violation
        self._meter = meter_ or meter.NoMeter()
        self._nodes: dict[str, nodes.Node] = {}
        self._pods: dict[ObjectKey, pods.Pod] = {}
        self._claims: dict[ObjectKey, claims.ResourceClaim] = {}
        self._by_node: dict[str, set[ObjectKey]] = {}
        self._stuck: dict[ObjectKey, set[ObjectKey]] = {}  # pods that wait for a claim
        self._since: dict[
            str, datetime.datetime
        ] = {}  # by uid, finer than the objects' whole seconds
        self._holdings = pod_admission.Holdings()
        self._objected: dict[str, set[str]] = {}  # by uid, the codes of recorded objections
        self.violations: deque[Violation] = deque(maxlen=MAX_VIOLATIONS)
        # Leases have their own workers: however many pods start at once, no node may seem dead.
        self.lease_queue = WorkQueue(
            clock, self._tend, concurrency=max(1, concurrency // 4), name="node"
        )
        self.pod_queue = WorkQueue(clock, self._play, concurrency=concurrency, name="pod")

    async def run(self) -> None:
        """Runs until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self.lease_queue.run())
            group.create_task(self.pod_queue.run())

    def feed(self, kind: registry.Kind) -> Feed:
        """The receiver for a watch of the kind."""
        return Feed(self, kind)

    def objects(self, kind: registry.Kind) -> Iterable[Any]:
        """Every object of the kind that was received."""
        tables: dict[str, dict[Any, Any]] = {
            "Node": self._nodes,
            "Pod": self._pods,
            "ResourceClaim": self._claims,
        }
        return list(tables[kind.name].values())

    def changed(self, object_: nodes.Node | pods.Pod | claims.ResourceClaim) -> None:
        """An object was added or changed."""
        match object_:
            case nodes.Node():
                self._node_changed(object_)
            case pods.Pod():
                self._pod_changed(object_)
            case claims.ResourceClaim():
                key = key_of(object_)
                self._claims[key] = object_
                for pod_key in self._stuck.pop(key, ()):
                    self.pod_queue.put(pod_key)

    def deleted(self, object_: nodes.Node | pods.Pod | claims.ResourceClaim) -> None:
        """An object was deleted."""
        match object_:
            case nodes.Node():
                self._nodes.pop(object_.metadata.name, None)
                self.lease_queue.drop(object_.metadata.name)
            case pods.Pod():
                self._pod_gone(key_of(object_))
            case claims.ResourceClaim():
                self._claims.pop(key_of(object_), None)

    # Nodes

    def _node_changed(self, node: nodes.Node) -> None:
        name = node.metadata.name
        before = self._nodes.get(name)
        self._nodes[name] = node
        if not self._is_served(node):
            return

        if not hollow_status.is_ready(node):
            self.lease_queue.put(name)
        if before is None or not self._is_served(before):
            # Spread over the period, so that the leases are not all renewed in the same second.
            self.lease_queue.put(name, _share(name) * self._period())
            for key in self._by_node.get(name, ()):
                self.pod_queue.put(key)

    def _is_served(self, node: nodes.Node) -> bool:
        return self._plays(node) and not node_marks.is_silent(node)

    def _period(self) -> float:
        if self._renew_seconds is not None:
            return self._renew_seconds
        return RENEW_SECONDS if len(self._nodes) < LARGE_FLEET else RENEW_SECONDS_LARGE

    async def _tend(self, name: str) -> float | None:
        """Renews the node's lease, and its Ready condition where it was lost."""
        node = self._nodes.get(name)
        if node is None or not self._is_served(node):
            return None

        started = self._clock.monotonic()
        await self._renew(node)
        if not hollow_status.is_ready(node):
            patch = codec.encode_tree(hollow_status.node_status(node, now=self._clock.now()))
            await self._api.patch(apis.Target(registry.NODE, "", name, "status"), patch, brief=True)
        return max(0.1, self._period() - (self._clock.monotonic() - started))

    async def _renew(self, node: nodes.Node) -> None:
        now, name = self._clock.now(), node.metadata.name
        collection = apis.Target(registry.LEASE, hollow_status.LEASE_NAMESPACE)
        try:
            patch = codec.encode_tree(hollow_status.renewal(now))
            await self._api.patch(collection._replace(name=name), patch, brief=True)
        except failures.Missing:
            lease = codec.encode_tree(hollow_status.lease(node, now=now))
            await self._api.create(collection, lease, brief=True)
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
        if pod.status.phase in pods.TERMINAL_PHASES:
            self._holdings.release(pod)
        self.pod_queue.put(key)

    def _pod_gone(self, key: ObjectKey) -> None:
        pod = self._pods.pop(key, None)
        if pod is None:
            return
        self._by_node[pod.spec.node_name].discard(key)
        self._holdings.release(pod)
        self._since.pop(pod.metadata.uid, None)
        self._objected.pop(pod.metadata.uid, None)
        self.pod_queue.drop(key)

    async def _play(self, key: ObjectKey) -> float | None:
        """Takes the pod's next step if it is due; else returns the seconds until then."""
        pod = self._pods.get(key)
        node = None if pod is None else self._nodes.get(pod.spec.node_name)
        if pod is None or node is None or not self._is_served(node):
            return None

        now = self._clock.now()
        self._remember(pod)
        step = pod_stages.next_step(pod, self._stages, since=self._entered(pod, now), now=now)
        if step is None or step.wait_seconds > 0:
            await self._restore(pod, now=now)
            return None if step is None else step.wait_seconds

        match step.action:
            case pod_stages.Delete(last_phase=first):
                await self._delete(pod, first, now=now)
            case pod_stages.EnterPhase() as become:
                is_start = become.phase == pod_stages.RUNNING
                if is_start and not await self._prepare(pod, node):
                    return RETRY_SECONDS
                await self._become(pod, become, now=now)
        return None

    async def _delete(
        self, pod: pods.Pod, last_phase: pod_stages.EnterPhase | None, *, now: datetime.datetime
    ) -> None:
        if last_phase is not None:
            await self._become(pod, last_phase, now=now)
        await self._let_go(apis.Target(registry.POD, *key_of(pod)), pod.metadata.uid)

    async def _restore(self, pod: pods.Pod, *, now: datetime.datetime) -> None:
        """Marks a running pod ready again that the control plane marked unready with its node."""
        if pod.status.phase != pod_stages.RUNNING or not hollow_status.is_unready(pod):
            return

        running = pod_stages.EnterPhase(phase=pod_stages.RUNNING)
        patch = codec.encode_tree(hollow_status.pod_status(pod, running, now=now))
        target = apis.Target(registry.POD, *key_of(pod), "status")
        await self._api.patch(target, patch, brief=True)

    async def _become(
        self, pod: pods.Pod, become: pod_stages.EnterPhase, *, now: datetime.datetime
    ) -> None:
        target = apis.Target(registry.POD, *key_of(pod), "status")
        patch = codec.encode_tree(hollow_status.pod_status(pod, become, now=now))
        await self._api.patch(target, patch, brief=True)
        self._since[pod.metadata.uid] = now
        self._meter.count("dovetail_player_phases_total", phase=become.phase)

    def _entered(self, pod: pods.Pod, now: datetime.datetime) -> datetime.datetime:
        """When the pod entered its phase.

        Objects carry whole seconds: a phase younger than one counts from when it was first seen.
        """
        since = self._since.get(pod.metadata.uid)
        if since is None:
            recorded = pod_stages.phase_since(pod)
            is_fresh = recorded is None or now - recorded < _SECOND
            since = now if recorded is None or is_fresh else recorded
            self._since[pod.metadata.uid] = since
        return since

    # Claims

    def _remember(self, pod: pods.Pod) -> None:
        """A running pod holds its devices and room, also if an earlier process started it."""
        if pod.status.phase == pod_stages.RUNNING and not self._holdings.has(pod):
            self._holdings.take(pod, self._claims_of(pod))

    def _claims_of(self, pod: pods.Pod) -> list[claims.ResourceClaim]:
        uses = [use for use in pod_admission.uses_of(pod) if isinstance(use, pod_admission.Use)]
        return [self._claims[use.key] for use in uses if use.key in self._claims]

    async def _prepare(self, pod: pods.Pod, node: nodes.Node) -> bool:
        """Whether the pod may start; records an objection where it may not."""
        objection = await self._claim_objection(pod, node)
        pod_claims = self._claims_of(pod)
        if objection is None:
            objection = self._holdings.objection(pod, node, pod_claims)
        if objection is None:
            self._holdings.take(pod, pod_claims)
            return True

        if objection.claim is not None:
            self._stuck.setdefault(objection.claim, set()).add(key_of(pod))
        await self._object(pod, objection)
        return False

    async def _claim_objection(
        self, pod: pods.Pod, node: nodes.Node
    ) -> pod_admission.Objection | None:
        """An objection that remains after reading the claim: watches of two kinds do not run in step."""
        objection = pod_admission.objection_to(pod, node, self._claims.get)
        while objection is not None and objection.claim is not None:
            key = objection.claim
            await self._look_up(key)
            objection = pod_admission.objection_to(pod, node, self._claims.get)
            if objection is not None and objection.claim == key:
                break
        return objection

    async def _look_up(self, key: ObjectKey) -> None:
        try:
            document = await self._api.get(apis.Target(registry.CLAIM, *key))
        except failures.Missing:
            self._claims.pop(key, None)
            return
        self._claims[key] = codec.decode_struct(claims.ResourceClaim, document)

    async def _object(self, pod: pods.Pod, objection: pod_admission.Objection) -> None:
        """Records a violation once per pod and code: in memory, metrics, log, and as an event."""
        metadata = pod.metadata
        codes = self._objected.setdefault(metadata.uid, set())
        if objection.code in codes:
            return

        codes.add(objection.code)
        node = pod.spec.node_name
        violation = Violation(
            metadata.namespace, metadata.name, metadata.uid, node, objection.code, objection.message
        )
        self.violations.append(violation)
        self._meter.count("dovetail_player_violations_total", code=objection.code)
        LOG.error(
            "hollow.violation: the pod cannot start on the node it is bound to",
            extra={"pod": "/".join(key_of(pod)), "node": node, "why": violation.message},
        )
        if self._on_violation is not None:
            self._on_violation(violation)

        target = apis.Target(registry.EVENT, metadata.namespace)
        event = codec.encode_struct(_event(pod, objection, self._clock.now()))
        try:
            await self._api.create(target, event, brief=True)
        except failures.ApiFailure as failure:
            LOG.warning("hollow.event.failed", extra={"pod": metadata.name, "why": str(failure)})


class Feed:
    """Passes a watch's events on to the kubelets. Errors are logged: the next list repairs the state."""

    def __init__(self, player: HollowKubelets, kind: registry.Kind) -> None:
        self._player = player
        self._kind = kind
        self.synced = asyncio.Event()  # set once the kind is listed

    def replaced(self, objects: Iterable[Any], resource_version: str) -> None:
        """A complete list."""
        listed = list(objects)
        keys = {key_of(object_) for object_ in listed}
        for old in self._player.objects(self._kind):
            if key_of(old) not in keys:
                self._player.deleted(old)
        for object_ in listed:
            self._player.changed(object_)
        self.synced.set()

    def changed(self, object_: Any) -> None:
        """An object was added or changed."""
        self._player.changed(object_)

    def deleted(self, object_: Any) -> None:
        """An object was deleted."""
        self._player.deleted(object_)

    def broken(self, reason: str) -> None:
        """The watch is interrupted."""
        LOG.warning("hollow.watch.broken", extra={"kind": self._kind.name, "why": reason})

    def unreadable(self, name: str, problem: str) -> None:
        """An object that cannot be decoded is ignored."""
        LOG.error(
            "hollow.object.unreadable",
            extra={"kind": self._kind.name, "object": name, "why": problem},
        )


def _share(name: str) -> float:
    """A number between 0 and 1, always the same for the same name."""
    return int.from_bytes(hashlib.sha256(name.encode()).digest()[:8], "big") / 2**64


def _event(
    pod: pods.Pod, objection: pod_admission.Objection, now: datetime.datetime
) -> api_events.Event:
    metadata = pod.metadata
    regarding = api_events.ObjectReference(
        api_version="v1",
        kind="Pod",
        namespace=metadata.namespace,
        name=metadata.name,
        uid=metadata.uid,
    )
    suffix = hashlib.sha256(f"{metadata.uid}/{objection.code}/{now}".encode()).hexdigest()[:16]
    return api_events.Event(
        api_version=registry.EVENT.api_version,
        kind="Event",
        metadata=meta.ObjectMeta(
            name=f"{metadata.name[:200]}.{suffix}", namespace=metadata.namespace
        ),
        event_time=timestamps.to_micro_text(now),
        reporting_controller="dovetail-player",
        reporting_instance=pod.spec.node_name,
        action="Preparing",
        reason="FailedPrepareDynamicResources",  # the kubelet's reason
        regarding=regarding,
        note=f"{objection.code}: {objection.message}"[: api_events.MAX_NOTE_BYTES // 4],
        type="Warning",
    )
