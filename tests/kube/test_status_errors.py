"""Responses that are not a success become failures that a caller can act on."""

from __future__ import annotations

import msgspec
import pytest

from dovetail.kube.http import status_errors
from dovetail.ports import failures
from tests.kube import serving


@pytest.mark.parametrize(
    ("code", "reason", "expected"),
    [
        (400, "BadRequest", failures.Refused),
        (401, "Unauthorized", failures.Unauthorised),
        (403, "Forbidden", failures.Refused),
        (404, "NotFound", failures.Missing),
        (405, "MethodNotAllowed", failures.Refused),
        (408, "", failures.Unavailable),
        (409, "Conflict", failures.Conflict),
        (409, "AlreadyExists", failures.AlreadyThere),
        (410, "Expired", failures.Expired),
        (410, "Gone", failures.Expired),
        (413, "RequestEntityTooLarge", failures.Futile),
        (415, "UnsupportedMediaType", failures.Refused),
        (422, "Invalid", failures.Refused),
        (429, "TooManyRequests", failures.Throttled),
        (500, "InternalError", failures.Unavailable),
        (502, "", failures.Unavailable),
        (503, "ServiceUnavailable", failures.Unavailable),
        (504, "Timeout", failures.Unavailable),
        (302, "", failures.Refused),
    ],
)
def test_each_answer_becomes_what_the_caller_should_do(
    code: int, reason: str, expected: type[failures.ApiFailure]
) -> None:
    body = msgspec.json.encode(serving.status(code, reason, "because"))
    failure = status_errors.failure_of(code, body, doing="patch pods a/b")
    assert type(failure) is expected
    assert failure.status == code
    assert failure.reason == reason
    assert str(failure).startswith("patch pods a/b: ")
    assert "because" in str(failure)


def test_a_stressed_store_is_no_refusal() -> None:
    for message in (
        "etcdserver: request timed out",
        "etcdserver: leader changed",
        "etcdserver: too many requests",
    ):
        body = msgspec.json.encode(serving.status(400, "", message))
        assert type(status_errors.failure_of(400, body)) is failures.Unavailable, message


@pytest.mark.parametrize(
    ("code", "reason", "message"),
    [
        (500, "", "etcdserver: request is too large"),
        (
            409,
            "Conflict",
            'Operation cannot be fulfilled on pods/binding "a": etcdserver: request is too large',
        ),
        (
            500,
            "",
            "rpc error: code = ResourceExhausted desc = trying to send message larger than max (2M vs. 1M)",
        ),
        (413, "RequestEntityTooLarge", "Request entity too large: limit is 3145728"),
    ],
)
def test_what_is_too_large_is_refused_for_good_whatever_the_code(
    code: int, reason: str, message: str
) -> None:
    failure = status_errors.failure_of(
        code, msgspec.json.encode(serving.status(code, reason, message))
    )
    assert type(failure) is failures.Futile
    assert isinstance(failure, failures.Refused)


def test_an_answer_too_large_to_be_read_says_nothing_about_the_write() -> None:
    message = "rpc error: code = ResourceExhausted desc = grpc: received message larger than max (2M vs. 1M)"
    failure = status_errors.failure_of(500, msgspec.json.encode(serving.status(500, "", message)))
    assert type(failure) is failures.Unavailable


def test_the_wait_is_the_one_the_server_asks_for() -> None:
    plain = msgspec.json.encode(serving.status(429, "TooManyRequests"))
    detailed = msgspec.json.encode(serving.status(429, "TooManyRequests", retryAfterSeconds=7))
    assert status_errors.failure_of(429, plain).retry_after is None
    assert status_errors.failure_of(429, plain, headers={"Retry-After": "3"}).retry_after == 3
    assert status_errors.failure_of(429, detailed, headers={"Retry-After": "3"}).retry_after == 7
    assert (
        status_errors.failure_of(
            429, plain, headers={"Retry-After": "Fri, 31 Dec 1999 23:59:59 GMT"}
        ).retry_after
        is None
    )
    assert status_errors.failure_of(429, plain, headers={"Retry-After": "-5"}).retry_after == 0
    assert status_errors.failure_of(429, plain, headers={"Retry-After": "inf"}).retry_after is None


@pytest.mark.parametrize(
    "body", [b"", b"<html>bad gateway</html>", b"null", b"[]", b'{"code":"x"}', b"\xff\xfe"]
)
def test_a_body_that_is_no_status_is_repeated_as_text(body: bytes) -> None:
    failure = status_errors.failure_of(502, body)
    assert type(failure) is failures.Unavailable
    assert failure.reason == ""


def test_long_bodies_are_cut() -> None:
    assert len(str(status_errors.failure_of(502, b"x" * 100_000))) < 1000


def test_an_error_event_carries_its_own_status() -> None:
    expired = msgspec.json.encode(serving.status(410, "Expired", "too old resource version"))
    assert type(status_errors.failure_of_event(expired)) is failures.Expired
    assert type(status_errors.failure_of_event(b"{}")) is failures.Unavailable
