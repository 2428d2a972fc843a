"""What to change so that work uses another device: the claim template or claim, or the resources of its pods.

Given a replica, the pods of a family and the device chosen for them. Made like the fixes of `why`: merge patches where
the field can be changed in place, else a deletion and a creation. Says why where there is no patch. Never applies one.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final, NamedTuple

from dovetail.answer.replica import patches
from dovetail.answer.replica.replica import Replica
from dovetail.answer.right_size.device_choices import Choice
from dovetail.answer.why.fixes import change_set, tree_paths
from dovetail.answer.why.fixes.change_set import ChangeSet
from dovetail.answer.why.fixes.proposals import Change, Edit, ObjectChange, PodChange
from dovetail.answer.why.fixes.tree_paths import Path, Tree
from dovetail.cel import device_views, selectors
from dovetail.cel.evaluate.program import Outcome
from dovetail.kubetypes import object_set, registry
from dovetail.kubetypes.core import pods
from dovetail.kubetypes.resource import slices
from dovetail.model import node_pools
from dovetail.model.accounting.records import Form
from dovetail.world import events

MIG_PREFIX: Final = "nvidia.com/mig-"
SHARED: Final = "nvidia.com/gpu.shared"  # of a device plugin that shares GPUs in time or by MPS
# Selectors that say which form of a GPU is wanted: they give way to the new form.
_FORM: Final = re.compile(r"\.(type|profile|memory|multiprocessors)\b|\"profile\"|'profile'")


class SizeChange(NamedTuple):
    """The patches with what comes of them; or why there are none."""

    change: ChangeSet | None
    note: str = ""


def change(replica: Replica, work: Sequence[pods.Pod], choice: Choice) -> SizeChange:
    """What to change about pods of one family."""
    if not work:
        return SizeChange(None, "no pod of it is in the cluster now: change its template by hand")
    sample = work[0]
    if choice.form is Form.REPLICA and not _offers_shares(replica, sample):
        return SizeChange(
            None,
            f"no node offers shared GPUs: an administrator configures time-slicing or MPS "
            f"for {choice.shared_by} first",
        )
    try:
        _refuse_shared(replica, work)
        changes = list(_changes(replica, sample, choice))
    except _NoPatch as reason:
        return SizeChange(None, str(reason))
    if not changes:
        return SizeChange(None, "its pods request no GPU that a patch could change")
    workshop = change_set.Workshop(replica, [events.pod_id(pod) for pod in work])
    made = workshop.change_set(changes)
    if made is None:
        return SizeChange(None, "a controller would revert the change: edit the object it reads")
    return SizeChange(made)


class _NoPatch(Exception):
    """No patch can be made, and why."""


def _refuse_shared(replica: Replica, work: Sequence[pods.Pod]) -> None:
    """A template that other work uses as well cannot be changed for this work alone."""
    own = {events.pod_id(pod) for pod in work}
    used = {(work[0].metadata.namespace, name) for name in _templates(work[0])}
    for pod_id, pod in sorted(replica.world.pods.items()):
        if pod_id in own or pod.status.phase in pods.TERMINAL_PHASES:
            continue
        for name in _templates(pod):
            if (pod.metadata.namespace, name) in used:
                raise _NoPatch(
                    f"ResourceClaimTemplate {name} is used by pod {pod.metadata.name} as well: "
                    "give this work one of its own"
                )


def _templates(pod: pods.Pod) -> list[str]:
    names = (entry.resource_claim_template_name for entry in pod.spec.resource_claims)
    return [name for name in names if name]


def _changes(replica: Replica, pod: pods.Pod, choice: Choice) -> Iterator[Change]:
    for source in _sources(replica, pod):
        yield ObjectChange(source.ref, _claim_edit(replica, source, choice))
    if edit := _resource_edit(pod, choice):
        yield PodChange(events.pod_id(pod), edit)


# Claims


class _Source(NamedTuple):
    """The object that says what a claim asks for, and where in it the requests are."""

    ref: patches.ObjectRef
    requests: Path
    tree: Tree


def _sources(replica: Replica, pod: pods.Pod) -> Iterator[_Source]:
    for entry in pod.spec.resource_claims:
        is_template = entry.resource_claim_name is None
        kind = registry.TEMPLATE if is_template else registry.CLAIM
        name = entry.resource_claim_template_name if is_template else entry.resource_claim_name
        stored = replica.get(object_set.Key(kind.unique_name, pod.metadata.namespace, name or ""))
        if stored is None:
            continue
        path: Path = ("spec", "spec") if is_template else ("spec",)
        tree = tree_paths.tree_of(stored)
        source = _Source(patches.ref_of(stored.struct), (*path, "devices", "requests"), tree)
        if not is_template:
            raise _NoPatch(
                f"{source.ref} is used by name and holds a device: create another, and name it in "
                "the pod"
            )
        yield source


def _claim_edit(replica: Replica, source: _Source, choice: Choice) -> Edit:
    wanted = tree_paths.objects(source.tree, source.requests)
    if len(wanted) != 1 or not isinstance(wanted[0][1].get("exactly"), dict):
        raise _NoPatch(f"{source.ref} has several requests or alternatives: change it by hand")
    place, request = wanted[0]
    path: Path = (*source.requests, place, "exactly")
    exactly = _exactly(replica, request["exactly"], choice)

    def edit(tree: Tree) -> Tree:
        result: Tree = tree_paths.with_value(tree, path, exactly)
        return result

    return edit


def _exactly(replica: Replica, before: Tree, choice: Choice) -> Tree:
    """The request with the new form of a GPU; what it says about the product stays."""
    kept = [
        selector
        for selector in before.get("selectors") or ()
        if not _FORM.search(str(tree_paths.at(selector, ("cel", "expression")) or ""))
    ]
    exactly = {name: value for name, value in before.items() if name != "selectors"}
    if choice.form is Form.MIG:
        sample = _published(replica, profile=choice.profile)
        if sample is None:
            raise _NoPatch(
                f"no node publishes {choice.profile} slices: an administrator turns MIG on first"
            )
        driver, device = sample
        exactly |= {"deviceClassName": _class_of(replica, driver, device)}
        exactly.pop("capacity", None)
        expression = f'device.attributes["{driver}"].profile == "{choice.profile}"'
        kept.append({"cel": {"expression": expression}})
    elif choice.form is Form.REPLICA:
        exactly["capacity"] = {"requests": {"memory": str(choice.memory_bytes)}}
    else:
        sample = _published(replica, profile="")
        if sample is None:
            raise _NoPatch("no node publishes whole GPUs")
        exactly |= {"deviceClassName": _class_of(replica, *sample)}
        exactly.pop("capacity", None)
    if kept:
        exactly["selectors"] = kept
    return exactly


def _published(replica: Replica, *, profile: str) -> tuple[str, slices.Device] | None:
    """A published GPU of this MIG profile, or a whole one, with its driver."""
    for driver, device in _devices(replica):
        own = device.attributes.get("profile")
        kind = device.attributes.get("type")
        is_whole = not profile and own is None and (kind is None or kind.string_value == "gpu")
        if is_whole or (profile and own is not None and own.string_value == profile):
            return driver, device
    return None


def _devices(replica: Replica) -> Iterable[tuple[str, slices.Device]]:
    for stored in replica.listed(registry.SLICE.unique_name):
        struct: Any = stored.struct
        if isinstance(struct, slices.ResourceSlice) and struct.spec.driver == node_pools.GPU_DRIVER:
            for device in struct.spec.devices:
                yield struct.spec.driver, device


def _class_of(replica: Replica, driver: str, device: slices.Device) -> str:
    """The class that accepts the device: the first by name that has selectors."""
    view = device_views.view(driver, device)
    for name, device_class in sorted(replica.world.classes.items()):
        expressions = [each.cel.expression for each in device_class.spec.selectors if each.cel]
        if not expressions or any(selectors.problem(each, is_stored=True) for each in expressions):
            continue
        if all(selectors.selector(each).match(view) is Outcome.MATCH for each in expressions):
            return name
    raise _NoPatch(f"no DeviceClass accepts such devices of {driver}: an administrator makes one")


# Counted resources


def _resource_edit(pod: pods.Pod, choice: Choice) -> Edit | None:
    """An edit of the containers that request a GPU of a device plugin."""
    counted = {
        name
        for container in pod.spec.containers
        for name in (*container.resources.limits, *container.resources.requests)
        if name in (node_pools.GPU_RESOURCE, SHARED) or name.startswith(MIG_PREFIX)
    }
    if not counted:
        return None
    new_name = {
        Form.MIG: f"{MIG_PREFIX}{choice.profile}",
        Form.REPLICA: SHARED,
    }.get(choice.form, node_pools.GPU_RESOURCE)

    def edit(tree: Tree) -> Tree:
        for place, container in tree_paths.objects(tree, ("spec", "containers")):
            for part in ("limits", "requests"):
                amounts = tree_paths.at(container, ("resources", part))
                if not isinstance(amounts, dict) or not counted & amounts.keys():
                    continue
                renamed = {
                    new_name if name in counted else name: amount
                    for name, amount in amounts.items()
                }
                path: Path = ("spec", "containers", place, "resources", part)
                tree = tree_paths.with_value(tree, path, renamed)
        return tree

    return edit


def _offers_shares(replica: Replica, pod: pods.Pod) -> bool:
    if pod.spec.resource_claims:
        return any(device.allow_multiple_allocations for _, device in _devices(replica))
    return any(SHARED in node.status.allocatable for node in replica.world.nodes.values())
