"""Volumes that a kubelet cannot attach or mount for a bound pod: a missing ConfigMap or Secret, a volume in use.

Given the pod with its events; they count while no container has started and nothing later happened. Never reads what
volumes hold.
"""

from __future__ import annotations

import re
from typing import Final

from dovetail.answer.replica.replica import Replica
from dovetail.answer.why.cause_codes import CauseClass, CauseCode
from dovetail.answer.why.evidence import observation
from dovetail.answer.why.evidence.observation import Observed
from dovetail.answer.why.evidence.sources import quoting
from dovetail.answer.why.evidence.sources.object_events import Event
from dovetail.answer.why.evidence.sources.pod_state import PodState

_REASONS: Final = ("FailedMount", "FailedAttachVolume", "FailedMapVolume")
_AFTER: Final = ("Pulling", "Pulled", "Created", "Started")
_VOLUME: Final = re.compile(r'for volume "(?P<volume>[^"]+)"')
_MISSING: Final = re.compile(
    r'(?P<kind>configmap|secret|persistentvolumeclaim) "(?P<name>[^"]+)" not found', re.IGNORECASE
)
_KEY: Final = re.compile(r"references non-existent (?P<kind>config|secret) key: (?P<key>\S+)")
_ATTACHED: Final = re.compile(r"Multi-Attach error|is already (?:exclusively attached|used by pod)")
_DRIVER: Final = re.compile(r"driver name (?P<driver>\S+) not found in the list of registered CSI")
_KINDS: Final = {
    "configmap": "ConfigMap",
    "secret": "Secret",
    "persistentvolumeclaim": "PersistentVolumeClaim",
}


def failed(replica: Replica, state: PodState) -> Observed | None:
    """Why a volume of the pod is not there."""
    event = state.newest(*_REASONS)
    if event is None or not state.node or state.has_started or state.is_over(event, *_AFTER):
        return None
    text = event.message[:8_192]
    named = _VOLUME.search(text)
    volume = f"volume {quoting.words(named['volume'], 63)}" if named else "its volumes"
    return _known_form(state, event, text, volume) or observation.observed_cause(
        CauseCode.RUNTIME_FAILED,
        f"node {quoting.words(state.node, 63)} cannot mount {volume}: {quoting.words(text)}",
        event.line,
    )


def _known_form(state: PodState, event: Event, text: str, volume: str) -> Observed | None:
    node = quoting.words(state.node, 63)
    if match := _MISSING.search(text):
        kind, name = _KINDS[match["kind"].lower()], quoting.words(match["name"], 63)
        sentence = f"{volume} needs {kind} {name}, which does not exist in its namespace; create it"
        return observation.observed_cause(
            CauseCode.VOLUME_MISSING, sentence, event.line, class_=CauseClass.CONFIG
        )
    if match := _KEY.search(text):
        kind, key = match["kind"], quoting.words(match["key"], 63)
        sentence = f"{volume} asks for {kind} key {key}, which does not exist"
        return observation.observed_cause(CauseCode.VOLUME_MISSING, sentence, event.line)
    if _ATTACHED.search(text):
        sentence = f"{volume} is attached to another node and cannot be attached to node {node} yet"
        return observation.observed_cause(CauseCode.VOLUME_IN_USE, sentence, event.line)
    if match := _DRIVER.search(text):
        driver = quoting.words(match["driver"], 63)
        sentence = f"CSI driver {driver} of {volume} does not run on node {node}"
        return observation.observed_cause(CauseCode.VOLUME_DRIVER, sentence, event.line)
    return None
