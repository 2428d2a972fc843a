"""Tells pod owners how things stand: a PodScheduled condition and an event, once per change of reason.

Given refusals and bindings; what was told before is remembered, so a reason that only changes its numbers is not told
again at once. Telling is never urgent: it queues behind, at a bounded rate, and drops the oldest when too much waits.
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

from dovetail.loops import attempts
from dovetail.model import eventing, kinds, meta, objects, plaintext, plan, pods, unreadable, waitreasons
from dovetail.model.reasons import ReasonCode
from dovetail.ports import api as apis
from dovetail.ports import clock as clocks
from dovetail.ports import failures, meter, tracing
from dovetail.world.events import ObjectKey

LOG = logging.getLogger("dovetail.tell")
SCHEDULED: Final = "PodScheduled"
FAILED: Final = "FailedScheduling"
MOST_WAITING: Final = 20_000
PASSING: Final = (ReasonCode.CLAIM_NOT_MADE, ReasonCode.CLAIM_MISSING, ReasonCode.CLAIM_RETURNING)
PASSING_SECONDS: Final = 5.0
AGAIN: Final = (failures.Conflict, failures.Throttled, failures.Unavailable, failures.Unauthorised)  # worth another try
AT_ONCE: Final = 8
AGAIN_SECONDS: Final = 0.5  # before the second try, then twice as long each time
LONGEST_AGAIN_SECONDS: Final = 30.0
MOST_TRIES: Final = 10  # of a condition the server answers no to each time; then the event is all there is
JUDGED_SECONDS: Final = 0.1  # between two looks for reasons that take long to find
REFRESH_SECONDS: Final = 30.0  # numbers in a message are brought up to date no more often
MAX_MESSAGE_BYTES: Final = 32_768  # of a condition, as metav1.Condition has it; pods' own have no limit

Reason = tuple[str, ...]
UNKNOWN: Final[Reason] = ()


class Told(NamedTuple):
    """What a pod's owner was told last."""

    reason: Reason
    message: str
    at: float


class _Message(NamedTuple):
    pod: pods.Pod
    event: eventing.Event | None
    condition: pods.PodCondition | None
    tries: int = 0
    due: float = 0.0
    refusal: plan.Refusal | None = None  # what the condition is about, where its reason is yet to be found


ReasonOf = Callable[[pods.Pod, plan.Refusal], str | None]  # None: ask again in a moment


def plain_reason(pod: pods.Pod, refusal: plan.Refusal) -> str:
    """The reason as far as the refusal tells it."""
    return waitreasons.told(pod, refusal) or waitreasons.UNSCHEDULABLE


