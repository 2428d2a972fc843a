"""Subresources that are no part of the object: scale, binding, eviction, finalize and service account tokens.

Given an address and decoded bodies; returns documents. Evictions honour PodDisruptionBudgets. Never answers HTTP
itself.
"""

from __future__ import annotations

import datetime
from typing import Any, Final

import msgspec

from dovetail import timestamps
from dovetail.kubetypes import field_errors, json_paths, registry
from dovetail.kubetypes.core import disruption_budgets
from dovetail.ports import failures
from dovetail.ports.api import Target
from dovetail.sim.rest import request_options, status_answers
from dovetail.sim.rest.encoding import content_types
from dovetail.sim.rest.patching import patches
from dovetail.sim.rest.printing import printed_values
from dovetail.sim.rest.request_options import WriteOptions
from dovetail.sim.rest.request_paths import Address
from dovetail.sim.server import api_server, write_rules
from dovetail.sim.server.api_server import SimApi
from dovetail.sim.server.builtin_kinds import SERVICE_ACCOUNT, Scale
from dovetail.sim.server.object_store import Record
from dovetail.sim.server.served_kinds import Served

Tree = dict[str, Any]

TOO_MANY: Final = "Cannot evict pod as it would violate the pod's disruption budget."
TWO_BUDGETS: Final = "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support."
TOKEN_SECONDS: Final = 3_600


class Subresources:
    """The subresources of one server."""

    def __init__(self, api: SimApi, token: str) -> None:
        self._api = api
        self._token = token

    # Scale

    def scale(self, served: Served, at: Address) -> Tree:
        """The scale of an object."""
        return _scale_of(self._found(served, at), _paths(served))

    def write_scale(
        self, served: Served, at: Address, body: bytes, media: str, options: WriteOptions
    ) -> Tree:
        """Sets the number of replicas, by a whole Scale (media JSON) or by a patch of it."""
        record = self._found(served, at)
        paths = _paths(served)
        scale = _scale_of(record, paths)
        wanted = _changed_scale(scale, body, media)
        version = (wanted.get("metadata") or {}).get("resourceVersion")
        if version and version != record.metadata.resource_version:
            raise failures.Conflict(
                f'Operation cannot be fulfilled on {write_rules.qualified(served.kind)} "{at.name}": '
                f"{write_rules.OUTDATED}",
                status=409,
                reason="Conflict",
            )
        replicas = (wanted.get("spec") or {}).get("replicas", 0)
        if not isinstance(replicas, int) or replicas < 0:
            message = f"Invalid value: {replicas}: must be greater than or equal to 0"
            problem = field_errors.FieldProblem(field_errors.INVALID, "spec.replicas", message)
            raise write_rules.Invalid("Scale.autoscaling", at.name, [problem])
        tree = json_paths.with_value(paths.spec_replicas, record.tree, replicas)
        target = Target(served.kind, at.namespace, at.name)
        stored = self._api.write(target, tree, is_rehearsal=options.is_rehearsal)
        return _scale_of(stored, paths)

    # Pods

    def bind(self, at: Address, binding: Tree) -> None:
        """Binds a pod to a node."""
        self._api.bind(Target(registry.POD, at.namespace, at.name, "binding"), binding)

    def evict(self, at: Address, eviction: Tree, *, is_rehearsal: bool) -> None:
        """Deletes a pod, if its disruption budget allows that now."""
        target = Target(registry.POD, at.namespace, at.name)
        record = self._api.found(target)
        options = request_options.delete_options({}, eviction.get("deleteOptions") or {})
        api_server.check_preconditions(
            target, record, uid=options.uid, resource_version=options.resource_version
        )
        budget = self._budget_of(record)
        is_dry_run = is_rehearsal or options.is_rehearsal
        if budget is not None:
            self._spend(budget, at.name, is_dry_run=is_dry_run)
        if not is_dry_run:
            self._api.shelf.delete(registry.POD, record.key, grace_seconds=options.grace_seconds)

    def _budget_of(self, record: Record) -> Record | None:
        """The budget an eviction counts against; pods that do not run yet or any more have none."""
        pod = record.struct
        if (
            pod.status.phase in ("Succeeded", "Failed", "Pending", "")
            or pod.metadata.deletion_timestamp
        ):
            return None
        budgets = [
            budget
            for budget in self._api.shelf.all(registry.BUDGET, pod.metadata.namespace)
            if disruption_budgets.covers(budget.struct, pod)
        ]
        if len(budgets) > 1:
            raise failures.Unavailable(TWO_BUDGETS, status=500, reason="InternalError")
        return budgets[0] if budgets else None

    def _spend(self, budget: Record, pod: str, *, is_dry_run: bool) -> None:
        tree = budget.tree
        status: Tree = tree.get("status") or {}
        allowed = int(status.get("disruptionsAllowed") or 0)
        if allowed <= 0:
            needs, has = status.get("desiredHealthy", 0), status.get("currentHealthy", 0)
            cause = (
                f"The disruption budget {budget.metadata.name} needs {needs} healthy pods and has "
                f"{has} currently"
            )
            raise failures.Protected(
                TOO_MANY, status=429, reason="TooManyRequests"
            ) from ValueError(cause)
        if not is_dry_run:
            disrupted = (status.get("disruptedPods") or {}) | {pod: self._api.shelf.stamp()}
            changed = status | {"disruptionsAllowed": allowed - 1, "disruptedPods": disrupted}
            self._api.shelf.put(registry.BUDGET, tree | {"status": changed})

    # Namespaces and service accounts

    def finalize(self, at: Address, tree: Tree) -> Record:
        """Sets the finalizers of a namespace's spec."""
        record = self._api.found(Target(registry.NAMESPACE, "", at.name))
        finalizers = (tree.get("spec") or {}).get("finalizers") or []
        return self._api.shelf.put(
            registry.NAMESPACE, record.tree | {"spec": {"finalizers": finalizers}}
        )

    def token(self, at: Address, request: Tree, now: datetime.datetime) -> Tree:
        """A token for a service account: the one token of this server, which has one user."""
        self._api.found(Target(SERVICE_ACCOUNT, at.namespace, at.name))
        spec: Tree = request.get("spec") or {}
        seconds = int(spec.get("expirationSeconds") or TOKEN_SECONDS)
        expires = timestamps.to_text(now + datetime.timedelta(seconds=seconds))
        return {
            "kind": "TokenRequest",
            "apiVersion": "authentication.k8s.io/v1",
            "metadata": {"name": at.name, "namespace": at.namespace},
            "spec": {"audiences": spec.get("audiences") or [], "expirationSeconds": seconds},
            "status": {"token": self._token, "expirationTimestamp": expires},
        }

    def _found(self, served: Served, at: Address) -> Record:
        return self._api.found(Target(served.kind, at.namespace, at.name))


