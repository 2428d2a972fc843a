"""Decoding and validating API objects beside client-go and the API server's own rules."""

from __future__ import annotations

import resource
from typing import Any

import msgspec

from bench import fleets, measure
from dovetail.admission import admit
from dovetail.cel import selectors
from dovetail.kubetypes import codec, field_errors
from dovetail.kubetypes.resource import slices
from dovetail.quantity import quantity
from tests.support.oracle import Oracle

ROUNDS = 5
SECONDS = 0.5


class _SliceList(msgspec.Struct):
    items: list[slices.ResourceSlice]


def decoding(oracle: Oracle) -> dict[str, Any]:
    """1,000 slices of 64 devices, from bytes to typed objects; slices a second."""
    rows = {}
    for count in (100, 1000):
        text = fleets.slice_list(count, 64)
        decoder = msgspec.json.Decoder(_SliceList, dec_hook=quantity.decode_hook)

        def ours(text: bytes = text, decoder: Any = decoder) -> int:
            return len(decoder.decode(text).items)

        def upstream(text: bytes = text) -> float:
            request = {"op": "bench", "what": "decode", "slices": text.decode(), "repeat": 1}
            return float(oracle.ask(request)["perSecond"])

        pair = measure.interleaved(
            lambda: measure.rate(ours, seconds=SECONDS), upstream, rounds=ROUNDS
        )
        before = _resident_kib()
        kept = decoder.decode(text)
        grown = max(0, _resident_kib() - before)
        rows[f"{count} slices x 64 devices"] = {
            **pair.as_json(),
            "megabytes": round(len(text) / 2**20, 1),
            "peakGrowthKiBPerSlice": round(grown / len(kept.items), 1),
        }
    return rows


def validation(oracle: Oracle) -> dict[str, Any]:
    """Create rules on objects already decoded; objects a second."""
    terms = field_errors.Terms(check_selector=selectors.problem, now="2026-01-01T00:00:00Z")
    rows = {}
    for name, trees in _samples().items():
        decoded = [codec.decode(tree).struct for tree in trees]

        def ours(decoded: Any = decoded) -> int:
            for one in decoded:
                verdict = admit.create(one, terms)
                assert verdict.is_valid, verdict.problems
            return len(decoded)

        def upstream(trees: Any = trees) -> float:
            request = {"op": "bench", "what": "validate", "objects": trees, "repeat": 20}
            return float(oracle.ask(request)["perSecond"])

        rows[name] = measure.interleaved(
            lambda: measure.rate(ours, seconds=SECONDS), upstream, rounds=ROUNDS
        ).as_json()
    return rows


def _samples() -> dict[str, list[dict[str, Any]]]:
    slices_ = msgspec.json.decode(fleets.slice_list(20, 64))["items"]
    claims = [
        {
            "apiVersion": "resource.k8s.io/v1",
            "kind": "ResourceClaim",
            "metadata": {"name": f"claim-{i}", "namespace": "train"},
            "spec": {
                "devices": {
                    "requests": [
                        {
                            "name": "gpu",
                            "exactly": {
                                "deviceClassName": "gpu.nvidia.com",
                                "count": 1 + i % 8,
                                "selectors": [
                                    {
                                        "cel": {
                                            "expression": 'device.attributes["gpu.nvidia.com"].architecture == "Hopper"'
                                        }
                                    }
                                ],
                            },
                        }
                    ],
                    "constraints": [
                        {"requests": ["gpu"], "matchAttribute": "resource.kubernetes.io/pcieRoot"}
                    ],
                }
            },
        }
        for i in range(100)
    ]
    return {"ResourceSlice of 64 devices": slices_, "ResourceClaim with a selector": claims}


def _resident_kib() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
