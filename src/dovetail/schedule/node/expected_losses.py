"""Expected losses in one World: the tables of a mix, the states of all nodes, and what is scarce by them.

Given the mix in force. Follows the World's journal of changes, inside trials as outside. Never holds the World and
never scores a node.
"""

from __future__ import annotations

from collections.abc import Callable

from dovetail.model import pod_mix, policy
from dovetail.schedule.node.score import arrived_mix, gpu_states, placement_cost
from dovetail.world.world import World


class ExpectedLosses:
    """What scores need to know besides the node."""

    def __init__(self, mix: pod_mix.Mix, weights: policy.Weights) -> None:
        """Tables are shared by all Worlds with the same mix."""
        self.mix = mix
        self.tables = placement_cost.tables_for(mix, weights)
        self.totals = placement_cost.Totals(self.tables)
        self._states = gpu_states.GpuStates(self.totals.count)

    def prices(
        self, world: World, state_of_node: Callable[[str], gpu_states.GpuState]
    ) -> placement_cost.Prices:
        """What is scarce now. Linear in nodes that changed since the last call."""
        self._states.refresh(world, state_of_node)
        return self.totals.prices()


def mix_for(world: World, policy_: policy.Policy) -> pod_mix.Mix | None:
    """The mix that scores expect; None where the policy does not ask for one, or no pod with a GPU has arrived."""
    if policy_.placement is not policy.Placement.EXPECTED_LOSS:
        return None
    mix = arrived_mix.of(world)
    return mix if mix.total_gpu_milli else None
