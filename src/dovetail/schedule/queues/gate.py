"""Decides whether a queue may take more: its limit, and for work that cannot be made to yield its quota.

Asked of the queue and of every one above it, about resources that are wanted only. Never looks at nodes.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from dovetail.model.reasons import Reason, ReasonCode
from dovetail.schedule.queues import amounts
from dovetail.schedule.queues.accounts import Account, called


def refusal(account: Account, asked: Mapping[str, int], *, is_fixed: bool, why: str = "") -> Reason | None:
    """Why the queue may not take so much more. `why` says why the work cannot be made to yield."""
    if not is_fixed and not account.is_bounded:
        return None
    for one in account.lineage():
        for name, amount in asked.items():
            most = one.limit.get(name)
            if most is None or amount <= 0:
                continue
            held = one.charged.get(name, 0)
            if held + amount > most:
                return _reason(ReasonCode.QUEUE_LIMIT, one, name=name, amount=amount, most=most, held=held)
    return quota_refusal(account, asked, why=why) if is_fixed else None


def quota_refusal(account: Account, asked: Mapping[str, int], *, why: str = "") -> Reason | None:
    """Why work that cannot be made to yield may not take so much more."""
    for one in account.lineage():
        for name, amount in asked.items():
            held = one.fixed.get(name, 0)
            if amount > 0 and held + amount > one.quota_of(name):
                found = _reason(
                    ReasonCode.QUEUE_QUOTA, one, name=name, amount=amount, most=one.quota_of(name), held=held
                )
                detail = f"{found.detail}; it counts as such because {why}" if why else found.detail
                return msgspec.structs.replace(found, detail=detail)
    return None


def _reason(code: ReasonCode, account: Account, *, name: str, amount: int, most: float, held: int) -> Reason:
    is_quota = code is ReasonCode.QUEUE_QUOTA
    bound = "power cap" if name == amounts.POWER else "quota" if is_quota else "limit"
    told = f"{text(name, held)} in use and {text(name, amount)} wanted exceed its {bound}, {text(name, most)}"
    detail = told if name == amounts.POWER else f"{told} {name}"
    if is_quota:
        detail += ", which is all that non-preemptible work may use"
    return Reason(code=code, subject=called(account.name), detail=detail)


def text(name: str, amount: float) -> str:
    """An amount for people."""
    if name == amounts.MEMORY:
        return f"{amount / 2**30:.4g}Gi"
    if name == amounts.POWER:
        return f"{amount:g} W"
    return f"{amount / amounts.scale(name):.4g}"