class Teller:
    """Remembers what was told, and tells what is new."""

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
        tells_scheduled: bool = True,
        reason_of: ReasonOf = plain_reason,
    ) -> None:
        self._api = api
        self._clock = clock
        self._meter = meter_
        self._latest = latest  # the pod of a uid as last seen
        self._controller = controller
        self._instance = instance
        self._pause = 1.0 / rate_per_second
        self._tells_scheduled = tells_scheduled
        self._reason_of = reason_of
        self._told: dict[str, Told] = {}
        self._reasons: dict[str, str] = {}  # of conditions, as found last
        self._unsaid: dict[str, _Message] = {}  # words that came too soon after others
        self._sent: dict[str, str] = {}  # the words of the last event about a pod that waits
        self._later: dict[str, float] = {}  # reasons that usually pass, and when to tell them after all
        self._waiting: OrderedDict[str, _Message] = OrderedDict()
        self._resting: dict[str, _Message] = {}  # failed, and not to be tried again before their time
        self._arrived = asyncio.Event()
        self.is_busy = False  # somebody has more urgent writes
        self._is_over = False
        self._complained: set[str] = set()

    def refused(self, pod: pods.Pod, refusal: plan.Refusal) -> None:
        """The pod waits for these reasons. Claims that are about to be made are told only if that takes long."""
        uid = pod.metadata.uid
        if unreadable.problem_of(pod) is not None:
            return  # it was told why; its gate is none that anybody could remove
        if is_passing(refusal):
            self._later.setdefault(uid, self._clock.monotonic() + PASSING_SECONDS)
            if self._clock.monotonic() < self._later[uid]:
                return
        else:
            self._later.pop(uid, None)
        reason = tuple(sorted({f"{one.reason.code}/{one.reason.subject}" for one in refusal.obstacles}))
        self._tell(pod, plain_reason(pod, refusal), reason, refusal.summary, refusal)

    def nominated(self, pod: pods.Pod, node: str) -> None:
        """A node is kept for the pod until those who yield are gone; as with kube-scheduler it counts as refused.

        Autoscalers take a pod with a nominated node as placed there, and buy nothing for it.
        """
        message = f"node {node} is kept for it; it starts once those who leave it are gone"
        self._tell(pod, waitreasons.UNSCHEDULABLE, ("Nominated", node), message)

    def failed(self, pod: pods.Pod, message: str) -> None:
        """Carrying out failed in a way its owner should know."""
        self._tell(pod, waitreasons.SCHEDULER_ERROR, (message,), message)

    def bound(self, pod: pods.Pod, node: str) -> None:
        """The pod has its node."""
        self._told.pop(pod.metadata.uid, None)
        self._unsaid.pop(pod.metadata.uid, None)
        self._later.pop(pod.metadata.uid, None)
        if self._tells_scheduled:
            name = f"{pod.metadata.namespace}/{pod.metadata.name}"
            event = self._event(pod, "Normal", "Scheduled", f"Successfully assigned {name} to {node}")
            self._put(pod, _Message(pod, event, None))
        else:
            self._waiting.pop(pod.metadata.uid, None)

    def about_claim(self, key: ObjectKey, uid: str, *, reason: str, note: str) -> None:
        """Something about a claim its owner should know."""
        self.about(kinds.CLAIM, key, uid, reason=reason, note=note)

    def about(self, kind: kinds.Kind, key: ObjectKey, uid: str, *, reason: str, note: str) -> None:
        """Something about an object whoever made it should know."""
        namespace, name = key
        regarding = eventing.ObjectReference(
            api_version=kind.api_version, kind=kind.name, namespace=namespace, name=name, uid=uid
        )
        event = self._noted(regarding, "Warning", reason, note)
        holder_uid = f"{kind.name}/{uid}/{reason}"  # replaces no other word
        holder = pods.Pod(metadata=meta.ObjectMeta(namespace=namespace, name=name, uid=holder_uid))
        self._put(holder, _Message(holder, event, None))

    def about_pod(self, pod: pods.Pod, *, reason: str, note: str, kind: str = "Normal") -> None:
        """Something about a pod its owner should know, beside why it waits."""
        event = self._event(pod, kind, reason, note)
        metadata = msgspec.structs.replace(pod.metadata, uid=f"{pod.metadata.uid}/{reason}")  # replaces no other word
        self._put(pod=pods.Pod(metadata=metadata), message=_Message(pod, event, None))

    def overdue(self) -> tuple[str, ...]:
        """Pods whose reason did not pass: worth asking about again."""
        now = self._clock.monotonic()
        return tuple(uid for uid, due in self._later.items() if due <= now and uid not in self._told)

    def catch_up(self) -> None:
        """Tells words that came too soon after others, if by them the condition has another reason. A few at a time."""
        now = self._clock.monotonic()
        for uid in [*itertools.islice(self._unsaid, AT_ONCE)]:
            told, message = self._told.get(uid), self._unsaid[uid]
            if told is not None and now - told.at < REFRESH_SECONDS:
                continue
            pod = self._latest(uid)
            assert message.refusal is not None
            reason = self._reason_of(pod, message.refusal) if pod is not None else ""
            if reason is None:
                return  # too much was asked for now
            del self._unsaid[uid]
            if reason != self._reasons.get(uid) and told is not None and message.condition is not None:
                self._told[uid] = Told(told.reason, message.condition.message, now)
                self._put(message.pod, message)

    def forget(self, uid: str) -> None:
        """The pod is gone."""
        self._told.pop(uid, None)
        self._sent.pop(uid, None)
        self._reasons.pop(uid, None)
        self._unsaid.pop(uid, None)
        self._later.pop(uid, None)
        self._waiting.pop(uid, None)
        self._resting.pop(uid, None)

    def end(self) -> None:
        """Tells nothing more; what is being written is still answered."""
        self._is_over = True
        self._waiting.clear()
        self._resting.clear()
        self._arrived.set()

    async def run(self) -> None:
        """Tells what waits until the end, when nothing more urgent is under way."""
        while True:
            await self._arrived.wait()
            if self._is_over:
                return  # whoever is still busy has nobody to be told
            if self.is_busy and len(self._waiting) < MOST_WAITING // 2:
                await self._clock.sleep(0.05)
                continue
            self._rouse()
            if not self._waiting and self._resting:
                await self._clock.sleep(AGAIN_SECONDS)
                continue
            if not self._waiting:
                self._arrived.clear()
                continue
            portion = [self._waiting.popitem(last=False)[1] for _ in range(min(AT_ONCE, len(self._waiting)))]
            judged = [await self._judged(message) for message in portion]
            portion = [message for message in judged if message.refusal is None]
            for message in judged:
                if message.refusal is not None and message.pod.metadata.uid not in self._waiting:
                    self._put(message.pod, message)
            if not portion:
                await self._clock.sleep(JUDGED_SECONDS)
                continue
            waits = await asyncio.gather(*map(self._send, portion))
            if all(waits):  # the server serves nobody now
                await self._clock.sleep(max(waits))
            elif all(one.condition is None for one in portion):  # events are a courtesy, conditions are not
                await self._clock.sleep(self._pause * len(portion))

    def _rouse(self) -> None:
        """What failed and whose time has come is to be told again."""
        now = self._clock.monotonic()
        for uid in [uid for uid, message in self._resting.items() if message.due <= now]:
            self._waiting[uid] = self._resting.pop(uid)

    def _tell(
        self, pod: pods.Pod, kind: str, reason: Reason, message: str, refusal: plan.Refusal | None = None
    ) -> None:
        message = shortened(plaintext.escaped(message), MAX_MESSAGE_BYTES)  # it may quote what others wrote
        uid, now = pod.metadata.uid, self._clock.monotonic()
        told = self._told.get(uid) or _already(pod)
        is_new = told is None or _is_news(told, reason, message)
        condition = _condition(pod, kind, message, self._clock.now())
        self._unsaid.pop(uid, None)
        if not is_new and told is not None and (told.message == message or now - told.at < REFRESH_SECONDS):
            if refusal is not None and told.message != message:
                self._unsaid[uid] = _Message(pod, None, condition, refusal=refusal)
            return
        self._told[uid] = Told(reason, message, now)
        is_news = is_new and self._last_words(pod) != shortened(message, eventing.MAX_NOTE_BYTES)
        event = self._event(pod, "Warning", FAILED, message) if is_news else None
        waiting = self._waiting.get(uid)
        if not is_new and waiting is not None:  # only its numbers changed: the event still stands
            event = waiting.event
        self._put(pod, _Message(pod, event, condition, refusal=refusal))

    def _last_words(self, pod: pods.Pod) -> str:
        """What the owner heard last: from us, else what a predecessor wrote into the condition."""
        told = _already(pod)
        return self._sent.get(pod.metadata.uid, told.message if told is not None else "")

    def _put(self, pod: pods.Pod, message: _Message) -> None:
        self._waiting.pop(pod.metadata.uid, None)  # the newest word replaces one that was not told yet
        self._resting.pop(pod.metadata.uid, None)
        self._waiting[pod.metadata.uid] = message
        if len(self._waiting) > MOST_WAITING:
            self._waiting.popitem(last=False)
            self._meter.count("dovetail_events_dropped_total", reason="full")
        self._arrived.set()

    async def _judged(self, message: _Message) -> _Message:
        """The message with the reason of its condition, one at a time; as it was where that has to wait its turn."""
        if message.refusal is None or message.condition is None:
            return message
        pod = self._latest(message.pod.metadata.uid)
        if pod is None or pod.spec.node_name:
            return message._replace(refusal=None)
        await asyncio.sleep(0)  # others first
        reason = self._reason_of(pod, message.refusal)
        if reason is None:
            return message
        self._reasons[pod.metadata.uid] = reason
        condition = msgspec.structs.replace(message.condition, reason=reason)
        return message._replace(condition=condition, refusal=None)

    async def _send(self, message: _Message) -> float:
        """Tells it, or puts it off. How long the server should be left alone, if it serves nobody at all."""
        try:
            if message.condition is not None:
                await self._tried(message, self._write_condition(message.pod.metadata.uid, message.condition))
            if message.event is not None:
                place = apis.Target(kinds.EVENT, message.event.metadata.namespace)
                body = objects.encode_struct(message.event)
                if message.event.reason == FAILED:
                    self._sent[message.pod.metadata.uid] = message.event.note
                await self._tried(message, self._api.create(place, body, brief=True))
        except AGAIN as failure:
            self._put_off(message, failure)
            return 0.0 if _is_about_pod(failure) else failure.retry_after or AGAIN_SECONDS
        return 0.0

    def _put_off(self, message: _Message, failure: failures.ApiFailure) -> None:
        """One that fails each time keeps no other from being told, and in the end is told by its event alone."""
        uid, tries = message.pod.metadata.uid, message.tries + 1
        if message.condition is None or uid in self._waiting or uid in self._resting:
            return
        if tries >= MOST_TRIES and _is_about_pod(failure):
            self._complain(message, failure)
            if message.event is not None:
                self._put(message.pod, message._replace(condition=None))
            return
        seconds = min(AGAIN_SECONDS * 2.0 ** (tries - 1), LONGEST_AGAIN_SECONDS)
        due = self._clock.monotonic() + max(seconds, failure.retry_after or 0.0)
        self._resting[uid] = message._replace(tries=tries, due=due)

    async def _tried(self, message: _Message, write: Awaitable[object]) -> None:
        """What is refused for good is said once and left: the condition or the event may still be told without it."""
        try:
            await write
        except (failures.Fenced, *AGAIN):
            raise
        except failures.ApiFailure as failure:
            self._complain(message, failure)

    def _complain(self, message: _Message, failure: failures.ApiFailure) -> None:
        why = type(failure).__name__.lower()
        self._meter.count("dovetail_events_dropped_total", reason=why)
        level = logging.DEBUG if why in self._complained else logging.WARNING
        self._complained.add(why)
        LOG.log(level, "not told", extra={"pod": message.pod.metadata.name, "why": str(failure)})

    async def _write_condition(self, uid: str, condition: pods.PodCondition) -> None:
        pod = self._latest(uid)
        if pod is None or pod.spec.node_name:
            return  # it is told by what it is now
        patch = {  # ours alone: the server merges conditions by type, so fields of others' we do not know are safe
            "metadata": {"uid": uid, "resourceVersion": pod.metadata.resource_version},
            "status": {"conditions": [objects.tree_of(condition)]},
        }
        place = apis.Target(kinds.POD, pod.metadata.namespace, pod.metadata.name, "status")
        await self._api.patch(place, objects.encode_tree(patch), brief=True, adds=True)

    def _event(self, pod: pods.Pod, kind: str, reason: str, note: str) -> eventing.Event:
        metadata = pod.metadata
        regarding = eventing.ObjectReference(
            api_version="v1",
            kind="Pod",
            namespace=metadata.namespace,
            name=metadata.name,
            uid=metadata.uid,
            resource_version=metadata.resource_version,
        )
        return self._noted(regarding, kind, reason, note)

    def _noted(self, regarding: eventing.ObjectReference, kind: str, reason: str, note: str) -> eventing.Event:
        now = self._clock.now().astimezone(datetime.UTC)
        stamp = now.strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        digest = hashlib.sha256(f"{regarding.uid}/{reason}/{stamp}".encode()).hexdigest()[:16]
        cycle = tracing.CYCLE.get()
        return eventing.Event(
            api_version=kinds.EVENT.api_version,
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
            note=shortened(plaintext.escaped(note), eventing.MAX_NOTE_BYTES),
            type=kind,
        )


