"""Answers to reviews of access: this server has one user, who may do everything.

Given the body of a review and the server's token; returns the review with its status. Never stores anything.
"""

from __future__ import annotations

import hmac
from typing import Any, Final, NamedTuple

Tree = dict[str, Any]

USER: Final = "kubernetes-admin"
ADMINS: Final = "system:masters"
GROUPS: Final = (ADMINS, "system:authenticated")


class Review(NamedTuple):
    """One kind of review."""

    api_version: str
    kind: str
    plural: str
    is_namespaced: bool = False


_AUTHENTICATION: Final = "authentication.k8s.io/v1"
_AUTHORIZATION: Final = "authorization.k8s.io/v1"
REVIEWS: Final = (
    Review(_AUTHENTICATION, "SelfSubjectReview", "selfsubjectreviews"),
    Review(_AUTHENTICATION, "TokenReview", "tokenreviews"),
    Review(_AUTHORIZATION, "LocalSubjectAccessReview", "localsubjectaccessreviews", True),
    Review(_AUTHORIZATION, "SelfSubjectAccessReview", "selfsubjectaccessreviews"),
    Review(_AUTHORIZATION, "SelfSubjectRulesReview", "selfsubjectrulesreviews"),
    Review(_AUTHORIZATION, "SubjectAccessReview", "subjectaccessreviews"),
)
_BY_PATH: Final = {(review.api_version, review.plural): review for review in REVIEWS}


def at(api_version: str, plural: str) -> Review | None:
    """The review of a path."""
    return _BY_PATH.get((api_version, plural))


def is_token(text: str, token: str) -> bool:
    """Whether a text is the token. Takes the same time wherever they differ."""
    return hmac.compare_digest(text.encode("utf-8", "surrogateescape"), token.encode())


def answered(review: Review, sent: Tree, token: str) -> Tree:
    """The review with its status."""
    spec: Tree = sent.get("spec") or {}
    status = _STATUSES[review.kind](spec, token)
    return {
        "kind": review.kind,
        "apiVersion": review.api_version,
        "metadata": {},
        "spec": spec,
        "status": status,
    }


def _self(spec: Tree, token: str) -> Tree:
    return {"userInfo": {"username": USER, "groups": list(GROUPS)}}


def _token(spec: Tree, token: str) -> Tree:
    if not is_token(str(spec.get("token") or ""), token):
        return {"authenticated": False, "user": {}}
    return {"authenticated": True, "user": {"username": USER, "groups": list(GROUPS)}}


def _allowed(spec: Tree, token: str) -> Tree:
    return {"allowed": True}


def _access(spec: Tree, token: str) -> Tree:
    is_admin = spec.get("user") == USER or ADMINS in (spec.get("groups") or ())
    return {"allowed": is_admin} if is_admin else {"allowed": False, "reason": f"only {USER} may"}


def _rules(spec: Tree, token: str) -> Tree:
    everything = {"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}
    return {
        "resourceRules": [everything],
        "nonResourceRules": [{"verbs": ["*"], "nonResourceURLs": ["*"]}],
        "incomplete": False,
    }


_STATUSES: Final = {
    "SelfSubjectReview": _self,
    "TokenReview": _token,
    "SelfSubjectAccessReview": _allowed,
    "SubjectAccessReview": _access,
    "LocalSubjectAccessReview": _access,
    "SelfSubjectRulesReview": _rules,
}
