"""The scheduler's HTTP server: health, readiness, metrics, configuration, and a few debug endpoints.

Given functions that produce the responses; holds no state. On a loopback address every path is open. On any other
address all but /healthz and /readyz need a bearer token that `authorise` accepts; without that function they are
refused. Never serves files, never returns a secret of the configuration.
"""

from __future__ import annotations

import errno
import ipaddress
import logging
import os
import ssl
import types
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final, Self

import msgspec
from aiohttp import web

from dovetail import errors
from dovetail.boot import port_holder
from dovetail.ports import failures

MAX_BODY_BYTES: Final = 4096  # no request here needs a body
MAX_LINE_BYTES: Final = 4096
MAX_HEADER_BYTES: Final = 8190  # room for the token of a service account
IDLE_SECONDS: Final = 75.0  # a little longer than Prometheus' default interval
LINGER_SECONDS: Final = 1.0  # for a request body that is not read
SHUTDOWN_SECONDS: Final = 2.0
METRICS_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"  # Prometheus' text format
OPEN_PATHS: Final = ("/healthz", "/readyz")
SECRET_WORDS: Final = ("token", "password", "secret", "keydata", "privatekey")

Authorise = Callable[[str, str, str], Awaitable[bool]]
Answer = Callable[[], Awaitable[Any]]

LOG = logging.getLogger("dovetail.serving")


class Server:
    """An asynchronous context: serves while it is open."""

    def __init__(
        self,
        *,
        metrics: Callable[[], bytes | Awaitable[bytes]],
        ready: Callable[[], Mapping[str, bool]],
        alive: Callable[[], bool],
        configuration: object,
        role: Callable[[], str] = lambda: "",
        answers: Mapping[str, Answer] | None = None,
        snapshot: Callable[[], Awaitable[str]] | None = None,
        authorise: Authorise | None = None,
        address: str = "127.0.0.1",
        port: int = 0,
        tls: ssl.SSLContext | None = None,
        option: str = "",
    ) -> None:
        self._metrics = metrics
        self._ready = ready
        self._alive = alive
        self._configuration = msgspec.json.encode(
            without_secrets(msgspec.to_builtins(configuration))
        )
        self._role = role
        self._answers = dict(answers or {})
        self._snapshot = snapshot
        self._authorise = authorise
        self._address = address
        self._port = port
        self._tls = tls
        self._option = option  # of the command line, where the address is set by one
        self._is_local = is_loopback(address)
        self._is_taking = False
        self._runner: web.AppRunner | None = None

    @property
    def port(self) -> int:
        """The listening port; the system chooses one where 0 is configured."""
        if self._runner is None or not self._runner.addresses:
            return self._port
        return int(self._runner.addresses[0][1])

    async def __aenter__(self) -> Self:
        application = web.Application(client_max_size=MAX_BODY_BYTES, middlewares=[self._guarded])
        application.router.add_get("/healthz", self._show_alive)
        application.router.add_get("/readyz", self._show_ready)
        application.router.add_get("/metrics", self._show_metrics)
        application.router.add_get("/configz", self._show_configuration)
        application.router.add_post("/debug/snapshot", self._take_snapshot)
        for path, answer in self._answers.items():
            application.router.add_get(path, _json_handler(answer))
        self._runner = web.AppRunner(
            application,
            access_log=None,
            max_line_size=MAX_LINE_BYTES,
            max_field_size=MAX_HEADER_BYTES,
            keepalive_timeout=IDLE_SECONDS,
            lingering_time=LINGER_SECONDS,
            shutdown_timeout=SHUTDOWN_SECONDS,
        )
        await self._runner.setup()
        site = web.TCPSite(self._runner, self._address, self._port, ssl_context=self._tls)
        try:
            await site.start()
        except OSError as error:
            await self._runner.cleanup()
            raise self._not_served(error) from error
        except BaseException:
            await self._runner.cleanup()
            raise

        if not self._is_local and self._authorise is not None and self._tls is None:
            LOG.warning(
                "http.insecure: bearer tokens are sent without TLS beyond this machine",
                extra={"address": self._address},
            )
        LOG.info("http.serving", extra={"address": self._address, "port": self.port})
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: types.TracebackType | None,
    ) -> None:
        if self._runner is not None:
            await self._runner.cleanup()

    def _not_served(self, error: OSError) -> errors.InputError:
        """What to change where the server cannot listen."""
        place = f"{self._address} port {self._port}"
        if self._option:
            port_change = address_change = f"choose another address with {self._option}"
        else:
            file = "in the scheduler's configuration (--config FILE)"
            port_change = f"set serving.port to another port or 0 (any free one) {file}"
            address_change = f"set serving.address and serving.port {file}"

        if error.errno == errno.EADDRINUSE:
            holder = port_holder.holder_of(self._port)
            return errors.InputError(
                f"health and metrics cannot be served on {place}: {holder} has it; "
                f"end that process, or {port_change}"
            )
        reason = os.strerror(error.errno) if error.errno else str(error)
        return errors.InputError(
            f"health and metrics cannot be served on {place}: {reason}; {address_change}"
        )

    # Authorisation

    @web.middleware
    async def _guarded(
        self, request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
    ) -> web.StreamResponse:
        if not self._is_local and request.path not in OPEN_PATHS:
            await self._check(request)
        try:
            response = await handler(request)
        except web.HTTPException:
            raise
        except Exception:
            LOG.exception("http.request.failed", extra={"path": request.path})
            raise web.HTTPInternalServerError(text="failed; the log says why\n") from None
        response.headers["X-Content-Type-Options"] = "nosniff"
        response.headers["Cache-Control"] = "no-store"
        return response

    async def _check(self, request: web.Request) -> None:
        """Raises an HTTP error unless the request is authorised."""
        if self._authorise is None:
            raise web.HTTPForbidden(
                text="not served on this address: no token review is configured\n"
            )

        scheme, _, token = request.headers.get("Authorization", "").partition(" ")
        if scheme.lower() != "bearer" or not token.strip():
            raise web.HTTPUnauthorized(
                text="needs a bearer token\n", headers={"WWW-Authenticate": "Bearer"}
            )

        verb = "get" if request.method == "HEAD" else request.method.lower()
        try:
            is_allowed = await self._authorise(token.strip(), request.path, verb)
        except failures.ApiFailure as failure:
            LOG.warning("http.token_review.failed", extra={"why": str(failure)})
            raise web.HTTPServiceUnavailable(text="tokens cannot be checked now\n") from None
        if not is_allowed:
            raise web.HTTPForbidden(text=f"may not {verb} {request.path}\n")

    # Endpoints

    async def _show_alive(self, request: web.Request) -> web.Response:
        return _checks_response("healthz", {"loop": self._alive()}, request)

    async def _show_ready(self, request: web.Request) -> web.Response:
        return _checks_response("readyz", self._ready(), request, role=self._role())

    async def _show_metrics(self, request: web.Request) -> web.Response:
        rendered = self._metrics()
        body = rendered if isinstance(rendered, bytes) else await rendered
        return web.Response(body=body, headers={"Content-Type": METRICS_TYPE})

    async def _show_configuration(self, request: web.Request) -> web.Response:
        return web.Response(body=self._configuration, content_type="application/json")

    async def _take_snapshot(self, request: web.Request) -> web.Response:
        if self._snapshot is None:
            raise web.HTTPNotFound(text="snapshots are not configured\n")
        if not is_loopback(request.remote or ""):
            raise web.HTTPForbidden(text="only from this machine\n")
        if "Origin" in request.headers:  # a web page in a local browser could send it, too
            raise web.HTTPForbidden(text="not from a web page\n")
        if self._is_taking:
            raise web.HTTPConflict(text="a snapshot is being written\n")

        self._is_taking = True
        try:
            return web.json_response({"path": await self._snapshot()})
        finally:
            self._is_taking = False


