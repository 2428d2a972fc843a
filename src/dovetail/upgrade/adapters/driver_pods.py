"""The driver's pod on a node: which it is, which driver its image installs, and why it is not ready.

Given the facts of a node. Never decides what follows from it.
"""

from __future__ import annotations

from typing import Final

from dovetail.answer.stack import platform_objects
from dovetail.answer.why.evidence.gpu_platform.gpu_nodes import Component
from dovetail.answer.why.evidence.sources import quoting
from dovetail.quantity import dotted_versions
from dovetail.upgrade.adapters.node_facts import NodeFacts, StackPod

MOST_RESTARTS: Final = 10  # of k8s-operator-libs: with more, an unready container fails the upgrade


def driver_pod(facts: NodeFacts) -> StackPod | None:
    """The driver's pod on the node, one that stays before one that is going."""
    pods = sorted(facts.pods_of(Component.DRIVER), key=lambda each: each.is_going)
    return pods[0] if pods else None


def driver_version(driver: StackPod) -> str:
    """The driver that the image of a pod installs; empty where its tag names none."""
    for container in driver.pod.spec.containers:
        version = platform_objects.version_of_image(container.image, driver.id)
        if version.is_known:
            return version.value
    return ""


def runs(driver: StackPod, target: str) -> bool:
    """Whether a pod installs this driver."""
    return is_version(driver_version(driver), target)


def is_version(version: str, target: str) -> bool:
    """Whether two texts name one version: 580.95.05 is 580.95.5."""
    if not dotted_versions.is_version(version) or not dotted_versions.is_version(target):
        return version == target
    return dotted_versions.compare(version, target) == 0


def is_failing(driver: StackPod) -> bool:
    """Whether the upgrade library gives this pod up."""
    return any(not each.is_ready and each.restarts > MOST_RESTARTS for each in driver.containers)


def problem_of(pod: StackPod) -> str:
    """Why a pod is not ready, in the words of its containers."""
    for container in pod.containers:
        if container.is_ready or container.reason in ("Completed", "PodInitializing"):
            continue
        state = container.reason or container.state or "not started"
        restarts = quoting.counted(container.restarts, "restart") if container.restarts else ""
        message = container.last_message or container.message
        words = [state, restarts, quoting.words(message, 120) if message else ""]
        return f"container {container.name}: {', '.join(filter(None, words))}"
    return f"it is {pod.pod.status.phase or 'Pending'}"
