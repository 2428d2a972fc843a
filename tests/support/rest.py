"""The Kubernetes API over plain HTTP, for tests: trees in, trees out, as the admin; and a recorder of what happens.

Given a control plane. One connection per thread, kept open. Shares nothing with the scheduler's own client, so that a
mistake there cannot hide itself here.
"""

from __future__ import annotations

import http.client
import json
import socket
import ssl
import threading
import time
import urllib.parse
from typing import Any, NamedTuple

from dovetail.devcluster import control_plane

RESOURCE = "apis/resource.k8s.io/v1"
PREFIXES = {
    "deviceclasses": RESOURCE,
    "resourceclaims": RESOURCE,
    "resourceclaimtemplates": RESOURCE,
    "resourceslices": RESOURCE,
    "events": "apis/events.k8s.io/v1",
    "leases": "apis/coordination.k8s.io/v1",
    "clusterroles": "apis/rbac.authorization.k8s.io/v1",
    "roles": "apis/rbac.authorization.k8s.io/v1",
    "jobs": "apis/batch/v1",
    "daemonsets": "apis/apps/v1",
    "customresourcedefinitions": "apis/apiextensions.k8s.io/v1",
    "clusterpolicies": "apis/nvidia.com/v1",
    "nvidiadrivers": "apis/nvidia.com/v1alpha1",
    "poddisruptionbudgets": "apis/policy/v1",
    "rolebindings": "apis/rbac.authorization.k8s.io/v1",
    "storageclasses": "apis/storage.k8s.io/v1",
    "csidrivers": "apis/storage.k8s.io/v1",
    "csinodes": "apis/storage.k8s.io/v1",
    "queues": "apis/dovetail.dev/v1alpha1",
    "topologies": "apis/dovetail.dev/v1alpha1",
    "intents": "apis/dovetail.dev/v1alpha1",
    "stackupgrades": "apis/dovetail.dev/v1alpha1",
    "priorityclasses": "apis/scheduling.k8s.io/v1",
    "jobsets": "apis/jobset.x-k8s.io/v1alpha2",
    "pytorchjobs": "apis/kubeflow.org/v1",
}
SECONDS = 60.0
Tree = dict[str, Any]


