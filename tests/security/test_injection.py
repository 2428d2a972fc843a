"""Names, annotations and messages of others cannot start a line, steer a terminal, pass for a field or fill a disk."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from contextlib import contextmanager

import msgspec
import pytest

from dovetail.boot import logs
from dovetail.kube.http import status_errors
from dovetail.kubetypes import registry
from dovetail.kubetypes.core import api_events
from dovetail.live.informer import informer
from dovetail.live.report import recorder
from dovetail.model.reasons import ReasonCode
from dovetail.sim import virtual_clock
from dovetail.telemetry import metrics
from dovetail.world.world import World
from tests.live import test_recorder
from tests.live.live_scheduler import Stage, play
from tests.security import hostile

STEERING = [text for text in hostile.TEXTS if not text.isprintable()]
FORGED = '\n12:00:00.000 ERROR election: lost the lease node="x"\r\x1b[2J\u202e'
MEGABYTE = "A\n\x1b[31m" * 200_000


@contextmanager
def written(form: logging.Formatter) -> Iterator[list[str]]:
    """What a logger writes meanwhile."""
    lines: list[str] = []

    class Lines(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            lines.append(self.format(record))

    handler, logger = Lines(), logging.getLogger("dovetail")
    handler.setFormatter(form)
    level = logger.level
    logger.addHandler(handler)
    logger.setLevel(logging.DEBUG)
    try:
        yield lines
    finally:
        logger.removeHandler(handler)
        logger.setLevel(level)


@pytest.mark.parametrize("form", [logs.TextLines(), logs.JsonLines()], ids=["text", "json"])
@pytest.mark.parametrize("text", [FORGED, *STEERING], ids=ascii)
def test_a_name_or_a_message_stays_in_its_line(text: str, form: logging.Formatter) -> None:
    with written(form) as lines:
        logging.getLogger("dovetail.watch").info(text, extra={"pod": text, "why": text})
    (line,) = lines
    assert line.isprintable(), ascii(line)


@pytest.mark.parametrize("form", [logs.TextLines(), logs.JsonLines()], ids=["text", "json"])
def test_a_megabyte_in_a_message_or_a_field_is_cut(form: logging.Formatter) -> None:
    with written(form) as lines:
        logging.getLogger("dovetail.watch").info(MEGABYTE, extra={"why": MEGABYTE})
    (line,) = lines
    assert len(line) < 30 * logs.MOST_CHARACTERS
    assert f"({len(MEGABYTE)} characters)" in line


@pytest.mark.parametrize("text", [FORGED, *STEERING], ids=ascii)
def test_events_and_conditions_quote_what_others_wrote_without_its_power(text: str) -> None:
    async def story(stage: Stage, reports: recorder.Recorder) -> None:
        pod = stage.the_pod("a")
        reports.refused(
            pod, test_recorder.refusal(pod, ReasonCode.SELECTOR, f"needs {text} of {text}")
        )
        await stage.pass_time(1)
        (event,) = stage.events("FailedScheduling")
        assert event.note.isprintable(), ascii(event.note)
        assert test_recorder.condition(stage).message.isprintable()

    test_recorder.run_story(story)


def test_a_megabyte_of_reasons_fits_into_an_event_and_a_condition() -> None:
    async def story(stage: Stage, reports: recorder.Recorder) -> None:
        pod = stage.the_pod("a")
        reports.refused(pod, test_recorder.refusal(pod, ReasonCode.SELECTOR, MEGABYTE))
        await stage.pass_time(1)
        (event,) = stage.events("FailedScheduling")
        assert len(event.note.encode()) <= api_events.MAX_NOTE_BYTES
        assert len(test_recorder.condition(stage).message.encode()) <= recorder.MAX_MESSAGE_BYTES

    test_recorder.run_story(story)


@pytest.mark.parametrize("document", [{"message": MEGABYTE, "reason": "Forbidden"}, MEGABYTE])
def test_what_a_server_or_a_webhook_says_is_cut(document: object) -> None:
    body = msgspec.json.encode(document) if isinstance(document, dict) else str(document).encode()
    failure = status_errors.failure_of(403, body, doing="create pods a/b")
    assert len(str(failure)) < 5_000
    assert "create pods a/b" in str(failure)


def test_names_of_objects_are_no_labels_of_metrics() -> None:
    """Else any tenant who may create objects could make as many time series as they like."""
    made = metrics.Metrics()
    feed = informer.Feed(
        _picture(),
        registry.POD,
        trouble=lambda kind, why: made.count(
            "dovetail_watch_restarts_total", kind=kind, reason=why.partition(":")[0][:40]
        ),
    )
    for number in range(500):
        feed.unreadable(f"team/pod-{number}", "spec.containers: expected a list")
    lines = [
        line
        for line in made.text().decode().splitlines()
        if line.startswith("dovetail_watch_restarts_total{")
    ]
    assert len(lines) == 1
    assert "pod-" not in lines[0]
    assert lines[0].endswith(" 500.0")


def test_an_object_that_cannot_be_read_is_complained_about_once() -> None:
    names: list[str] = []
    feed = informer.Feed(_picture(), registry.POD, trouble=lambda kind, why: names.append(why))
    for _ in range(100):
        feed.unreadable("team/a", "spec: expected a mapping")
    feed.unreadable("team/a", "metadata: expected a mapping")
    feed.unreadable("team/b", "spec: expected a mapping")
    assert names == [
        "unreadable: team/a: spec: expected a mapping",
        "unreadable: team/a: metadata: expected a mapping",
        "unreadable: team/b: spec: expected a mapping",
    ]
    for number in range(5 * informer.MAX_REMEMBERED):
        feed.unreadable(f"team/{number}", "x")
    assert len(feed._reported) <= informer.MAX_REMEMBERED


def test_a_pod_with_hostile_names_is_reported_in_one_line() -> None:
    async def story() -> None:
        stage = Stage(nodes=1, gpus=1)
        stage.pod("a")
        tree = stage.api.tree(registry.POD, "a", namespace="default")
        tree["metadata"]["annotations"] = {f"x{number}": FORGED for number in range(20)}
        tree["spec"]["nodeSelector"] = {"zone": FORGED}
        tree["spec"]["tolerations"] = [{"key": FORGED, "operator": FORGED}]
        stage.api.shelf.put(registry.POD, tree)
        with written(logs.JsonLines()) as lines:
            async with stage.scheduling():
                await stage.pass_time(5)
        assert stage.node_of("a") == ""
        assert all(body.note.isprintable() for body in stage.events("FailedScheduling"))
        assert all(json.loads(line)["message"] for line in lines)
        assert all(line.isprintable() for line in lines)

    play(story)


def _picture() -> informer.Informer:
    return informer.Informer(World(), virtual_clock.VirtualClock())
