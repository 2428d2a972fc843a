"""A story on a real kube-apiserver: its objects created there, the real controllers and our scheduler running.

Given a control plane and a story whose objects can be created through the API. Plays the kubelets as far as a scheduler
sees them: leases are renewed, evicted pods leave. The server gives new uids, so that references are rewritten. What was
created is removed again with the block. Never asks the scheduler's own client.
"""

from __future__ import annotations

import contextlib
import datetime
import http
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
        """Creates every object, then the statuses that kubelets, drivers and schedulers wrote."""
        known = [tree for tree in self._story.objects if tree["kind"] not in CREATED_BY_OTHERS]
        wanted = [tree for tree in known if not _is_of_template(tree)]
        for tree in sorted(wanted, key=_rank):
            if _is_waiting_pod(tree):
                self._let_it_be_younger(tree)
            self._create(tree)
            if tree["kind"] == "ResourceQuota":
                self._enforce(tree)
        for tree in wanted:
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
        namespaces = {tree["metadata"].get("namespace") for tree in self._story.objects} - {None}
        for path in reversed(self._created):
            if not path.startswith("/api/v1/namespaces/") or path.count("/") > 4:
                self._delete(path)
        for namespace in sorted(str(name) for name in namespaces):
            for plural in ("resourceclaims", "pods"):
                for tree in self._rest.list(plural, namespace):
                    name = tree["metadata"]["name"]
                    kind = "Pod" if plural == "pods" else "ResourceClaim"
                    version = "v1" if plural == "pods" else registry.RESOURCE_V1
                    self._delete(self._path(version, kind, namespace, name))

    def _let_it_be_younger(self, pod: Tree) -> None:
        """Waits for the next second if the pod is younger than the one before it: the server counts whole seconds."""
        created = pod["metadata"].get("creationTimestamp", "")
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
        """Only of objects that somebody else than the scheduler has written to: a waiting pod starts without one."""
        is_waiting_claim = tree["kind"] == "ResourceClaim" and "status" not in tree
        if tree["kind"] not in ("Node", "Pod", "ResourceClaim") or _is_waiting_pod(tree):
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

    def _delete(self, path: str) -> None:
        try:
            self._rest.ask("DELETE", path, {"gracePeriodSeconds": 0})
            if self._read(path) is not None:
                self._rest.ask("PATCH", path, {"metadata": {"finalizers": None}})
        except rest.RefusedError as refused:
            if refused.status != http.HTTPStatus.NOT_FOUND:
                raise
        self._wait_until_gone(path)

    def _wait_until_gone(self, path: str) -> None:
        def is_gone() -> bool:
            self._play_kubelets()
            return self._read(path) is None

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


def _rank(tree: Tree) -> tuple[int, str]:
    """Quotas right after namespaces: nothing is beyond them yet, and controllers must not be faster than they are.

    Pods that wait in the order in which they were created.
    """
    if tree["kind"] in ("ResourceQuota", "LimitRange"):
        return 0, ""
    if tree["kind"] == "Namespace":
        return -1, ""
    age = tree["metadata"].get("creationTimestamp", "") if _is_waiting_pod(tree) else ""
    return live_cluster.rank(tree), age


def _is_waiting_pod(tree: Tree) -> bool:
    return tree["kind"] == "Pod" and not tree["spec"].get("nodeName")


def _is_of_template(tree: Tree) -> bool:
    """Whether the claim controller creates this claim for a pod."""
    return POD_CLAIM in tree["metadata"].get("annotations", {})


def _is_ready(node: Tree) -> bool:
    conditions = node["status"]["conditions"]
    return all(item["status"] == "True" for item in conditions if item["type"] == "Ready")
