"""A story on a real kube-apiserver: its objects created there, the real controllers and our scheduler running.

Given a control plane and a story whose objects can be created through the API. Plays the kubelets as far as a scheduler
sees them: leases are renewed, evicted pods leave. The server gives new uids, so that references are rewritten. What was
created is removed again with the block. Never asks the scheduler's own client.
"""

from __future__ import annotations

import contextlib
import datetime
import functools
import http
import itertools
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

from dovetail.kubetypes import registry
from dovetail.kubetypes.resource import claims
from dovetail.sim.server import served_kinds
from tests.answers import answer_form, live_cluster, story_file
from tests.support import live, rest, waiting

SCHEDULERS: Final = ("dovetail", "default-scheduler", "kai-scheduler", "hami-scheduler")
LEASE_SECONDS: Final = 5.0  # between two renewals; the node controller waits for 40
LEASES: Final = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"
POD_CLAIM: Final = "resource.kubernetes.io/pod-claim-name"
CREATED_BY_OTHERS: Final = ("Event", "PersistentVolumeClaim", "PersistentVolume")
# Claims of templates, and pods of owners: kind and plural, removed in this order.
MADE_BY_CONTROLLERS: Final = (
    (registry.RESOURCE_V1, "ResourceClaim", "resourceclaims"),
    ("v1", "Pod", "pods"),
)
PLACED: Final = "placed"
REFUSED: Final = "refused"
Tree = dict[str, Any]


def can_hold(story: story_file.Story) -> bool:
    """Whether the server would have the story's objects: no controller creates them, or would remove them at once."""
    kinds = served_kinds.ServedKinds()
    for tree in story.objects:
        owners = [item["kind"] for item in tree["metadata"].get("ownerReferences", [])]
        if tree["kind"] in CREATED_BY_OTHERS[1:] or set(owners) - {"Pod"}:
            return False
        if kinds.named(tree["apiVersion"], tree["kind"]) is None:
            return False
        if tree["metadata"].get("deletionTimestamp"):
            return False
    return story.header.live and story.question.kind == "pod"


