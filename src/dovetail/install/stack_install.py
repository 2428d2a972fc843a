"""Turns a plain cluster with drivers into a GPU cluster: the chart with its stack values, checked against what runs.

Given the chart's values and a transport. Before anything is written, the parts that would run are held against those
that do: an agent beside another publisher of the same GPUs is refused. Device classes that exist are used as they are.
Never removes a part that it did not install.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Final

from dovetail import errors
from dovetail.answer.stack_parts import agent_sets, part_report
from dovetail.answer.stack_parts.part_answer import ClusterGap, PartReport
from dovetail.install import apply_chart, chart, chart_functions
from dovetail.kube import read_objects
from dovetail.kube.http import transport
from dovetail.kubetypes import codec, object_set, registry

VALUES: Final = "values-stack.yaml"
# What two parts on one node would do to each other; everything else may still come to be.
REFUSED: Final = frozenset({"two-drivers", "claims-and-counts", "two-agents"})
POLL_SECONDS: Final = 1.0
MOST_SHOWN: Final = 5

Tree = dict[str, Any]


def values_of(files: Sequence[str | Path], *, settings: Sequence[str]) -> Tree:
    """The stack's values, overridden by files and then settings. Raises InputError."""
    return chart.values_of([chart.home() / VALUES, *files], settings=settings)


async def checked(
    over: transport.Transport, values: Tree, release: chart.Release, *, say: apply_chart.Say
) -> Tree:
    """The values as they fit the cluster. Raises InputError where agents would share GPUs with other parts."""
    cluster = apply_chart.Cluster(over)
    objects = await read(over)
    fitted = _with_present_classes(objects, values, release, say=say)
    planned = chart.objects(fitted, release, api_versions=await cluster.optional())
    gaps = [gap for gap in _after(objects, planned, release).gaps if gap.code in REFUSED]
    if gaps:
        raise errors.InputError("\n".join(["nothing was installed:", *_lines(gaps)]))
    return fitted


async def await_parts(
    over: transport.Transport, *, seconds: float, say: apply_chart.Say
) -> PartReport:
    """Waits until no part is missing. Raises StateError with what is missing after that time."""
    deadline = time.monotonic() + seconds
    last_line = ""
    while True:
        report = part_report.report(await read(over))
        complete = sum(not node.gaps for node in report.nodes)
        line = f"{complete} of {len(report.nodes)} nodes with GPUs complete"
        if report.is_complete:
            say(line)
            return report
        if time.monotonic() >= deadline:
            lines = [f"{line} after {seconds:.0f} s", *_lines(report.gaps)]
            raise errors.StateError("\n".join([*lines, "next: dovetail stack parts"]))
        if line != last_line:
            say(f"{line} ...")
            last_line = line
        await asyncio.sleep(POLL_SECONDS)


async def read(over: transport.Transport) -> object_set.ObjectSet:
    """What a report about parts needs; kinds that the cluster does not serve are empty."""
    reads = [object_set.Read(kind) for kind in part_report.NEEDED]
    reads += [object_set.Read(kind, is_optional=True) for kind in part_report.FURTHER]
    reading = await read_objects.read_over(over, reads, cluster="")
    return reading.objects


def _with_present_classes(
    objects: object_set.ObjectSet, values: Tree, release: chart.Release, *, say: apply_chart.Say
) -> Tree:
    """Without device classes where other owners created them."""
    trees = [stored.tree for stored in objects.listed(registry.DEVICE_CLASS.unique_name)]
    foreign = [
        tree["metadata"]["name"]
        for tree in trees
        if tree["metadata"]["name"] in _CLASSES and not _is_ours(tree, release)
    ]
    if not foreign:
        return values
    say(f"device classes {', '.join(sorted(foreign))} exist and are used as they are")
    return chart_functions.merged_over(values, {"nodeAgent": {"deviceClasses": False}})


_CLASSES: Final = ("gpu.nvidia.com", "mig.nvidia.com")


def _is_ours(tree: Tree, release: chart.Release) -> bool:
    labels = tree["metadata"].get("labels") or {}
    is_release = labels.get(chart.INSTANCE_LABEL) == release.name
    return is_release and bool(apply_chart.manager_of(tree))


def _after(
    objects: object_set.ObjectSet, planned: Iterable[Tree], release: chart.Release
) -> PartReport:
    """The report once the planned DaemonSets have replaced those of the release."""
    kept = [stored for stored in objects.all() if not _is_agent_of(stored, release)]
    coming = [codec.decode(tree) for tree in planned if tree["kind"] == "DaemonSet"]
    return part_report.report(object_set.of("", [*kept, *coming]))


def _is_agent_of(stored: codec.Stored, release: chart.Release) -> bool:
    metadata = stored.struct.metadata
    is_of_release = metadata.labels.get(chart.INSTANCE_LABEL) == release.name
    is_agent = agent_sets.is_agent_label(metadata.labels)
    return stored.struct.kind == "DaemonSet" and is_of_release and is_agent


def _lines(gaps: Sequence[ClusterGap]) -> list[str]:
    lines = []
    for gap in gaps[:MOST_SHOWN]:
        where = ", ".join(gap.nodes[:3]) + (", ..." if len(gap.nodes) > 3 else "")
        lines += [f"{where or 'cluster'}: {gap.what}", f"  next: {gap.next}"]
    if len(gaps) > MOST_SHOWN:
        lines.append(f"and {len(gaps) - MOST_SHOWN} more")
    return lines
