"""Reads what people ask an upgrade for: a policy file, labels and versions, as the spec of a StackUpgrade.

Given texts. Raises InputError naming the field that is wrong. Never changes a cluster.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

import msgspec
import yaml

from dovetail import errors
from dovetail.answer.drain import drain_filters
from dovetail.answer.rollout import rollout_answer, rollout_policy
from dovetail.files import bounded_files
from dovetail.kubetypes import meta
from dovetail.kubetypes.custom import stack_upgrades

NAME: Final = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
_FIELDS: Final = ("adapter", "nodeSelector", "waves", "drain", "stop", "rollback")
_PARTS: Final[Mapping[str, type[msgspec.Struct]]] = {
    "waves": stack_upgrades.WavePolicy,
    "drain": stack_upgrades.DrainPolicy,
    "stop": stack_upgrades.StopRules,
}


def name_of(name: str | None, to: Mapping[str, str]) -> str:
    """The name of an upgrade: the one asked for, else what it brings."""
    words = "-".join(f"{part}-{version}" for part, version in sorted(to.items()))
    chosen = name or re.sub(r"[^a-z0-9]+", "-", words.lower()).strip("-")[:63]
    if not NAME.fullmatch(chosen):
        raise errors.InputError(
            f'--name "{chosen}": expected a DNS label of at most 63 letters, digits and dashes'
        )
    return chosen


def spec_of(
    to: Mapping[str, str], policy_file: str | None, labels: str
) -> stack_upgrades.StackUpgradeSpec:
    """The spec."""
    tree = _policy_tree(policy_file) if policy_file is not None else {}
    if labels.strip():
        tree["nodeSelector"] = {"matchLabels": _labels(labels)}
    place = policy_file or "--nodes"
    try:
        spec = msgspec.convert(tree | {"to": dict(to)}, stack_upgrades.StackUpgradeSpec)
    except msgspec.ValidationError as error:
        raise errors.InputError(f"{place}: {error}") from None
    _check(spec, place)
    return spec


def rollout_policy_of(spec: stack_upgrades.StackUpgradeSpec) -> rollout_policy.Policy:
    """The same policy, as a plan takes it."""
    waves = spec.waves
    seconds = waves.node_seconds
    return rollout_policy.Policy(
        durations=rollout_policy.Durations(seconds, seconds, "waves.nodeSeconds"),
        together=waves.together,
        parallel=waves.parallel or None,
        max_unavailable=waves.max_unavailable,
        canary=waves.canary,
        canary_seconds=waves.watch_canary_seconds,
        windows=tuple(map(rollout_policy.window, waves.windows)),
        only_gpu_pods=rollout_policy.GPU_PARTS.issuperset(spec.to),
        drain=drain_filters.Options(
            force=spec.drain.force,
            ignore_daemon_sets=True,
            delete_empty_dir_data=spec.drain.delete_empty_dir_data,
        ),
    )


def with_waves(
    spec: stack_upgrades.StackUpgradeSpec, plan: rollout_answer.Plan
) -> stack_upgrades.StackUpgradeSpec:
    """The spec with the waves of a plan."""
    planned = [stack_upgrades.PlannedWave(nodes=tuple(wave.nodes)) for wave in plan.waves]
    waves = msgspec.structs.replace(spec.waves, planned=tuple(planned))
    return msgspec.structs.replace(spec, waves=waves)


def _policy_tree(path: str) -> dict[str, Any]:
    try:
        tree = yaml.load(bounded_files.text(path), Loader=yaml.CSafeLoader)
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise errors.InputError(f"--policy {path}: not YAML: {error}") from None
    if not isinstance(tree, dict):
        raise errors.InputError(f"--policy {path}: expected fields: {', '.join(_FIELDS)}")
    _refuse_unknown(tree, _FIELDS, f"--policy {path}: ")
    for part, struct in _PARTS.items():
        fields = tree.get(part)
        if isinstance(fields, dict):
            known = struct.__struct_encode_fields__
            _refuse_unknown(fields, known, f"--policy {path}: {part}.")
    return tree


def _refuse_unknown(tree: dict[str, Any], known: tuple[str, ...], place: str) -> None:
    unknown = sorted(str(key) for key in tree if key not in known)
    if unknown:
        raise errors.InputError(
            f"{place}{unknown[0]}: unknown field; known: {', '.join(sorted(known))}"
        )


def _labels(text: str) -> dict[str, str]:
    labels: dict[str, str] = {}
    for pair in text.split(","):
        key, is_pair, value = (word.strip() for word in pair.partition("="))
        if not key or not is_pair:
            raise errors.InputError(
                f'--nodes "{pair}": expected KEY=VALUE; nodeSelector in a policy file takes more'
            )
        labels[key] = value
    return labels


def _check(spec: stack_upgrades.StackUpgradeSpec, place: str) -> None:
    """What cannot be meant, before any request."""
    rollout_policy.unavailable_nodes(spec.waves.max_unavailable, 1)
    for window in spec.waves.windows:
        rollout_policy.window(window)
    if spec.waves.together not in rollout_policy.TOGETHER:
        raise errors.InputError(
            f'{place}: waves.together "{spec.waves.together}": '
            f"expected {', '.join(rollout_policy.TOGETHER)}"
        )
    if spec.waves.planned:
        raise errors.InputError(f"{place}: waves.planned is what the plan fills in; leave it out")
    selector = spec.node_selector or meta.LabelSelector()
    if spec.node_selector is not None and selector == meta.LabelSelector():
        raise errors.InputError(f"{place}: nodeSelector is empty; leave it out for all nodes")
