"""`GET /policy`: the rules by which the scheduler decides, as far as they are known, and where they come from.

A dashboard knows what it was given, or what it reads of the cluster; else it shows the defaults and says so. Settings
of the scheduler's process that no answer depends on are shown only where its configuration was read. Never guesses.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple

import msgspec

from dovetail import errors
from dovetail.ask import scheduler_policy
from dovetail.files import configuration_file
from dovetail.kubetypes import registry
from dovetail.kubetypes.custom import topologies
from dovetail.model import configuration, policy
from dovetail.web import asked, endpoints
from dovetail.web.api import read_kinds, rights

CONFIG_MAP: Final = "ConfigMap"
FILE_NAME: Final = "scheduler.yaml"  # in the chart's ConfigMap
# Settings that are part of a policy; the others are of the scheduler's process.
_OF_POLICY: Final = ("schedulerNames", "ownership.", "queues.", "decide.weights.")
_STEPS: Final = {
    policy.Step.ALLOCATE: "starts gangs in free room",
    policy.Step.CONSOLIDATE: "starts gangs by moving others",
    policy.Step.RECLAIM: "starts gangs by evicting work of queues above their share",
    policy.Step.PREEMPT: "starts gangs by evicting less important work of their queue",
    policy.Step.STALE: "evicts gangs that fell below their minimum for too long",
    policy.Step.OVERTIME: "evicts gangs that ran for longer than they may",
}


class Setting(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """One setting of the scheduler's configuration."""

    name: str
    value: Any
    default: Any
    meaning: str


class DecisionStep(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """One step of a decision."""

    name: str
    meaning: str


class ShownTopology(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A topology, its levels from the widest to the narrowest."""

    name: str
    levels: tuple[str, ...]


class PolicyView(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The rules. `unknown` are settings that the dashboard cannot know."""

    source: str
    scheduler_names: tuple[str, ...]
    settings: tuple[Setting, ...]
    steps: tuple[DecisionStep, ...]
    weights: tuple[Setting, ...]
    queues: int
    topologies: tuple[ShownTopology, ...]
    unknown: tuple[str, ...]


class _Known(NamedTuple):
    """What is known of the configuration, and from where."""

    source: str
    configuration: configuration.SchedulerConfiguration
    is_whole: bool


def answer(question: asked.Asked, params: endpoints.Nothing) -> PolicyView:
    """The rules that answers are given by."""
    known = _known(question)
    values = msgspec.to_builtins(known.configuration)
    all_settings = list(_settings(values))
    shown = [each for each in all_settings if known.is_whole or _is_of_policy(each.name)]
    names = {each.name for each in shown}
    objects = question.view.objects
    prefix = "decide.weights."
    return PolicyView(
        source=known.source,
        scheduler_names=question.policy.scheduler_names,
        settings=tuple(shown),
        steps=tuple(
            DecisionStep(name=str(step), meaning=_STEPS[step]) for step in question.policy.steps
        ),
        weights=tuple(
            msgspec.structs.replace(each, name=each.name.removeprefix(prefix))
            for each in shown
            if each.name.startswith(prefix)
        ),
        queues=objects.count(registry.QUEUE.unique_name)
        if rights.lists(question, registry.QUEUE)
        else 0,
        topologies=tuple(_topologies(question)),
        unknown=tuple(each.name for each in all_settings if each.name not in names),
    )


def _known(question: asked.Asked) -> _Known:
    of_policy = _as_configuration(question.policy)
    if question.policy != scheduler_policy.default(question.view):
        return _Known("the configuration that the dashboard was given", of_policy, False)
    read = _read_from_cluster(question)
    if read is not None:
        return read
    if question.view.is_embedded:
        source = "the defaults, with which the embedded cluster runs"
    elif question.view.is_snapshot:
        source = "the defaults: a snapshot does not say how its scheduler was configured"
    else:
        source = (
            "the defaults: no configuration was given to the dashboard or read from the cluster"
        )
    return _Known(source, of_policy, False)


def _read_from_cluster(question: asked.Asked) -> _Known | None:
    """The chart's ConfigMap, where it was read with the objects of the cluster."""
    for stored in question.view.objects.listed(CONFIG_MAP):
        text = (stored.tree.get("data") or {}).get(FILE_NAME)
        metadata = stored.struct.metadata
        if not isinstance(text, str) or not question.may.sees(CONFIG_MAP, metadata.namespace):
            continue
        name = f"ConfigMap {metadata.namespace}/{metadata.name}"
        try:
            read = configuration_file.read(text, file=name)
        except errors.InputError:
            continue
        is_used = configuration.policy_of(read) == question.policy
        note = "" if is_used else " (answers are given by the defaults)"
        return _Known(name + note, read, True)
    return None


def _as_configuration(rules: policy.Policy) -> configuration.SchedulerConfiguration:
    """The part of a configuration that a policy holds."""
    batch = {name: getattr(rules.batch, name) for name in configuration.Queues.__struct_fields__}
    batch["consolidation_victims"] = rules.batch.consolidation_victims or 0
    ours = rules.ownership
    return configuration.SchedulerConfiguration(
        scheduler_names=rules.scheduler_names,
        ownership=configuration.Ownership(
            node_labels=ours.node_labels,
            node_taint=ours.node_taint,
            device_taint_rules=ours.device_rules,
        ),
        decide=configuration.Decide(weights=rules.weights),
        queues=configuration.Queues(**batch),
    )


def _settings(values: Mapping[str, Any]) -> Iterator[Setting]:
    for field in configuration.fields():
        value: Any = values
        for name in field.path.split("."):
            value = value[name]
        yield Setting(
            name=field.path,
            value=value,
            default=msgspec.to_builtins(field.default),
            meaning=field.meaning,
        )


def _is_of_policy(name: str) -> bool:
    return name.startswith(_OF_POLICY)


def _topologies(question: asked.Asked) -> Iterator[ShownTopology]:
    if not rights.lists(question, registry.TOPOLOGY):
        return
    for stored in question.view.objects.listed(registry.TOPOLOGY.unique_name):
        if isinstance(stored.struct, topologies.Topology):
            levels = stored.struct.spec.levels
            yield ShownTopology(
                name=stored.struct.metadata.name,
                levels=tuple(level.alias or level.node_label for level in levels),
            )


ENDPOINTS = (
    endpoints.Endpoint(
        "/policy",
        endpoints.Nothing,
        PolicyView,
        answer,
        summary="The rules by which the scheduler decides",
        reads=(read_kinds.QUEUES, read_kinds.TOPOLOGIES, read_kinds.CONFIG_MAPS),
        is_quick=True,
    ),
)
