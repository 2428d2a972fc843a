"""Devices that several claims may hold, as NVIDIA's gate ConsumableShares publishes them, and our share of a GPU."""

from __future__ import annotations

from typing import Any

import pytest

from dovetail import errors
from dovetail.kubetypes import codec
from dovetail.node.slices import layout, options
from tests.node import build


def capacity_of(text: str, **choices: Any) -> dict[str, Any]:
    """The capacities of one shared GPU, as they are on the wire."""
    chosen = options.SliceOptions(shares=options.shares_from(text), **choices)
    (content,) = layout.contents(build.machine(memory_bytes=(81559 << 20) + 4096), chosen)
    tree = codec.tree_of(content.devices[0])
    assert tree["allowMultipleAllocations"] is True
    return dict(tree["capacity"])


def test_by_memory_a_claim_without_request_takes_all_of_it() -> None:
    capacity = capacity_of("memory", has_own_attributes=False)
    valid = {"min": "1Mi", "max": "81559Mi", "step": "1Mi"}
    policy = {"default": "81559Mi", "validRange": valid}
    assert capacity == {"memory": {"value": "81559Mi", "requestPolicy": policy}}


def test_by_memory_a_gpu_also_offers_hundredths_of_itself() -> None:
    share = capacity_of("memory")["dovetail.dev/share"]
    valid = {"min": "1", "max": "100", "step": "1"}
    assert share == {"value": "100", "requestPolicy": {"default": "100", "validRange": valid}}


def test_unlimited_takes_no_memory_by_default() -> None:
    policy = capacity_of("unlimited")["memory"]["requestPolicy"]
    assert policy["default"] == "0"
    assert policy["validRange"] == {"min": "0", "max": "81559Mi", "step": "1Mi"}


def test_a_number_limits_how_many_claims_hold_a_gpu() -> None:
    capacity = capacity_of("4")
    valid = {"min": "1", "max": "4", "step": "1"}
    assert capacity["shares"] == {
        "value": "4",
        "requestPolicy": {"default": "1", "validRange": valid},
    }
    assert "dovetail.dev/share" not in capacity


def test_partitions_are_shared_by_memory_and_offer_no_share_of_a_gpu() -> None:
    chosen = options.SliceOptions(is_mig_dynamic=True, shares=options.shares_from("memory"))
    pool = layout.contents(build.machine(), chosen)
    mig = next(device for device in pool[1].devices if "mig" in device.name)
    assert mig.allow_multiple_allocations is True
    assert mig.capacity["memory"].request_policy is not None
    assert "dovetail.dev/share" not in mig.capacity


def test_disabled_devices_have_one_holder() -> None:
    (content,) = layout.contents(build.machine(), options.SliceOptions())
    assert content.devices[0].allow_multiple_allocations is None


@pytest.mark.parametrize("text", ["half", "-1", "0", "1.5"])
def test_other_words_are_refused(text: str) -> None:
    with pytest.raises(errors.InputError, match="positive number"):
        options.shares_from(text)
