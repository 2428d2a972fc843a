"""Rules for queues and topologies, the same the chart's definitions hold on a real server.

Given an object; names each field that is wrong. What no schema can check, that a parent exists and parents form no
circle, is not checked here either: the queue's status tells.
"""

import re
from typing import Final

from dovetail.model import durations, meta, queueresources, queues, topologies
from dovetail.model.validation import fields, metadata, names
from dovetail.model.validation.fields import Problems

MAX_RESOURCES: Final = 32
MAX_ALIASES: Final = 256
MAX_LEVELS: Final = 16
MAX_PRIORITY: Final = 1_000_000_000
MAX_WEIGHT: Final = 1_000_000
HOSTNAME: Final = "kubernetes.io/hostname"

_LABEL: Final = r"[A-Za-z0-9](?:[-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?"
_ALIAS: Final = re.compile(rf"(?:[a-z0-9](?:[-a-z0-9]{{0,61}}[a-z0-9])?/)?{_LABEL}")
_RUNTIMES: Final = ("minRuntimeSeconds", "preemptMinRuntimeSeconds", "reclaimMinRuntimeSeconds")


def check_queue(problems: Problems, queue: queues.Queue) -> None:
    """A queue, new or changed."""
    _check_metadata(problems, queue.metadata)
    spec = queue.spec
    if spec.parent:
        names.check_label(problems, "spec.parent", spec.parent)
        if spec.parent == queue.metadata.name:
            fields.invalid(problems, "spec.parent", "a queue cannot be its own parent")
    if not -MAX_PRIORITY <= spec.priority <= MAX_PRIORITY:
        fields.invalid(problems, "spec.priority", f"must be between {-MAX_PRIORITY} and {MAX_PRIORITY}")
    _check_resources(problems, spec.resources)
    _check_selector(problems, spec.namespace_selector)
    _check_aliases(problems, spec.aliases)
    _check_runtimes(problems, spec)
    _check_idle(problems, spec.idle)
    if spec.power_cap_watts is not None and spec.power_cap_watts < 1:
        fields.invalid(problems, "spec.powerCapWatts", "must be at least 1")


def check_topology(problems: Problems, topology: topologies.Topology) -> None:
    """A topology, new or changed."""
    _check_metadata(problems, topology.metadata)
    levels = topology.spec.levels
    if not levels:
        fields.required(problems, "spec.levels", "at least one level is required")
    if len(levels) > MAX_LEVELS:
        fields.too_many(problems, "spec.levels", len(levels), limit=MAX_LEVELS)
    labels, aliases = [one.node_label for one in levels], [one.alias for one in levels]
    for index, one in enumerate(levels):
        path = f"spec.levels[{index}]"
        names.check_label_key(problems, f"{path}.nodeLabel", one.node_label)
        if labels.count(one.node_label) > 1:
            fields.duplicate(problems, f"{path}.nodeLabel", one.node_label)
        if one.alias and not re.fullmatch(_LABEL, one.alias):
            fields.invalid(problems, f"{path}.alias", "an alias must be a label value")
        if one.alias and (aliases.count(one.alias) > 1 or one.alias in labels):
            fields.duplicate(problems, f"{path}.alias", one.alias)
        if one.power_cap_watts is not None and one.power_cap_watts < 1:
            fields.invalid(problems, f"{path}.powerCapWatts", "must be at least 1")
        if one.node_label == HOSTNAME and index != len(levels) - 1:
            fields.invalid(
                problems, f"{path}.nodeLabel", f"{HOSTNAME} is the node itself and can only be the last level"
            )


def _check_metadata(problems: Problems, found: meta.ObjectMeta) -> None:
    if not found.name and not found.generate_name:
        fields.required(problems, "metadata.name", "name or generateName is required")
    elif found.name:
        names.check_label(problems, "metadata.name", found.name)
    metadata.check_labels(problems, found.labels, "metadata.labels")
    metadata.check_annotations(problems, found.annotations, "metadata.annotations")


