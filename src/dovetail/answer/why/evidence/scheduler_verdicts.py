"""What other schedulers and autoscalers last wrote about a pending pod: kube-scheduler, Cluster Autoscaler, Karpenter.

Their words support what the engine finds. They are the cause where nodes exist and were not read, as by users who may
read their namespace alone. A verdict has passed once the pod is bound. Never judges placement.
"""

from __future__ import annotations

import re
from typing import Final

from dovetail import timestamps
from dovetail.answer.replica.replica import Replica
from dovetail.answer.why.cause_codes import CauseClass, CauseCode
from dovetail.answer.why.evidence import observation, scheduler_messages
from dovetail.answer.why.evidence.observation import Observed
from dovetail.answer.why.evidence.sources import fields, pod_state, quoting
from dovetail.answer.why.evidence.sources.object_events import Event
from dovetail.answer.why.evidence.sources.pod_state import PodState

FAILED: Final = "FailedScheduling"
SCALE_UP_SECONDS: Final = 1_800.0  # in which a node that was announced joins
_KARPENTER: Final = "karpenter"
_OURS: Final = "dovetail"
_DEFAULT: Final = "default-scheduler"
# In the reasons of events by which schedulers say that a pod has to wait.
_REFUSALS: Final = re.compile(r"(?:Not|Un)\w*[Ss]chedulable|Failed|Refused|Rejected|Insufficient")
_OF_QUEUES: Final = re.compile(r"\b(?:queues?|quotas?|limits?)\b", re.IGNORECASE)
_LIMITED: Final = re.compile(r"\blimits?\b|max node group size|max cluster \w+ limit")
_NOT_SCALED: Final = re.compile(
    r"pod didn't trigger scale-up(?:: (?P<reasons>.+)| \((?P<whole>.+)\))", re.DOTALL
)
_NOT_TRIGGERED: Final = "NotTriggerScaleUp"
_SCALE_UP_FAILED: Final = "FailedScaleUp"
_FAILED_TO_SCALE: Final = re.compile(
    r"scale up .{0,400}?failed: (.+?)(?:\. Pod is at risk of not being scheduled|$)", re.DOTALL
)
_SCALED: Final = re.compile(r"\{(?P<address>\S+) (?P<sizes>\d+->\d+ \(max: \d+\))\}")
_KARPENTER_FAILED: Final = re.compile(
    r"(?:[Ff]ailed|could not|[Cc]ould not) (?:to )?schedule pod,? *(?P<reasons>.+)", re.DOTALL
)


def verdict(replica: Replica, state: PodState) -> Observed | None:
    """What another scheduler said last; None for what our own scheduler wrote, since the engine says it itself."""
    if state.node:
        return None
    event = next((each for each in state.events if _is_verdict(each, state)), None)
    condition = state.scheduled
    text = fields.text_at(condition, "message") or (event.message if event else "")
    if fields.text_at(condition, "status") == "True" or not text:
        return None
    parsed = scheduler_messages.message(text)
    author = _author(state, event)
    if parsed is None and author == _OURS:
        return None

    moment = event.last if event and event.last else pod_state.condition_time(condition)
    at = f" at {timestamps.to_text(moment)}" if moment is not None else ""
    said = parsed.summary if parsed else quoting.words(text)
    sentence = f"{author} found no place{at}: {said}"
    if parsed and parsed.preemption:
        sentence += f"; preemption: {quoting.words(parsed.preemption[0].reason, 60)}"
    lines = _lines(state, event)
    if parsed and parsed.total and not replica.world.nodes:
        leading = parsed.leading
        code = leading.code if leading and leading.code else CauseCode.OTHER_SCHEDULER
        unread = f"{said}; {author} said so{at}, and the nodes themselves were not read"
        return observation.observed_cause(code, unread, *lines)
    is_foreign = parsed is None and _is_foreign(replica, state)
    is_quota = is_foreign and _OF_QUEUES.search(said) is not None
    seen = observation.observed_cause(
        CauseCode.OTHER_SCHEDULER,
        sentence,
        *lines,
        overrides=False,
        class_=CauseClass.QUOTA if is_quota else None,
    )
    return seen._replace(is_foreign=is_foreign)


def no_scale_up(replica: Replica, state: PodState) -> Observed | None:
    """An autoscaler that looked at the pod and adds no node for it."""
    if state.node:
        return None
    event = state.newest(_NOT_TRIGGERED, _SCALE_UP_FAILED)
    if event is not None and not state.is_over(event, "TriggeredScaleUp"):
        is_failure = event.reason == _SCALE_UP_FAILED
        parts = (_FAILED_TO_SCALE if is_failure else _NOT_SCALED).search(event.message[:8_192])
        said = next(filter(None, parts.groups())) if parts else event.message
        what = "could not add a node" if is_failure else "adds no node"
        sentence = f"the cluster autoscaler {what} for it: {quoting.words(said)}"
        return observation.observed_cause(CauseCode.SCALE_UP, sentence, event.line, overrides=False)
    for event in state.events:
        if event.reason == FAILED and _KARPENTER in event.source.lower():
            if state.is_over(event, "Nominated"):
                return None
            parts = _KARPENTER_FAILED.search(event.message[:8_192])
            said = parts["reasons"] if parts else event.message
            sentence = f"Karpenter adds no node for it: {quoting.words(said)}"
            return observation.observed_cause(
                CauseCode.SCALE_UP, sentence, event.line, overrides=False
            )
    return None


def is_limited(sentence: str) -> bool:
    """Whether an autoscaler's words name a limit that an administrator set."""
    return _LIMITED.search(sentence) is not None


def announced(event: Event) -> str:
    """What an autoscaler announced, with the names of node groups instead of their addresses."""
    groups = [
        f"{match['address'].rpartition('/')[2]} {match['sizes']}"
        for match in _SCALED.finditer(event.message[:8_192])
    ]
    return quoting.words(", ".join(groups) or event.message)


def node_to_come(replica: Replica, state: PodState) -> Event | None:
    """The event by which an autoscaler announced a node for the pod a short while ago."""
    event = state.newest("TriggeredScaleUp", "Nominated")
    if event is None or event.last is None:
        return None
    if state.is_over(event, _NOT_TRIGGERED, _SCALE_UP_FAILED):
        return None
    age = (replica.now - event.last).total_seconds()
    return event if age < SCALE_UP_SECONDS else None


def _is_verdict(event: Event, state: PodState) -> bool:
    """Whether a scheduler says that it found no place; schedulers other than kube-scheduler have their own reasons."""
    if event.reason == FAILED:
        return _KARPENTER not in event.source.lower()
    name = state.pod.spec.scheduler_name
    is_of_scheduler = event.source == name and name not in ("", _DEFAULT)
    return is_of_scheduler and _REFUSALS.search(event.reason) is not None


def _is_foreign(replica: Replica, state: PodState) -> bool:
    """Whether the pod's scheduler has rules that the engine does not know."""
    name = state.pod.spec.scheduler_name
    return name not in ("", _DEFAULT, _OURS, *replica.policy.scheduler_names)


def _author(state: PodState, event: Event | None) -> str:
    """Who wrote the verdict, by the event, else by the scheduler the pod names."""
    source = event.source if event else ""
    name = source or state.pod.spec.scheduler_name or _DEFAULT
    return "kube-scheduler" if name == _DEFAULT else quoting.words(name, 60)


def _lines(state: PodState, event: Event | None) -> list[str]:
    lines = []
    if state.scheduled:
        lines.append(pod_state.condition_line(f"Pod {state.id}", state.scheduled))
    if event is not None:
        lines.append(event.line)
    return lines
