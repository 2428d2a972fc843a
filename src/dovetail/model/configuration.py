"""The scheduler's configuration file: its sections, their defaults, and what must hold between fields. Data only.

Wire names are camelCase; unknown fields are refused. Each field carries its meaning, which the JSON Schema and the
reference page show. `problems` says what is wrong with values that have the right type. Never reads a file.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterator
from typing import Annotated, Any, Final, NamedTuple, get_args

import msgspec
from msgspec import Meta

from dovetail.kubetypes import names, untyped
from dovetail.model import policy

API_VERSION: Final = "dovetail.dev/v1alpha1"
KIND: Final = "SchedulerConfiguration"
LOG_FORMATS: Final = ("text", "json")
LOG_LEVELS: Final = ("debug", "info", "warning", "error")
RETRY_JITTER: Final = (
    1.2  # client-go: candidates wait their retry period times up to this much longer
)
DAY_SECONDS: Final = 86_400

_POSITIVE: Final = Meta(gt=0, le=DAY_SECONDS)
_TYPE_WORDS: Final = (  # msgspec's words for types, and ours
    ("int", "a whole number"),
    ("float", "a number"),
    ("str", "text"),
    ("bool", "true or false"),
    ("array", "a list"),
    ("object", "a mapping"),
)
_BATCH: Final = policy.Batch()


class LeaderElection(
    msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True
):
    """One writer among replicas, by a Lease."""

    enabled: Annotated[
        bool, Meta(description="one of several replicas writes; off: this process always does")
    ] = True
    namespace: Annotated[str, Meta(description="namespace of the Lease")] = "kube-system"
    name: Annotated[str, Meta(description="name of the Lease")] = "dovetail-scheduler"
    lease_duration_seconds: Annotated[
        int,
        Meta(
            ge=1, le=3600, description="a leader that was not seen to renew for so long is replaced"
        ),
    ] = 15
    renew_deadline_seconds: Annotated[
        float,
        _POSITIVE,
        Meta(description="a leader that could not renew for so long stops writing"),
    ] = 10.0
    retry_period_seconds: Annotated[
        float, _POSITIVE, Meta(description="between two attempts to renew or to lead")
    ] = 2.0


class Ownership(
    msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True
):
    """Which nodes and devices are ours to give away. Two schedulers on one device can both give it away."""

    node_labels: Annotated[
        dict[str, str], Meta(description="labels all our nodes carry; empty: every node is ours")
    ] = {}
    node_taint: Annotated[
        str,
        Meta(
            description="key of a taint all our nodes carry, which pods still must tolerate; empty: none is needed"
        ),
    ] = ""
    device_taint_rules: Annotated[
        tuple[str, ...],
        Meta(
            description="rules that mark our devices: taints to others, none to us; devices no rule marks are not ours"
        ),
    ] = ()


class ClientConnection(
    msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True
):
    """How the API server is talked to."""

    concurrency: Annotated[int, Meta(ge=1, le=1024, description="requests under way at once")] = 64
    request_timeout_seconds: Annotated[
        float, _POSITIVE, Meta(description="a request without an answer is given up")
    ] = 10.0


class Serving(
    msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True
):
    """Where metrics and health are served."""

    address: Annotated[
        str, Meta(description="IP address to listen on; 0.0.0.0 or :: means all")
    ] = "127.0.0.1"
    port: Annotated[int, Meta(ge=0, le=65535, description="port to listen on; 0: any free one")] = (
        10351
    )


class Decide(msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """How decisions are made."""

    batch_pods: Annotated[
        int,
        Meta(
            ge=0,
            le=1_000_000,
            description="pods decided at once; 0: as many as keep within the bound below",
        ),
    ] = 0
    loop_bound_milliseconds: Annotated[
        int, Meta(ge=1, le=60_000, description="how long deciding may keep everything else waiting")
    ] = 50
    search_steps: Annotated[
        int,
        Meta(ge=1, le=2**31 - 1, description="steps per pod and node, in the search for devices"),
    ] = policy.LIVE_SEARCH_STEPS
    net_seconds: Annotated[
        int,
        Meta(
            ge=0,
            le=DAY_SECONDS,
            description="waiting pods are asked about after so long in any case; 0: only on news",
        ),
    ] = 300
    scales_from_zero: Annotated[
        bool,
        Meta(
            description="an autoscaler may have kinds of nodes of which none is there: pods may fit those"
        ),
    ] = True
    weights: policy.Weights = policy.Weights()


class Queues(msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """How queues share, and who yields to whom: `policy.Batch` as the file writes it."""

    preemptible_below: Annotated[
        int,
        Meta(
            ge=-(2**31),
            le=2**31 - 1,
            description="work of a lower priority may be made to yield by default",
        ),
    ] = _BATCH.preemptible_below
    consolidation_victims: Annotated[
        int,
        Meta(
            ge=0, le=10_000, description="at most so many pods move so that one gang fits; 0: none"
        ),
    ] = _BATCH.consolidation_victims or 0
    reclaim_may_move: Annotated[
        bool,
        Meta(
            description="work that has to yield to another queue moves instead, where it fits elsewhere"
        ),
    ] = _BATCH.reclaim_may_move
    usage_weight: Annotated[
        float,
        Meta(
            ge=0,
            le=100,
            description="how much use in the past lowers a queue's part; 0: not at all",
        ),
    ] = _BATCH.usage_weight
    usage_half_life_seconds: Annotated[
        int, Meta(ge=60, le=366 * DAY_SECONDS, description="after so long past use counts half")
    ] = _BATCH.usage_half_life_seconds
    age_saturation_seconds: Annotated[
        int,
        Meta(
            ge=0,
            le=366 * DAY_SECONDS,
            description="gangs older than this are equally old; 0: age has no end",
        ),
    ] = _BATCH.age_saturation_seconds
    promises: Annotated[
        int,
        Meta(
            ge=0,
            le=1000,
            description="so many gangs without room, first in line, are promised a start",
        ),
    ] = _BATCH.promises
    stale_grace_seconds: Annotated[
        int,
        Meta(
            ge=0, le=DAY_SECONDS, description="a gang below its minimum for so long is taken back"
        ),
    ] = _BATCH.stale_grace_seconds
    lost_work_cap_seconds: Annotated[
        int,
        Meta(
            ge=0,
            le=366 * DAY_SECONDS,
            description="work since a checkpoint counts no more than so much",
        ),
    ] = _BATCH.lost_work_cap_seconds


class Writes(msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """How plans are carried out."""

    in_flight_pods: Annotated[
        int, Meta(ge=1, le=10_000, description="pods being written at once")
    ] = 64


class Events(msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """What is told about pods as Kubernetes events."""

    scheduled: Annotated[
        bool, Meta(description="also tell about pods that were placed, not only those that wait")
    ] = True
    rate_per_second: Annotated[
        float, Meta(gt=0, le=10_000, description="at most so many, the rest is dropped")
    ] = 50.0


class Quarantine(
    msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True
):
    """Holding devices of pods that were removed by force and may still run."""

    enabled: Annotated[
        bool, Meta(description="hold devices of pods removed by force until their node lets go")
    ] = True
    slack_seconds: Annotated[
        float,
        Meta(ge=0, le=DAY_SECONDS, description="held so much longer than the pod may take to stop"),
    ] = 5.0
    max_seconds: Annotated[
        float,
        Meta(
            ge=0,
            le=DAY_SECONDS,
            description="held no longer than this, whatever grace period the pod chose",
        ),
    ] = 300.0


class Audit(msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """Looking for devices that two claims hold."""

    enabled: Annotated[bool, Meta(description="look for devices given to two claims")] = True
    interval_seconds: Annotated[float, _POSITIVE, Meta(description="between two looks")] = 2.0


class Logging(
    msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True
):
    """What the process writes about itself on stderr."""

    format: Annotated[
        str,
        Meta(
            description="`text` for people, `json` for programs",
            extra_json_schema={"enum": list(LOG_FORMATS)},
        ),
    ] = "text"
    level: Annotated[
        str,
        Meta(
            description="`debug`, `info`, `warning` or `error`",
            extra_json_schema={"enum": list(LOG_LEVELS)},
        ),
    ] = "info"


class Tracing(
    msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True
):
    """One OpenTelemetry trace per pod."""

    endpoint: Annotated[
        str,
        Meta(
            description="an OTLP/HTTP receiver such as `http://localhost:4318`; empty: nothing is traced"
        ),
    ] = ""
    sample_ratio: Annotated[
        float, Meta(ge=0, le=1, description="which share of pods is traced")
    ] = 1.0


class SchedulerConfiguration(
    msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True
):
    """Everything an operator can set about the scheduler."""

    api_version: Annotated[
        str, Meta(description="always this", extra_json_schema={"const": API_VERSION})
    ] = API_VERSION
    kind: Annotated[str, Meta(description="always this", extra_json_schema={"const": KIND})] = KIND
    scheduler_names: Annotated[
        tuple[str, ...],
        Meta(
            description="pods whose `schedulerName` is one of these are ours",
            extra_json_schema={"minItems": 1},
        ),
    ] = ("dovetail",)
    leader_election: LeaderElection = LeaderElection()
    ownership: Ownership = Ownership()
    client_connection: ClientConnection = ClientConnection()
    serving: Serving = Serving()
    decide: Decide = Decide()
    queues: Queues = Queues()
    writes: Writes = Writes()
    events: Events = Events()
    binding_conditions_timeout_seconds: Annotated[
        float,
        _POSITIVE,
        Meta(description="devices that are not ready for so long after allocation are given back"),
    ] = 600.0
    volume_binding_timeout_seconds: Annotated[
        float,
        _POSITIVE,
        Meta(description="a pod whose volumes are not bound for so long is decided about anew"),
    ] = 600.0
    quarantine: Quarantine = Quarantine()
    audit: Audit = Audit()
    snapshot_directory: Annotated[
        str, Meta(description="where snapshots are written on demand; empty: they are not")
    ] = ""
    logging: Logging = Logging()
    tracing: Tracing = Tracing()


class Field(NamedTuple):
    """One value that can be set, as the reference shows it."""

    path: str
    type: Any  # the annotation, limits and meaning included
    default: Any
    meaning: str


def policy_of(configuration: SchedulerConfiguration) -> policy.Policy:
    """The policy this configuration describes."""
    ours = configuration.ownership
    ownership = policy.Ownership(
        node_labels=ours.node_labels,
        node_taint=ours.node_taint,
        device_rules=ours.device_taint_rules,
    )
    batch = policy.Batch(**msgspec.structs.asdict(configuration.queues))
    return policy.Policy(
        weights=configuration.decide.weights,
        ownership=ownership,
        batch=batch,
        scheduler_names=configuration.scheduler_names,
    )


def fields(
    kind: type[msgspec.Struct] = SchedulerConfiguration, *, path: str = ""
) -> Iterator[Field]:
    """Every value of the file with its path, in order; sections only through what they hold."""
    for field in msgspec.structs.fields(kind):
        place = untyped.join(path, field.encode_name)
        if isinstance(field.type, type) and issubclass(field.type, msgspec.Struct):
            yield from fields(field.type, path=place)
            continue
        default = field.default_factory() if field.default is msgspec.NODEFAULT else field.default
        meanings = [note.description for note in get_args(field.type)[1:] if note.description]
        yield Field(place, field.type, default, "".join(meanings))


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
            "is empty, so no pod would be ours; name at least one, such as dovetail",
        )
    for index, name in enumerate(configuration.scheduler_names):
        if name in configuration.scheduler_names[:index]:
            yield untyped.Misfit(
                f"schedulerNames[{index}]", f'"{name}" is there already; delete one'
            )
        elif not names.is_dns_subdomain(name):
            yield untyped.Misfit(
                f"schedulerNames[{index}]", f'{names.SUBDOMAIN_RULE}, got "{name}"'
            )
    yield from _election_problems(configuration.leader_election)
    yield from _ownership_problems(configuration.ownership)
    yield from _choice_problems(configuration.logging)
    if configuration.tracing.endpoint and not _is_http(configuration.tracing.endpoint):
        got = configuration.tracing.endpoint
        yield untyped.Misfit(
            "tracing.endpoint", f'expected http:// or https:// and a host, got "{got}"'
        )
    if not _is_address(configuration.serving.address):
        got = configuration.serving.address
        yield untyped.Misfit(
            "serving.address", f'expected an IP address such as 127.0.0.1 or 0.0.0.0, got "{got}"'
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


def _choice_problems(logging: Logging) -> Iterator[untyped.Misfit]:
    for path, got, choices in (
        ("logging.format", logging.format, LOG_FORMATS),
        ("logging.level", logging.level, LOG_LEVELS),
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
