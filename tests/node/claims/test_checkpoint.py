"""The checkpoint's text: what is written is read, another version's fields survive, damage is noticed."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dovetail import errors
from dovetail.node.claims import checkpoint
from dovetail.node.inventory import TimeSlice


def example() -> checkpoint.Checkpoint:
    device = checkpoint.HeldDevice(
        request="r0",
        pool="node-a",
        device="gpu-0-mig-1g10gb-19-3",
        gpu_uuid="GPU-1",
        gpu_minor=0,
        first_slice=3,
        slice_count=1,
        gi_profile_id=19,
        is_made_here=True,
        instance=checkpoint.Instance(uuid="MIG-1", gi_id=7, ci_id=0),
        consumed={"memory": "10Gi"},
        group=0,
    )
    claim = checkpoint.Claim(
        uid="uid-1",
        namespace="default",
        name="eval",
        state=checkpoint.State.COMPLETED,
        devices=(device,),
        sharing=(checkpoint.Sharing(strategy="TimeSlicing", interval=TimeSlice.LONG),),
    )
    return checkpoint.Checkpoint(boot_id="boot-1", claims={"uid-1": claim})


def written_by_another_version(change: Any) -> bytes:
    """The example with changes that a later version might make, and a checksum of its own."""
    tree = msgspec.json.decode(checkpoint.encode(example()))["data"]
    change(tree)
    data = msgspec.json.encode(tree)
    return msgspec.json.encode({"checksum": checkpoint._checksum(data), "data": tree})


def test_what_is_written_is_read() -> None:
    assert checkpoint.decode(checkpoint.encode(example())) == example()


def test_fields_of_a_later_version_are_kept_at_every_level() -> None:
    def add(tree: dict[str, Any]) -> None:
        tree["format"] = 2
        tree["nvswitch"] = {"state": [1, 2]}
        tree["claims"]["uid-1"]["deadline"] = "soon"
        tree["claims"]["uid-1"]["devices"][0]["fabric"] = {"partition": 4}
        tree["claims"]["uid-1"]["sharing"][0]["priority"] = 3

    known = checkpoint.decode(written_by_another_version(add))
    assert known.claims["uid-1"].devices[0].instance is not None
    changed = known.with_mig_enabled("GPU-1", is_ours=True)
    again = msgspec.json.decode(checkpoint.encode(changed))["data"]
    assert again["nvswitch"] == {"state": [1, 2]}
    assert again["format"] == 2
    assert again["claims"]["uid-1"]["deadline"] == "soon"
    assert again["claims"]["uid-1"]["devices"][0]["fabric"] == {"partition": 4}
    assert again["claims"]["uid-1"]["sharing"][0]["priority"] == 3
    assert again["migEnabledHere"] == ["GPU-1"]


def test_an_earlier_version_without_newer_fields_is_read() -> None:
    def remove(tree: dict[str, Any]) -> None:
        del tree["oldestReader"]
        del tree["claims"]["uid-1"]["sharing"]
        del tree["claims"]["uid-1"]["devices"][0]["group"]

    known = checkpoint.decode(written_by_another_version(remove))
    assert known.claims["uid-1"].sharing == ()


def test_a_later_version_can_refuse_to_be_read() -> None:
    def forbid(tree: dict[str, Any]) -> None:
        tree["format"] = 5
        tree["oldestReader"] = 4

    with pytest.raises(errors.StateError, match="readable from format 4 on; this version reads 1"):
        checkpoint.decode(written_by_another_version(forbid))


@pytest.mark.parametrize(
    "content", [b"", b"{}", b"[]", b"null", b"\xff", b'{"checksum":"x","data":{}}']
)
def test_what_is_no_checkpoint_is_said_to_be_none(content: bytes) -> None:
    with pytest.raises(errors.StateError):
        checkpoint.decode(content)


@given(data=st.data())
def test_a_changed_byte_is_never_believed(data: st.DataObject) -> None:
    content = bytearray(checkpoint.encode(example()))
    place = data.draw(st.integers(0, len(content) - 2))  # the last is a line feed
    content[place] ^= data.draw(st.integers(1, 255))
    try:
        decoded = checkpoint.decode(bytes(content))
    except errors.StateError:
        return
    assert decoded == example(), "only a change outside of the data may pass"
