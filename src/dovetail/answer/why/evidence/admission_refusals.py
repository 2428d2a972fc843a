"""What an API server's refusal of a pod or claim means: quota, limit range, runtime class, webhook, pod security.

Given the words of the refusal, as controllers quote them in events and conditions. Every form is matched by structure;
a text of no known form is quoted. Never asks whether the refusal still holds.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final, NamedTuple

from dovetail.answer.why.cause_codes import CauseClass, CauseCode
from dovetail.answer.why.evidence.sources import quoting
from dovetail.kubetypes.core import resource_quotas

_MAX_LENGTH: Final = 16_384


class Refusal(NamedTuple):
    """A refusal that was read."""

    code: CauseCode
    sentence: str
    class_: CauseClass
    exceeded: resource_quotas.Exceeded | None = None
    runtime_class: str = ""


class _Form(NamedTuple):
    pattern: re.Pattern[str]
    read: Callable[[re.Match[str]], Refusal]


def refusal(text: str, namespace: str) -> Refusal:
    """What the words mean."""
    text = text[:_MAX_LENGTH]
    exceeded = resource_quotas.exceeded(text)
    if exceeded is not None and exceeded.shortages:
        return _quota(exceeded, namespace)
    for form in _FORMS:
        if match := form.pattern.search(text):
            return form.read(match)
    return _denied(f"the API server refuses its pods: {quoting.words(_reason_of(text))}")


def _reason_of(text: str) -> str:
    """The refusal without the words a controller puts in front: they repeat what is known."""
    return re.sub(r"^(?:Error creating: |create Pod \S+ in \S+ \S+ failed error: )", "", text)


def exceeded_sentence(exceeded: resource_quotas.Exceeded, namespace: str) -> str:
    """Which quota has no room, with its numbers."""
    parts = "; ".join(map(str, exceeded.shortages[:3]))
    return f"ResourceQuota {namespace}/{exceeded.quota} has no room: {quoting.words(parts, 160)}"


def _quota(exceeded: resource_quotas.Exceeded, namespace: str) -> Refusal:
    sentence = exceeded_sentence(exceeded, namespace)
    code = CauseCode.RESOURCE_QUOTA
    return Refusal(code, sentence, code.cause_class, exceeded)


def _denied(sentence: str, class_: CauseClass = CauseCode.ADMISSION_DENIED.cause_class) -> Refusal:
    return Refusal(CauseCode.ADMISSION_DENIED, sentence, class_)


def _config(sentence: str) -> Refusal:
    return _denied(sentence, CauseClass.CONFIG)


def _runtime_class(match: re.Match[str]) -> Refusal:
    name = quoting.words(match["name"], 63)
    sentence = (
        f'its pods are refused: RuntimeClass "{name}" does not exist; create it, or remove '
        "runtimeClassName if the runtime finds GPUs by CDI"
    )
    code = CauseCode.RUNTIME_CLASS_MISSING
    return Refusal(code, sentence, code.cause_class, runtime_class=match["name"])


def _limit_range(match: re.Match[str]) -> Refusal:
    amount = quoting.words(match[0], 120)
    return _config(f"a LimitRange of the namespace refuses its pods: {amount}")


def _unspecified(match: re.Match[str]) -> Refusal:
    quota, missing = quoting.words(match["quota"], 63), quoting.words(match["missing"], 100)
    return _config(f"ResourceQuota {quota} demands that pods specify {missing}; they do not")


def _pod_security(match: re.Match[str]) -> Refusal:
    level, problems = quoting.words(match["level"], 40), quoting.words(match["problems"], 110)
    return _denied(f'pod security "{level}" of the namespace refuses its pods: {problems}')


def _policy(match: re.Match[str]) -> Refusal:
    name, reason = quoting.words(match["name"], 63), quoting.words(match["reason"], 110)
    return _denied(f"admission policy {name} refuses its pods: {reason}")


def _webhook_denied(match: re.Match[str]) -> Refusal:
    name, reason = quoting.words(match["name"], 63), quoting.words(match["reason"], 110)
    return _denied(f"admission webhook {name} refuses its pods: {reason}")


def _webhook_failed(match: re.Match[str]) -> Refusal:
    name, reason = quoting.words(match["name"], 63), quoting.words(match["reason"], 110)
    sentence = f"admission webhook {name} does not answer, so its pods are refused: {reason}"
    return _denied(sentence, CauseClass.PLATFORM)


def _service_account(match: re.Match[str]) -> Refusal:
    return _config(
        f"its pods are refused: service account {quoting.words(match['name'], 127)} does not exist"
    )


def _priority_class(match: re.Match[str]) -> Refusal:
    return _config(
        f"its pods are refused: PriorityClass {quoting.words(match['name'], 63)} does not exist"
    )


def _invalid(match: re.Match[str]) -> Refusal:
    return _config(f"the API server finds its pods invalid: {quoting.words(match['problems'])}")


def _forbidden_access(match: re.Match[str]) -> Refusal:
    sentence = f"its controller may not create pods: {quoting.words(match['problem'])}"
    return _denied(sentence, CauseClass.PLATFORM)


_FORMS: Final = (
    _Form(re.compile(r'RuntimeClass "(?P<name>[^"]+)" not found'), _runtime_class),
    _Form(
        re.compile(r"failed quota: (?P<quota>\S+): must specify (?P<missing>.+)", re.DOTALL),
        _unspecified,
    ),
    _Form(
        re.compile(
            r"(?:maximum|minimum) \S{1,200} usage per \S{1,40} is \S{1,40}?(?:, but (?:limit|request) is [^,\]\s]+"
            r"|\.  No (?:limit|request) is specified)|max limit to request ratio per \S{1,40} is [^\]]+"
        ),
        _limit_range,
    ),
    _Form(
        re.compile(r'violates PodSecurity "(?P<level>[^"]+)": (?P<problems>.+)', re.DOTALL),
        _pod_security,
    ),
    _Form(
        re.compile(
            r"(?:ValidatingAdmissionPolicy|policy) ['\"](?P<name>[^'\"]+)['\"].{0,300}? denied request: "
            r"(?P<reason>.+)",
            re.DOTALL,
        ),
        _policy,
    ),
    _Form(
        re.compile(
            r'admission webhook "(?P<name>[^"]+)" denied the request(?P<reason>.*)', re.DOTALL
        ),
        _webhook_denied,
    ),
    _Form(
        re.compile(r'failed calling webhook "(?P<name>[^"]+)": (?P<reason>.+)', re.DOTALL),
        _webhook_failed,
    ),
    _Form(
        re.compile(r"error looking up service account (?P<name>[^\s:]+)"),
        _service_account,
    ),
    _Form(
        re.compile(r"no PriorityClass with name (?P<name>\S+) was found"),
        _priority_class,
    ),
    _Form(
        re.compile(r"is forbidden: (?P<problem>User \"[^\"]*\" cannot create .+)", re.DOTALL),
        _forbidden_access,
    ),
    _Form(re.compile(r"\" is invalid: (?P<problems>.+)", re.DOTALL), _invalid),
)
