"""One trace per pod: which spans, with which ids and times; and a real OTLP receiver that decodes what is sent."""

from __future__ import annotations

import asyncio
import builtins
import socket
from typing import Any

import pytest
from aiohttp import web
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2

from dovetail import errors
from dovetail.boot import scheduler as boots
from dovetail.model import configuration
from dovetail.ports import tracing
from dovetail.telemetry import traces

SECOND = 10**9


class SpanList:
    """Keeps spans."""

    def __init__(self) -> None:
        self.spans: list[traces.Span] = []

    def put(self, span: traces.Span) -> None:
        self.spans.append(span)

    def close(self) -> None:
        """Nothing."""


class Ticking:
    """A clock that is set by hand."""

    def __init__(self) -> None:
        self.now = 0

    def __call__(self) -> int:
        return self.now


def traced(**options: Any) -> tuple[traces.Traces, SpanList, Ticking]:
    shelf, clock = SpanList(), Ticking()
    return traces.Traces(shelf, now=clock, **options), shelf, clock


def place(tracer: traces.Traces, clock: Ticking, uid: str = "u") -> None:
    """A pod's whole way, a second per step."""
    for step, facts in (
        (tracing.SEEN, {}),
        (tracing.QUEUED, {"queue": "active"}),
        (
            tracing.DECIDED,
            {"pod": "a/p", "node": "n1", "cycle": "t-7", "refusals": 0, "seconds": 0.25},
        ),
        (tracing.WRITTEN, {}),
        (tracing.BOUND, {}),
    ):
        tracer.step(uid, step, **facts)
        clock.now += SECOND


def test_a_pod_that_is_bound_has_one_trace_of_all_its_steps() -> None:
    tracer, shelf, clock = traced()
    place(tracer, clock)
    root = shelf.spans[-1]
    assert [span.name for span in shelf.spans] == ["queued", "decided", "written", "bound", "pod"]
    assert {span.trace for span in shelf.spans} == {traces.trace_id("u")}
    assert all(span.parent == root.id for span in shelf.spans[:-1])
    assert (root.parent, root.began, root.ended) == (0, 0, 4 * SECOND)
    assert [(s.began / SECOND, s.ended / SECOND) for s in shelf.spans[:-1]] == [
        (0, 1.75),
        (1.75, 2),
        (2, 3),
        (3, 4),
    ]
    assert root.facts["k8s.pod.name"] == "p"
    assert (root.facts["dovetail.cycle"], root.facts["k8s.node.name"]) == ("t-7", "n1")


def test_a_refused_pod_counts_its_attempts_and_does_not_flood() -> None:
    tracer, shelf, clock = traced()
    for _ in range(1000):
        tracer.step(
            "u",
            tracing.DECIDED,
            pod="a/p",
            cycle="t-1",
            refusals=3,
            seconds=0.0,
            summary="x" * 9999,
        )
        clock.now += SECOND
    assert len(shelf.spans) == 2 * traces.MAX_REFUSAL_SPANS
    assert all(
        len(str(span.facts.get("dovetail.summary", ""))) <= traces.MAX_TEXT for span in shelf.spans
    )
    place(tracer, clock)
    assert shelf.spans[-1].facts["dovetail.attempts"] == 1001
    assert shelf.spans[-1].name == "pod"


def test_a_placement_that_is_abandoned_is_a_failed_span_and_the_trace_goes_on() -> None:
    tracer, shelf, clock = traced()
    tracer.step("u", tracing.DECIDED, pod="a/p", node="n1", seconds=0.0)
    tracer.step("u", tracing.WRITTEN)
    tracer.step("u", tracing.QUEUED, queue="backoff")
    assert [(span.name, span.failure) for span in shelf.spans[-1:]] == [("bound", "abandoned")]
    place(tracer, clock)
    assert len({span.trace for span in shelf.spans}) == 1


def test_a_pod_that_goes_ends_its_trace_unfinished_and_nothing_is_kept() -> None:
    tracer, shelf, _ = traced()
    tracer.step("u", tracing.SEEN)
    tracer.gone("u")
    assert shelf.spans == []  # never decided about: somebody else's pod, or gone at once
    tracer.step("u", tracing.DECIDED, pod="a/p", refusals=1)
    tracer.gone("u")
    tracer.gone("u")
    assert [span.failure for span in shelf.spans if span.name == "pod"] == [
        "gone before it was bound"
    ]


def test_sampling_follows_from_the_uid_alone() -> None:
    kept = []
    for _ in range(2):
        tracer, shelf, clock = traced(sample_ratio=0.25)
        for number in range(2000):
            place(tracer, clock, uid=f"u{number}")
        kept.append({span.trace for span in shelf.spans})
    assert kept[0] == kept[1]
    assert 350 < len(kept[0]) < 650
    nobody, shelf, clock = traced(sample_ratio=0.0)
    place(nobody, clock)
    assert shelf.spans == []


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        ("http://localhost:4318", "http://localhost:4318/v1/traces"),
        ("http://localhost:4318/", "http://localhost:4318/v1/traces"),
        ("https://collector/otlp/v1/traces", "https://collector/otlp/v1/traces"),
    ],
)
def test_the_endpoint_is_a_server_or_a_whole_address(given: str, meant: str) -> None:
    assert traces.url(given) == meant


