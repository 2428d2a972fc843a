"""Adds a claim for the share of a GPU that KAI's annotations request to a new pod.

Does what the chart's policy (deploy/chart/templates/kai-shares-policy.yaml) does on a real API server, which evaluates
it before the pod is stored. Given a pod as it was sent. A pod whose annotations cannot be honoured stays as it is: the
scheduler says why. Never refuses a pod.
"""

from __future__ import annotations

from typing import Any, Final

from dovetail.model import gpu_shares

Tree = dict[str, Any]
_LISTS: Final = ("containers", "initContainers")


def with_claim(pod: Tree) -> Tree:
    """The pod with the claim, if it requests a share and neither claims nor GPUs."""
    metadata, spec = _mapping(pod, "metadata"), _mapping(pod, "spec")
    annotations = {key: str(value) for key, value in _mapping(metadata, "annotations").items()}
    share = gpu_shares.requested(annotations)
    if (
        not isinstance(share, gpu_shares.Share)
        or spec.get("resourceClaims")
        or spec.get("nodeName")
    ):
        return pod

    containers = [container for name in _LISTS for container in spec.get(name) or ()]
    if not all(isinstance(container, dict) for container in containers):
        return pod  # no container: the server refuses that when it reads the pod
    if gpu_shares.is_of_nvidia(_resources(containers)):
        return pod
    names = [str(container.get("name")) for container in containers]
    container = gpu_shares.container_of(annotations, names)
    if isinstance(container, gpu_shares.Problem):
        return pod

    claim = {
        "name": gpu_shares.CLAIM,
        "resourceClaimTemplateName": gpu_shares.template_name(share),
    }
    lists = {
        name: [_claiming(each, container) for each in spec[name]]
        for name in _LISTS
        if spec.get(name)
    }
    return pod | {"spec": spec | lists | {"resourceClaims": [claim]}}


def _claiming(container: Tree, name: str) -> Tree:
    if container.get("name") != name:
        return container
    resources = _mapping(container, "resources")
    return container | {"resources": resources | {"claims": [{"name": gpu_shares.CLAIM}]}}


def _resources(containers: list[Tree]) -> list[str]:
    amounts = [
        _mapping(_mapping(container, "resources"), field)
        for container in containers
        for field in ("limits", "requests")
    ]
    return [name for each in amounts for name in each]


def _mapping(tree: Tree, field: str) -> Tree:
    value = tree.get(field)
    return value if isinstance(value, dict) else {}
