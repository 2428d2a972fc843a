"""Rules for queues and topologies: the same that the chart's definitions enforce on a real API server.

Given an object; reports each field that is wrong. A schema cannot check that a parent exists and that parents form no
circle, and neither does this module: the queue's status reports that.
"""

import re
from typing import Final

from dovetail.admission import validate_metadata
from dovetail.kubetypes import field_errors, meta, names
from dovetail.kubetypes.custom import queues, topologies
from dovetail.kubetypes.field_errors import Problems
from dovetail.model.queue import queue_resources
from dovetail.quantity import durations

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
            field_errors.invalid(problems, "spec.parent", "a queue cannot be its own parent")
    if not -MAX_PRIORITY <= spec.priority <= MAX_PRIORITY:
        field_errors.invalid(
            problems, "spec.priority", f"must be between {-MAX_PRIORITY} and {MAX_PRIORITY}"
        )
    _check_resources(problems, spec.resources)
    _check_selector(problems, spec.namespace_selector)
    _check_aliases(problems, spec.aliases)
    _check_runtimes(problems, spec)
    _check_idle(problems, spec.idle)
    if spec.power_cap_watts is not None and spec.power_cap_watts < 1:
        field_errors.invalid(problems, "spec.powerCapWatts", "must be at least 1")


def check_topology(problems: Problems, topology: topologies.Topology) -> None:
    """A topology, new or changed."""
    _check_metadata(problems, topology.metadata)
    levels = topology.spec.levels
    if not levels:
        field_errors.required(problems, "spec.levels", "at least one level is required")
    if len(levels) > MAX_LEVELS:
        field_errors.too_many(problems, "spec.levels", len(levels), limit=MAX_LEVELS)
    labels = [level.node_label for level in levels]
    aliases = [level.alias for level in levels]
    for index, level in enumerate(levels):
        path = f"spec.levels[{index}]"
        names.check_label_key(problems, f"{path}.nodeLabel", level.node_label)
        if labels.count(level.node_label) > 1:
            field_errors.duplicate(problems, f"{path}.nodeLabel", level.node_label)
        if level.alias:
            is_taken = aliases.count(level.alias) > 1 or level.alias in labels
            _check_level_alias(problems, level.alias, f"{path}.alias", is_taken=is_taken)
        if level.power_cap_watts is not None and level.power_cap_watts < 1:
            field_errors.invalid(problems, f"{path}.powerCapWatts", "must be at least 1")
        if level.node_label == HOSTNAME and index != len(levels) - 1:
            message = f"{HOSTNAME} is the node itself and can only be the last level"
            field_errors.invalid(problems, f"{path}.nodeLabel", message)


def _check_level_alias(problems: Problems, alias: str, path: str, *, is_taken: bool) -> None:
    if not re.fullmatch(_LABEL, alias):
        field_errors.invalid(problems, path, "an alias must be a label value")
    if is_taken:
        field_errors.duplicate(problems, path, alias)


def _check_metadata(problems: Problems, metadata: meta.ObjectMeta) -> None:
    if not metadata.name and not metadata.generate_name:
        field_errors.required(problems, "metadata.name", "name or generateName is required")
    elif metadata.name:
        names.check_label(problems, "metadata.name", metadata.name)
    validate_metadata.check_labels(problems, metadata.labels, "metadata.labels")
    validate_metadata.check_annotations(problems, metadata.annotations, "metadata.annotations")


def _check_resources(problems: Problems, resources: dict[str, queues.Share]) -> None:
    if len(resources) > MAX_RESOURCES:
        field_errors.too_many(problems, "spec.resources", len(resources), limit=MAX_RESOURCES)
    if len(queue_resources.GPU_SPELLINGS & resources.keys()) > 1:
        message = "gpu and nvidia.com/gpu are the same resource; keep one of them"
        field_errors.invalid(problems, "spec.resources", message)
    for name, share in resources.items():
        path = field_errors.map_path("spec.resources", name, limit=80)
        if queue_resources.read(name) is None:
            field_errors.invalid(problems, path, queue_resources.EXPECTED)
        _check_share(problems, share, path)


