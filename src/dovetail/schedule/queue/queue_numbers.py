"""Reports the numbers of every queue for Queue.status: its share, its charges and its demand.

Given accounts after a decision: shares are those the decision was made with; charges include what it started and no
longer what it evicts. Amounts are quantities in the unit people use; what has no end is left out. Never computes a
share.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Final

from dovetail.kubetypes.custom import queues
from dovetail.kubetypes.custom.queues import QueueStatus, ShareStatus
from dovetail.quantity import quantity
from dovetail.schedule.gang.jobs import Job
from dovetail.schedule.queue import amounts, queue_order
from dovetail.schedule.queue.accounts import NO_QUEUE, Account, Accounts
from dovetail.schedule.queue.amounts import ENDLESS

NONE: Final[Mapping[str, int]] = {}


def numbers(
    accounts: Accounts,
    jobs: Iterable[Job] = (),
    *,
    unseen: Mapping[str, int] = NONE,
    settled: Mapping[str, int] = NONE,
) -> dict[str, QueueStatus]:
    """By queue; gangs count in their own queue and in all its ancestors.

    Besides these jobs, by queue, `unseen` ones wait and `settled` ones run.
    """
    counts = Counter(
        (job.queue, job.is_running) for job in jobs if job.is_running or job.has_waiting
    )
    counts.update(
        {(queue, False): count for queue, count in unseen.items() if queue in accounts.by_name}
    )
    counts.update({(queue, True): count for queue, count in settled.items()})
    running: Counter[str] = Counter()
    pending: Counter[str] = Counter()
    for (queue, is_running), count in counts.items():
        tally = running if is_running else pending
        for account in accounts.by_name[queue].lineage():
            tally[account.name] += count

    status: dict[str, QueueStatus] = {}
    for name, account in accounts.by_name.items():
        if name == NO_QUEUE:
            continue
        shown = _shown(account, accounts)
        status[name] = QueueStatus(
            resources={spelled: _share(account, own) for own, spelled in shown.items()},
            dominant_share=f"{queue_order.dominant_share(account, accounts):.4g}",
            running=running[name],
            pending=pending[name],
        )
    return status


def _shown(account: Account, accounts: Accounts) -> Mapping[str, str]:
    """The resources to show, as the queue itself spells them: those it names, and cpu, memory and GPUs."""
    spec = account.queue.spec if account.queue is not None else queues.QueueSpec()
    spelled = {amounts.canonical_name(name): name for name in spec.resources}
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
    """An amount as a quantity; empty where there is no end."""
    if amount == ENDLESS:
        return ""
    if name == amounts.MEMORY:
        return quantity.Quantity.from_int(int(amount), quantity.Format.BINARY_SI).text
    return f"{amount / amounts.scale(name):.12g}"
