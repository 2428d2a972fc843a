"""Decides how much each pod may spend on its selectors in one decision, so that expensive ones delay no other pod.

A pod is granted little at first: most need less, because verdicts on devices are remembered. A pod that was cut short
is granted twice as much in the next decision, up to a bound; of those the ones that spent least go first, and together
they get half of what a decision may spend. A pod that spends more than the limit without an answer is refused. Counts
units, never seconds; what a pod spends depends on what is remembered already, the final answer does not. Never
evaluates a selector.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Final, NoReturn

import msgspec

from dovetail import cache
from dovetail.cel.effort import Effort, TooExpensive
from dovetail.model import policy
from dovetail.world.world import World

FIRST_PART: Final = (
    20  # of what a pod may spend in one decision, the part that it is given at first
)
ASKING_UNITS: Final = 100  # for a turn among the pods that continue, used or not


class Account:
    """What a pod has spent without an answer."""

    __slots__ = ("evaluations", "grant", "refusal", "spent", "turns")

    def __init__(self, grant: int) -> None:
        self.spent = 0
        self.evaluations = 0
        self.grant = grant  # for the next decision
        self.turns = 0  # among the pods that continue, used or not
        self.refusal = ""  # why nothing more is spent


class Spending:
    """What one decision may spend."""

    def __init__(
        self, accounts: dict[str, Account], budget: policy.Budget, pod_ids: Collection[str]
    ) -> None:
        self._accounts = accounts
        self._budget = budget
        self._efforts: dict[str, Effort] = {}  # by pod: one for all questions of the decision
        self._counted: dict[
            str, tuple[int, int]
        ] = {}  # by pod, units and evaluations that were counted already
        self._raised: set[str] = set()  # pods whose next grant is larger
        self._first = max(budget.cel_cost // FIRST_PART, 1) if budget.cel_cost is not None else 0
        share = budget.cel_cost_total // 2 if budget.cel_cost_total is not None else None
        self._left = share  # for pods that were never cut short
        self._going_on = self._chosen(pod_ids, share)

    def _chosen(self, pod_ids: Collection[str], share: int | None) -> set[str]:
        """The pods that continue now, of those that were cut short: least spent first, while the share lasts."""

        def rank(pod_id: str) -> int:
            account = self._accounts[pod_id]
            return account.spent + account.turns * ASKING_UNITS

        chosen: set[str] = set()
        waiting = [
            pod_id
            for pod_id, account in self._accounts.items()
            if pod_id in pod_ids and not account.refusal
        ]
        for pod_id in sorted(waiting, key=rank):
            account = self._accounts[pod_id]
            if share is not None and chosen and share < account.grant:
                break
            chosen.add(pod_id)
            account.turns += 1
            if share is not None:
                share -= account.grant
        return chosen

    def effort(self, pod_id: str) -> Effort:
        """What the pod may spend in this decision. Raises TooExpensive."""
        account = self._accounts.get(pod_id)
        if account is not None and account.refusal:
            raise TooExpensive(account.refusal)
        effort = self._efforts.get(pod_id)
        if effort is None:
            effort = self._efforts[pod_id] = self._begun(pod_id, account)
        return effort

    def _begun(self, pod_id: str, account: Account | None) -> Effort:
        most = self._budget.cel_cost
        if most is None:
            return Effort()
        if account is not None:
            return Effort(account.grant if pod_id in self._going_on else 0, most=most)
        has_share = self._left is None or self._left > 0
        return Effort(self._first if has_share else 0, most=most)

    def settle(self, pod_id: str, *, is_answered: bool | None) -> None:
        """An attempt for the pod is over, with or without an answer; None: it was part of an attempt.

        Raises TooExpensive once the pod spent too much.
        """
        effort = self._efforts[pod_id]
        if self._budget.cel_cost is None:
            return
        units, evaluations = self._counted.get(pod_id, (0, 0))
        self._counted[pod_id] = (effort.spent, effort.evaluations)
        account = self._accounts.get(pod_id)
        if account is None and self._left is not None:
            self._left -= effort.spent - units
        is_unfinished = effort.is_cut or (is_answered is False and effort.is_spent)
        if not is_unfinished:
            if is_answered:
                self._accounts.pop(pod_id, None)
            return
        if account is None:
            account = self._accounts[pod_id] = Account(self._first)
        account.spent += effort.spent - units
        account.evaluations += effort.evaluations - evaluations
        self._raise_grant(pod_id, account, effort)
        limit = self._budget.cel_cost_ever
        if limit is not None and account.spent > limit:
            done = f"{account.spent} units on {account.evaluations} devices, selector by selector, are not enough"
            self.refuse(pod_id, f"{done}; at most {limit} are spent")

    def _raise_grant(self, pod_id: str, account: Account, effort: Effort) -> None:
        if effort.was_granted and pod_id not in self._raised and self._budget.cel_cost is not None:
            self._raised.add(pod_id)
            account.grant = min(2 * account.grant, self._budget.cel_cost)

    def refuse(self, pod_id: str, why: str) -> NoReturn:
        """Nothing more is spent on the pod. Raises TooExpensive."""
        account = self._accounts.setdefault(pod_id, Account(self._first))
        account.refusal = why
        raise TooExpensive(why)


class _Kept:
    """What outlives a decision."""

    def __init__(self) -> None:
        self.accounts: dict[str, Account] = {}

    def trim(self, world: World) -> None:
        """Forgets pods that are gone."""
        for pod_id in [pod_id for pod_id in self.accounts if pod_id not in world.pods]:
            del self.accounts[pod_id]


_MEMORY: Final = cache.WeakMemo[World, bytes, _Kept](cache.MOST_POLICIES)


def begin(world: World, budget: policy.Budget, among: Collection[str] | None) -> Spending:
    """The spending of a decision about these pods, or about all."""
    memory = _MEMORY.of(world, msgspec.json.encode(budget), _Kept)
    memory.trim(world)
    return Spending(memory.accounts, budget, world.pods.keys() if among is None else among)
