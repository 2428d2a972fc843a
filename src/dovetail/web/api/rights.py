"""Refuses what a user may not list: kinds without namespaces, and objects of namespaces."""

from __future__ import annotations

from dovetail.kubetypes import registry
from dovetail.web import asked, problems


def must_list(question: asked.Asked, kind: registry.Kind) -> None:
    """Raises 403 where the user may not list a kind that has no namespaces."""
    if not question.may.lists(kind.unique_name):
        raise problems.forbidden(
            f"you may not list {kind.plural}",
            next_step=f"ask an administrator for the right to list {kind.plural}",
        )


def lists(question: asked.Asked, kind: registry.Kind) -> bool:
    """Whether a kind without namespaces is shown."""
    return question.may.lists(kind.unique_name)


def sees(question: asked.Asked, namespace: str) -> bool:
    """Whether the work of a namespace is shown."""
    return question.may.see_namespace(namespace)


def sees_kind(question: asked.Asked, kind: registry.Kind, namespace: str) -> bool:
    """Whether the objects of a kind in a namespace are shown."""
    return question.may.sees(kind.unique_name, namespace)
