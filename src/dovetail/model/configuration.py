"""The scheduler's configuration file: its sections, their fields and defaults. Data only.

Wire names are camelCase; unknown fields are refused. Each field carries its meaning, which the JSON Schema and the
reference page show. What is wrong with values stands in `configuration_problems`. Never reads a file.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any, Final, NamedTuple, get_args

import msgspec
from msgspec import Meta

from dovetail.kubetypes import untyped
from dovetail.model import policy

API_VERSION: Final = "dovetail.dev/v1alpha1"
KIND: Final = "SchedulerConfiguration"
LOG_FORMATS: Final = ("text", "json")
LOG_LEVELS: Final = ("debug", "info", "warning", "error")
DAY_SECONDS: Final = 86_400

_POSITIVE: Final = Meta(gt=0, le=DAY_SECONDS)
_BATCH: Final = policy.Batch()


class LeaderElection(
    msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True
):
    """Election of the one replica that writes, by a Lease."""

    enabled: Annotated[
        bool,
        Meta(
            description="replicas elect one leader, which alone writes; false: this process always writes"
        ),
    ] = True
    namespace: Annotated[str, Meta(description="namespace of the Lease")] = "kube-system"
    name: Annotated[str, Meta(description="name of the Lease")] = "dovetail-scheduler"
    lease_duration_seconds: Annotated[
        int,
        Meta(
            ge=1,
            le=3600,
            description="seconds without a renewal after which another replica takes over",
        ),
    ] = 15
    renew_deadline_seconds: Annotated[
        float,
        _POSITIVE,
        Meta(
            description="seconds without a successful renewal after which the leader stops writing"
        ),
    ] = 10.0
    retry_period_seconds: Annotated[
        float,
        _POSITIVE,
        Meta(description="seconds between two attempts to renew or acquire the Lease"),
    ] = 2.0


class Ownership(
    msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True
):
    """The nodes and devices of this scheduler. Two schedulers that share a device can both allocate it."""

    node_labels: Annotated[
        dict[str, str],
        Meta(description="labels that every node of this scheduler has; empty: any node"),
    ] = {}
    node_taint: Annotated[
        str,
        Meta(
            description="key of a taint that every node of this scheduler has, and that pods must still "
            "tolerate; empty: no taint required"
        ),
    ] = ""
    device_taint_rules: Annotated[
        tuple[str, ...],
        Meta(
            description="DeviceTaintRules that mark the devices of this scheduler, which ignores "
            "their taints; it then uses no unmarked device; empty: any device"
        ),
    ] = ()


class ClientConnection(
    msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True
):
    """The connection to the API server."""

    concurrency: Annotated[
        int, Meta(ge=1, le=1024, description="most requests in flight at once")
    ] = 64
    request_timeout_seconds: Annotated[
        float,
        _POSITIVE,
        Meta(description="seconds after which a request without a response is abandoned"),
    ] = 10.0


class Serving(
    msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True
):
    """Where the process serves metrics and health."""

    address: Annotated[
        str, Meta(description="IP address to listen on; `0.0.0.0` or `::` means all")
    ] = "127.0.0.1"
    port: Annotated[
        int, Meta(ge=0, le=65535, description="port to listen on; 0: any free port")
    ] = 10351


class Decide(msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """Scheduling cycles and the score of nodes."""

    batch_pods: Annotated[
        int,
        Meta(
            ge=0,
            le=1_000_000,
            description="pods per scheduling cycle; 0: as many as fit into `loopBoundMilliseconds`",
        ),
    ] = 0
    loop_bound_milliseconds: Annotated[
        int,
        Meta(
            ge=1,
            le=60_000,
            description="milliseconds for which a scheduling cycle may hold up event handling",
        ),
    ] = 50
    search_steps: Annotated[
        int,
        Meta(
            ge=1, le=2**31 - 1, description="most steps in the search for devices, per pod and node"
        ),
    ] = policy.LIVE_SEARCH_STEPS
    net_seconds: Annotated[
        int,
        Meta(
            ge=0,
            le=DAY_SECONDS,
            description="seconds after which every parked pod is tried again, whatever has changed; "
            "0: only after events that may help",
        ),
    ] = 300
    scales_from_zero: Annotated[
        bool,
        Meta(
            description="whether an autoscaler may add nodes of a kind that the cluster does not have now"
        ),
    ] = True
    image_requirements: Annotated[
        str,
        Meta(
            description="what becomes of nodes whose driver does not meet `NVIDIA_REQUIRE_*` of a pod: `off` reads "
            "none of it, `warn` uses them with an event on the pod, `refuse` does not use them",
            extra_json_schema={"enum": list(policy.ImageRequirements)},
        ),
    ] = policy.ImageRequirements.WARN.value
    placement: Annotated[
        str,
        Meta(
            description="what decides between nodes: `tight-fit`, or `expected-loss`, which learns "
            "the mix of pods",
            extra_json_schema={"enum": list(policy.Placement)},
        ),
    ] = policy.Placement.TIGHT_FIT.value
    weights: policy.Weights = policy.Weights()


class Queues(msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """How queues share capacity, and which work may be evicted for which: the operator's part of `policy.Batch`."""

    preemptible_below: Annotated[
        int,
        Meta(
            ge=-(2**31),
            le=2**31 - 1,
            description="workloads of a lower priority are preemptible unless they say otherwise",
        ),
    ] = _BATCH.preemptible_below
    consolidation_victims: Annotated[
        int,
        Meta(ge=0, le=10_000, description="most pods moved to make room for one gang; 0: none"),
    ] = _BATCH.consolidation_victims or 0
    reclaim_may_move: Annotated[
        bool,
        Meta(description="move a reclaimed pod that fits elsewhere instead of ending it"),
    ] = _BATCH.reclaim_may_move
    usage_weight: Annotated[
        float,
        Meta(
            ge=0,
            le=100,
            description="how much past usage lowers a queue's fair share; 0: not at all",
        ),
    ] = _BATCH.usage_weight
    usage_half_life_seconds: Annotated[
        int, Meta(ge=60, le=366 * DAY_SECONDS, description="half-life of past usage, in seconds")
    ] = _BATCH.usage_half_life_seconds
    age_saturation_seconds: Annotated[
        int,
        Meta(
            ge=0,
            le=366 * DAY_SECONDS,
            description="seconds after which a gang's age stops counting for its order; 0: never",
        ),
    ] = _BATCH.age_saturation_seconds
    promises: Annotated[
        int,
        Meta(
            ge=0,
            le=1000,
            description="how many gangs without room, first in line, are promised a start time",
        ),
    ] = _BATCH.promises
    stale_grace_seconds: Annotated[
        int,
        Meta(
            ge=0,
            le=DAY_SECONDS,
            description="seconds below its minimum after which a gang is evicted",
        ),
    ] = _BATCH.stale_grace_seconds
    lost_work_cap_seconds: Annotated[
        int,
        Meta(
            ge=0,
            le=366 * DAY_SECONDS,
            description="most seconds of work since the last checkpoint that count as lost by an eviction",
        ),
    ] = _BATCH.lost_work_cap_seconds


