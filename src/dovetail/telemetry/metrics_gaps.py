"""Times without samples: of all GPUs, of the GPUs of a node, or of one GPU.

Given measured devices and the GPUs that were there. A time is a gap if samples are further apart than the longest pause
that is normal, and the GPU was there. What is said of all GPUs is not said again of a node, nor what is said of a node
of each of its GPUs. Pure.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence
from typing import Final, NamedTuple

from dovetail.model.accounting.records import Asset, Gap, GapSource, Millis
from dovetail.telemetry.measured_devices import MeasuredDevice

WHY: Final = "no samples"

Spans = list[tuple[Millis, Millis]]


class Sampled(NamedTuple):
    """The times of samples, in milliseconds: of each asset, and of GPUs by node."""

    of_asset: dict[str, set[Millis]]
    of_node: dict[str, set[Millis]]


def gaps(
    devices: Iterable[MeasuredDevice],
    assets: Sequence[Asset],
    *,
    start: Millis,
    end: Millis,
    max_gap_seconds: float,
) -> tuple[Gap, ...]:
    """The gaps between two times. Samples before the start say how long a gap at the start has lasted."""
    longest = round(max_gap_seconds * 1000)
    life = _lives(assets, start, end)
    if not life:
        return ()
    sampled = _sampled(devices, assets)
    everywhere = set[Millis]().union(*(sampled.of_asset[asset.asset] for asset in assets))
    of_all = _unsampled(everywhere, _joined(life.values()), longest)
    gaps_ = [_gap(span, "") for span in of_all]

    by_node: dict[str, list[str]] = {}
    for asset in assets:
        if asset.asset in life:
            by_node.setdefault(asset.node, []).append(asset.asset)
    for node, names in sorted(by_node.items()):
        own = dict.fromkeys(names)
        times = set[Millis]().union(*(sampled.of_asset[name] for name in own))
        lives = _joined(life[name] for name in own)
        of_node = _without(_unsampled(times, lives, longest), of_all, longest)
        gaps_ += [_gap(span, node) for span in of_node]
        if len(own) == 1:
            continue
        for name in sorted(own):
            unsampled = _unsampled(sampled.of_asset[name], life[name], longest)
            rest = _without(unsampled, [*of_all, *of_node], longest)
            gaps_ += [_gap(span, name) for span in rest]
    return tuple(gaps_)


def _gap(span: tuple[Millis, Millis], subject: str) -> Gap:
    return Gap(GapSource.METRICS, *span, WHY, subject)


def _lives(assets: Iterable[Asset], start: Millis, end: Millis) -> dict[str, Spans]:
    """When each asset was there, within the window."""
    lives: dict[str, Spans] = {}
    for asset in assets:
        begun = max(asset.start, start)
        ended = end if asset.end is None else min(asset.end, end)
        if begun < ended:
            lives.setdefault(asset.asset, []).append((begun, ended))
    return {name: _joined([spans]) for name, spans in lives.items()}


def _sampled(devices: Iterable[MeasuredDevice], assets: Sequence[Asset]) -> Sampled:
    by_name = {asset.asset: asset for asset in assets}
    sampled = Sampled({name: set() for name in by_name}, {})
    for device in devices:
        times = {round(at * 1000) for points in device.whole.values() for at, _ in points}
        sampled.of_node.setdefault(device.node, set()).update(times)
        names = [device.uuid]
        names += [f"{name.driver}/{name.pool}/{name.name}" for name in device.names]
        for name in names:
            if name in by_name:
                sampled.of_asset[name] |= times
    for name, asset in by_name.items():
        if is_counted(asset):  # no device says that it is one of them; those of the node are
            sampled.of_asset[name] |= sampled.of_node.get(asset.node, set())
    return sampled


def is_counted(asset: Asset) -> bool:
    """Whether the asset stands for GPUs that a node only counts: its name is the node's, and the resource."""
    return asset.asset.startswith(f"{asset.node}/")


def _unsampled(times: set[Millis], lives: Spans, longest: int) -> Spans:
    """The parts of a life in which samples are too far apart."""
    ordered = sorted(times)
    spans: Spans = []
    for begun, ended in lives:
        earlier = [at for at in ordered if at <= begun]
        within = [at for at in ordered if begun < at < ended]
        # Before the first sample that is known, nothing is known to have been measured.
        first = earlier[-1] if earlier else begun
        for former, following in itertools.pairwise([first, *within, ended]):
            if following - former > longest:
                spans.append((max(former, begun), following))
    return spans


def _joined(parts: Iterable[Spans]) -> Spans:
    """Spans of several lists as one list without overlaps."""
    joined: Spans = []
    for begun, ended in sorted(span for spans in parts for span in spans):
        if joined and begun <= joined[-1][1]:
            joined[-1] = (joined[-1][0], max(joined[-1][1], ended))
        else:
            joined.append((begun, ended))
    return joined


def _without(spans: Spans, covered: Spans, longest: int) -> Spans:
    """What is left of spans outside of others, as far as it is long enough to matter."""
    return [
        part
        for span in spans
        for part in _parts(span, sorted(covered))
        if part[1] - part[0] > longest
    ]


def _parts(span: tuple[Millis, Millis], covered: Spans) -> Iterator[tuple[Millis, Millis]]:
    begun, ended = span
    for first, last in covered:
        if last <= begun or first >= ended:
            continue
        if begun < first:
            yield begun, first
        begun = max(begun, last)
    if begun < ended:
        yield begun, ended
