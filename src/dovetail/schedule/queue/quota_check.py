"""Decides whether a queue may take more: up to its limit, and non-preemptible work up to its quota.

Checks the queue and all its ancestors, for the requested resources only. Never looks at nodes.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from dovetail.model.reasons import Reason, ReasonCode
from dovetail.schedule.queue import amounts
from dovetail.schedule.queue.accounts import Account, display_name


def refusal(
    account: Account, asked: Mapping[str, int], *, is_fixed: bool, why: str = ""
) -> Reason | None:
    """Why the queue may not take so much more. `why` says what makes the work non-preemptible."""
    if not is_fixed and not account.is_bounded:
        return None
    for ancestor in account.lineage():
        for name, amount in asked.items():
            limit = ancestor.limit.get(name)
            if limit is None or amount <= 0:
                continue
            used = ancestor.charged.get(name, 0)
            if used + amount > limit:
                return _reason(
                    ReasonCode.QUEUE_LIMIT, ancestor, name, amount=amount, bound=limit, used=used
                )
    return quota_refusal(account, asked, why=why) if is_fixed else None


def quota_refusal(account: Account, asked: Mapping[str, int], *, why: str = "") -> Reason | None:
    """Why non-preemptible work may not take so much more."""
    for ancestor in account.lineage():
        for name, amount in asked.items():
            used, quota = ancestor.fixed.get(name, 0), ancestor.quota_of(name)
            if amount <= 0 or used + amount <= quota:
                continue
            reason = _reason(
                ReasonCode.QUEUE_QUOTA, ancestor, name, amount=amount, bound=quota, used=used
            )
            if not why:
                return reason
            detail = f"{reason.detail}; it counts as such because {why}"
            return msgspec.structs.replace(reason, detail=detail)
    return None


def _reason(
    code: ReasonCode, account: Account, name: str, *, amount: int, bound: float, used: int
) -> Reason:
    is_quota = code is ReasonCode.QUEUE_QUOTA
    kind = "quota" if is_quota else "limit"
    if name == amounts.POWER:
        kind = "power cap"
    detail = f"{text(name, used)} in use and {text(name, amount)} wanted exceed its {kind}, {text(name, bound)}"
    if name != amounts.POWER:  # its unit is part of the text
        detail += f" {name}"
    if is_quota:
        detail += ", which is all that non-preemptible work may use"
    return Reason(code=code, subject=display_name(account.name), detail=detail)


def text(name: str, amount: float) -> str:
    """An amount in messages."""
    if name == amounts.MEMORY:
        return f"{amount / 2**30:.4g}Gi"
    if name == amounts.POWER:
        return f"{amount:g} W"
    return f"{amount / amounts.scale(name):.4g}"
