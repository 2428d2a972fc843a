"""Changes NVIDIA's DRA driver by the GPU Operator's GPUCluster, which knows no waves.

The operator rolls the version out to all nodes, one after the other, in an order of its own: the skip label does not
hold it. It is said before the start; what remains is to ask once and to see each node arrive. Never touches claims:
the executor has emptied the node.
"""

from __future__ import annotations

from typing import Final

from dovetail.answer.stack import platform_objects
from dovetail.answer.why.evidence.gpu_platform.gpu_nodes import Component
from dovetail.kubetypes import gpu_stack_kinds
from dovetail.kubetypes.custom import gpu_operator
from dovetail.quantity import dotted_versions
from dovetail.upgrade.adapters import adapter, driver_pods
from dovetail.upgrade.adapters.adapter import Applied, ObjectPatch, Working
from dovetail.upgrade.adapters.node_facts import NodeFacts

NAME: Final = "gpu-operator-dra"
_YEARS: Final = 20  # releases were named by year, such as 25.12, before 0.4
_FORWARD_ONLY: Final = (0, 4)  # the first whose checkpoints an older driver cannot read


class DraDriverAdapter:
    """The DRA driver of a GPUCluster on one node."""

    @property
    def name(self) -> str:
        """As statuses and metrics show it."""
        return NAME

    def governs(self, facts: NodeFacts, target: adapter.Target) -> bool:
        """Whether a GPUCluster installs the DRA driver."""
        return bool(target.dra_driver) and bool(facts.platform.clusters)

    def reversible(
        self, facts: NodeFacts, target: adapter.Target
    ) -> adapter.Reversible | adapter.ForwardOnly:
        """From a release named by year there is no way back."""
        current = facts.stack.dra_driver.value
        if not dotted_versions.is_version(current):
            return adapter.ForwardOnly("the DRA driver that is there now is not known")
        was_year = dotted_versions.number_at(current, 0) >= _YEARS
        is_year = dotted_versions.number_at(target.dra_driver, 0) >= _YEARS
        if was_year and not is_year and dotted_versions.parse(target.dra_driver) >= _FORWARD_ONLY:
            return adapter.ForwardOnly(
                f"{current} cannot read the checkpoints and ComputeDomains of {target.dra_driver}"
            )
        return adapter.Reversible()

    def unready(self, facts: NodeFacts, target: adapter.Target) -> tuple[adapter.Problem, ...]:
        """That it has no waves."""
        return (
            adapter.Problem(
                code="NoWaves",
                message=f"GPUCluster changes the DRA driver on all {len(facts.fleet)} GPU nodes, one after"
                " the other, without waves; while a node's driver restarts, pods there cannot start or end",
                next_step="do it in one wave, at a quiet time",
                blocks=False,
            ),
        )

    def apply(self, facts: NodeFacts, target: adapter.Target) -> adapter.Outcome:
        """Asks once, then waits for the node's own pod."""
        if not facts.platform.clusters:
            return adapter.ApplyFailed(
                reason="the GPUCluster is gone", next_step="kubectl get gpuclusters"
            )
        cluster = facts.platform.clusters[0]
        if not driver_pods.is_version(cluster.spec.dra_driver.version, target.dra_driver):
            return _asked(cluster, target.dra_driver)
        for pod in facts.pods_of(Component.DRA_DRIVER):
            versions = [
                platform_objects.version_of_image(each.image, pod.id).value
                for each in pod.pod.spec.containers
            ]
            has_target = any(driver_pods.is_version(each, target.dra_driver) for each in versions)
            if has_target and pod.is_ready:
                return Applied(
                    evidence=f"pod {pod.id} is ready with DRA driver {target.dra_driver}"
                )
        return Working(waiting_for=f"a ready pod of DRA driver {target.dra_driver} on {facts.name}")


def _asked(cluster: gpu_operator.GPUCluster, version: str) -> Working:
    patch = ObjectPatch(
        kind=gpu_stack_kinds.GPU_CLUSTER,
        name=cluster.metadata.name,
        patch={"spec": {"draDriver": {"version": version}}},
        why=f"the DRA driver goes from {cluster.spec.dra_driver.version} to {version}",
    )
    return Working(
        writes=(patch,), waiting_for=f"GPUCluster {cluster.metadata.name} to name {version}"
    )