def is_loopback(address: str) -> bool:
    """Whether an address is reachable from this machine only."""
    try:
        parsed = ipaddress.ip_address(address)
    except ValueError:
        return address == "localhost"
    mapped = getattr(parsed, "ipv4_mapped", None)  # how a dual-stack socket shows 127.0.0.1
    return (mapped or parsed).is_loopback


def without_secrets(tree: Any) -> Any:
    """The tree without fields whose names mark a secret."""
    if isinstance(tree, dict):
        public = {key: value for key, value in tree.items() if not _is_secret(str(key))}
        return {key: without_secrets(value) for key, value in public.items()}
    if isinstance(tree, list | tuple):
        return [without_secrets(item) for item in tree]
    return tree


def _is_secret(name: str) -> bool:
    bare = name.lower().replace("-", "").replace("_", "")
    return any(bare.endswith(word) for word in SECRET_WORDS)


def _checks_response(
    name: str, checks: Mapping[str, bool], request: web.Request, *, role: str = ""
) -> web.Response:
    """`ok`, or one line per check if one failed or with `?verbose`, as kube-apiserver does it."""
    is_ok = all(checks.values())
    if is_ok and "verbose" not in request.query:
        return web.Response(text=f"ok {role}\n" if role else "ok\n")

    lines: list[str] = []
    for check, has_passed in checks.items():
        lines.append(f"[+]{check} ok" if has_passed else f"[-]{check} failed")
    if role:
        lines.append(f"role: {role}")
    lines.append(f"{name} check {'passed' if is_ok else 'failed'}")
    return web.Response(text="\n".join(lines) + "\n", status=200 if is_ok else 503)


def _json_handler(answer: Answer) -> Callable[[web.Request], Awaitable[web.Response]]:
    async def show(request: web.Request) -> web.Response:
        body = msgspec.json.encode(await answer())
        return web.Response(body=body, content_type="application/json")

    return show