def _check_share(problems: Problems, share: queues.Share, path: str) -> None:
    for field, value in (("quota", share.quota), ("limit", share.limit)):
        if value is not None and value.nanos < 0:
            field_errors.invalid(problems, f"{path}.{field}", f"{field} must not be negative")
    if share.quota is not None and share.limit is not None and share.limit < share.quota:
        field_errors.invalid(problems, f"{path}.limit", "limit must be at least quota")
    if not 0 <= share.weight <= MAX_WEIGHT:
        field_errors.invalid(problems, f"{path}.weight", f"must be between 0 and {MAX_WEIGHT}")


def _check_selector(problems: Problems, selector: meta.LabelSelector | None) -> None:
    for index, test in enumerate(selector.match_expressions if selector is not None else ()):
        path = f"spec.namespaceSelector.matchExpressions[{index}]"
        names.check_label_key(problems, f"{path}.key", test.key)
        if test.operator not in ("In", "NotIn", "Exists", "DoesNotExist"):
            field_errors.not_supported(
                problems,
                f"{path}.operator",
                test.operator,
                ("In", "NotIn", "Exists", "DoesNotExist"),
            )
        elif (test.operator in ("In", "NotIn")) != bool(test.values):
            field_errors.invalid(
                problems,
                f"{path}.values",
                "In and NotIn need values, Exists and DoesNotExist have none",
            )


def _check_aliases(problems: Problems, aliases: tuple[str, ...]) -> None:
    if len(aliases) > MAX_ALIASES:
        field_errors.too_many(problems, "spec.aliases", len(aliases), limit=MAX_ALIASES)
    for index, alias in enumerate(aliases):
        if not _ALIAS.fullmatch(alias):
            field_errors.invalid(
                problems,
                f"spec.aliases[{index}]",
                "an alias must be a label value, or a namespace and a label value with '/' between them",
            )
        if alias in aliases[:index]:
            field_errors.duplicate(problems, f"spec.aliases[{index}]", alias)


def _check_runtimes(problems: Problems, spec: queues.QueueSpec) -> None:
    shortest = (
        spec.min_runtime_seconds,
        spec.preempt_min_runtime_seconds,
        spec.reclaim_min_runtime_seconds,
    )
    longest = spec.max_runtime_seconds
    if longest is not None and longest < 1:
        field_errors.invalid(problems, "spec.maxRuntimeSeconds", "must be at least 1")
    _check_bound(problems, "spec.maxRuntimeSeconds", longest)
    for name, value in zip(_RUNTIMES, shortest, strict=True):
        if value is not None and value < 0:
            field_errors.invalid(problems, f"spec.{name}", "must not be negative")
        _check_bound(problems, f"spec.{name}", value)
        if value is not None and longest is not None and value > longest:
            field_errors.invalid(
                problems, f"spec.{name}", f"{name} must not be larger than maxRuntimeSeconds"
            )


def _check_bound(problems: Problems, path: str, seconds: int | None) -> None:
    if seconds is not None and seconds > durations.LONGEST_SECONDS:
        field_errors.invalid(
            problems, path, f"must be at most {durations.LONGEST_SECONDS}, a hundred years"
        )


def _check_idle(problems: Problems, idle: queues.IdlePolicy | None) -> None:
    if idle is None:
        return
    if not 0 <= idle.threshold_percent <= 100:
        field_errors.invalid(problems, "spec.idle.thresholdPercent", "must be between 0 and 100")
    _check_bound(problems, "spec.idle.windowSeconds", idle.window_seconds)
    _check_bound(problems, "spec.idle.graceSeconds", idle.grace_seconds)
    if idle.window_seconds < 1:
        field_errors.invalid(problems, "spec.idle.windowSeconds", "must be at least 1")
    if idle.grace_seconds < 0:
        field_errors.invalid(problems, "spec.idle.graceSeconds", "must not be negative")
