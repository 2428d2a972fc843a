"""Nodes without NVIDIA's operator whose driver a hook on the node swaps: two annotations, one each way.

The executor writes the wanted driver. A program that the owner of the nodes provides sees it, swaps the driver's
container, and reports with one annotation that begins with the version it speaks of, so that an old report never
counts for a new order. Never starts or stops anything on a node itself.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from dovetail.upgrade.adapters import adapter, driver_pods
from dovetail.upgrade.adapters.adapter import Applied, ApplyFailed, NodePatch, Working
from dovetail.upgrade.adapters.node_facts import NodeFacts

NAME: Final = "node-agent"
HOOK: Final = (
    "dovetail.dev/driver-hook"  # the hook's name; it says that a hook listens on this node
)
WANTED: Final = "dovetail.dev/driver-wanted"  # we write: the version
SWAP: Final = "dovetail.dev/driver-swap"  # the hook writes: VERSION swapping|done|failed [message]


class Report(NamedTuple):
    """What the hook says."""

    version: str
    state: str
    message: str


class NodeAgentAdapter:
    """A node with a driver hook beside our node agent."""

    @property
    def name(self) -> str:
        """As statuses and metrics show it."""
        return NAME

    def governs(self, facts: NodeFacts, target: adapter.Target) -> bool:
        """Whether a hook listens on this node."""
        return bool(target.driver) and bool(facts.annotations.get(HOOK))

    def reversible(
        self, facts: NodeFacts, target: adapter.Target
    ) -> adapter.Reversible | adapter.ForwardOnly:
        """Reversible where the driver that is loaded now is known."""
        if facts.stack.driver_loaded.is_present:
            return adapter.Reversible()
        return adapter.ForwardOnly(f"the driver of node {facts.name} is not known")

    def unready(self, facts: NodeFacts, target: adapter.Target) -> tuple[adapter.Problem, ...]:
        """A swap that another order began."""
        report = report_of(facts)
        if report is None or report.state != "swapping":
            return ()
        return (
            adapter.Problem(
                code="SwapRunning",
                message=f"hook {facts.annotations[HOOK]} is swapping in driver {report.version} on {facts.name}",
                next_step="let it end first",
            ),
        )

    def apply(self, facts: NodeFacts, target: adapter.Target) -> adapter.Outcome:
        """Orders the driver, then reads the hook's report about this version."""
        if facts.annotations.get(WANTED) != target.driver:
            patch = NodePatch(
                node=facts.name,
                annotations={WANTED: target.driver},
                why=f"orders driver {target.driver} from hook {facts.annotations.get(HOOK, '?')}",
            )
            return Working(
                writes=(patch,), waiting_for=f"the order of driver {target.driver} to be seen"
            )
        report = report_of(facts)
        hook = facts.annotations.get(HOOK, "?")
        if report is None or report.version != target.driver:
            return Working(waiting_for=f"hook {hook} to begin with driver {target.driver}")
        if report.state == "failed":
            return ApplyFailed(
                reason=f"hook {hook} could not swap in driver {target.driver}: {report.message or 'no reason'}",
                next_step=f"repair it, then: kubectl annotate node {facts.name} {SWAP}-",
                may_recover=True,
            )
        if report.state != "done":
            return Working(waiting_for=f"hook {hook}: {report.state} {report.message}".rstrip())
        return _loaded(facts, target.driver)


def report_of(facts: NodeFacts) -> Report | None:
    """The hook's report; None where there is none, or it cannot be read."""
    words = facts.annotations.get(SWAP, "").split(maxsplit=2)
    if len(words) < 2:
        return None
    return Report(words[0], words[1], words[2] if len(words) > 2 else "")


def _loaded(facts: NodeFacts, target: str) -> adapter.Outcome:
    """A report is believed unless slices or feature discovery know better."""
    loaded = facts.stack.driver_loaded
    if loaded.is_present and not driver_pods.is_version(loaded.value, target):
        return Working(
            waiting_for=f"the node agent to publish driver {target}: the hook is done, but {loaded.source}"
            f" says {loaded.value}"
        )
    return Applied(evidence=f"{SWAP} reports driver {target} as done")