class RealStory:
    """A story that is on the server. Use `on`."""

    def __init__(self, cluster: live.Live, story: story_file.Story) -> None:
        self._rest = cluster.rest
        self._story = story
        self._kinds = served_kinds.ServedKinds()
        self._uids: dict[str, str] = {}  # of the story, to those that the server gave
        self._created: list[str] = []  # paths
        self._youngest = ""  # when the last waiting pod was created, in the story
        self._renewed = 0.0
        self._has_kubelets = True  # that renew the leases of nodes

    def create(self) -> None:
        """Creates what is there, with the statuses that kubelets and drivers wrote, then the pods that wait.

        In that order: a pod that was refused while its node had no capacity yet would wait out its backoff, and a
        younger one would be first.
        """
        known = [tree for tree in self._story.objects if tree["kind"] not in CREATED_BY_OTHERS]
        wanted = [tree for tree in known if not _is_of_template(tree)]
        waiting_pods = [tree for tree in wanted if _is_waiting_pod(tree)]
        present = [tree for tree in wanted if not _is_waiting_pod(tree)]

        for tree in sorted(present, key=_rank):
            self._create(tree)
            if tree["kind"] == "ResourceQuota":
                self._enforce(tree)
        names_waiting_pod = functools.partial(_is_reserved_for, waiting_pods)
        for tree in itertools.filterfalse(names_waiting_pod, present):
            self._write_status(tree)

        for pod in sorted(waiting_pods, key=_created_at):
            self._let_it_be_younger(pod)
            self._create(pod)
        for tree in filter(names_waiting_pod, present):
            self._write_status(tree)

    def wait_for_refusal(self) -> bool:
        """Waits until the scheduler has reported why the pod does not start; False if it starts."""
        question = self._story.question
        path = self._path("v1", "Pod", question.namespace, question.name)

        def outcome() -> str | None:
            self._play_kubelets()
            pod = self._read(path)
            if pod is None:
                return None
            if pod["spec"].get("nodeName"):
                return PLACED
            conditions = pod["status"].get("conditions", [])
            return REFUSED if any(item["type"] == "PodScheduled" for item in conditions) else None

        return bool(self._awaited(outcome, f"an outcome of {question.name}") == REFUSED)

    def carry_out(self, patches: Sequence[answer_form.Patch]) -> None:
        """Makes a suggested change. Raises RefusedError."""
        for patch in patches:
            reference = patch.object
            path = self._path(
                reference.api_version, reference.kind, reference.namespace, reference.name
            )
            if patch.merge is not None:
                self._rest.ask("PATCH", path, patch.merge)
            elif patch.create is not None:
                self._rest.ask("POST", path.rpartition("/")[0], patch.create)
                self._created.append(path)
            else:
                self._rest.ask("DELETE", path, {"gracePeriodSeconds": 0})
                self._wait_until_gone(path)

    def wait_for_node(self) -> None:
        """Waits until the pod has a node."""
        question = self._story.question
        path = self._path("v1", "Pod", question.namespace, question.name)

        def is_placed() -> bool:
            self._play_kubelets()
            pod = self._read(path)
            return pod is not None and bool(pod["spec"].get("nodeName"))

        self._awaited(is_placed, f"a node for {question.name}")

    def remove(self) -> None:
        """Removes what was created, namespaces excepted: emptying one takes the server seconds."""
        self._has_kubelets = False  # they would create the leases of their nodes again
        paths = [path for path in reversed(self._created) if not _is_namespace(path)]
        self._delete_all(paths)

        namespaces = {tree["metadata"].get("namespace") for tree in self._story.objects} - {None}
        for namespace in sorted(str(name) for name in namespaces):
            for version, kind, plural in MADE_BY_CONTROLLERS:
                names = [tree["metadata"]["name"] for tree in self._rest.list(plural, namespace)]
                self._delete_all([self._path(version, kind, namespace, name) for name in names])

    def _let_it_be_younger(self, pod: Tree) -> None:
        """Waits for the next second if the pod is younger than the one before it: the server counts whole seconds."""
        created = _created_at(pod)
        if self._youngest and created > self._youngest:
            second = int(time.time())
            self._awaited(lambda: int(time.time()) > second, "the next second")
        self._youngest = max(created, self._youngest)

    def _create(self, tree: Tree) -> None:
        metadata = tree["metadata"]
        path = self._path(
            tree["apiVersion"], tree["kind"], metadata.get("namespace", ""), metadata["name"]
        )
        if tree["kind"] == "Namespace" and self._read(path) is not None:
            self._rest.ask("PATCH", path, {"metadata": {"labels": metadata.get("labels", {})}})
            return
        body = {key: value for key, value in live_cluster.as_sent(tree).items() if key != "status"}
        # The claim controller frees devices of claims with this finalizer only; others would keep objects for good.
        finalizers = tree["metadata"].get("finalizers") or []
        kept = [name for name in finalizers if name == claims.DELETE_PROTECTION_FINALIZER]
        body = body | {"metadata": body["metadata"] | {"finalizers": kept}}
        try:
            answer = self._rest.ask("POST", path.rpartition("/")[0], body)
        except rest.RefusedError as refused:
            raise AssertionError(f"{self._story.name}: {path}: {refused}") from None
        self._uids[metadata["uid"]] = answer["metadata"]["uid"]
        self._created.append(path)

    def _enforce(self, quota: Tree) -> None:
        """Fills in the status that a controller would: without it the server enforces nothing yet."""
        metadata = quota["metadata"]
        path = self._path("v1", "ResourceQuota", metadata["namespace"], metadata["name"])
        hard = quota["spec"]["hard"]
        status = {"hard": hard, "used": dict.fromkeys(hard, "0")}
        self._rest.ask("PATCH", f"{path}/status", {"status": status})

    def _write_status(self, tree: Tree) -> None:
        """Only of objects that another writer than the scheduler has written to."""
        is_waiting_claim = tree["kind"] == "ResourceClaim" and "status" not in tree
        if tree["kind"] not in ("Node", "Pod", "ResourceClaim"):
            return
        if is_waiting_claim:
            return
        metadata = tree["metadata"]
        path = self._path(
            tree["apiVersion"], tree["kind"], metadata.get("namespace", ""), metadata["name"]
        )
        status = dict(tree["status"])
        if "reservedFor" in status:
            status["reservedFor"] = [
                item | {"uid": self._uids.get(item["uid"], item["uid"])}
                for item in status["reservedFor"]
            ]
        self._rest.ask("PATCH", f"{path}/status", {"status": status})

    def _play_kubelets(self) -> None:
        for pod in self._rest.list("pods"):
            metadata = pod["metadata"]
            if metadata.get("deletionTimestamp") and pod["spec"].get("nodeName"):
                self._rest.delete(
                    "pods", metadata["name"], metadata["namespace"], gracePeriodSeconds=0
                )
        if self._has_kubelets and time.monotonic() > self._renewed + LEASE_SECONDS:
            self._renewed = time.monotonic()
            for tree in self._story.objects:
                if tree["kind"] == "Node" and _is_ready(tree):
                    self._renew(tree["metadata"]["name"])

    def _renew(self, node: str) -> None:
        now = datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        spec = {"holderIdentity": node, "leaseDurationSeconds": 40, "renewTime": now}
        lease = {
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": {"name": node, "namespace": "kube-node-lease"},
            "spec": spec,
        }
        if self._read(f"{LEASES}/{node}") is not None:
            self._rest.ask("PATCH", f"{LEASES}/{node}", {"spec": spec})
            return
        self._rest.ask("POST", LEASES, lease)
        self._created.append(f"{LEASES}/{node}")

    def _delete_all(self, paths: Sequence[str]) -> None:
        """Asks for every deletion before it waits for the first."""
        for path in paths:
            self._delete(path)
        for path in paths:
            self._wait_until_gone(path)

    def _delete(self, path: str) -> None:
        try:
            self._rest.ask("DELETE", path, {"gracePeriodSeconds": 0})
            if self._read(path) is not None:
                self._rest.ask("PATCH", path, {"metadata": {"finalizers": None}})
        except rest.RefusedError as refused:
            if refused.status != http.HTTPStatus.NOT_FOUND:
                raise

    def _wait_until_gone(self, path: str) -> None:
        def is_gone() -> bool:
            if self._read(path) is None:
                return True
            self._play_kubelets()
            return False

        self._awaited(is_gone, f"the end of {path}")

    def _read(self, path: str) -> Tree | None:
        try:
            tree: Tree = self._rest.ask("GET", path)
        except rest.RefusedError as refused:
            if refused.status == http.HTTPStatus.NOT_FOUND:
                return None
            raise
        return tree

    def _awaited(self, is_so: Callable[[], Any], what: str) -> Any:
        return waiting.wait_until(is_so, f"{self._story.name}: {what}")

    def _path(self, api_version: str, kind: str, namespace: str, name: str) -> str:
        served = self._kinds.named(api_version, kind)
        assert served is not None, f"{api_version} {kind}"
        prefix = "/api" if "/" not in api_version else "/apis"
        place = f"/namespaces/{namespace}" if served.kind.is_namespaced else ""
        return f"{prefix}/{api_version}{place}/{served.kind.plural}/{name}"