def test_without_the_extra_the_configuration_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    real = builtins.__import__

    def without(name: str, *rest: Any, **more: Any) -> Any:
        if name.startswith("opentelemetry"):
            raise ImportError(name)
        return real(name, *rest, **more)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(errors.InputError, match=r"pip install 'dovetail\[tracing\]'"):
        boots.tracer_of(configuration.Tracing(endpoint="http://127.0.0.1:1"))
    assert not boots.tracer_of(configuration.Tracing()).is_on


class Receiver:
    """An OTLP/HTTP receiver on loopback."""

    def __init__(self, *, status: int = 200) -> None:
        self.received: list[Any] = []
        self._status = status

    async def take(self, request: web.Request) -> web.Response:
        """Decodes one batch."""
        sent = trace_service_pb2.ExportTraceServiceRequest()
        sent.ParseFromString(await request.read())
        assert request.headers["Content-Type"] == "application/x-protobuf"
        self.received.append(sent)
        return web.Response(status=self._status, body=b"", content_type="application/x-protobuf")


async def receiving(receiver: Receiver) -> tuple[web.AppRunner, str]:
    application = web.Application()
    application.router.add_post("/v1/traces", receiver.take)
    runner = web.AppRunner(application)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    return runner, f"http://127.0.0.1:{runner.addresses[0][1]}"


@pytest.mark.slow
def test_a_receiver_gets_the_spans_with_ids_times_and_attributes() -> None:
    async def main() -> list[Any]:
        receiver = Receiver()
        runner, endpoint = await receiving(receiver)
        chosen = configuration.Tracing(endpoint=endpoint)
        tracer = boots.tracer_of(chosen)
        assert isinstance(tracer, traces.Traces)
        clock = Ticking()
        tracer._now = clock
        place(tracer, clock)
        tracer.step("v", tracing.DECIDED, pod="a/q", refusals=2, seconds=0.0)
        tracer.gone("v")
        await asyncio.to_thread(tracer.close)
        await runner.cleanup()
        return receiver.received

    received = asyncio.run(main())
    resources = [item for request in received for item in request.resource_spans]
    names = {
        a.key: a.value.string_value for resource in resources for a in resource.resource.attributes
    }
    assert names["service.name"] == "dovetail-scheduler"
    spans = [
        span for resource in resources for scope in resource.scope_spans for span in scope.spans
    ]
    mine = [span for span in spans if span.trace_id == traces.trace_id("u").to_bytes(16, "big")]
    assert [span.name for span in mine] == ["queued", "decided", "written", "bound", "pod"]
    root = mine[-1]
    assert not root.parent_span_id
    assert all(span.parent_span_id == root.span_id for span in mine[:-1])
    assert (root.start_time_unix_nano, root.end_time_unix_nano) == (0, 4 * SECOND)
    messages = {a.key: a.value for a in mine[1].attributes}
    assert messages["dovetail.pod"].string_value == "a/p"
    assert messages["dovetail.node"].string_value == "n1"
    assert messages["dovetail.cycle"].string_value == "t-7"
    assert messages["dovetail.refusals"].int_value == 0
    ended = next(span for span in spans if span.name == "pod" and span not in mine)
    assert ended.status.message == "gone before it was bound"


@pytest.mark.slow
@pytest.mark.parametrize("answers", [None, 503])
def test_a_receiver_that_accepts_nothing_delays_no_pod(
    answers: int | None, caplog: pytest.LogCaptureFixture
) -> None:
    """None: it accepts connections and is silent. Either way old spans go, it is said once, and closing ends."""

    async def main() -> str:
        runner: web.AppRunner | None = None
        silent = socket.create_server(("127.0.0.1", 0))
        endpoint = f"http://127.0.0.1:{silent.getsockname()[1]}"
        if answers is not None:
            runner, endpoint = await receiving(Receiver(status=answers))
        sink = traces.Otlp(endpoint, version="0")
        tracer, clock = traces.Traces(sink), Ticking()
        for number in range(traces.QUEUE_SPANS):  # five times as many spans as the queue holds
            place(tracer, clock, uid=f"u{number}")
        assert len(sink._waiting) <= traces.QUEUE_SPANS
        assert tracer._pods == {}
        await asyncio.wait_for(asyncio.to_thread(tracer.close), timeout=60)
        if runner is not None:
            await runner.cleanup()
        silent.close()
        return endpoint

    with caplog.at_level("INFO", logger="dovetail.traces"):
        endpoint = asyncio.run(main())
    # Of this receiver: a thread that waited for another one when its story ended speaks up whenever that fails.
    records = [record for record in caplog.records if getattr(record, "endpoint", "") == endpoint]
    assert len([record for record in records if record.message.startswith("traces.rejected")]) <= 1
