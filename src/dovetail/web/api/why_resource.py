"""`GET /why/{namespace}/{kind}/{name}`: why a pod or workload does not start: the answer of `dovetail why -o json`.

Names of work that the user may not see are taken out; fixes that would change such work are left out.
"""

from __future__ import annotations

import msgspec

from dovetail import errors
from dovetail.answer.why import why_answer
from dovetail.ask import why_asked
from dovetail.web import asked, endpoints, problems
from dovetail.web.api import hidden_names


class WhyParams(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which pod or workload."""

    namespace: str
    kind: str
    name: str


def answer(question: asked.Asked, params: WhyParams) -> why_answer.Why:
    """The answer. Raises 404 where there is no such object that the user may see."""
    question.may.must_see(params.namespace, f"{params.kind} {params.namespace}/{params.name}")
    hidden = hidden_names.of(question)
    try:
        name = f"{params.kind}/{params.name}"
        whole = why_asked.why(question.replica(), name, params.namespace)
    except errors.InputError as error:
        raise problems.not_found(hidden.text(str(error))) from None
    return _without_hidden(whole, hidden)


def _without_hidden(whole: why_answer.Why, hidden: hidden_names.HiddenNames) -> why_answer.Why:
    fixes = [fix for fix in whole.fixes if not _names_hidden(fix, hidden)]
    holders = [_holder(holder, hidden) for holder in whole.holders]
    bare = msgspec.structs.replace(whole, fixes=(), holders=())
    return msgspec.structs.replace(hidden.without(bare), fixes=tuple(fixes), holders=tuple(holders))


def _names_hidden(fix: why_answer.Fix, hidden: hidden_names.HiddenNames) -> bool:
    """Whether a fix changes or names hidden work: a patch without names would be another patch."""
    return hidden.without(fix) != fix


def _holder(holder: why_answer.Holder, hidden: hidden_names.HiddenNames) -> why_answer.Holder:
    if not hidden.namespace(holder.pod.partition("/")[0]):
        return hidden.without(holder)
    return why_answer.Holder(
        pod=hidden_names.OTHER, holds=hidden.text(holder.holds), node=holder.node
    )


ENDPOINTS = (
    endpoints.Endpoint(
        "/why/{namespace}/{kind}/{name}",
        WhyParams,
        why_answer.Why,
        answer,
        summary="Why a pod or workload does not start",
    ),
)