def _is_about_pod(failure: failures.ApiFailure) -> bool:
    return failure.status not in attempts.PASSING


def is_passing(refusal: plan.Refusal) -> bool:
    """Whether a pod only waits for claims that are about to be made."""
    return all(one.reason.code in PASSING for one in refusal.obstacles)


def shortened(text: str, most_bytes: int) -> str:
    """The text, cut at a character where it is too long."""
    raw = text.encode()
    if len(raw) <= most_bytes:
        return text
    return raw[: most_bytes - 4].decode(errors="ignore") + " …"


def _is_news(told: Told, reason: Reason, message: str) -> bool:
    """Whether another reason is told than before. After a predecessor only the condition is brought up to date."""
    return told.reason not in (reason, UNKNOWN) and told.message != message


def _already(pod: pods.Pod) -> Told | None:
    """What the pod's own condition says, told by whoever led before."""
    before = next((one for one in pod.status.conditions if one.type == SCHEDULED and one.status == "False"), None)
    return None if before is None or before.reason == waitreasons.GATED else Told(UNKNOWN, before.message, -math.inf)


def _condition(pod: pods.Pod, kind: str, message: str, now: datetime.datetime) -> pods.PodCondition:
    before = next((one for one in pod.status.conditions if one.type == SCHEDULED), None)
    moment = now.astimezone(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    since = before.last_transition_time if before is not None and before.status == "False" else moment
    made = pods.PodCondition(type=SCHEDULED, status="False", reason=kind, message=message, last_transition_time=since)
    generation = pod.metadata.generation
    return msgspec.structs.replace(made, observed_generation=generation) if generation else made
