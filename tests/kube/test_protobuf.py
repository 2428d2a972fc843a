"""The server's own encoding, as far as a finalizer needs it. The contract suite says that a real server takes it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dovetail import errors
from dovetail.kube.http import protobuf

# k8s, Unknown{typeMeta{v1, Pod}, raw{metadata{name a, uid u, resourceVersion 7, generation 1}, spec{...}}}
METADATA = b"\x0a\x01a" + b"\x2a\x01u" + b"\x32\x017" + b"\x38\x01"
RAW = b"\x0a" + bytes([len(METADATA)]) + METADATA + b"\x12\x03abc"
DOCUMENT = (
    b"k8s\x00" + b"\x0a\x09\x0a\x02v1\x12\x03Pod" + b"\x12" + bytes([len(RAW)]) + RAW + b"\x1a\x00"
)


def test_who_it_is_and_a_finalizer_more() -> None:
    assert protobuf.identity_of(DOCUMENT) == protobuf.Identity("u", "7", ())
    once = protobuf.with_finalizer(DOCUMENT, "example.com/keep")
    assert protobuf.identity_of(once) == protobuf.Identity("u", "7", ("example.com/keep",))
    twice = protobuf.with_finalizer(once, "x" * 300)
    assert protobuf.identity_of(twice).finalizers == ("example.com/keep", "x" * 300)
    assert RAW in twice


def test_an_object_cut_short_is_refused_unless_the_cut_is_between_two_fields() -> None:
    nothing, whole = protobuf.Identity("", "", ()), protobuf.Identity("u", "7", ())
    after_type, after_raw = len(b"k8s\x00") + 11, len(DOCUMENT) - 2
    readable = {
        len(b"k8s\x00"): nothing,
        after_type: nothing,
        after_raw: whole,
        len(DOCUMENT): whole,
    }

    for length in range(len(DOCUMENT) + 1):
        assert read(DOCUMENT[:length]) == readable.get(length), length


@given(st.binary(max_size=60).filter(lambda content: not content.startswith(b"k8s\x00")))
def test_bytes_without_the_mark_of_the_encoding_are_refused(content: bytes) -> None:
    assert read(content) is None


@given(
    uid=st.text(),
    version=st.text(),
    finalizers=st.lists(st.text()),
    number=st.integers(0, 2**64 - 1),
)
def test_every_identity_comes_back_from_what_another_encoder_wrote(
    uid: str, version: str, finalizers: list[str], number: int
) -> None:
    metadata = text(5, uid) + varint(7 << 3) + varint(number) + text(6, version)
    metadata += b"".join(text(14, finalizer) for finalizer in finalizers)
    document = b"k8s\x00" + message(2, message(1, metadata) + message(2, b"spec"))

    assert read(document) == protobuf.Identity(uid, version, tuple(finalizers))

    longer = protobuf.with_finalizer(document, "example.com/keep")
    assert read(longer) == protobuf.Identity(uid, version, (*finalizers, "example.com/keep"))


@given(st.binary(max_size=60))
def test_garbage_after_the_mark_is_refused_or_read_as_the_fields_it_holds(content: bytes) -> None:
    identity = read(b"k8s\x00" + content)
    if identity is not None:
        for value in (identity.uid, identity.resource_version, *identity.finalizers):
            assert value.encode() in content


def test_text_that_is_not_utf_8_is_refused() -> None:
    with pytest.raises(errors.InputError, match="not UTF-8"):
        protobuf.identity_of(b"k8s\x00" + message(2, message(1, message(5, b"\xff"))))


def read(document: bytes) -> protobuf.Identity | None:
    """The identity in a document; None where the document is refused."""
    try:
        return protobuf.identity_of(document)
    except errors.InputError:
        return None


def text(number: int, value: str) -> bytes:
    return message(number, value.encode())


def message(number: int, value: bytes) -> bytes:
    """A length-delimited field."""
    return varint(number << 3 | 2) + varint(len(value)) + value


def varint(value: int) -> bytes:
    """Seven bits per byte, the lowest first; every byte but the last has its highest bit set."""
    groups = [value >> shift & 0x7F for shift in range(0, max(value.bit_length(), 1), 7)]
    return bytes(group | 0x80 for group in groups[:-1]) + bytes(groups[-1:])


def test_json_is_not_it() -> None:
    with pytest.raises(errors.InputError):
        protobuf.identity_of(b"{}")
