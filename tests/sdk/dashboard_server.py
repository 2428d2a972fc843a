"""A small server that speaks as a dashboard does, about a saved cluster: for tests of the client.

Answers come from the same structs; lists come in small pages, refusals as problems. It knows one token.
"""

from __future__ import annotations

import contextlib
import http.server
import threading
import urllib.parse
from collections.abc import Iterator
from typing import Any

import msgspec

from dovetail import errors
from dovetail.sdk import Cluster

TOKEN = "secret"
PAGE = 3  # items, so that lists have several pages


class DashboardServer(http.server.ThreadingHTTPServer):
    """The server. `requests` are the paths that were asked for, with their headers."""

    def __init__(self, cluster: Cluster) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.cluster = cluster
        self.requests: list[tuple[str, dict[str, str]]] = []
        self.bodies: list[dict[str, Any]] = []
        self.broken: bytes | None = None  # answered instead of everything
        self.redirect = ""

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


@contextlib.contextmanager
def serving(cluster: Cluster) -> Iterator[DashboardServer]:
    """Serves until the block ends."""
    server = DashboardServer(cluster)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


class _Problem(Exception):
    def __init__(self, status: int, detail: str) -> None:
        super().__init__(detail)
        self.status = status


class _Handler(http.server.BaseHTTPRequestHandler):
    server: DashboardServer

    def do_GET(self) -> None:
        self._answer({})

    def do_POST(self) -> None:
        length = int(self.headers["Content-Length"])
        self._answer(msgspec.json.decode(self.rfile.read(length)))

    def log_message(self, *_: Any) -> None:
        """Quiet."""

    def _answer(self, body: dict[str, Any]) -> None:
        self.server.requests.append((self.path, dict(self.headers)))
        if self.server.redirect:
            self.send_response(302)
            self.send_header("Location", self.server.redirect)
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        try:
            if self.server.broken is None:
                self._send(200, msgspec.json.encode(self._result(body)))
            else:
                self._send(200, self.server.broken)
        except _Problem as problem:
            self._refuse(problem.status, str(problem))
        except errors.NotFound as error:
            self._refuse(404, str(error))
        except errors.InputError as error:
            self._refuse(400, str(error))

    def _result(self, body: dict[str, Any]) -> Any:
        if self.headers["Authorization"] != f"Bearer {TOKEN}":
            raise _Problem(401, "the bearer token is not accepted")
        path, _, query = self.path.removeprefix("/api/v1").partition("?")
        params = dict(urllib.parse.parse_qsl(query))
        cluster = self.server.cluster
        source = cluster._source
        as_of = {"asOf": cluster.now, "version": 1}
        match path.strip("/").split("/"):
            case ["session"]:
                return {"user": "me", "cluster": "saved", "kind": "snapshot", **as_of}
            case ["fleet"]:
                nodes = [
                    {
                        "name": node.node,
                        "type": node.gpu,
                        "pool": node.pool,
                        "rack": node.rack,
                        "clique": node.clique,
                        "memoryBytes": node.memory_bytes,
                        "gpus": [{"index": 0, "state": state} for state in node.states],
                    }
                    for node in cluster.gpus()
                    if params.get("node", "") in node.node
                ]
                return {"nodes": nodes, "holders": [], **as_of}
            case ["why", *place]:
                namespace, kind, name = map(urllib.parse.unquote, place)
                return source.why(f"{kind}/{name}", namespace)
            case ["capacity"]:
                named = {"gpuMemory": "gpu_memory"}
                given: dict[str, Any] = {named.get(key, key): text for key, text in params.items()}
                for key in {"gpus", "priority", "gang"} & given.keys():
                    given[key] = int(given[key])
                return cluster.capacity(**given)
            case ["what-if"]:
                if self.headers["Dovetail-Request"] != "1":
                    raise _Problem(403, "this needs the header Dovetail-Request: 1")
                self.server.bodies.append(dict(body))
                work = body.pop("manifest") or None
                return cluster.what_if(**body, work=work and work + "\n")
            case [name]:
                return self._page(self._items(name, params), params, as_of)
        raise _Problem(404, "no such path")

    def _items(self, name: str, params: dict[str, str]) -> list[Any]:
        cluster, namespace = self.server.cluster, params.get("namespace")
        match name:
            case "pods":
                labels, node = params.get("labels", ""), params.get("node")
                return list(cluster.pods(namespace=namespace, node=node, labels=labels))
            case "claims":
                return list(cluster.claims(namespace=namespace))
            case "devices":
                return list(cluster.devices(node=params.get("node")))
            case "queues":
                return list(cluster.queues())
            case "workloads":
                labels = params.get("labels", "")
                return list(cluster.work(namespace=namespace, labels=labels))
            case "when":
                return list(cluster._source.when(params.get("name"), namespace))
        raise _Problem(404, "no such path")

    def _page(self, items: list[Any], params: dict[str, str], as_of: dict[str, Any]) -> Any:
        start = int(params.get("cursor", "0"))
        end = start + PAGE
        following = str(end) if end < len(items) else None
        return {"items": items[start:end], "total": len(items), "next": following, **as_of}

    def _refuse(self, status: int, detail: str) -> None:
        problem = {"type": "urn:x", "title": "no", "status": status, "detail": detail}
        self._send(status, msgspec.json.encode(problem | {"next": "try again"}))

    def _send(self, status: int, content: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)