def _paths(served: Served) -> Scale:
    if served.resource.scale is None:
        raise write_rules.not_served()
    return served.resource.scale


def _scale_of(record: Record, paths: Scale) -> Tree:
    tree = record.tree
    fields = ("name", "namespace", "uid", "resourceVersion", "creationTimestamp")
    metadata = {name: tree["metadata"][name] for name in fields if name in tree["metadata"]}
    status: Tree = {"replicas": json_paths.first(paths.status_replicas, tree) or 0}
    selector = json_paths.first(paths.selector, tree) if paths.selector else _selector(tree)
    if selector:
        status["selector"] = selector
    return {
        "kind": "Scale",
        "apiVersion": "autoscaling/v1",
        "metadata": metadata,
        "spec": {"replicas": json_paths.first(paths.spec_replicas, tree) or 0},
        "status": status,
    }


def _selector(tree: Tree) -> str:
    selector = (tree.get("spec") or {}).get("selector")
    if not selector:
        return ""
    is_plain = "matchLabels" not in selector and "matchExpressions" not in selector
    return printed_values.label_selector({"matchLabels": selector} if is_plain else selector)


def _changed_scale(scale: Tree, body: bytes, media: str) -> Tree:
    if media in (content_types.JSON, content_types.PROTOBUF):
        return request_options.body_tree(body, media)
    try:
        patch = msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise status_answers.bad(f"error decoding patch: {error}") from None
    if media == content_types.JSON_PATCH:
        return patches.json_patched(scale, patch)
    changed: Tree = write_rules.merged(scale, patch)
    return changed
