"""Decides the fair share of every queue: its quota first, then a part of the rest by priority and weight.

Resource by resource, from the top of the tree down: the children of a queue divide its share. What cannot be
divided into whole units goes to the largest remainders. Past usage, where it is known, lowers a weight. Given
accounts with their charges and pending demand; sets `fair` and `allocatable`. Never looks at nodes.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from dovetail.schedule.queue import amounts
from dovetail.schedule.queue.accounts import Account, Accounts
from dovetail.schedule.queue.amounts import ENDLESS

Usage = Mapping[str, Mapping[str, float]]  # by queue and resource, as a part of the cluster


class _History(NamedTuple):
    usage: Usage
    strength: float  # how much usage lowers a weight


def divide(accounts: Accounts, *, usage: Usage | None = None, usage_weight: float = 1.0) -> None:
    """Computes every queue's share."""
    for account in accounts.by_name.values():
        account.requested = amounts.plus(account.charged, account.waiting)
    history = _History(usage or {}, usage_weight)
    for name in accounts.resources:
        _divide_down(accounts.roots, name, accounts.capacity.get(name, 0), history)


def _divide_down(siblings: Sequence[Account], name: str, total: float, history: _History) -> None:
    _divide_among(siblings, name, total, history)
    for account in siblings:
        fair, quota, limit = account.fair[name], account.quota_of(name), account.limit_of(name)
        account.allocatable[name] = limit if quota == ENDLESS else min(limit, max(quota, fair))
        if account.children:
            _divide_down(account.children, name, fair, history)


def _demand(account: Account, name: str) -> float:
    """What a queue could use: what it holds and waits for, within its limit."""
    return min(account.limit_of(name), account.requested.get(name, 0))


def _divide_among(siblings: Sequence[Account], name: str, total: float, history: _History) -> None:
    remaining = total
    for account in siblings:
        quota = account.quota_of(name)
        guaranteed = min(quota, total) if quota == ENDLESS else quota
        account.fair[name] = min(guaranteed, _demand(account, name))
        remaining -= account.fair[name]
    if remaining <= 0:
        return

    # A higher priority takes all it can use before a lower one is offered anything.
    remainders: dict[str, float] = {}
    ranked = sorted(siblings, key=lambda account: -account.priority)
    for _, band in itertools.groupby(ranked, key=lambda account: account.priority):
        remaining = _divide_by_weight(list(band), name, remaining, history, remainders)
    _divide_remainders(siblings, name, remaining, remainders)


def _divide_by_weight(
    band: list[Account],
    name: str,
    remaining: float,
    history: _History,
    remainders: dict[str, float],
) -> float:
    """Offers the rest by weight, again while a queue wants less than its offer; what is left in the end.

    Each further round has fewer queues to share with, so it ends after at most as many rounds as there are queues.
    """
    unit = amounts.unit(name)
    is_again = True
    while is_again and remaining > 0:
        is_again = False
        unsated = [account for account in band if account.fair[name] < _demand(account, name)]
        weights = _weights(unsated, name, history)
        weight_sum = sum(weights)
        if weight_sum <= 0:
            break

        pool = remaining
        for account, weight in zip(unsated, weights, strict=True):
            offer = pool * weight / weight_sum
            missing = _demand(account, name) - account.fair[name]
            if missing <= offer:
                is_again |= missing < offer
                share = missing
                remainders.pop(account.name, None)
            else:
                share = math.floor(offer / unit + 1e-9) * unit
                remainders[account.name] = offer - share
            account.fair[name] += share
            remaining -= share
    return remaining


def _weights(unsated: Sequence[Account], name: str, history: _History) -> list[float]:
    """The weights of queues; with history moved towards queues that used less than their part, away from others."""
    weights = [max(account.weight.get(name, 1), 0) for account in unsated]
    weight_sum = sum(weights)
    if not history.usage or weight_sum <= 0:
        return weights

    lowered: list[float] = []
    for account, weight in zip(unsated, weights, strict=True):
        part = weight / weight_sum
        used = history.usage.get(account.name, {}).get(name, 0.0)
        lowered.append(max(0.0, part + history.strength * (part - used)))
    return lowered


def _divide_remainders(
    siblings: Sequence[Account], name: str, remaining: float, remainders: dict[str, float]
) -> None:
    """At most one unit for every remainder: by queue priority, the larger remainder, the older queue."""
    owed = [account for account in siblings if remainders.get(account.name, 0) > 0]
    owed.sort(
        key=lambda account: (
            -account.priority,
            -remainders[account.name],
            account.created,
            account.name,
        )
    )
    for account in owed:
        missing = _demand(account, name) - account.fair[name]
        share = min(amounts.unit(name), remaining, missing)
        if share > 0:
            account.fair[name] += share
            remaining -= share