class Writes(msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """How the scheduler writes its plans to the API server."""

    in_flight_pods: Annotated[
        int, Meta(ge=1, le=10_000, description="most pods being bound at once")
    ] = 64


class Events(msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """Kubernetes events about pods."""

    scheduled: Annotated[
        bool, Meta(description="record an event for scheduled pods too, not only for pending ones")
    ] = True
    rate_per_second: Annotated[
        float, Meta(gt=0, le=10_000, description="most events per second; the rest are dropped")
    ] = 50.0


class Quarantine(
    msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True
):
    """Keeping devices out of use whose pods were removed by force and may still run."""

    enabled: Annotated[
        bool,
        Meta(
            description="keep the devices of a pod that was removed by force out of use while it may still run"
        ),
    ] = True
    slack_seconds: Annotated[
        float,
        Meta(ge=0, le=DAY_SECONDS, description="seconds added to the grace period of the pod"),
    ] = 5.0
    max_seconds: Annotated[
        float,
        Meta(
            ge=0,
            le=DAY_SECONDS,
            description="longest quarantine in seconds, whatever the grace period of the pod",
        ),
    ] = 300.0


class Audit(msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """The search for devices that are allocated to two claims."""

    enabled: Annotated[
        bool, Meta(description="look for devices that are allocated to two claims")
    ] = True
    interval_seconds: Annotated[
        float, _POSITIVE, Meta(description="seconds between two audits")
    ] = 2.0


class KaiShares(
    msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True
):
    """Shares of a GPU that KAI's annotations request."""

    enabled: Annotated[
        bool,
        Meta(
            description="create the [claim templates](../how-to/migrate-from-kueue-and-kai.md#shares-of-a-gpu) "
            "that the chart's policy names in pods with `gpu-fraction` or `gpu-memory`"
        ),
    ] = False


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
        Meta(description="OTLP/HTTP receiver such as `http://localhost:4318`; empty: no tracing"),
    ] = ""
    sample_ratio: Annotated[
        float, Meta(ge=0, le=1, description="fraction of pods that are traced")
    ] = 1.0


class PrometheusSource(
    msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True
):
    """A Prometheus that scrapes the node agents or the DCGM exporter."""

    url: Annotated[
        str,
        Meta(
            description="address such as `http://prometheus.monitoring:9090`; empty: none is asked"
        ),
    ] = ""
    token_file: Annotated[
        str, Meta(description="file with a bearer token, read for every query; empty: none is sent")
    ] = ""
    ca_file: Annotated[
        str,
        Meta(
            description="file with the authorities that may sign its certificate; empty: the system's"
        ),
    ] = ""
    timeout_seconds: Annotated[
        float, _POSITIVE, Meta(description="seconds after which a query is given up")
    ] = 20.0


class NodeAgentSource(
    msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True
):
    """The node agents themselves, for clusters without a Prometheus."""

    service: Annotated[
        str,
        Meta(
            description="Service of the node agents' metrics, `NAMESPACE/NAME`, whose port is named `metrics`; "
            "empty: agents are not asked"
        ),
    ] = ""
    token_file: Annotated[
        str, Meta(description="file with a bearer token, read for every look; empty: none is sent")
    ] = ""
    timeout_seconds: Annotated[
        float, _POSITIVE, Meta(description="seconds after which an agent is given up")
    ] = 5.0
    concurrency: Annotated[
        int, Meta(ge=1, le=1024, description="agents that are asked at the same time")
    ] = 32


class DeviceMetrics(
    msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True
):
    """Where the utilisation of devices comes from, which idle policies of queues need."""

    prometheus: PrometheusSource = PrometheusSource()
    node_agents: NodeAgentSource = NodeAgentSource()
    interval_seconds: Annotated[
        float, _POSITIVE, Meta(description="seconds between two looks at the measurements")
    ] = 30.0


class SchedulerConfiguration(
    msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True
):
    """The settings of the scheduler."""

    api_version: Annotated[
        str, Meta(description="must be this value", extra_json_schema={"const": API_VERSION})
    ] = API_VERSION
    kind: Annotated[
        str, Meta(description="must be this value", extra_json_schema={"const": KIND})
    ] = KIND
    scheduler_names: Annotated[
        tuple[str, ...],
        Meta(
            description="Dovetail schedules pods whose `schedulerName` is one of these",
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
        Meta(
            description="seconds after allocation within which devices must be ready; otherwise they are released"
        ),
    ] = 600.0
    volume_binding_timeout_seconds: Annotated[
        float,
        _POSITIVE,
        Meta(
            description="seconds within which the volumes of a pod must be bound; otherwise the pod is scheduled again"
        ),
    ] = 600.0
    quarantine: Quarantine = Quarantine()
    audit: Audit = Audit()
    kai_shares: KaiShares = KaiShares()
    snapshot_directory: Annotated[
        str, Meta(description="directory for snapshots on demand; empty: none are written")
    ] = ""
    metrics: DeviceMetrics = DeviceMetrics()
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
        placement=policy.Placement(configuration.decide.placement),
        weights=configuration.decide.weights,
        ownership=ownership,
        batch=batch,
        image_requirements=policy.ImageRequirements(configuration.decide.image_requirements),
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