class RefusedError(Exception):
    """The server said no."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(f"{status}: {message}")
        self.status = status


class Seen(NamedTuple):
    """One version of an object, and when it was seen."""

    type: str  # ADDED | MODIFIED | DELETED
    object: Tree
    at: float  # of the steady clock

    @property
    def version(self) -> int:
        """Versions of all kinds grow together: they are revisions of one store."""
        return int(self.object["metadata"]["resourceVersion"])


class Rest:
    """Asks one control plane."""

    def __init__(self, plane: control_plane.ControlPlane, *, token: str = "") -> None:
        """As the admin, or as the user whose token is given."""
        self._port = plane.port
        self._headers = {"Authorization": f"Bearer {token or plane.token}"}
        self._trust = ssl.create_default_context(cafile=str(plane.ca))
        self._own = threading.local()
        self._open: list[http.client.HTTPSConnection] = []

    def close(self) -> None:
        """Closes every connection."""
        for connection in self._open:
            connection.close()

    def list(self, plural: str, namespace: str = "", **params: str) -> list[Tree]:
        """All objects, of a namespace or of all."""
        query = f"?{urllib.parse.urlencode(params)}" if params else ""
        items: list[Tree] = self.ask("GET", _path(plural, namespace) + query)["items"] or []
        return items

    def read(self, plural: str, name: str, namespace: str = "") -> Tree:
        """One object. Raises RefusedError with status 404 where there is none."""
        tree: Tree = self.ask("GET", _path(plural, namespace, name))
        return tree

    def create(self, plural: str, tree: Tree, namespace: str = "") -> Tree:
        """The object as the server keeps it."""
        body: Tree = self.ask("POST", _path(plural, namespace), tree)
        return body

    def patch(
        self, plural: str, name: str, patch: Tree, namespace: str = "", subresource: str = ""
    ) -> Tree:
        """A JSON merge patch."""
        changed: Tree = self.ask("PATCH", _path(plural, namespace, name, subresource), patch)
        return changed

    def delete(self, plural: str, name: str, namespace: str = "", **options: Any) -> None:
        """Deletes, whether it is there or not."""
        body = {"apiVersion": "v1", "kind": "DeleteOptions"} | options
        try:
            self.ask("DELETE", _path(plural, namespace, name), body)
        except RefusedError as refused:
            if refused.status != http.HTTPStatus.NOT_FOUND:
                raise

    def ask(self, method: str, path: str, body: Tree | None = None) -> Any:
        """The answer, decoded. A connection that broke while idle is opened again."""
        kind = "application/merge-patch+json" if method == "PATCH" else "application/json"
        sent = None if body is None else json.dumps(body).encode()
        for is_last in (False, True):
            connection = self._connection()
            try:
                connection.request(
                    method, path, body=sent, headers=self._headers | {"Content-Type": kind}
                )
                answer = connection.getresponse()
                messages = answer.read()
                break
            except (OSError, http.client.HTTPException):
                connection.close()
                if is_last:
                    raise
        tree = json.loads(messages) if messages else {}
        if answer.status >= http.HTTPStatus.BAD_REQUEST:
            raise RefusedError(answer.status, str(tree.get("message", messages[:200])))
        return tree

    def record(self, plural: str, namespace: str = "") -> Recording:
        """Notes every version of every object from now on."""
        listed = self.ask("GET", _path(plural, namespace))
        return Recording(self, _path(plural, namespace), listed)

    def stream(self, path: str) -> http.client.HTTPSConnection:
        """A connection of its own with a request under way."""
        connection = http.client.HTTPSConnection(
            "127.0.0.1", self._port, timeout=SECONDS * 60, context=self._trust
        )
        connection.request("GET", path, headers=self._headers)
        return connection

    def _connection(self) -> http.client.HTTPSConnection:
        if not hasattr(self._own, "connection"):
            made = http.client.HTTPSConnection(
                "127.0.0.1", self._port, timeout=SECONDS, context=self._trust
            )
            self._own.connection = made
            self._open.append(made)
        connection: http.client.HTTPSConnection = self._own.connection
        return connection


class Recording:
    """The events of a watch, in order. A context manager: it ends with the block."""

    def __init__(self, rest: Rest, path: str, listed: Tree) -> None:
        now = time.monotonic()
        self.seen: list[Seen] = [Seen("ADDED", item, now) for item in listed["items"] or ()]
        version = listed["metadata"]["resourceVersion"]
        self._connection = rest.stream(
            f"{path}?watch=true&resourceVersion={version}&timeoutSeconds=3600"
        )
        assert self._connection.sock is not None
        self._socket = self._connection.sock
        self._answer = self._connection.getresponse()
        self._is_over = False
        self._thread = threading.Thread(target=self._listen, daemon=True)
        self._thread.start()

    def __enter__(self) -> Recording:
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over = True
        self._socket.shutdown(
            socket.SHUT_RDWR
        )  # ends the thread's read; closing alone would wait for it
        self._thread.join()
        self._answer.close()
        self._connection.close()

    def of(self, name: str) -> list[Seen]:
        """The versions of the objects of this name."""
        return [item for item in list(self.seen) if item.object["metadata"]["name"] == name]

    def _listen(self) -> None:
        try:
            for line in self._answer:
                tree = json.loads(line)
                self.seen.append(Seen(tree["type"], tree["object"], time.monotonic()))
        except (OSError, ValueError, AttributeError, http.client.HTTPException):
            if not self._is_over:
                raise


def _path(plural: str, namespace: str = "", name: str = "", subresource: str = "") -> str:
    parts = [PREFIXES.get(plural, "api/v1")]
    parts += ["namespaces", namespace] if namespace else []
    parts += [item for item in (plural, name, subresource) if item]
    return "/" + "/".join(parts)
