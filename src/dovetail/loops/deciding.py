"""Asks for a plan, and finds out about whom it cannot be asked: one pod must not keep all others waiting for ever.

Given a function that decides about pods. A fault in it is ours to mend, but until then the pod it trips over is set
aside, told so, and tried again later and later. Never decides itself; a fault that no single pod explains is raised.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection
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
    except Exception as error:
        faults = {id_: fault for id_ in among if (fault := _fault(ask, id_)) is not None}
        if not faults:
            raise
        LOG.warning("deciding failed", extra={"pods": len(among), "set_aside": len(faults), "why": repr(error)})
    rest = [id_ for id_ in among if id_ not in faults]
    return (ask(rest) if rest else plan.Plan()), faults


def set_aside(pod: pods.Pod, fault: Exception, *, teller: tell.Teller, queue: waiting.Waiting, now: float) -> None:
    """Says so, to its owner and in the log, and lets it wait: each time longer."""
    name = f"{pod.metadata.namespace}/{pod.metadata.name}"
    LOG.error("cannot be decided about", exc_info=fault, extra={"pod": name})
    teller.failed(pod, SAID)
    queue.delay(events.pod_id(pod), order.rank(pod), now)


def _fault(ask: Ask, id_: str) -> Exception | None:
    """What goes wrong when it is asked about this pod alone. The answer is not used: others were to be seen, too."""
    try:
        ask((id_,))
    except Exception as error:
        return error
    return None
