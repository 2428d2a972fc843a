"""Records why pods wait: a PodScheduled condition and an event, once per change of reason.

Given refusals and bindings. The last report of each pod is remembered, so a reason whose numbers alone change is not
written again at once. Reports are never urgent: they queue behind other writes, at a bounded rate, and the oldest is
dropped when the queue is full. Never decides.
"""

from __future__ import annotations

import asyncio
import datetime
import hashlib
import itertools
import logging
import math
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from typing import Final, NamedTuple

import msgspec

from dovetail import timestamps
from dovetail.kubetypes import codec, meta, registry, unreadable
from dovetail.kubetypes.core import api_events, pods
from dovetail.live.bind import write_retry
from dovetail.model import condition_reasons, plaintext, plan
from dovetail.model.reasons import ReasonCode
from dovetail.ports import api as apis
from dovetail.ports import clock as clocks
from dovetail.ports import failures, meter, tracing
from dovetail.world.events import ObjectKey

LOG = logging.getLogger("dovetail.report")
SCHEDULED: Final = "PodScheduled"
FAILED: Final = "FailedScheduling"
MAX_QUEUED: Final = 20_000
# What other controllers are about to do when a workload is created: they make its claims and volumes, and its pods one
# after the other. Watches of two kinds lag behind each other, too.
TRANSIENT: Final = frozenset(
    {
        ReasonCode.CLAIM_NOT_MADE,
        ReasonCode.CLAIM_MISSING,
        ReasonCode.CLAIM_RETURNING,
        ReasonCode.GANG_INCOMPLETE,
        ReasonCode.VOLUME_MISSING,
        ReasonCode.VOLUME_UNBOUND,
    }
)
TRANSIENT_SECONDS: Final = 5.0  # unless the scheduler's settings say otherwise
# Failures that are worth another try.
RETRIABLE: Final = (
    failures.Conflict,
    failures.Throttled,
    failures.Unavailable,
    failures.Unauthorised,
)
AT_ONCE: Final = 8
RETRY_SECONDS: Final = 0.5  # before the second try, then twice as long each time
MAX_RETRY_SECONDS: Final = 30.0
MAX_TRIES: Final = 10  # of a condition the server keeps refusing; then only the event is sent
REASON_RETRY_SECONDS: Final = 0.1  # between two attempts at reasons that take long to compute
REFRESH_SECONDS: Final = 30.0  # numbers in a message are updated no more often
MAX_MESSAGE_BYTES: Final = 32_768  # metav1.Condition's limit; pod conditions have none

Reason = tuple[str, ...]
UNKNOWN: Final[Reason] = ()


class LastReport(NamedTuple):
    """The last report about a pod."""

    reason: Reason
    message: str
    at: float


class _Message(NamedTuple):
    pod: pods.Pod
    event: api_events.Event | None
    condition: pods.PodCondition | None
    tries: int = 0
    due: float = 0.0
    refusal: plan.Refusal | None = None  # set while the condition's reason is not computed yet


ReasonOf = Callable[[pods.Pod, plan.Refusal], str | None]  # None: try again shortly


def plain_reason(pod: pods.Pod, refusal: plan.Refusal) -> str:
    """The reason that follows from the refusal alone."""
    return condition_reasons.reason_for(pod, refusal) or condition_reasons.UNSCHEDULABLE


