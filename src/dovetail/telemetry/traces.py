"""One trace per pod, in OpenTelemetry's form: seen, queued, decided, written, bound, sent over OTLP/HTTP.

Implements `ports.tracing.Tracer`. A pod's trace id follows from its uid, so that every replica's spans meet in one
trace and agree on whether it is sampled. Spans are handed to a bounded queue that a thread of its own sends; what does
not fit is dropped, never waited for. OpenTelemetry is an extra: without it `connected` says what to install.
"""

from __future__ import annotations

import collections
import hashlib
import logging
import secrets
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any, Final, NamedTuple, Protocol

from dovetail import errors
from dovetail.ports import tracing
from dovetail.ports.tracing import Fact

LOG = logging.getLogger("dovetail.traces")
PATH: Final = "/v1/traces"  # OTLP over HTTP, where only a server is given
MOST_PODS: Final = 100_000  # whose way is remembered at once
MOST_REFUSALS: Final = 16  # spans of a pod that is refused again and again; the rest are only counted
MOST_TEXT: Final = 300  # characters of a summary
QUEUE_SPANS: Final = 8192
BATCH_SPANS: Final = 512
BATCH_SECONDS: Final = 1.0
SEND_SECONDS: Final = 5.0  # for a batch, repetitions included
CLOSE_SECONDS: Final = 2.0
MISSING: Final = (
    "tracing.endpoint is set, but OpenTelemetry is not installed: pip install 'dovetail[tracing]', or leave it empty"
)
ROOT: Final = "pod"


class Span(NamedTuple):
    """One finished step of one pod. Times are nanoseconds since 1970."""

    name: str
    trace: int
    id: int
    parent: int  # 0: none
    began: int
    ended: int
    facts: dict[str, Fact]
    failure: str = ""


class Sink(Protocol):
    """Where finished spans go. Never fails, never blocks."""

    def put(self, span: Span) -> None:
        """One more span to send."""
        ...

    def close(self) -> None:
        """Sends what is left, for a moment; then drops it. Blocks."""
        ...


class _Way:
    """How far a pod has come."""

    __slots__ = ("began", "decisions", "facts", "id", "is_placed", "last", "trace")

    def __init__(self, trace: int, now: int) -> None:
        self.trace = trace
        self.id = _span_id()
        self.began = self.last = now
        self.decisions = 0
        self.is_placed = False
        self.facts: dict[str, Fact] = {}


class Traces:
    """Makes spans of steps. Costs a dictionary look-up per step of a pod that is not sampled."""

    is_on = True

    def __init__(self, sink: Sink, *, sample_ratio: float = 1.0, now: Callable[[], int] = time.time_ns) -> None:
        self._sink = sink
        self._bound = round(sample_ratio * 2**64)  # as OpenTelemetry's sampler by ratio: of the id's low half
        self._now = now
        self._ways: dict[str, _Way] = {}

    def step(self, uid: str, step: str, **facts: Fact) -> None:
        """A pod came to the next step of its way, now."""
        way = self._ways.get(uid) or self._begun(uid)
        if way is None:
            return
        now = self._now()
        for span in _spans(way, step, facts, now):
            self._sink.put(span)
        if step == tracing.BOUND:
            del self._ways[uid]

    def gone(self, uid: str) -> None:
        """The pod needs no node any more; its trace ends, unless it was bound before."""
        way = self._ways.pop(uid, None)
        if way is not None and way.decisions:
            self._sink.put(_root(way, self._now(), failure="gone before it was bound"))

    def close(self) -> None:
        """Sends what is left, for a moment. Blocks: to be called in a thread."""
        self._sink.close()

    def _begun(self, uid: str) -> _Way | None:
        trace = trace_id(uid)
        if trace & (2**64 - 1) >= self._bound or len(self._ways) >= MOST_PODS:
            return None
        return self._ways.setdefault(uid, _Way(trace, self._now()))


def trace_id(uid: str) -> int:
    """The trace of the pod with this uid: 128 bits, never 0."""
    return int.from_bytes(hashlib.sha256(f"dovetail/{uid}".encode()).digest()[:16], "big") or 1


def _spans(way: _Way, step: str, facts: dict[str, Fact], now: int) -> Iterator[Span]:
    """What is finished by this step."""
    match step:
        case tracing.QUEUED:
            if way.is_placed:  # it was being written and comes back
                yield _child(way, tracing.BOUND, way.last, now, {}, failure="abandoned")
                way.is_placed = False
                way.last = now
        case tracing.DECIDED:
            yield from _decided(way, facts, now)
        case tracing.WRITTEN:
            yield _child(way, step, way.last, now, facts)
            way.last = now
        case tracing.BOUND:
            yield _child(way, step, way.last, now, facts)
            yield _root(way, now)


def _decided(way: _Way, facts: dict[str, Fact], now: int) -> Iterator[Span]:
    """The wait that ended, and the turn that ended it."""
    way.decisions += 1
    way.is_placed = "node" in facts
    way.facts |= {name: facts[name] for name in ("pod", "node", "cycle", "refusals") if name in facts}
    if way.is_placed or way.decisions <= MOST_REFUSALS:
        told = {name: value[:MOST_TEXT] if isinstance(value, str) else value for name, value in facts.items()}
        seconds = told.pop("seconds", 0.0)
        assert isinstance(seconds, int | float)
        began = max(way.last, now - int(seconds * 1e9))
        yield _child(way, tracing.QUEUED, way.last, began, {"attempt": way.decisions})
        yield _child(way, tracing.DECIDED, began, now, told)
    way.last = now


