"""Decides what every queue is due: its quota first, then a part of what is left by priority and weight.

Resource by resource, from the top of the tree down, a parent's share being what its children divide. What cannot be
divided into whole units goes to the largest remainders. Past use, where it is known, lowers a weight. Given accounts
with what they hold and what waits; writes `fair` and `allocatable`. Never looks at nodes.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence

from dovetail.schedule.queues import amounts
from dovetail.schedule.queues.accounts import Account, Accounts
from dovetail.schedule.queues.amounts import ENDLESS

Usage = Mapping[str, Mapping[str, float]]  # by queue and resource, as a part of the cluster


def divide(accounts: Accounts, *, usage: Usage | None = None, usage_weight: float = 1.0) -> None:
    """Works out every queue's share."""
    for account in accounts.by_name.values():
        account.requested = amounts.plus(account.charged, account.waiting)
    for name in accounts.resources:
        _down(accounts.roots, name, accounts.capacity.get(name, 0), (usage or {}, usage_weight))


def _down(siblings: Sequence[Account], name: str, total: float, history: tuple[Usage, float]) -> None:
    _share(siblings, name, total, history)
    for account in siblings:
        fair, quota, limit = account.fair[name], account.quota_of(name), account.limit_of(name)
        account.allocatable[name] = limit if quota == ENDLESS else min(limit, max(quota, fair))
        if account.children:
            _down(account.children, name, fair, history)


def _wanted(account: Account, name: str) -> float:
    return min(account.limit_of(name), account.requested.get(name, 0))


def _share(siblings: Sequence[Account], name: str, total: float, history: tuple[Usage, float]) -> None:
    left = total
    for account in siblings:
        account.fair[name] = min(account.quota_of(name), total if _is_endless(account, name) else ENDLESS)
        account.fair[name] = min(account.fair[name], _wanted(account, name))
        left -= account.fair[name]
    if left <= 0:
        return
    remainders: dict[str, float] = {}
    ranked = sorted(siblings, key=lambda one: -one.priority)
    for _, band in itertools.groupby(ranked, key=lambda one: one.priority):
        left = _offer(list(band), name, left, history, remainders)
    _hand_out(siblings, name, left, remainders)


def _is_endless(account: Account, name: str) -> bool:
    return account.quota_of(name) == ENDLESS


def _offer(
    band: list[Account], name: str, left: float, history: tuple[Usage, float], remainders: dict[str, float]
) -> float:
    """Offers what is left by weight, again for as long as somebody wants less than it is offered; what stays."""
    unit = amounts.unit(name)
    again = True
    while again and left > 0:
        again = False
        hungry = [one for one in band if one.fair[name] < _wanted(one, name)]
        weights = _weights(hungry, name, history)
        together = sum(weights)
        if together <= 0:
            break
        pool = left
        for account, weight in zip(hungry, weights, strict=True):
            offer = pool * weight / together
            want = _wanted(account, name) - account.fair[name]
            if want <= offer:
                again |= want < offer
                given = want
                remainders.pop(account.name, None)
            else:
                given = math.floor(offer / unit + 1e-9) * unit
                remainders[account.name] = offer - given
            account.fair[name] += given
            left -= given
    return left


def _weights(hungry: Sequence[Account], name: str, history: tuple[Usage, float]) -> list[float]:
    plain = [max(one.weight.get(name, 1), 0) for one in hungry]
    usage, strength = history
    together = sum(plain)
    if not usage or together <= 0:
        return plain
    used = [usage.get(one.name, {}).get(name, 0.0) for one in hungry]
    return [
        max(0.0, weight / together + strength * (weight / together - use))
        for weight, use in zip(plain, used, strict=True)
    ]


def _hand_out(siblings: Sequence[Account], name: str, left: float, remainders: dict[str, float]) -> None:
    """One unit at most for every remainder: queue priority, the larger remainder, the older queue."""
    owed = [one for one in siblings if remainders.get(one.name, 0) > 0]
    for account in sorted(owed, key=lambda one: (-one.priority, -remainders[one.name], one.created, one.name)):
        given = min(amounts.unit(name), left, _wanted(account, name) - account.fair[name])
        if given > 0:
            account.fair[name] += given
            left -= given
