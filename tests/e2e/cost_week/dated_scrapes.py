"""Passes scrapes of a real Prometheus on to node agents, and dates what they answer by the clock of the week.

Prometheus accepts samples with a time of their own, and out of order if it is configured to. While a time is announced
each scrape gets what the agent says now, with that time: a repeated sample changes nothing. Otherwise the answer is
empty. A target that does not answer fails. Passes on what the reader of use asks for; energy is left out, as the fake
GPUs' counters run in real time.
"""

from __future__ import annotations

import contextlib
import http.server
import threading
import urllib.request
from collections.abc import Mapping
from typing import Any, Final

from dovetail.model.dcgm_fields import Field

FIELDS: Final = (Field.GPU_UTIL, Field.GR_ENGINE_ACTIVE, Field.SM_ACTIVE, Field.FB_USED)
_SECONDS: Final = 30.0


class DatedScrapes:
    """A server with the path /NODE/metrics for each target."""

    def __init__(self, ports: Mapping[str, int]) -> None:
        self._ports = dict(ports)
        self._announced: int | None = None
        scrapes = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                scrapes._answer(self)

            def log_message(self, *_: Any) -> None:
                """Nothing: the log of Prometheus is enough."""

        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self._thread.start()

    @property
    def address(self) -> str:
        """HOST:PORT."""
        return f"127.0.0.1:{self._server.server_port}"

    def announce(self, moment: int | None) -> None:
        """Scrapes are of this time from now on, or of none."""
        self._announced = moment

    def close(self) -> None:
        """Ends the server."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def text_of(self, node: str) -> str:
        """What the agent of a node says now."""
        url = f"http://127.0.0.1:{self._ports[node]}/metrics"
        with urllib.request.urlopen(url, timeout=_SECONDS) as answer:
            text: str = answer.read().decode()
        return text

    def _answer(self, request: http.server.BaseHTTPRequestHandler) -> None:
        node = request.path.split("/")[1]
        moment = self._announced
        status, body = 200, ""
        if moment is not None:
            try:
                body = dated(self.text_of(node), moment)
            except OSError as error:
                status, body = 503, str(error)
        if self._announced != moment:
            status, body = 503, "time went on meanwhile"  # what was read may be of another time
        request.send_response(status)
        request.send_header("Content-Type", "text/plain; version=0.0.4")
        request.send_header("Content-Length", str(len(body.encode())))
        request.end_headers()
        with contextlib.suppress(
            BrokenPipeError
        ):  # the scrape took too long; the next one repeats it
            request.wfile.write(body.encode())


def dated(text: str, moment: int) -> str:
    """The series of use, each with this time in milliseconds."""
    prefixes = tuple(f"{field.value}{{" for field in FIELDS)
    lines = [f"{line} {moment}" for line in text.splitlines() if line.startswith(prefixes)]
    return "".join(f"{line}\n" for line in lines)