def _child(way: _Way, name: str, began: int, ended: int, facts: dict[str, Fact], *, failure: str = "") -> Span:
    told = {f"dovetail.{key}": value for key, value in facts.items()}
    return Span(name, way.trace, _span_id(), way.id, began, ended, told, failure)


def _root(way: _Way, now: int, *, failure: str = "") -> Span:
    namespace, _, name = str(way.facts.get("pod", "")).partition("/")
    told: dict[str, Fact] = {f"dovetail.{key}": value for key, value in way.facts.items()}
    told |= {"k8s.namespace.name": namespace, "k8s.pod.name": name, "dovetail.attempts": way.decisions}
    if "node" in way.facts:
        told["k8s.node.name"] = way.facts["node"]
    return Span(ROOT, way.trace, way.id, 0, way.began, now, told, failure)


def _span_id() -> int:
    return secrets.randbits(64) or 1


def connected(endpoint: str, *, sample_ratio: float, version: str) -> Traces:
    """Traces that go to an OTLP/HTTP receiver. Raises InputError where OpenTelemetry is not installed."""
    return Traces(Otlp(endpoint, version=version), sample_ratio=sample_ratio)


class Otlp:
    """Sends spans in batches from a thread. OpenTelemetry's own batches block for a minute where nobody answers."""

    def __init__(self, endpoint: str, *, version: str) -> None:
        try:
            from opentelemetry import trace
            from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
            from opentelemetry.sdk import resources
            from opentelemetry.sdk import trace as sdk
            from opentelemetry.sdk.util import instrumentation
        except ImportError:
            raise errors.InputError(MISSING) from None
        logging.getLogger("opentelemetry").setLevel(logging.CRITICAL)  # a line per try; ours is one per outage
        self._api, self._sdk = trace, sdk
        self._resource = resources.Resource.create({"service.name": "dovetail-scheduler", "service.version": version})
        self._scope = instrumentation.InstrumentationScope("dovetail", version)
        self._exporter = OTLPSpanExporter(endpoint=url(endpoint), timeout=SEND_SECONDS)
        self._endpoint = endpoint
        self._waiting: collections.deque[Span] = collections.deque(maxlen=QUEUE_SPANS)  # full: the oldest go
        self._wake = threading.Event()
        self._is_over = False
        self._is_out = False  # the last batch was not received
        # A daemon: whatever it waits for, the process may end.
        self._thread = threading.Thread(target=self._send_for_ever, name="traces", daemon=True)
        self._thread.start()

    def put(self, span: Span) -> None:
        """One more span to send."""
        self._waiting.append(span)
        if len(self._waiting) >= BATCH_SPANS:
            self._wake.set()

    def close(self) -> None:
        """Sends what is left, for a moment."""
        self._is_over = True
        self._wake.set()
        self._thread.join(CLOSE_SECONDS)
        self._exporter.shutdown()  # type: ignore[no-untyped-call]

    def _send_for_ever(self) -> None:
        while not self._is_over:
            self._wake.wait(BATCH_SECONDS)
            self._wake.clear()
            while self._waiting:
                count = min(BATCH_SPANS, len(self._waiting))
                self._send([self._readable(self._waiting.popleft()) for _ in range(count)])

    def _send(self, batch: list[Any]) -> None:
        try:
            is_out = self._exporter.export(batch).name != "SUCCESS"
        except Exception as error:  # whatever an exporter stumbles over, scheduling does not
            is_out = True
            LOG.debug("traces", extra={"why": str(error)})
        if is_out != self._is_out:
            self._is_out = is_out
            said = "traces are not received" if is_out else "traces are received again"
            LOG.log(logging.WARNING if is_out else logging.INFO, said, extra={"endpoint": self._endpoint})

    def _readable(self, span: Span) -> Any:
        parent = self._context(span.trace, span.parent) if span.parent else None
        code = self._api.StatusCode.ERROR if span.failure else self._api.StatusCode.UNSET
        return self._sdk.ReadableSpan(
            name=span.name,
            context=self._context(span.trace, span.id),
            parent=parent,
            resource=self._resource,
            attributes=span.facts,
            kind=self._api.SpanKind.INTERNAL,
            status=self._api.Status(code, span.failure or None),
            start_time=span.began,
            end_time=span.ended,
            instrumentation_scope=self._scope,
        )

    def _context(self, trace: int, span: int) -> Any:
        flags = self._api.TraceFlags(self._api.TraceFlags.SAMPLED)
        return self._api.SpanContext(trace, span, is_remote=False, trace_flags=flags)


def url(endpoint: str) -> str:
    """Where spans are posted: the endpoint itself where it has a path, else the path OTLP prescribes."""
    scheme, _, rest = endpoint.partition("://")
    host, _, path = rest.partition("/")
    return endpoint if path else f"{scheme}://{host}{PATH}"
