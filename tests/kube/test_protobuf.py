"""The server's own encoding, as far as a finalizer needs it. The contract suite says that a real server takes it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dovetail import errors
from dovetail.kube import protobuf

# k8s, Unknown{typeMeta{v1, Pod}, raw{metadata{name a, uid u, resourceVersion 7, generation 1}, spec{...}}}
METADATA = b"\x0a\x01a" + b"\x2a\x01u" + b"\x32\x017" + b"\x38\x01"
RAW = b"\x0a" + bytes([len(METADATA)]) + METADATA + b"\x12\x03abc"
DOCUMENT = b"k8s\x00" + b"\x0a\x09\x0a\x02v1\x12\x03Pod" + b"\x12" + bytes([len(RAW)]) + RAW + b"\x1a\x00"


def test_who_it_is_and_a_finalizer_more() -> None:
    assert protobuf.identity_of(DOCUMENT) == protobuf.Identity("u", "7", ())
    once = protobuf.with_finalizer(DOCUMENT, "example.com/keep")
    assert protobuf.identity_of(once) == protobuf.Identity("u", "7", ("example.com/keep",))
    twice = protobuf.with_finalizer(once, "x" * 300)
    assert protobuf.identity_of(twice).finalizers == ("example.com/keep", "x" * 300)
    assert RAW in twice


@given(st.binary(max_size=60))
def test_bytes_that_are_no_object_are_refused_or_read(more: bytes) -> None:
    for document in (more, b"k8s\x00" + more, DOCUMENT[: len(more)]):
        try:
            protobuf.identity_of(document)
        except (errors.InputError, UnicodeDecodeError):
            continue


def test_json_is_not_it() -> None:
    with pytest.raises(errors.InputError):
        protobuf.identity_of(b"{}")