def _check_resources(problems: Problems, resources: dict[str, queues.Share]) -> None:
    if len(resources) > MAX_RESOURCES:
        fields.too_many(problems, "spec.resources", len(resources), limit=MAX_RESOURCES)
    if len(queueresources.GPU_SPELLINGS & resources.keys()) > 1:
        fields.invalid(problems, "spec.resources", "gpu and nvidia.com/gpu are the same resource; keep one of them")
    for name, share in resources.items():
        path = fields.map_path("spec.resources", name, limit=80)
        if queueresources.read(name) is None:
            fields.invalid(problems, path, queueresources.EXPECTED)
        for field, value in (("quota", share.quota), ("limit", share.limit)):
            if value is not None and value.nanos < 0:
                fields.invalid(problems, f"{path}.{field}", f"{field} must not be negative")
        if share.quota is not None and share.limit is not None and share.limit < share.quota:
            fields.invalid(problems, f"{path}.limit", "limit must be at least quota")
        if not 0 <= share.weight <= MAX_WEIGHT:
            fields.invalid(problems, f"{path}.weight", f"must be between 0 and {MAX_WEIGHT}")


def _check_selector(problems: Problems, selector: meta.LabelSelector | None) -> None:
    for index, one in enumerate(selector.match_expressions if selector is not None else ()):
        path = f"spec.namespaceSelector.matchExpressions[{index}]"
        names.check_label_key(problems, f"{path}.key", one.key)
        if one.operator not in ("In", "NotIn", "Exists", "DoesNotExist"):
            fields.not_supported(problems, f"{path}.operator", one.operator, ("In", "NotIn", "Exists", "DoesNotExist"))
        elif (one.operator in ("In", "NotIn")) != bool(one.values):
            fields.invalid(problems, f"{path}.values", "In and NotIn need values, Exists and DoesNotExist have none")


def _check_aliases(problems: Problems, aliases: tuple[str, ...]) -> None:
    if len(aliases) > MAX_ALIASES:
        fields.too_many(problems, "spec.aliases", len(aliases), limit=MAX_ALIASES)
    for index, alias in enumerate(aliases):
        if not _ALIAS.fullmatch(alias):
            fields.invalid(
                problems,
                f"spec.aliases[{index}]",
                "an alias must be a label value, or a namespace and a label value with '/' between them",
            )
        if alias in aliases[:index]:
            fields.duplicate(problems, f"spec.aliases[{index}]", alias)


def _check_runtimes(problems: Problems, spec: queues.QueueSpec) -> None:
    shortest = (spec.min_runtime_seconds, spec.preempt_min_runtime_seconds, spec.reclaim_min_runtime_seconds)
    longest = spec.max_runtime_seconds
    if longest is not None and longest < 1:
        fields.invalid(problems, "spec.maxRuntimeSeconds", "must be at least 1")
    _check_bound(problems, "spec.maxRuntimeSeconds", longest)
    for name, value in zip(_RUNTIMES, shortest, strict=True):
        if value is not None and value < 0:
            fields.invalid(problems, f"spec.{name}", "must not be negative")
        _check_bound(problems, f"spec.{name}", value)
        if value is not None and longest is not None and value > longest:
            fields.invalid(problems, f"spec.{name}", f"{name} must not be larger than maxRuntimeSeconds")


def _check_bound(problems: Problems, path: str, seconds: int | None) -> None:
    if seconds is not None and seconds > durations.LONGEST_SECONDS:
        fields.invalid(problems, path, f"must be at most {durations.LONGEST_SECONDS}, a hundred years")


def _check_idle(problems: Problems, idle: queues.IdlePolicy | None) -> None:
    if idle is None:
        return
    if not 0 <= idle.threshold_percent <= 100:
        fields.invalid(problems, "spec.idle.thresholdPercent", "must be between 0 and 100")
    _check_bound(problems, "spec.idle.windowSeconds", idle.window_seconds)
    _check_bound(problems, "spec.idle.graceSeconds", idle.grace_seconds)
    if idle.window_seconds < 1:
        fields.invalid(problems, "spec.idle.windowSeconds", "must be at least 1")
    if idle.grace_seconds < 0:
        fields.invalid(problems, "spec.idle.graceSeconds", "must not be negative")