@contextlib.contextmanager
def on(cluster: live.Live, story: story_file.Story) -> Iterator[RealStory]:
    """The story on the server while the block lasts."""
    real_story = RealStory(cluster, story)
    try:
        real_story.create()
        yield real_story
    finally:
        real_story.remove()


def _is_namespace(path: str) -> bool:
    return path.startswith("/api/v1/namespaces/") and path.count("/") == 4


def _rank(tree: Tree) -> int:
    """Quotas right after namespaces: nothing is beyond them yet, and controllers must not be faster than they are."""
    if tree["kind"] in ("ResourceQuota", "LimitRange"):
        return 0
    return -1 if tree["kind"] == "Namespace" else live_cluster.rank(tree)


def _created_at(tree: Tree) -> str:
    return str(tree["metadata"].get("creationTimestamp", ""))


def _is_waiting_pod(tree: Tree) -> bool:
    return tree["kind"] == "Pod" and not tree["spec"].get("nodeName")


def _is_reserved_for(waiting_pods: Sequence[Tree], tree: Tree) -> bool:
    """Whether the object is a claim that names a waiting pod, whose uid the server gives only when it is created."""
    uids = {pod["metadata"]["uid"] for pod in waiting_pods}
    consumers = tree.get("status", {}).get("reservedFor", [])
    return any(consumer["uid"] in uids for consumer in consumers)


def _is_of_template(tree: Tree) -> bool:
    """Whether the claim controller creates this claim for a pod."""
    return POD_CLAIM in tree["metadata"].get("annotations", {})


def _is_ready(node: Tree) -> bool:
    conditions = node["status"]["conditions"]
    return all(item["status"] == "True" for item in conditions if item["type"] == "Ready")
