"""Tells what a decision knew of every queue: what it is due, what it holds and waits for, as Queue.status shows it.

Given accounts after a decision: shares are those it was made with, charges include what it started and no longer what
it takes back. Amounts are quantities in the unit people use. What has no end is left out. Never computes a share.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Final

from dovetail.model import quantity, queues
from dovetail.model.queues import QueueStatus, ShareStatus
from dovetail.schedule.gangs.jobs import Job
from dovetail.schedule.queues import amounts, precedence
from dovetail.schedule.queues.accounts import NO_QUEUE, Account, Accounts
from dovetail.schedule.queues.amounts import ENDLESS

NOBODY: Final[Mapping[str, int]] = {}


def numbers(
    accounts: Accounts, jobs: Iterable[Job] = (), *, unseen: Mapping[str, int] = NOBODY
) -> dict[str, QueueStatus]:
    """By queue; gangs are counted in their own queue and in all above it. `unseen` wait beside these jobs, by queue."""
    counts = Counter((job.queue, job.is_running) for job in jobs if job.is_running or job.has_waiting)
    counts.update({(queue, False): count for queue, count in unseen.items() if queue in accounts.by_name})
    running: Counter[str] = Counter()
    pending: Counter[str] = Counter()
    for (queue, runs), count in counts.items():
        for account in accounts.by_name[queue].lineage():
            (running if runs else pending)[account.name] += count
    return {
        name: QueueStatus(
            resources={shown: _share(account, own) for own, shown in _shown(account, accounts).items()},
            dominant_share=f"{precedence.dominant_share(account, accounts):.4g}",
            running=running[name],
            pending=pending[name],
        )
        for name, account in accounts.by_name.items()
        if name != NO_QUEUE
    }


def _shown(account: Account, accounts: Accounts) -> Mapping[str, str]:
    """The resources to show, as the queue itself spells them: those it names, and the three everybody has."""
    spec = account.queue.spec if account.queue is not None else queues.QueueSpec()
    spelled = {amounts.named(name): name for name in spec.resources}
    three = (amounts.CPU, amounts.MEMORY, amounts.GPU)
    return {
        name: amounts.GPU if name == amounts.GPU else spelled.get(name, name)
        for name in accounts.resources
        if name in spelled or name in three
    }


def _share(account: Account, name: str) -> ShareStatus:
    return ShareStatus(
        charged=text(name, account.charged.get(name, 0)),
        charged_non_preemptible=text(name, account.fixed.get(name, 0)),
        requested=text(name, account.requested.get(name, 0)),
        fair_share=text(name, account.fair[name]),
        allocatable=text(name, account.allocatable[name]),
    )


def text(name: str, amount: float) -> str:
    """An amount as a quantity; nothing for what has no end."""
    if amount == ENDLESS:
        return ""
    if name == amounts.MEMORY:
        return quantity.Quantity.from_int(int(amount), quantity.Format.BINARY_SI).text
    return f"{amount / amounts.scale(name):.12g}"
