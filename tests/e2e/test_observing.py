"""One decision seen three ways on a real API server: log lines, the event, and the trace carry one cycle id."""

from __future__ import annotations

import contextlib
import http.server
import json
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2

from dovetail.ports import tracing
from dovetail.telemetry import traces
from tests.e2e.namespace_scene import scene
from tests.support.live import Live

pytestmark = [pytest.mark.slow, pytest.mark.newest]

NAME = "observed"
Tree = dict[str, Any]


@contextlib.contextmanager
def receiver() -> Iterator[tuple[str, list[Any]]]:
    """An OTLP/HTTP receiver on loopback: its address, and the spans it was sent."""
    spans: list[Any] = []

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            sent = trace_service_pb2.ExportTraceServiceRequest()
            sent.ParseFromString(self.rfile.read(int(self.headers["Content-Length"])))
            spans.extend(
                span
                for item in sent.resource_spans
                for scope in item.scope_spans
                for span in scope.spans
            )
            self.send_response(200)
            self.send_header("Content-Type", "application/x-protobuf")
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            """Nothing."""

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}", spans
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def test_log_event_and_trace_of_a_pod_name_the_same_turn(cluster: Live) -> None:
    with scene(cluster) as story, receiver() as (endpoint, spans):
        story.fleet(nodes=1, gpus=1)
        story.template()
        configuration: Tree = {
            "schedulerNames": [NAME],
            "leaderElection": {"enabled": False},
            "ownership": {"nodeLabels": {"example.com/scene": story.namespace}},
            "logging": {"format": "json", "level": "debug"},
            "tracing": {"endpoint": endpoint},
        }
        cluster.schedule(NAME, configuration=configuration)
        try:
            pod = story.pod("traced", templates=["gpu"], schedulerName=NAME)
            story.wait_running("traced")
            story.wait("an event", lambda: story.events("Scheduled", "traced"))
            data = traces.trace_id(pod["metadata"]["uid"]).to_bytes(16, "big")
            story.wait(
                "the trace's end",
                lambda: [span for span in spans if span.name == "pod" and span.trace_id == data],
            )
        finally:
            cluster.stop(NAME)
        cycle = story.events("Scheduled", "traced")[0]["metadata"]["annotations"][
            tracing.CYCLE_ANNOTATION
        ]
        mine = [span for span in spans if span.trace_id == data]
        assert [span.name for span in mine if span.name != "queued"][-4:] == [
            "decided",
            "written",
            "bound",
            "pod",
        ]
        attributes = {
            attribute.key: attribute.value.string_value for attribute in mine[-1].attributes
        }
        assert attributes["dovetail.cycle"] == cycle
        assert (attributes["k8s.pod.name"], attributes["k8s.node.name"]) == (
            "traced",
            f"{story.namespace}-n0",
        )
        lines = [json.loads(line) for line in cluster.log(NAME).splitlines()]
        about = [
            item
            for item in lines
            if item.get("pod") == f"{story.namespace}/traced" and item["message"] == "pod.bound"
        ]
        assert [item["cycle"] for item in about] == [cycle]
        assert [
            item["placed"]
            for item in lines
            if item["message"] == "cycle.decided" and item["cycle"] == cycle
        ] == [1]
