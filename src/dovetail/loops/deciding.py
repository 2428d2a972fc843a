"""Asks for a plan, and finds out about whom it cannot be asked: one pod must not keep all others waiting for ever.

Given a function that decides about pods. A fault in it is ours to mend, but until then the pod it trips over is set
aside, told so, and tried again later and later. Never decides itself; a fault that no single pod explains is raised.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Sequence
from typing import Final

from dovetail.loops import tell, waiting
from dovetail.model import plan, pods
from dovetail.schedule import order
from dovetail.world import events

LOG = logging.getLogger("dovetail.schedule")
SAID: Final = "an error inside the scheduler keeps it from deciding about this pod; its log says which"

Ask = Callable[[Collection[str]], plan.Plan]


def decided(ask: Ask, among: Collection[str]) -> tuple[plan.Plan, dict[str, Exception]]:
    """The plan for those who can be decided about, and what went wrong with the others, by id."""
    try:
        return ask(among), {}
    except Exception as error:  # whatever it is: one pod must not keep all others waiting
        # One pod alone: the answers are not used, as others were to be seen, too.
        faults = {id_: fault for id_ in among if (fault := _raised(ask, (id_,))) is not None}
        if not faults:
            raise
        LOG.warning("deciding failed", extra={"pods": len(among), "set_aside": len(faults), "why": repr(error)})
    rest = [id_ for id_ in among if id_ not in faults]
    return (ask(rest) if rest else plan.Plan()), faults


def decided_together(
    ask: Callable[[Collection[str] | None], plan.Plan], among: Collection[str] | None, groups: Sequence[Collection[str]]
) -> tuple[plan.Plan, dict[str, Exception]]:
    """The plan for everybody, or for all but the group that cannot be decided about; it is found by halves."""
    try:
        return ask(among), {}
    except Exception as error:  # whatever it is: one pod must not keep all others waiting
        group, fault = _faulty(ask, groups, error)
        LOG.warning("deciding failed", extra={"set_aside": len(group), "why": repr(fault)})
        left = [id_ for one in groups if one is not group for id_ in one]
        return (ask(left) if left else plan.Plan()), dict.fromkeys(group, fault)


def _faulty(
    ask: Callable[[Collection[str] | None], plan.Plan], groups: Sequence[Collection[str]], error: Exception
) -> tuple[Collection[str], Exception]:
    """The group that a decision about it alone trips over. Raises what was raised if no single one explains it."""
    suspects = groups
    while len(suspects) > 1:
        half = len(suspects) // 2
        for part in (suspects[:half], suspects[half:]):
            found = _raised(ask, [id_ for group in part for id_ in group])
            if found is not None:
                suspects, error = part, found
                break
        else:
            raise error
    if not suspects or (found := _raised(ask, suspects[0])) is None:
        raise error
    return suspects[0], found


def _raised(ask: Callable[[Collection[str]], plan.Plan], ids: Collection[str]) -> Exception | None:
    try:
        ask(ids)
    except Exception as error:  # whatever it is: one pod must not keep all others waiting
        return error
    return None


def set_aside(pod: pods.Pod, fault: Exception, *, teller: tell.Teller, queue: waiting.Waiting, now: float) -> None:
    """Says so, to its owner and in the log, and lets it wait: each time longer."""
    name = f"{pod.metadata.namespace}/{pod.metadata.name}"
    LOG.error("cannot be decided about", exc_info=fault, extra={"pod": name})
    teller.failed(pod, SAID)
    queue.delay(events.pod_id(pod), order.rank(pod), now)
