"""Recognises the nodes that the hollow kubelets serve, by an annotation or a label. Given a node; never changes one."""

from __future__ import annotations

from typing import Final

from dovetail.kubetypes.core import nodes

HOLLOW: Final = "dovetail.dev/hollow"  # annotation or label of a node without a kubelet: serve it
SILENT: Final = "dovetail.dev/silent"  # annotation or label of a node that acts as cut off


def is_hollow(node: nodes.Node) -> bool:
    """Whether the node is marked as having no kubelet: no container runs there."""
    return _is_marked(node, HOLLOW)


def is_silent(node: nodes.Node) -> bool:
    """Whether the node is marked as cut off."""
    return _is_marked(node, SILENT)


def _is_marked(node: nodes.Node, key: str) -> bool:
    return "true" in (node.metadata.annotations.get(key), node.metadata.labels.get(key))
