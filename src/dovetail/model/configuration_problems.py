"""What is wrong with a scheduler's configuration: unknown fields, wrong types, values that contradict each other.

Given a decoded file, or the configuration made of it. Each problem names its path and what to do. Never reads a file,
never changes a value.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterator
from typing import Any, Final

import msgspec

from dovetail.kubetypes import names, untyped
from dovetail.model import policy
from dovetail.model.configuration import (
    API_VERSION,
    KIND,
    LOG_FORMATS,
    LOG_LEVELS,
    DeviceMetrics,
    Field,
    LeaderElection,
    Ownership,
    SchedulerConfiguration,
    fields,
)

_TYPE_WORDS: Final = (  # msgspec's words for types, and ours
    ("int", "a whole number"),
    ("float", "a number"),
    ("str", "text"),
    ("bool", "true or false"),
    ("array", "a list"),
    ("object", "a mapping"),
)
RETRY_JITTER: Final = (
    1.2  # client-go: candidates wait their retry period times up to this much longer
)


def misfits(tree: object) -> list[untyped.Misfit]:
    """What does not fit the structs: unknown fields and where they belong, wrong types, numbers out of range."""
    all_fields = list(fields())
    faults = [
        _with_home(misfit, all_fields) for misfit in untyped.misfits(SchedulerConfiguration, tree)
    ]
    for field in all_fields:
        faults += value_misfits(field, tree)
    return faults


def problems(configuration: SchedulerConfiguration) -> Iterator[untyped.Misfit]:
    """What is wrong although every value has its type: path, need, have, next step."""
    yield from _identity_problems(configuration)
    if not configuration.scheduler_names:
        yield untyped.Misfit(
            "schedulerNames",
            "is empty, so Dovetail would schedule no pod; name at least one, such as dovetail",
        )
    for index, name in enumerate(configuration.scheduler_names):
        if name in configuration.scheduler_names[:index]:
            yield untyped.Misfit(
                f"schedulerNames[{index}]", f'"{name}" is listed twice; delete one'
            )
        elif not names.is_dns_subdomain(name):
            yield untyped.Misfit(
                f"schedulerNames[{index}]", f'{names.SUBDOMAIN_RULE}, got "{name}"'
            )
    yield from _election_problems(configuration.leader_election)
    yield from _ownership_problems(configuration.ownership)
    yield from _choice_problems(configuration)
    if configuration.tracing.endpoint and not _is_http(configuration.tracing.endpoint):
        got = configuration.tracing.endpoint
        yield untyped.Misfit(
            "tracing.endpoint", f'expected http:// or https:// and a host, got "{got}"'
        )
    url = configuration.metrics.prometheus.url
    if url and not _is_http(url):
        yield untyped.Misfit(
            "metrics.prometheus.url", f'expected http:// or https:// and a host, got "{url}"'
        )
    yield from _agent_problems(configuration.metrics)
    if not _is_address(configuration.serving.address):
        got = configuration.serving.address
        yield untyped.Misfit(
            "serving.address", f'expected an IP address such as 127.0.0.1 or 0.0.0.0, got "{got}"'
        )


def _agent_problems(metrics: DeviceMetrics) -> Iterator[untyped.Misfit]:
    service = metrics.node_agents.service
    if not service:
        return
    namespace, slash, name = service.partition("/")
    if not (slash and names.is_dns_label(namespace) and names.is_dns_label(name)):
        yield untyped.Misfit(
            "metrics.nodeAgents.service", f'expected NAMESPACE/NAME of a Service, got "{service}"'
        )
    if metrics.prometheus.url:
        yield untyped.Misfit(
            "metrics.nodeAgents.service",
            "metrics.prometheus.url is set as well; choose one of them, as use is measured once",
        )


def _identity_problems(configuration: SchedulerConfiguration) -> Iterator[untyped.Misfit]:
    for name, got, expected in (
        ("apiVersion", configuration.api_version, API_VERSION),
        ("kind", configuration.kind, KIND),
    ):
        if got != expected:
            yield untyped.Misfit(name, f'expected "{expected}", got "{got}"')


def _election_problems(election: LeaderElection) -> Iterator[untyped.Misfit]:
    if not names.is_dns_label(election.namespace):
        yield untyped.Misfit(
            "leaderElection.namespace", f'{names.LABEL_RULE}, got "{election.namespace}"'
        )
    if not names.is_dns_subdomain(election.name):
        yield untyped.Misfit(
            "leaderElection.name", f'{names.SUBDOMAIN_RULE}, got "{election.name}"'
        )
    lease, renew, retry = (
        election.lease_duration_seconds,
        election.renew_deadline_seconds,
        election.retry_period_seconds,
    )
    if renew >= lease:
        yield untyped.Misfit(
            "leaderElection.renewDeadlineSeconds",
            f"is {renew:g}, must be less than leaseDurationSeconds ({lease}): an old leader has to stop writing before "
            f"a new one starts; lower it or raise leaseDurationSeconds",
        )
    if retry * RETRY_JITTER >= renew:
        yield untyped.Misfit(
            "leaderElection.retryPeriodSeconds",
            f"is {retry:g}, with {RETRY_JITTER:g} times that a leader gets no second try within renewDeadlineSeconds "
            f"({renew:g}); lower it below {renew / RETRY_JITTER:g}",
        )


def _ownership_problems(ownership: Ownership) -> Iterator[untyped.Misfit]:
    for key, value in ownership.node_labels.items():
        if not names.is_label_key(key):
            yield untyped.Misfit(f"ownership.nodeLabels[{key}]", names.KEY_RULE)
        if not names.is_label_value(value):
            yield untyped.Misfit(
                f"ownership.nodeLabels[{key}]", f'{names.VALUE_RULE}, got "{value}"'
            )
    if ownership.node_taint and not names.is_label_key(ownership.node_taint):
        yield untyped.Misfit(
            "ownership.nodeTaint",
            f'expected the key of a taint without value and effect, got "{ownership.node_taint}"',
        )
    for index, name in enumerate(ownership.device_taint_rules):
        if not names.is_dns_subdomain(name):
            yield untyped.Misfit(
                f"ownership.deviceTaintRules[{index}]", f'{names.SUBDOMAIN_RULE}, got "{name}"'
            )


def _choice_problems(configuration: SchedulerConfiguration) -> Iterator[untyped.Misfit]:
    logging, decide = configuration.logging, configuration.decide
    for path, got, choices in (
        ("logging.format", logging.format, LOG_FORMATS),
        ("logging.level", logging.level, LOG_LEVELS),
        ("decide.placement", decide.placement, tuple(policy.Placement)),
        ("decide.imageRequirements", decide.image_requirements, tuple(policy.ImageRequirements)),
    ):
        if got not in choices:
            yield untyped.Misfit(path, f'expected one of {", ".join(choices)}, got "{got}"')


def _is_address(text: str) -> bool:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True


def _is_http(text: str) -> bool:
    return re.fullmatch(r"https?://[^/\s?#@]+(/[^\s?#]*)?", text) is not None


def _with_home(misfit: untyped.Misfit, all_fields: list[Field]) -> untyped.Misfit:
    """The misfit of an unknown field, with the section that has a field of that name."""
    if not misfit.is_unknown_field or "did you mean" in misfit.message:
        return misfit
    name = misfit.path.rpartition(".")[2]
    homes = [field.path for field in all_fields if field.path.rpartition(".")[2] == name]
    if not homes:
        return misfit
    return msgspec.structs.replace(
        misfit, message=f"{misfit.message}; did you mean {' or '.join(homes)}?"
    )


def value_misfits(field: Field, tree: object) -> Iterator[untyped.Misfit]:
    """What is wrong with one value, if it is written."""
    value: Any = tree
    for name in field.path.split("."):
        value = value.get(name) if isinstance(value, dict) else None
    if value is None:
        return
    try:
        msgspec.convert(value, field.type)
    except msgspec.ValidationError as error:
        message, _, place = str(error).replace("`", "").partition(" - at $")
        for name, words in _TYPE_WORDS:
            message = re.sub(rf"\b{name}\b", words, message)
        message = message.replace("Expected", "expected", 1).partition(", got")[0]
        where, got = _at(value, place)
        yield untyped.Misfit(field.path + where, f"{message}, got {untyped.shown(got)}")


def _at(value: Any, place: str) -> tuple[str, Any]:
    """The item of a list or map that a message is about and its place, else the value itself."""
    if index := re.fullmatch(r"\[([0-9]+)\]", place):
        return place, value[int(index[1])]
    if isinstance(value, dict):
        return next(
            ((f"[{key}]", item) for key, item in value.items() if not isinstance(item, str)),
            ("", value),
        )
    return "", value
