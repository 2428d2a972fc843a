"""Clouds that replace nodes, hooks that swap drivers, the DRA driver, and which adapter serves which node."""

from __future__ import annotations

import pytest

from dovetail.upgrade.adapters import adapter_choice
from dovetail.upgrade.adapters.adapter import (
    Applied,
    ApplyFailed,
    ByHand,
    ForwardOnly,
    Reversible,
    Target,
    Working,
)
from dovetail.upgrade.adapters.adapter_choice import NoAdapter
from dovetail.upgrade.adapters.dra_driver_adapter import DraDriverAdapter
from dovetail.upgrade.adapters.node_agent_adapter import NodeAgentAdapter
from dovetail.upgrade.adapters.node_image_adapter import NodeImageAdapter
from tests.upgrade import trees
from tests.upgrade.trees import NEW, OLD

DRIVER_LABEL = "nvidia.com/cuda.driver-version.full"
HOOK = "dovetail.dev/driver-hook"
WANTED = "dovetail.dev/driver-wanted"
SWAP = "dovetail.dev/driver-swap"


@pytest.mark.parametrize(
    ("labels", "command"),
    [
        (
            {"kubernetes.azure.com/agentpool": "gpu"},
            "az aks nodepool upgrade --resource-group GROUP --cluster-name CLUSTER --name gpu"
            " --node-image-only",
        ),
        (
            {"cloud.google.com/gke-nodepool": "gpu"},
            "gcloud container clusters upgrade CLUSTER --node-pool=gpu",
        ),
        (
            {"eks.amazonaws.com/nodegroup": "gpu", "alpha.eksctl.io/cluster-name": "east"},
            "aws eks update-nodegroup-version --cluster-name east --nodegroup-name gpu",
        ),
    ],
)
def test_a_cloud_image_is_a_plan_for_a_person_until_the_driver_shows(
    labels: dict[str, str], command: str
) -> None:
    images = NodeImageAdapter()
    target = Target(driver=NEW)
    old = trees.facts("a", trees.node("a", labels | {DRIVER_LABEL: OLD}), trees.node("b", labels))
    assert images.governs(old, target)
    assert isinstance(images.reversible(old, target), ForwardOnly)
    outcome = images.apply(old, target)
    assert isinstance(outcome, ByHand)
    assert outcome.steps[1] == command
    assert outcome.done_when == (
        f"node a is gone, or its slices or feature discovery report driver {NEW}"
    )
    assert "all 2 nodes of pool gpu" in images.unready(old, target)[0].message

    done = trees.facts("a", trees.node("a", labels | {DRIVER_LABEL: NEW}))
    assert isinstance(images.apply(done, target), Applied)


def test_a_node_image_is_seen_in_the_label_of_its_cloud() -> None:
    labels = {"kubernetes.azure.com/agentpool": "gpu"}
    image = "AKSUbuntu-2404gen2containerd-202611.01.0"
    target = Target(node_image=image)
    images = NodeImageAdapter()
    waiting = images.apply(trees.facts("a", trees.node("a", labels)), target)
    assert isinstance(waiting, ByHand)
    assert image in waiting.done_when
    labels["kubernetes.azure.com/node-image-version"] = image
    assert isinstance(images.apply(trees.facts("a", trees.node("a", labels)), target), Applied)


def test_a_hook_is_given_an_order_and_only_its_report_about_this_driver_counts() -> None:
    agent = NodeAgentAdapter()
    target = Target(driver=NEW)
    node = trees.node("a", annotations={HOOK: "swapper", SWAP: f"{OLD} done"})
    ordered = agent.apply(trees.facts("a", node), target)
    assert isinstance(ordered, Working)
    node = trees.written(node, ordered.writes[0])
    assert node["metadata"]["annotations"][WANTED] == NEW

    begun = agent.apply(trees.facts("a", node), target)
    assert begun == Working(waiting_for=f"hook swapper to begin with driver {NEW}")
    node["metadata"]["annotations"][SWAP] = f"{NEW} failed module nvidia is in use"
    failed = agent.apply(trees.facts("a", node), target)
    assert isinstance(failed, ApplyFailed)
    assert failed.reason.endswith(": module nvidia is in use")

    node["metadata"]["annotations"][SWAP] = f"{NEW} done"
    node["metadata"]["labels"][DRIVER_LABEL] = OLD
    assert "says 580.95.05" in str(agent.apply(trees.facts("a", node), target))
    node["metadata"]["labels"][DRIVER_LABEL] = NEW
    assert isinstance(agent.apply(trees.facts("a", node), target), Applied)


@pytest.mark.parametrize(
    ("now", "target", "kind"),
    [
        ("25.12.0", "0.4.0", ForwardOnly),
        ("0.4.0", "0.5.0", Reversible),
        ("0.5.0", "0.4.0", Reversible),
    ],
)
def test_the_dra_driver_of_a_year_has_no_way_back(now: str, target: str, kind: type) -> None:
    cluster = {
        "apiVersion": "nvidia.com/v1alpha1",
        "kind": "GPUCluster",
        "metadata": {"name": "gpu-cluster"},
        "spec": {"draDriver": {"version": f"v{now}"}},
    }
    facts = trees.facts("a", trees.node("a"), cluster)
    wanted = Target(dra_driver=target)
    adapter = DraDriverAdapter()
    assert isinstance(adapter.reversible(facts, wanted), kind)
    assert [problem.code for problem in adapter.unready(facts, wanted)] == ["NoWaves"]
    outcome = adapter.apply(facts, wanted)
    assert isinstance(outcome, Working)
    assert outcome.waiting_for == f"GPUCluster gpu-cluster to name {target}"


def test_each_part_of_a_target_has_its_adapter_and_a_part_without_one_is_named() -> None:
    manager = trees.pod("nvidia-mig-manager", "test/mig-manager:v0.15.0", "a")
    facts = trees.facts("a", trees.node("a"), manager, trees.policy())
    steps = adapter_choice.steps_for(facts, Target(driver=NEW, mig_config="all-1g.10gb"))
    assert isinstance(steps, tuple)
    assert [(step.adapter.name, step.target) for step in steps] == [
        ("gpu-operator", Target(driver=NEW)),
        ("mig-label", Target(mig_config="all-1g.10gb")),
    ]
    missing = adapter_choice.steps_for(facts, Target(driver=NEW, dra_driver="0.5.0"))
    assert isinstance(missing, NoAdapter)
    assert missing.part == "dra_driver"
    alone = adapter_choice.steps_for(trees.facts("a", trees.node("a")), Target(driver=NEW))
    assert isinstance(alone, NoAdapter)
    assert alone.reason.startswith("no hook, operator or cloud image brings a driver to a: ")
