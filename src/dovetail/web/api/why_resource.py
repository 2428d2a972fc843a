"""`GET /why/{namespace}/{kind}/{name}`: why a pod or workload does not start: the answer of `dovetail why -o json`.

The engine decides about the whole cluster; events, quotas, budgets and owners that the user may not list are not
quoted. Names that the user may not read are taken out, and so are fixes that would change such objects. What claims ask
for is shown to users who may list claims.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Final

import msgspec

from dovetail import errors
from dovetail.answer.replica import patches
from dovetail.answer.why import subjects, why_answer
from dovetail.answer.why.evidence import kueue_conditions
from dovetail.ask import why_asked
from dovetail.kubetypes import object_set, registry
from dovetail.web import asked, endpoints, problems
from dovetail.web.api import hidden_names, read_kinds, rights

# Unique names of the kinds whose content answers quote, beside the pods themselves.
_OWNERS: Final = (*registry.OWNERS, *registry.PARENTS, *subjects.MORE_KINDS)
_QUOTED: Final = frozenset(
    {
        *(object_set.unique_kind(kind.api_version, kind.name) for kind in _OWNERS),
        registry.EVENT.unique_name,
        registry.BUDGET.unique_name,
        "ResourceQuota",
        object_set.unique_kind("scheduling.volcano.sh/v1beta1", "PodGroup"),
    }
)
# Kinds of Kueue, and whether they are in namespaces.
_KUEUE: Final = tuple(
    (object_set.unique_kind(kueue_conditions.API_VERSION, name), is_namespaced)
    for name, is_namespaced in (("Workload", True), ("LocalQueue", True), ("ClusterQueue", False))
)
_OF_KUEUE: Final = frozenset(kind for kind, _ in _KUEUE)
_ROWS_OF_CLAIMS: Final = frozenset({10, 11, 12})  # of the list of causes


class WhyParams(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which pod or workload."""

    namespace: str
    kind: str
    name: str


def answer(question: asked.Asked, params: WhyParams) -> why_answer.Why:
    """The answer. Raises 404 where there is no such object that the user may see."""
    question.may.must_see(params.namespace, f"{params.kind} {params.namespace}/{params.name}")
    hidden = hidden_names.of(question)
    name = f"{params.kind}/{params.name}"
    try:
        whole = _why(question, name, params.namespace)
    except errors.InputError as error:
        raise problems.not_found(hidden.text(str(error))) from None
    if question.may.sees_everything:
        return whole
    if not rights.sees_kind(question, registry.CLAIM, params.namespace):
        whole = _without_claims(whole, params.namespace)
    return _without_hidden(question, whole, hidden)


def _why(question: asked.Asked, name: str, namespace: str) -> why_answer.Why:
    replica = question.replica()
    if question.may.sees_everything:
        return why_asked.why(replica, name, namespace)
    with replica.quoting(_quotable(question, namespace)):
        return why_asked.why(replica, name, namespace)


def _quotable(question: asked.Asked, namespace: str) -> Callable[[object_set.Key], bool]:
    """Which objects the answer may quote. Of other kinds only names are hidden: their absence would be a statement."""
    may = question.may
    # One kind of Kueue without the others reads as if they were missing.
    sees_kueue = all(may.sees(kind, namespace if is_in else "") for kind, is_in in _KUEUE)

    @functools.cache
    def is_quoted(kind: str, where: str) -> bool:
        if kind in _OF_KUEUE:
            return sees_kueue
        return kind not in _QUOTED or may.sees(kind, where)

    return lambda key: is_quoted(key.kind, key.namespace)


def _without_claims(whole: why_answer.Why, namespace: str) -> why_answer.Why:
    """The answer without what claims ask for: device funnels, and sentences that quote requests and selectors."""

    def shown(cause: why_answer.Cause) -> why_answer.Cause:
        if cause.code.row not in _ROWS_OF_CLAIMS:
            return cause
        sentence = (
            "its claims are not met; what they ask for is shown to users who may list "
            f"resourceclaims in namespace {namespace}"
        )
        return msgspec.structs.replace(cause, sentence=sentence)

    return msgspec.structs.replace(
        whole,
        cause=None if whole.cause is None else shown(whole.cause),
        also=tuple(map(shown, whole.also)),
        funnel=tuple(step for step in whole.funnel if step.of != "devices"),
    )


def _without_hidden(
    question: asked.Asked, whole: why_answer.Why, hidden: hidden_names.HiddenNames
) -> why_answer.Why:
    fixes = [
        fix
        for fix in whole.fixes
        if not _names_hidden(fix, hidden)
        and all(_may_change(question, patch.object) for patch in fix.patch)
    ]
    holders = [_holder(holder, hidden) for holder in whole.holders]
    bare = msgspec.structs.replace(whole, fixes=(), holders=())
    return msgspec.structs.replace(hidden.without(bare), fixes=tuple(fixes), holders=tuple(holders))


def _may_change(question: asked.Asked, ref: patches.ObjectRef) -> bool:
    """Whether the user may list what a patch changes: the patch shows what it holds."""
    return question.may.sees(ref.key.kind, ref.namespace)


def _names_hidden(fix: why_answer.Fix, hidden: hidden_names.HiddenNames) -> bool:
    """Whether a fix changes or names hidden work: a patch without names would be another patch."""
    return hidden.without(fix) != fix


def _holder(holder: why_answer.Holder, hidden: hidden_names.HiddenNames) -> why_answer.Holder:
    if not hidden.namespace(holder.pod.partition("/")[0]):
        return hidden.without(holder)
    return why_answer.Holder(
        pod=hidden_names.HIDDEN, holds=hidden.text(holder.holds), node=holder.node
    )


ENDPOINTS = (
    endpoints.Endpoint(
        "/why/{namespace}/{kind}/{name}",
        WhyParams,
        why_answer.Why,
        answer,
        summary="Why a pod or workload does not start",
        reads=(*read_kinds.ENGINE, *read_kinds.EVIDENCE),
    ),
)
