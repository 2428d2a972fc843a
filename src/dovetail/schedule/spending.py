"""Decides how much each pod may spend on its selectors in one decision, so that expensive ones keep no other waiting.

A pod is given little at first: most need less, as what selectors say of devices is remembered. One that did not get
through is given twice as much the next time, up to a bound; of those the ones that have spent least go first, and
together they get half of what a decision may spend. Who spent more than all pods ever may, without an answer, is
refused. Counts units, never seconds; what is spent depends on what is remembered already, the answer in the end does
not. Never evaluates anything.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Final, NoReturn

import msgspec

from dovetail.cel.effort import Effort, TooExpensive
from dovetail.model import policy
from dovetail.schedule import memory
from dovetail.world.world import World

FIRST_PART: Final = 20  # of what a pod may spend in one decision, the part that it is given at first
ASKING_UNITS: Final = 100  # for a turn among those who go on, used or not


class Account:
    """What a pod has spent without an answer."""

    __slots__ = ("evaluations", "grant", "refusal", "spent", "turns")

    def __init__(self, grant: int) -> None:
        self.spent = 0
        self.evaluations = 0
        self.grant = grant  # for the next decision
        self.turns = 0  # among those who go on, used or not
        self.refusal = ""  # why nothing more is spent


class Spending:
    """What one decision may spend."""

    def __init__(self, accounts: dict[str, Account], budget: policy.Budget, asked: Collection[str]) -> None:
        self._accounts = accounts
        self._budget = budget
        self._efforts: dict[str, Effort] = {}  # by pod: one for all questions of the decision
        self._counted: dict[str, tuple[int, int]] = {}  # by pod, units and evaluations that were counted already
        self._raised: set[str] = set()  # pods whose next grant is larger
        self._first = max(budget.cel_cost // FIRST_PART, 1) if budget.cel_cost is not None else 0
        share = budget.cel_cost_total // 2 if budget.cel_cost_total is not None else None
        self._left = share  # for pods that were never cut short
        self._going_on = self._chosen(asked, share)

    def _chosen(self, asked: Collection[str], share: int | None) -> set[str]:
        """Of those who were cut short the ones that go on now: who spent least first, as many as share will do for."""

        def rank(id_: str) -> int:
            account = self._accounts[id_]
            return account.spent + account.turns * ASKING_UNITS

        chosen: set[str] = set()
        waiting = [id_ for id_, account in self._accounts.items() if id_ in asked and not account.refusal]
        for id_ in sorted(waiting, key=rank):
            account = self._accounts[id_]
            if share is not None and chosen and share < account.grant:
                break
            chosen.add(id_)
            account.turns += 1
            if share is not None:
                share -= account.grant
        return chosen

    def effort(self, id_: str) -> Effort:
        """What the pod may spend, all its questions in this decision together. Raises TooExpensive."""
        account = self._accounts.get(id_)
        if account is not None and account.refusal:
            raise TooExpensive(account.refusal)
        known = self._efforts.get(id_)
        if known is None:
            known = self._efforts[id_] = self._begun(id_, account)
        return known

    def _begun(self, id_: str, account: Account | None) -> Effort:
        most = self._budget.cel_cost
        if most is None:
            return Effort()
        if account is not None:
            return Effort(account.grant if id_ in self._going_on else 0, most=most)
        has_share = self._left is None or self._left > 0
        return Effort(self._first if has_share else 0, most=most)

    def settle(self, id_: str, *, is_answered: bool | None) -> None:
        """A question about the pod is over, with or without an answer; None: it was not the whole question.

        Raises TooExpensive once the pod spent too much.
        """
        effort = self._efforts[id_]
        if self._budget.cel_cost is None:
            return
        units, evaluations = self._counted.get(id_, (0, 0))
        self._counted[id_] = (effort.spent, effort.evaluations)
        account = self._accounts.get(id_)
        if account is None and self._left is not None:
            self._left -= effort.spent - units
        is_unfinished = effort.is_cut or (is_answered is False and effort.is_spent)
        if not is_unfinished:
            if is_answered:
                self._accounts.pop(id_, None)
            return
        if account is None:
            account = self._accounts[id_] = Account(self._first)
        account.spent += effort.spent - units
        account.evaluations += effort.evaluations - evaluations
        self._raise_grant(id_, account, effort)
        limit = self._budget.cel_cost_ever
        if limit is not None and account.spent > limit:
            done = f"{account.spent} units on {account.evaluations} devices, selector by selector, are not enough"
            self.refuse(id_, f"{done}; at most {limit} are spent")

    def _raise_grant(self, id_: str, account: Account, effort: Effort) -> None:
        if effort.was_granted and id_ not in self._raised and self._budget.cel_cost is not None:
            self._raised.add(id_)
            account.grant = min(2 * account.grant, self._budget.cel_cost)

    def refuse(self, id_: str, why: str) -> NoReturn:
        """Nothing more is spent on the pod. Raises TooExpensive."""
        account = self._accounts.setdefault(id_, Account(self._first))
        account.refusal = why
        raise TooExpensive(why)


class _Kept:
    """What outlives a decision."""

    def __init__(self) -> None:
        self.accounts: dict[str, Account] = {}

    def trim(self, world: World) -> None:
        """Forgets pods that are gone."""
        for id_ in [id_ for id_ in self.accounts if id_ not in world.pods]:
            del self.accounts[id_]


_MEMORY: Final = memory.Memory[_Kept]()


def begun(world: World, budget: policy.Budget, among: Collection[str] | None) -> Spending:
    """The spending of a decision about these pods, or about all."""
    kept = _MEMORY.of(world, msgspec.json.encode(budget), _Kept)
    kept.trim(world)
    return Spending(kept.accounts, budget, world.pods.keys() if among is None else among)
