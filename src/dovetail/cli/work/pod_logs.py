"""The logs of pods, as the kubelet serves them through the API server: what is there, or every line as it comes.

Given a transport, a pod and options. Passes lines to a callback. Raises ApiFailure where there are none: a node without
a kubelet, a container that has not started. Never prints.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import msgspec

from dovetail.kube.http import paths, status_errors, transport
from dovetail.kubetypes import registry
from dovetail.ports import api

PLAIN: Final = "text/plain, */*"
SILENCE_SECONDS: Final = 7 * 24 * 3600.0  # a program may print nothing for days
WHOLE_SECONDS: Final = 120.0

Write = Callable[[str], None]


class LogOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Which lines."""

    container: str = ""
    tail: int | None = None
    since_seconds: int | None = None
    is_previous: bool = False
    has_timestamps: bool = False

    @property
    def params(self) -> dict[str, str]:
        """The options as query parameters."""
        values = {
            "container": self.container,
            "tailLines": "" if self.tail is None else str(self.tail),
            "sinceSeconds": "" if self.since_seconds is None else str(self.since_seconds),
            "previous": "true" if self.is_previous else "",
            "timestamps": "true" if self.has_timestamps else "",
        }
        return {name: value for name, value in values.items() if value}


async def printed(
    over: transport.Transport, namespace: str, pod: str, options: LogOptions, write: Write
) -> None:
    """Passes on the lines that are there now."""
    path = _path(namespace, pod)
    answer = await over.request(
        "GET", path, params=options.params, accept=PLAIN, timeout=WHOLE_SECONDS
    )
    if not answer.is_success:
        raise status_errors.failure_of(
            answer.status, answer.body, headers=answer.headers, doing=f"logs of pod {pod}"
        )
    for line in _decoded(answer.body).splitlines():
        write(line)


async def followed(
    over: transport.Transport, namespace: str, pod: str, options: LogOptions, write: Write
) -> None:
    """Passes on the lines that are there, then every one that comes, until the container ends."""
    params = options.params | {"follow": "true"}
    lines = over.lines(_path(namespace, pod), params, accept=PLAIN, idle_timeout=SILENCE_SECONDS)
    async for line in lines:
        write(_decoded(line))
    await _last_words(over, namespace, pod, options, write)


async def _last_words(
    over: transport.Transport, namespace: str, pod: str, options: LogOptions, write: Write
) -> None:
    """A stream is split into complete lines: what a program prints last may have no line end."""
    last = msgspec.structs.replace(options, tail=1)
    answer = await over.request("GET", _path(namespace, pod), params=last.params, accept=PLAIN)
    if answer.is_success and answer.body and not answer.body.endswith(b"\n"):
        write(_decoded(answer.body))


def _path(namespace: str, pod: str) -> str:
    return paths.of(api.Target(registry.POD, namespace, pod, "log"))


def _decoded(content: bytes) -> str:
    return content.decode("utf-8", "replace")
