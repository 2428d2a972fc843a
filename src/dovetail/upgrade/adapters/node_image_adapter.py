"""Nodes whose driver comes with the image of their pool, on AKS, GKE and EKS: steps for a person, and how they show.

Given labels alone. A cloud replaces such nodes; nothing in the cluster can. The executor fences and drains the node as
any other, shows the steps, and goes on when the facts show the target; a node that is gone was replaced. Never calls a
cloud.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from dovetail.answer.stack import stack_facts
from dovetail.model import node_pools
from dovetail.upgrade.adapters import adapter, driver_pods
from dovetail.upgrade.adapters.adapter import Applied, ByHand
from dovetail.upgrade.adapters.node_facts import NodeFacts

NAME: Final = "node-image"


class Cloud(NamedTuple):
    """How one cloud names and replaces node images."""

    title: str
    image_label: str  # the label with the image of the node; empty where there is none
    cluster_label: str
    newest: str  # the command to the newest image
    exact: str  # to a given one


CLOUDS: Final = {
    node_pools.AKS: Cloud(
        "AKS",
        "kubernetes.azure.com/node-image-version",
        "",
        "az aks nodepool upgrade --resource-group GROUP --cluster-name {cluster} --name {pool}"
        " --node-image-only",
        "az aks nodepool upgrade --resource-group GROUP --cluster-name {cluster} --name {pool}"
        " --node-image-only   # AKS offers its newest image only; expected: {image}",
    ),
    node_pools.GKE: Cloud(
        "GKE",
        "",
        "",
        "gcloud container clusters upgrade {cluster} --node-pool={pool}",
        "gcloud container clusters upgrade {cluster} --node-pool={pool} --cluster-version={image}",
    ),
    node_pools.EKS: Cloud(
        "EKS",
        "eks.amazonaws.com/nodegroup-image",
        "alpha.eksctl.io/cluster-name",
        "aws eks update-nodegroup-version --cluster-name {cluster} --nodegroup-name {pool}",
        "aws eks update-nodegroup-version --cluster-name {cluster} --nodegroup-name {pool}"
        " --release-version RELEASE   # the release whose image is {image}",
    ),
}


class NodeImageAdapter:
    """A node whose driver is part of its image."""

    @property
    def name(self) -> str:
        """As statuses and metrics show it."""
        return NAME

    def governs(self, facts: NodeFacts, target: adapter.Target) -> bool:
        """Whether a cloud's image brings what the target names."""
        has_own_driver = facts.stack.driver_desired.value == stack_facts.NONE or not (
            facts.platform.policies or facts.platform.drivers
        )
        wants = bool(target.node_image) or (bool(target.driver) and has_own_driver)
        return wants and node_pools.pool_of(facts.node).provider in CLOUDS

    def reversible(
        self, facts: NodeFacts, target: adapter.Target
    ) -> adapter.Reversible | adapter.ForwardOnly:
        """A cloud promises no way back to an older image."""
        return adapter.ForwardOnly(
            "clouds replace nodes with a newer image; an older one needs a pool of its own"
        )

    def unready(self, facts: NodeFacts, target: adapter.Target) -> tuple[adapter.Problem, ...]:
        """A cloud drains by its own rules, and several nodes at once."""
        pool = node_pools.pool_of(facts.node)
        beside = len(pool_nodes(facts))
        return (
            adapter.Problem(
                code="PoolIsReplaced",
                message=f"the command replaces all {beside} nodes of pool {pool.name or '?'} in the cloud's"
                " own order, and drains them with a time limit, gangs or not",
                next_step="put the nodes of a pool into one wave, or make a new pool and move work there",
                blocks=False,
            ),
        )

    def apply(self, facts: NodeFacts, target: adapter.Target) -> adapter.Outcome:
        """Steps for a person until the labels, slices or feature discovery show the target."""
        shown = _shown(facts, target)
        if shown:
            return Applied(evidence=shown)
        return _steps(facts, target)


def pool_nodes(facts: NodeFacts) -> tuple[str, ...]:
    """The GPU nodes of the same pool, sorted."""
    pool = node_pools.name_of(facts.node)
    same = (node for node in facts.fleet if node_pools.name_of(node) == pool)
    return tuple(sorted(node.metadata.name for node in same))


def _shown(facts: NodeFacts, target: adapter.Target) -> str:
    """What shows that the node has the target; empty where nothing does."""
    cloud = CLOUDS[node_pools.pool_of(facts.node).provider]
    if target.node_image:
        image = facts.labels.get(cloud.image_label, "") if cloud.image_label else ""
        return f"label {cloud.image_label}={image}" if image == target.node_image else ""
    loaded = facts.stack.driver_loaded
    if loaded.is_present and driver_pods.is_version(loaded.value, target.driver):
        return f"driver {loaded.value} by {loaded.source}"
    return ""


def _steps(facts: NodeFacts, target: adapter.Target) -> ByHand:
    pool = node_pools.pool_of(facts.node)
    cloud = CLOUDS[pool.provider]
    cluster = facts.labels.get(cloud.cluster_label, "") if cloud.cluster_label else ""
    command = (cloud.exact if target.node_image else cloud.newest).format(
        cluster=cluster or "CLUSTER", pool=pool.name or "POOL", image=target.node_image
    )
    wanted = target.node_image or f"an image with driver {target.driver}"
    names = pool_nodes(facts)
    return ByHand(
        steps=(
            f"check that {cloud.title} offers {wanted} for pool {pool.name or '?'}",
            command,
            f"wait until the {len(names)} nodes of the pool are replaced:"
            f" kubectl get nodes -l {pool.label or 'POOL_LABEL'}={pool.name}",
        ),
        done_when=_done_when(facts, target, cloud),
    )


def _done_when(facts: NodeFacts, target: adapter.Target, cloud: Cloud) -> str:
    gone = f"node {facts.name} is gone, or"
    if not target.node_image:
        return f"{gone} its slices or feature discovery report driver {target.driver}"
    if cloud.image_label:
        return f"{gone} its label {cloud.image_label} is {target.node_image}"
    return f"{gone} replaced; {cloud.title} shows no image of a node in its labels"
