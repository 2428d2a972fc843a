"""Selector evaluation beside upstream's `DeviceMatches`, on varied devices and over large fleets."""

from __future__ import annotations

from typing import Any

import msgspec

from bench import fleets, measure
from dovetail.allocate.index import selector_matches
from dovetail.cel import device_views, selectors
from dovetail.cel.evaluate.program import Outcome, compile_stored
from dovetail.kubetypes import codec
from dovetail.kubetypes.resource import slices
from dovetail.world.devices.device_columns import Interner
from tests.support.oracle import Oracle

EXPRESSIONS = (
    'device.driver == "gpu.nvidia.com" && device.attributes["gpu.nvidia.com"].type == "gpu"',
    'device.attributes["gpu.nvidia.com"].productName == "NVIDIA H100 80GB HBM3"',
    'device.attributes["gpu.nvidia.com"].architecture in ["Hopper", "Blackwell"]',
    'device.capacity["gpu.nvidia.com"].memory.compareTo(quantity("80Gi")) >= 0',
    'device.attributes["gpu.nvidia.com"].cudaComputeCapability.isGreaterThan(semver("8.9.0"))',
    'device.attributes["gpu.nvidia.com"].productName.matches("^NVIDIA (H|B)[0-9]+")',
    'cel.bind(gpu, device.attributes["gpu.nvidia.com"], gpu.type == "gpu" && gpu.architecture == "Hopper")',
    'device.attributes["gpu.nvidia.com"].?index.orValue(99) < 4',
    'has(device.attributes["gpu.nvidia.com"].brand) && device.attributes["gpu.nvidia.com"].brand.startsWith("Nv")',
    'device.attributes["gpu.nvidia.com"].productName.lowerAscii().contains("h100")',
)
SECONDS = 0.5
ROUNDS = 5
SIZES = (1_000, 4_000, 16_000, 64_000)


def varied(oracle: Oracle) -> dict[str, Any]:
    """Each evaluation on a device not seen just before, conversion from the API's form included, as upstream does."""
    listed = fleets.structs(500)
    wire = [{"driver": fleets.DRIVER, **_body(fleets.device(i))} for i in range(500)]
    rows = {}
    for expression in EXPRESSIONS:
        program = compile_stored(expression)
        views = [device_views.view(fleets.DRIVER, device) for device in listed]

        def converting(program: Any = program) -> int:
            for device in listed:
                program.outcome(device_views.view(fleets.DRIVER, device))
            return len(listed)

        def kept(program: Any = program, views: Any = views) -> int:
            for view in views:
                program.outcome(view)
            return len(views)

        def upstream(expression: str = expression) -> float:
            request = {
                "op": "bench",
                "what": "cel",
                "expression": expression,
                "devices": wire,
                "seconds": SECONDS,
            }
            return float(oracle.ask(request)["perSecond"])

        pair = measure.interleaved(
            lambda: measure.rate(converting, seconds=SECONDS), upstream, rounds=ROUNDS
        )
        ready = measure.rate(kept, seconds=SECONDS)
        rows[expression] = {**pair.as_json(), "oursPerSecondOnKeptDevices": round(ready, 1)}
    return rows


def projected(oracle: Oracle) -> dict[str, Any]:
    """One selector over whole fleets of ten products: verdicts are remembered by what the expression reads."""
    expression = EXPRESSIONS[6]
    rows = {}
    for size in SIZES:
        views = [device_views.view(fleets.DRIVER, device) for device in fleets.structs(size)]

        def sweep(views: Any = views) -> int:
            chosen = selectors.Selector(expression)
            matches = chosen.match_all(views).count(Outcome.MATCH)
            assert 0 < matches < len(views)
            return len(views)

        def upstream(size: int = size) -> float:
            wire = [
                {"driver": fleets.DRIVER, **_body(fleets.device(i))} for i in range(min(size, 2000))
            ]
            request = {
                "op": "bench",
                "what": "cel",
                "expression": expression,
                "devices": wire,
                "seconds": SECONDS,
            }
            return float(oracle.ask(request)["perSecond"])

        pair = measure.interleaved(
            lambda: measure.rate(sweep, seconds=SECONDS), upstream, rounds=ROUNDS
        )
        rows[f"{size} devices"] = pair.as_json()
    return rows


def by_columns(oracle: Oracle) -> dict[str, Any]:
    """The same question as allocation asks it: pools in interned columns, one mask per pool, nothing known before."""
    expression = EXPRESSIONS[6]
    text = fleets.slice_list(SIZES[-1] // 64, 64)
    listed = [codec.decode(tree).struct for tree in msgspec.json.decode(text)["items"]]
    interner = Interner()
    pools = [interner.devices(one) for one in listed if isinstance(one, slices.ResourceSlice)]

    def sweep() -> int:
        selector_matches.forget()
        found = sum(selector_matches.selected(pool, (expression,)).bit_count() for pool in pools)
        assert 0 < found < SIZES[-1]
        return SIZES[-1]

    def upstream() -> float:
        wire = [{"driver": fleets.DRIVER, **_body(fleets.device(i))} for i in range(2000)]
        request = {
            "op": "bench",
            "what": "cel",
            "expression": expression,
            "devices": wire,
            "seconds": SECONDS,
        }
        return float(oracle.ask(request)["perSecond"])

    pair = measure.interleaved(
        lambda: measure.rate(sweep, seconds=SECONDS), upstream, rounds=ROUNDS
    )
    return {f"{SIZES[-1]} devices in {len(pools)} pools": pair.as_json()}


def _body(device: dict[str, Any]) -> dict[str, Any]:
    return {"attributes": device["attributes"], "capacity": device["capacity"]}