class Recorder:
    """Remembers the last report of each pod, and writes new ones."""

    def __init__(
        self,
        api: apis.Api,
        clock: clocks.Clock,
        meter_: meter.Meter,
        *,
        latest: Callable[[str], pods.Pod | None],
        controller: str = "dovetail",
        instance: str = "dovetail",
        rate_per_second: float = 50.0,
        records_scheduled: bool = True,
        transient_seconds: float = TRANSIENT_SECONDS,
        reason_of: ReasonOf = plain_reason,
    ) -> None:
        self._api = api
        self._clock = clock
        self._meter = meter_
        self._latest = latest  # the pod of a uid as last seen
        self._controller = controller
        self._instance = instance
        self._pause = 1.0 / rate_per_second
        self._records_scheduled = records_scheduled
        self._transient_seconds = transient_seconds
        self._reason_of = reason_of
        self._last_reports: dict[str, LastReport] = {}
        self._reasons: dict[str, str] = {}  # the last reason of each condition
        self._deferred: dict[str, _Message] = {}  # came too soon after the previous report
        self._sent: dict[str, str] = {}  # the note of the last event about a pending pod
        self._later: dict[str, float] = {}  # usually transient: when to report them after all
        self._waiting: OrderedDict[str, _Message] = OrderedDict()
        self._backing_off: dict[str, _Message] = {}  # failed, to be retried when due
        self._arrived = asyncio.Event()
        self.is_busy = False  # set while the scheduler has more urgent writes
        self._is_over = False
        self._logged: set[str] = set()

    def refused(self, pod: pods.Pod, refusal: plan.Refusal) -> None:
        """The pod waits for these reasons. Obstacles that usually pass are reported only if they last."""
        uid = pod.metadata.uid
        if unreadable.problem_of(pod) is not None:
            return  # its owner knows already; this gate cannot be removed
        if is_transient(refusal):
            self._later.setdefault(uid, self._clock.monotonic() + self._transient_seconds)
            if self._clock.monotonic() < self._later[uid]:
                return
        else:
            self._later.pop(uid, None)

        reasons = {
            f"{obstacle.reason.code}/{obstacle.reason.subject}" for obstacle in refusal.obstacles
        }
        reason = tuple(sorted(reasons))
        self._report(pod, plain_reason(pod, refusal), reason, refusal.summary, refusal)

    def nominated(self, pod: pods.Pod, node: str) -> None:
        """A node is reserved for the pod until its victims are gone; as in kube-scheduler it counts as refused.

        Autoscalers treat a pod with a nominated node as placed there, and add no node for it.
        """
        message = f"node {node} is reserved for the pod; it starts once the evicted pods are gone"
        self._report(pod, condition_reasons.UNSCHEDULABLE, ("Nominated", node), message)

    def preparing(self, pod: pods.Pod, message: str) -> None:
        """The pod has a node and devices, which their driver prepares. No failure, so no warning event."""
        reason = condition_reasons.NOT_PREPARED
        self._report(pod, reason, (reason,), message, has_event=False)

    def failed(self, pod: pods.Pod, message: str) -> None:
        """Binding failed in a way the pod's owner should know."""
        self._report(pod, condition_reasons.SCHEDULER_ERROR, (message,), message)

    def bound(self, pod: pods.Pod, node: str) -> None:
        """The pod is bound."""
        self._last_reports.pop(pod.metadata.uid, None)
        self._deferred.pop(pod.metadata.uid, None)
        self._later.pop(pod.metadata.uid, None)
        if self._records_scheduled:
            name = f"{pod.metadata.namespace}/{pod.metadata.name}"
            event = self._event(
                pod, "Normal", "Scheduled", f"Successfully assigned {name} to {node}"
            )
            self._put(pod, _Message(pod, event, None))
        else:
            self._waiting.pop(pod.metadata.uid, None)

    def record_claim_event(self, key: ObjectKey, uid: str, *, reason: str, note: str) -> None:
        """Records an event on a claim."""
        self.record_event(registry.CLAIM, key, uid, reason=reason, note=note)

    def record_event(
        self, kind: registry.Kind, key: ObjectKey, uid: str, *, reason: str, note: str
    ) -> None:
        """Records an event on an object."""
        namespace, name = key
        regarding = api_events.ObjectReference(
            api_version=kind.api_version, kind=kind.name, namespace=namespace, name=name, uid=uid
        )
        event = self._event_on(regarding, "Warning", reason, note)
        holder_uid = f"{kind.name}/{uid}/{reason}"  # its own key: replaces no other report
        holder = pods.Pod(metadata=meta.ObjectMeta(namespace=namespace, name=name, uid=holder_uid))
        self._put(holder, _Message(holder, event, None))

    def record_pod_event(
        self, pod: pods.Pod, *, reason: str, note: str, kind: str = "Normal"
    ) -> None:
        """Records an event on a pod, in addition to why it waits."""
        event = self._event(pod, kind, reason, note)
        # Its own key: replaces no other report about the pod.
        metadata = msgspec.structs.replace(pod.metadata, uid=f"{pod.metadata.uid}/{reason}")
        self._put(pods.Pod(metadata=metadata), _Message(pod, event, None))

    def overdue(self) -> tuple[str, ...]:
        """Pods whose transient reason did not pass: worth deciding again."""
        now = self._clock.monotonic()
        return tuple(
            uid for uid, due in self._later.items() if due <= now and uid not in self._last_reports
        )

    def report_deferred(self) -> None:
        """Reports messages that came too soon, once the report before is old enough. A few per call.

        No later decision may come on a quiet cluster, and then the pod would name pods or numbers of long ago.
        """
        now = self._clock.monotonic()
        for uid in [*itertools.islice(self._deferred, AT_ONCE)]:
            last = self._last_reports.get(uid)
            if last is not None and now - last.at < REFRESH_SECONDS:
                continue

            message = self._deferred[uid]
            assert message.refusal is not None
            pod = self._latest(uid)
            reason = self._reason_of(pod, message.refusal) if pod is not None else ""
            if reason is None:
                return  # this second's simulations are used up

            del self._deferred[uid]
            if last is None or message.condition is None:
                continue
            self._last_reports[uid] = LastReport(last.reason, message.condition.message, now)
            self._put(message.pod, message)

    def forget(self, uid: str) -> None:
        """The pod is gone."""
        self._last_reports.pop(uid, None)
        self._sent.pop(uid, None)
        self._reasons.pop(uid, None)
        self._deferred.pop(uid, None)
        self._later.pop(uid, None)
        self._waiting.pop(uid, None)
        self._backing_off.pop(uid, None)

    def end(self) -> None:
        """Reports nothing more; writes under way are still completed."""
        self._is_over = True
        self._waiting.clear()
        self._backing_off.clear()
        self._arrived.set()

    async def run(self) -> None:
        """Writes reports until `end`, while no more urgent writes are under way."""
        while True:
            await self._arrived.wait()
            if self._is_over:
                return

            if self.is_busy and len(self._waiting) < MAX_QUEUED // 2:
                await self._clock.sleep(0.05)
                continue

            self._end_backoff()
            if self._waiting:
                await self._send_portion()
            elif self._backing_off:
                await self._clock.sleep(RETRY_SECONDS)
            else:
                self._arrived.clear()

    async def _send_portion(self) -> None:
        """Writes the oldest reports concurrently, then pauses as the rate and the server ask."""
        count = min(AT_ONCE, len(self._waiting))
        portion = [self._waiting.popitem(last=False)[1] for _ in range(count)]
        messages = [await self._with_reason(message) for message in portion]

        ready = [message for message in messages if message.refusal is None]
        for message in messages:
            if message.refusal is not None and message.pod.metadata.uid not in self._waiting:
                self._put(message.pod, message)
        if not ready:
            await self._clock.sleep(REASON_RETRY_SECONDS)
            return

        waits = await asyncio.gather(*map(self._send, ready))
        if all(waits):  # the server refuses every request for now
            await self._clock.sleep(max(waits))
        elif all(message.condition is None for message in ready):
            # Events are optional and rate-limited; conditions are not.
            await self._clock.sleep(self._pause * len(ready))

    def _end_backoff(self) -> None:
        """Queues failed reports again whose backoff is over."""
        now = self._clock.monotonic()
        for uid in [uid for uid, message in self._backing_off.items() if message.due <= now]:
            self._waiting[uid] = self._backing_off.pop(uid)

    def _report(
        self,
        pod: pods.Pod,
        kind: str,
        reason: Reason,
        message: str,
        refusal: plan.Refusal | None = None,
        *,
        has_event: bool = True,
    ) -> None:
        """Queues a condition, and an event if the reason is new. New numbers alone wait for the refresh."""
        # Escaped, as it may quote text of other writers.
        message = shortened(plaintext.escaped(message), MAX_MESSAGE_BYTES)
        uid, now = pod.metadata.uid, self._clock.monotonic()
        last = self._last_reports.get(uid) or _reported_before(pod)
        is_new = last is None or _is_news(last, reason, message)
        condition = _condition(pod, kind, message, self._clock.now())
        self._deferred.pop(uid, None)

        if last is not None and not is_new:
            if last.message == message:
                return
            if now - last.at < REFRESH_SECONDS:
                if refusal is not None:
                    self._deferred[uid] = _Message(pod, None, condition, refusal=refusal)
                return

        self._last_reports[uid] = LastReport(reason, message, now)
        event = None
        note = shortened(message, api_events.MAX_NOTE_BYTES)
        if has_event and is_new and self._last_note(pod) != note:
            event = self._event(pod, "Warning", FAILED, message)

        unsent = self._waiting.get(uid) or self._backing_off.get(uid)
        if not is_new and unsent is not None:  # only its numbers changed: keep the unsent event
            event = unsent.event
        self._put(pod, _Message(pod, event, condition, refusal=refusal))

    def _last_note(self, pod: pods.Pod) -> str:
        """The note of our last event, else the message a predecessor wrote into the condition."""
        before = _reported_before(pod)
        return self._sent.get(pod.metadata.uid, before.message if before is not None else "")

    def _put(self, pod: pods.Pod, message: _Message) -> None:
        self._waiting.pop(pod.metadata.uid, None)  # a newer report replaces one not sent yet
        self._backing_off.pop(pod.metadata.uid, None)
        self._waiting[pod.metadata.uid] = message
        if len(self._waiting) > MAX_QUEUED:
            self._waiting.popitem(last=False)
            self._meter.count("dovetail_events_dropped_total", reason="full")
        self._arrived.set()

    async def _with_reason(self, message: _Message) -> _Message:
        """The message with its condition's reason computed; unchanged where that has to wait."""
        if message.refusal is None or message.condition is None:
            return message
        pod = self._latest(message.pod.metadata.uid)
        if pod is None or pod.spec.node_name:
            return message._replace(refusal=None)

        await asyncio.sleep(0)  # let other tasks run: the reason may take milliseconds
        reason = self._reason_of(pod, message.refusal)
        if reason is None:
            return message
        self._reasons[pod.metadata.uid] = reason
        condition = msgspec.structs.replace(message.condition, reason=reason)
        return message._replace(condition=condition, refusal=None)

    async def _send(self, message: _Message) -> float:
        """Sends it, or backs off. Returns how long to wait if the server refuses every request."""
        try:
            if message.condition is not None:
                write = self._write_condition(message.pod.metadata.uid, message.condition)
                await self._attempt(message, write)
            if message.event is not None:
                target = apis.Target(registry.EVENT, message.event.metadata.namespace)
                body = codec.encode_struct(message.event)
                if message.event.reason == FAILED:
                    self._sent[message.pod.metadata.uid] = message.event.note
                await self._attempt(message, self._api.create(target, body, brief=True))
        except RETRIABLE as failure:
            self._back_off(message, failure)
            if not _is_about_pod(failure):
                return failure.retry_after or RETRY_SECONDS
        return 0.0

    def _back_off(self, message: _Message, failure: failures.ApiFailure) -> None:
        """Retries the report later; after too many refusals only its event is sent."""
        uid, tries = message.pod.metadata.uid, message.tries + 1
        newer = self._waiting.get(uid)
        if newer is not None and newer.event is None:
            self._waiting[uid] = newer._replace(event=message.event)
        if message.condition is None or newer is not None or uid in self._backing_off:
            return

        if tries >= MAX_TRIES and _is_about_pod(failure):
            self._count_dropped(message, failure)
            if message.event is not None:
                self._put(message.pod, message._replace(condition=None))
            return

        seconds = min(RETRY_SECONDS * 2.0 ** (tries - 1), MAX_RETRY_SECONDS)
        due = self._clock.monotonic() + max(seconds, failure.retry_after or 0.0)
        self._backing_off[uid] = message._replace(tries=tries, due=due)

    async def _attempt(self, message: _Message, write: Awaitable[object]) -> None:
        """A write that is refused for good is counted and dropped: the other half of the report may still succeed."""
        try:
            await write
        except (failures.Fenced, *RETRIABLE):
            raise
        except failures.ApiFailure as failure:
            self._count_dropped(message, failure)

    def _count_dropped(self, message: _Message, failure: failures.ApiFailure) -> None:
        why = type(failure).__name__.lower()
        self._meter.count("dovetail_events_dropped_total", reason=why)
        level = logging.DEBUG if why in self._logged else logging.WARNING
        self._logged.add(why)
        LOG.log(
            level,
            "report.dropped",
            extra={"pod": message.pod.metadata.name, "why": str(failure)},
        )

    async def _write_condition(self, uid: str, condition: pods.PodCondition) -> None:
        pod = self._latest(uid)
        if pod is None or pod.spec.node_name:
            return  # deleted or bound: nothing to explain any more

        # Only our condition: the server merges by type, so other writers' conditions are safe.
        patch = {
            "metadata": {"uid": uid, "resourceVersion": pod.metadata.resource_version},
            "status": {"conditions": [codec.tree_of(condition)]},
        }
        target = apis.Target(registry.POD, pod.metadata.namespace, pod.metadata.name, "status")
        await self._api.patch(target, codec.encode_tree(patch), brief=True, adds=True)

    def _event(self, pod: pods.Pod, kind: str, reason: str, note: str) -> api_events.Event:
        metadata = pod.metadata
        regarding = api_events.ObjectReference(
            api_version="v1",
            kind="Pod",
            namespace=metadata.namespace,
            name=metadata.name,
            uid=metadata.uid,
            resource_version=metadata.resource_version,
        )
        return self._event_on(regarding, kind, reason, note)

    def _event_on(
        self, regarding: api_events.ObjectReference, kind: str, reason: str, note: str
    ) -> api_events.Event:
        now = self._clock.now().astimezone(datetime.UTC)
        stamp = timestamps.to_micro_text(now)
        digest = hashlib.sha256(f"{regarding.uid}/{reason}/{stamp}".encode()).hexdigest()[:16]
        cycle = tracing.CYCLE.get()
        return api_events.Event(
            api_version=registry.EVENT.api_version,
            kind="Event",
            metadata=meta.ObjectMeta(
                name=f"{regarding.name[:200]}.{digest}",
                namespace=regarding.namespace or "default",
                annotations={tracing.CYCLE_ANNOTATION: cycle} if cycle else {},
            ),
            event_time=stamp,
            reporting_controller=self._controller,
            reporting_instance=self._instance,
            action="Scheduling",
            reason=reason,
            regarding=regarding,
            note=shortened(plaintext.escaped(note), api_events.MAX_NOTE_BYTES),
            type=kind,
        )


