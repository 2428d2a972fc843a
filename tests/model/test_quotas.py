"""Quotas on devices and claims: keys, what a claim is charged, what a refusal says."""

from __future__ import annotations

from typing import Any

import pytest

from dovetail.kubetypes import codec
from dovetail.kubetypes.core import resource_quotas
from dovetail.kubetypes.resource import claims
from dovetail.quantity import quantity

CLASS = "gpu.nvidia.com"
KEY = f"{CLASS}.deviceclass.resource.k8s.io/devices"
SAID = (
    'create resourceclaims a/x: 403 Forbidden: resourceclaims.resource.k8s.io "x" is forbidden: exceeded quota: gpus, '
    f"requested: {KEY}=2,count/resourceclaims.resource.k8s.io=1, used: {KEY}=3,count/resourceclaims.resource.k8s.io=4, "
    f"limited: {KEY}=4,count/resourceclaims.resource.k8s.io=4"
)


def asked(*requests: dict[str, Any]) -> claims.DeviceClaim:
    tree = {"spec": {"devices": {"requests": list(requests)}}}
    return codec.decode_struct(claims.ResourceClaim, codec.encode_tree(tree)).spec.devices


def test_a_refusal_by_quota_has_name_used_limit_and_the_next_step() -> None:
    exceeded = resource_quotas.exceeded(SAID)
    assert exceeded is not None
    assert exceeded.quota == "gpus"
    assert exceeded.message_for("a") == (
        "quota gpus of namespace a is used up: 4 of 4 claims used, 1 more asked for; 3 of 4 devices of class "
        "gpu.nvidia.com used, 2 more asked for; ask for less, let something end, or have it raised (kubectl -n a "
        "describe resourcequota gpus)"
    )


@pytest.mark.parametrize(
    "text",
    [
        "",
        "create pods: 403 Forbidden: you may not",
        "exceeded quota: A B, requested: a=1, used: a=1, limited: a=1",
        "exceeded quota: q, requested:",
    ],
)
def test_other_refusals_are_not_about_quota(text: str) -> None:
    assert resource_quotas.exceeded(text) is None


def test_what_is_no_amount_is_not_shown() -> None:
    exceeded = resource_quotas.exceeded(
        "exceeded quota: q, requested: a=1,b=$(reboot), used: a=\x1b[2J, limited: a=1"
    )
    assert exceeded is not None
    assert [str(shortage) for shortage in exceeded.shortages] == ["0 of 1 a used, 1 more asked for"]


@pytest.mark.parametrize(
    ("key", "words", "is_device"),
    [
        (KEY, "devices of class gpu.nvidia.com", True),
        (
            "requests.deviceclass.resource.kubernetes.io/gpu",
            "devices of class gpu asked for as a resource",
            True,
        ),
        ("requests.nvidia.com/gpu", "nvidia.com/gpu", True),
        ("count/resourceclaims.resource.k8s.io", "claims", True),
        ("requests.cpu", "requests.cpu", False),
        ("pods", "pods", False),
    ],
)
def test_keys_are_known(key: str, words: str, is_device: bool) -> None:
    assert (resource_quotas.words_of(key), resource_quotas.is_about_devices(key)) == (
        words,
        is_device,
    )


def test_a_claim_is_charged_as_the_server_charges_it() -> None:
    plain = {"name": "a", "exactly": {"deviceClassName": CLASS, "count": 2}}
    everything = {"name": "b", "exactly": {"deviceClassName": "nic", "allocationMode": "All"}}
    either = {
        "name": "c",
        "firstAvailable": [
            {"name": "x", "deviceClassName": CLASS, "count": 1},
            {"name": "y", "deviceClassName": CLASS, "count": 3},
            {"name": "z", "deviceClassName": "mig", "count": 7},
        ],
    }
    charged = resource_quotas.charge(asked(plain, everything, either))
    assert charged == {
        resource_quotas.CLAIM_COUNT: 1,
        KEY: 5,
        "nic.deviceclass.resource.k8s.io/devices": 32,
        "mig.deviceclass.resource.k8s.io/devices": 7,
    }


def test_shortages_are_the_keys_that_do_not_reach() -> None:
    status = resource_quotas.ResourceQuotaStatus(
        hard={KEY: quantity.parse("4"), resource_quotas.CLAIM_COUNT: quantity.parse("9")},
        used={KEY: quantity.parse("3")},
    )
    quota = resource_quotas.ResourceQuota(status=status)
    assert resource_quotas.shortages({KEY: 1, resource_quotas.CLAIM_COUNT: 1}, quota) == ()
    assert resource_quotas.shortages({KEY: 2, "other": 5}, quota) == (
        resource_quotas.Shortage(KEY, "2", "3", "4"),
    )
