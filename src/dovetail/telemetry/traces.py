"""One OpenTelemetry trace per pod: seen, queued, decided, written, bound; sent over OTLP/HTTP.

Implements `ports.tracing.Tracer`. A pod's trace id is derived from its uid, so that the spans of all replicas form one
trace and the replicas agree on whether it is sampled. A separate thread sends spans from a bounded queue; spans that do
not fit are dropped, never waited for. OpenTelemetry is an extra: without it `connected` names what to install.
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
PATH: Final = "/v1/traces"  # OTLP over HTTP, for an endpoint without a path
MAX_PODS: Final = 100_000  # traced at the same time
MAX_REFUSAL_SPANS: Final = 16  # spans of a pod that is refused repeatedly; more are only counted
MAX_TEXT: Final = 300  # characters of a summary
QUEUE_SPANS: Final = 8192
BATCH_SPANS: Final = 512
BATCH_SECONDS: Final = 1.0
SEND_SECONDS: Final = 5.0  # for a batch, repetitions included
CLOSE_SECONDS: Final = 2.0
MISSING: Final = (
    "tracing.endpoint is set, but OpenTelemetry is not installed: "
    "pip install 'dovetail[tracing]', or leave it empty"
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
        """Sends the remaining spans for a short time; then drops them. Blocks."""
        ...


class _TracedPod:
    """A pod whose trace is not finished."""

    __slots__ = ("began", "decisions", "facts", "id", "is_placed", "last", "trace")

    def __init__(self, trace: int, now: int) -> None:
        self.trace = trace
        self.id = _span_id()
        self.began = self.last = now
        self.decisions = 0
        self.is_placed = False
        self.facts: dict[str, Fact] = {}


class Traces:
    """Turns steps into spans. Costs one dictionary look-up per step of a pod that is not sampled."""

    is_on = True

    def __init__(
        self, sink: Sink, *, sample_ratio: float = 1.0, now: Callable[[], int] = time.time_ns
    ) -> None:
        self._sink = sink
        # As OpenTelemetry's TraceIdRatioBased sampler: a bound on the low half of the id.
        self._bound = round(sample_ratio * 2**64)
        self._now = now
        self._pods: dict[str, _TracedPod] = {}

    def step(self, uid: str, step: str, **facts: Fact) -> None:
        """A pod reached the next step, now."""
        pod = self._pods.get(uid) or self._start(uid)
        if pod is None:
            return

        now = self._now()
        for span in _spans(pod, step, facts, now):
            self._sink.put(span)
        if step == tracing.BOUND:
            del self._pods[uid]

    def gone(self, uid: str) -> None:
        """The pod no longer needs a node; its trace ends, unless it was bound before."""
        pod = self._pods.pop(uid, None)
        if pod is not None and pod.decisions:
            self._sink.put(_root(pod, self._now(), failure="gone before it was bound"))

    def close(self) -> None:
        """Sends the remaining spans for a short time. Blocks: call it in a thread."""
        self._sink.close()

    def _start(self, uid: str) -> _TracedPod | None:
        trace = trace_id(uid)
        if trace & (2**64 - 1) >= self._bound or len(self._pods) >= MAX_PODS:
            return None
        return self._pods.setdefault(uid, _TracedPod(trace, self._now()))


def trace_id(uid: str) -> int:
    """The trace of the pod with this uid: 128 bits, never 0."""
    return int.from_bytes(hashlib.sha256(f"dovetail/{uid}".encode()).digest()[:16], "big") or 1


def _spans(pod: _TracedPod, step: str, facts: dict[str, Fact], now: int) -> Iterator[Span]:
    """The spans that this step finishes."""
    match step:
        case tracing.QUEUED:
            if pod.is_placed:  # its binding failed and it is queued again
                yield _child(pod, tracing.BOUND, pod.last, now, {}, failure="abandoned")
                pod.is_placed = False
                pod.last = now
        case tracing.DECIDED:
            yield from _decided(pod, facts, now)
        case tracing.WRITTEN:
            yield _child(pod, step, pod.last, now, facts)
            pod.last = now
        case tracing.BOUND:
            yield _child(pod, step, pod.last, now, facts)
            yield _root(pod, now)


def _decided(pod: _TracedPod, facts: dict[str, Fact], now: int) -> Iterator[Span]:
    """The wait that ended, and the cycle that ended it."""
    pod.decisions += 1
    pod.is_placed = "node" in facts
    for name in ("pod", "node", "cycle", "refusals"):
        if name in facts:
            pod.facts[name] = facts[name]

    if pod.is_placed or pod.decisions <= MAX_REFUSAL_SPANS:
        attributes = {name: _shortened(value) for name, value in facts.items()}
        seconds = attributes.pop("seconds", 0.0)
        assert isinstance(seconds, int | float)
        started = max(pod.last, now - int(seconds * 1e9))
        yield _child(pod, tracing.QUEUED, pod.last, started, {"attempt": pod.decisions})
        yield _child(pod, tracing.DECIDED, started, now, attributes)
    pod.last = now


def _shortened(value: Fact) -> Fact:
    return value[:MAX_TEXT] if isinstance(value, str) else value


def _child(
    pod: _TracedPod, name: str, began: int, ended: int, facts: dict[str, Fact], *, failure: str = ""
) -> Span:
    attributes = {f"dovetail.{key}": value for key, value in facts.items()}
    return Span(name, pod.trace, _span_id(), pod.id, began, ended, attributes, failure)


def _root(pod: _TracedPod, now: int, *, failure: str = "") -> Span:
    namespace, _, name = str(pod.facts.get("pod", "")).partition("/")
    attributes: dict[str, Fact] = {f"dovetail.{key}": value for key, value in pod.facts.items()}
    attributes |= {
        "k8s.namespace.name": namespace,
        "k8s.pod.name": name,
        "dovetail.attempts": pod.decisions,
    }
    if "node" in pod.facts:
        attributes["k8s.node.name"] = pod.facts["node"]
    return Span(ROOT, pod.trace, pod.id, 0, pod.began, now, attributes, failure)


def _span_id() -> int:
    return secrets.randbits(64) or 1


def otlp_traces(endpoint: str, *, sample_ratio: float, version: str) -> Traces:
    """Traces that go to an OTLP/HTTP receiver. Raises InputError where OpenTelemetry is not installed."""
    return Traces(Otlp(endpoint, version=version), sample_ratio=sample_ratio)


class Otlp:
    """Sends spans in batches from a thread. OpenTelemetry's own processor blocks for a minute without an answer."""

    def __init__(self, endpoint: str, *, version: str) -> None:
        try:
            from opentelemetry import trace
            from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
            from opentelemetry.sdk import resources
            from opentelemetry.sdk import trace as sdk
            from opentelemetry.sdk.util import instrumentation
        except ImportError:
            raise errors.InputError(MISSING) from None
        # OpenTelemetry logs every attempt; ours logs once per outage.
        logging.getLogger("opentelemetry").setLevel(logging.CRITICAL)
        self._api, self._sdk = trace, sdk
        self._resource = resources.Resource.create(
            {"service.name": "dovetail-scheduler", "service.version": version}
        )
        self._scope = instrumentation.InstrumentationScope("dovetail", version)
        self._exporter = OTLPSpanExporter(endpoint=url(endpoint), timeout=SEND_SECONDS)
        self._endpoint = endpoint
        # When full, the oldest spans are dropped.
        self._waiting: collections.deque[Span] = collections.deque(maxlen=QUEUE_SPANS)
        self._wake = threading.Event()
        self._is_over = False
        self._is_out = False  # whether the last batch was not accepted
        # A daemon thread: it must not keep the process from ending.
        self._thread = threading.Thread(target=self._send_until_closed, name="traces", daemon=True)
        self._thread.start()

    def put(self, span: Span) -> None:
        """One more span to send."""
        self._waiting.append(span)
        if len(self._waiting) >= BATCH_SPANS:
            self._wake.set()

    def close(self) -> None:
        """Sends the remaining spans for a short time."""
        self._is_over = True
        self._wake.set()
        self._thread.join(CLOSE_SECONDS)
        self._exporter.shutdown()  # type: ignore[no-untyped-call]

    def _send_until_closed(self) -> None:
        while not self._is_over:
            self._wake.wait(BATCH_SECONDS)
            self._wake.clear()
            while self._waiting:
                count = min(BATCH_SPANS, len(self._waiting))
                self._send([self._readable(self._waiting.popleft()) for _ in range(count)])

    def _send(self, batch: list[Any]) -> None:
        try:
            is_out = self._exporter.export(batch).name != "SUCCESS"
        except Exception as error:  # an error in the exporter must not affect scheduling
            is_out = True
            LOG.debug("traces.export.failed", extra={"why": str(error)})
        if is_out == self._is_out:
            return

        self._is_out = is_out
        extra = {"endpoint": self._endpoint}
        if is_out:
            LOG.warning("traces.rejected: the endpoint does not accept traces", extra=extra)
        else:
            LOG.info("traces.accepted: the endpoint accepts traces again", extra=extra)

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
    """Where spans are posted: the endpoint itself if it has a path, else OTLP's default path."""
    scheme, _, remainder = endpoint.partition("://")
    host, _, path = remainder.partition("/")
    return endpoint if path else f"{scheme}://{host}{PATH}"