def _is_about_pod(failure: failures.ApiFailure) -> bool:
    return failure.status not in write_retry.PASSING


def is_transient(refusal: plan.Refusal) -> bool:
    """Whether a pod only waits for what other controllers are about to create."""
    return all(obstacle.reason.code in TRANSIENT for obstacle in refusal.obstacles)


def shortened(text: str, most_bytes: int) -> str:
    """The text, cut between two characters where it is too long."""
    raw = text.encode()
    if len(raw) <= most_bytes:
        return text
    return raw[: most_bytes - 4].decode(errors="ignore") + " …"


def _is_news(last: LastReport, reason: Reason, message: str) -> bool:
    """Whether the reason differs. After a predecessor's report only the condition is updated."""
    return last.reason not in (reason, UNKNOWN) and last.message != message


def _reported_before(pod: pods.Pod) -> LastReport | None:
    """The report in the pod's own condition, written by a predecessor."""
    before = _scheduled_condition(pod)
    if before is None or before.status != "False":
        return None
    if before.reason == condition_reasons.GATED:
        return None
    return LastReport(UNKNOWN, before.message, -math.inf)


def _condition(pod: pods.Pod, kind: str, message: str, now: datetime.datetime) -> pods.PodCondition:
    before = _scheduled_condition(pod)
    since: str | None = timestamps.to_text(now)
    if before is not None and before.status == "False":
        since = before.last_transition_time

    condition = pods.PodCondition(
        type=SCHEDULED, status="False", reason=kind, message=message, last_transition_time=since
    )
    generation = pod.metadata.generation
    if not generation:
        return condition
    return msgspec.structs.replace(condition, observed_generation=generation)


def _scheduled_condition(pod: pods.Pod) -> pods.PodCondition | None:
    for condition in pod.status.conditions:
        if condition.type == SCHEDULED:
            return condition
    return None
