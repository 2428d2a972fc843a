"""Finds the work that a user names, its pods, and what would create them again: `train`, `pod/x`, `job/y`, `gang/z`.

Given a transport and words. Follows owner references upwards, from a pod to the object that a user created. Raises
InputError for a name that means nothing, or several things. Never writes, never prints.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from dovetail import errors
from dovetail.cli.cluster import named_objects, resource_arguments
from dovetail.kube import object_requests, resource_names
from dovetail.kube.http import transport
from dovetail.kubetypes import codec, registry
from dovetail.model import gangs
from dovetail.ports import api
from dovetail.tables import missing_names

GANG: Final = "gang"
JOB: Final = registry.Kind("batch/v1", "Job", "jobs", True, codec.Generic)
MOST_OWNERS: Final = 8  # of one pod, one above the other; longer chains are loops
ENDED: Final = ("Succeeded", "Failed")

Tree = dict[str, Any]


class NotFoundError(errors.InputError):
    """A name that means nothing in the cluster now."""


class Work(NamedTuple):
    """One piece of work: the object, unless it is a gang by label, and its pods."""

    label: str  # job.batch/train
    target: api.Target | None
    tree: Tree | None
    pods: tuple[Tree, ...]

    @property
    def is_pod(self) -> bool:
        """Whether it is a pod alone."""
        return self.target is not None and self.target.kind.name == registry.POD.name


class Owner(NamedTuple):
    """An object above a pod."""

    label: str
    target: api.Target
    tree: Tree


class Lookup:
    """The work of one namespace. Lists are read once."""

    def __init__(
        self, over: transport.Transport, served: resource_names.Resources, namespace: str
    ) -> None:
        self._over = over
        self._served = served
        self._namespace = namespace
        self._pods: list[Tree] | None = None
        self._owners_by_kind: dict[str, dict[str, Owner]] = {}  # by label, then by uid

    async def of_word(self, word: str) -> Work:
        """What `KIND/NAME` or a bare name means."""
        kind, slash, name = word.partition("/")
        if not slash:
            return await self._of_name(word)
        if not (kind and name):
            raise errors.InputError(f'"{word}": expected NAME or KIND/NAME')
        return await self.of_kind(kind, name)

    async def of_kind(self, kind: str, name: str) -> Work:
        """An object of a kind by name, or a gang by its label."""
        if kind == GANG:
            work = await self._of_gang(name)
            if work is None:
                raise NotFoundError(f'no pod of gang "{name}" in namespace {self._namespace}')
            return work
        resource = resource_arguments.resource_of(kind, self._served)
        work = await self._of_object(resource, name)
        if work is None:
            place = self._namespace if resource.kind.is_namespaced else ""
            raise NotFoundError(
                await named_objects.not_found(self._over, resource.kind, place, name)
            )
        return work

    async def selected(self, kind: str, selector: str) -> list[Work]:
        """All objects of a kind that labels select."""
        resource = resource_arguments.resource_of(kind, self._served)
        namespace = self._namespace if resource.kind.is_namespaced else ""
        params = {"labelSelector": selector} if selector else {}
        trees = await object_requests.listed(
            self._over, resource.kind, namespace=namespace, params=params
        )
        return [await self._of_tree(resource, tree) for tree in trees]

    async def top_of(self, work: Work) -> list[Work]:
        """The objects that a user created and that would create the pods again: the work itself if nothing owns it."""
        trees = [work.tree] if work.tree is not None else list(work.pods)
        tops: dict[str, Work] = {}
        for tree in trees:
            owners = await self._owners(tree)
            if not owners:
                resource = self._served.of_type(tree["apiVersion"], tree["kind"])
                own = work if work.tree is not None else None
                if own is None and resource is not None:
                    own = await self._of_tree(resource, tree)
                if own is not None:
                    tops[own.label] = own
                continue
            top = owners[-1]
            if top.label not in tops:
                pods = await self._pods_below(str(top.tree["metadata"].get("uid") or ""))
                tops[top.label] = Work(top.label, top.target, top.tree, pods)
        return list(tops.values())

    # Names

    async def _of_name(self, name: str) -> Work:
        """What a bare name means: a job, a gang, a pod, or whatever owns pods and has that name."""
        meanings: dict[str, Work] = {}
        job = self._served.of_type(JOB.api_version, JOB.name)
        pod = self._served.of_type(registry.POD.api_version, registry.POD.name)
        for resource in (job, pod):
            work = await self._of_object(resource, name) if resource is not None else None
            if work is not None:
                meanings[work.label] = work
        gang = await self._of_gang(name)
        if gang is not None:
            meanings[gang.label] = gang
        for each in await self._all_pods():
            for owner in await self._owners(each):
                if owner.target.name == name and owner.label not in meanings:  # a Deployment
                    pods = await self._pods_below(str(owner.tree["metadata"].get("uid") or ""))
                    meanings[owner.label] = Work(owner.label, owner.target, owner.tree, pods)
        if not meanings:
            raise NotFoundError(await self._unknown(name))
        if len(meanings) > 1:
            choices = " or ".join(sorted(meanings))
            raise errors.InputError(f'"{name}" may mean {choices}; write which')
        return next(iter(meanings.values()))

    async def _unknown(self, name: str) -> str:
        """The message about a name that nothing has: what has a name like it, here or in another namespace."""
        kinds = (JOB, registry.POD)
        known = [await named_objects.names(self._over, kind) for kind in kinds]
        hint = missing_names.hint(name, self._namespace, itertools.chain(*known))
        otherwise = "; -n looks in another, KIND/NAME names an object of another kind"
        return f'no job, gang or pod "{name}" in namespace {self._namespace}{hint or otherwise}'

    async def _of_gang(self, name: str) -> Work | None:
        pods = [
            pod
            for pod in await self._all_pods()
            if (pod["metadata"].get("labels") or {}).get(gangs.GANG_LABEL) == name
        ]
        return Work(f"{GANG}/{name}", None, None, tuple(pods)) if pods else None

    async def _of_object(self, resource: resource_names.Resource, name: str) -> Work | None:
        namespace = self._namespace if resource.kind.is_namespaced else ""
        tree = await object_requests.read(self._over, api.Target(resource.kind, namespace, name))
        return await self._of_tree(resource, tree) if tree is not None else None

    async def _of_tree(self, resource: resource_names.Resource, tree: Tree) -> Work:
        metadata = tree["metadata"]
        namespace = str(metadata.get("namespace") or "")
        target = api.Target(resource.kind, namespace, str(metadata["name"]))
        label = f"{resource.label}/{target.name}"
        if resource.kind.name == registry.POD.name and not resource.group:
            return Work(label, target, tree, (tree,))
        pods = await self._pods_below(str(metadata.get("uid") or "")) if namespace else ()
        return Work(label, target, tree, pods)

    # Owners

    async def _all_pods(self) -> list[Tree]:
        if self._pods is None:
            self._pods = await object_requests.listed(
                self._over, registry.POD, namespace=self._namespace
            )
        return self._pods

    async def _pods_below(self, uid: str) -> tuple[Tree, ...]:
        """The pods that an object controls; where it controls none, those below what it controls."""
        pods = await self._all_pods()
        direct = [pod for pod in pods if _controller_uid(pod) == uid]
        if direct:
            return tuple(direct)
        below = []
        for pod in pods:
            owners = await self._owners(pod)
            if any(owner.tree["metadata"].get("uid") == uid for owner in owners):
                below.append(pod)
        return tuple(below)

    async def _owners(self, tree: Tree) -> list[Owner]:
        """The controllers above an object, nearest first."""
        owners: list[Owner] = []
        current = tree
        while len(owners) < MOST_OWNERS:
            owner = await self._controller(current)
            if owner is None:
                break
            owners.append(owner)
            current = owner.tree
        return owners

    async def _controller(self, tree: Tree) -> Owner | None:
        reference = _controller_reference(tree)
        if reference is None:
            return None
        resource = self._served.of_type(reference["apiVersion"], reference["kind"])
        if resource is None:
            return None
        if resource.label not in self._owners_by_kind:
            self._owners_by_kind[resource.label] = await self._read_owners(resource)
        return self._owners_by_kind[resource.label].get(str(reference.get("uid") or ""))

    async def _read_owners(self, resource: resource_names.Resource) -> dict[str, Owner]:
        """All objects of a kind by uid: one list is less than a request per pod."""
        namespace = self._namespace if resource.kind.is_namespaced else ""
        trees = await object_requests.listed(self._over, resource.kind, namespace=namespace)
        owners = {}
        for tree in trees:
            name = name_of(tree)
            target = api.Target(resource.kind, namespace, name)
            owners[str(tree["metadata"].get("uid") or "")] = Owner(
                f"{resource.label}/{name}", target, tree
            )
        return owners


async def lookup(over: transport.Transport, namespace: str) -> Lookup:
    """A lookup in one namespace of a cluster."""
    return Lookup(over, await resource_names.discover(over), namespace)


def _controller_reference(tree: Tree) -> Tree | None:
    references = tree["metadata"].get("ownerReferences") or ()
    return next((each for each in references if each.get("controller")), None)


def _controller_uid(tree: Tree) -> str:
    reference = _controller_reference(tree)
    return "" if reference is None else str(reference.get("uid") or "")


def is_ended(pod: Tree) -> bool:
    """Whether a pod has succeeded or failed."""
    return (pod.get("status") or {}).get("phase") in ENDED


def name_of(tree: Tree) -> str:
    """The name of an object."""
    return str(tree["metadata"]["name"])


def sorted_by_index(pods: Sequence[Tree]) -> list[Tree]:
    """Pods in the order of a Job's indexes, else by name."""
    key = "batch.kubernetes.io/job-completion-index"

    def rank(pod: Tree) -> tuple[int, str]:
        index = str((pod["metadata"].get("annotations") or {}).get(key, ""))
        return (int(index) if index.isdecimal() else 0, name_of(pod))

    return sorted(pods, key=rank)
