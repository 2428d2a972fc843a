"""Refuses what a user may not list: kinds without namespaces, and namespaces."""

from __future__ import annotations

from dovetail.web import asked, problems


def must_list(question: asked.Asked, plural: str) -> None:
    """Raises 403 where the user may not list a kind that has no namespaces."""
    if not question.may.list(plural):
        raise problems.forbidden(
            f"you may not list {plural}",
            next_step=f"ask an administrator for the right to list {plural}",
        )


def sees(question: asked.Asked, namespace: str) -> bool:
    """Whether the work of a namespace is shown."""
    return question.may.see_namespace(namespace)


def sees_claims(question: asked.Asked, namespace: str) -> bool:
    """Whether the claims of a namespace are shown."""
    return question.may.see_claims(namespace)
