"""The values of the chart's processes beside the scheduler: node agents, dashboard, history, exporter, lifecycle.

Fields, defaults and limits. Data only: what must hold between them stands in `value_problems`.
"""

from __future__ import annotations

from typing import Annotated, Any, Final

import msgspec
from msgspec import UNSET, Meta, UnsetType

AGENT_MODES: Final = ("dra", "device-plugin")
MIG_MODES: Final = ("dynamic", "static", "off")
SHARES: Final = "^(off|memory|[1-9][0-9]*)$"
DEVICE_METRICS: Final = r"^(off|[0-9]{1,4}(\.[0-9]{1,3})?)$"

LONGEST_POOL: Final = 20  # characters, so that names of DaemonSets stay within those of labels


class AgentPool(
    msgspec.Struct,
    frozen=True,
    kw_only=True,
    rename="camel",
    forbid_unknown_fields=True,
    omit_defaults=True,
):
    """Nodes whose agents differ; what a pool leaves out is that of `nodeAgent`."""

    name: Annotated[str, Meta(description="part of the DaemonSet's name")]
    node_selector: Annotated[dict[str, str], Meta(description="labels of the pool's nodes")]
    mode: Annotated[str, Meta(extra_json_schema={"enum": list(AGENT_MODES)})] | UnsetType = UNSET
    mig: Annotated[str, Meta(extra_json_schema={"enum": list(MIG_MODES)})] | UnsetType = UNSET
    shares: Annotated[str, Meta(extra_json_schema={"pattern": SHARES})] | UnsetType = UNSET
    replicas: Annotated[int, Meta(ge=1, le=64)] | UnsetType = UNSET
    driver_root: str | UnsetType = UNSET


class AgentHeal(
    msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True
):
    """What the node agent runs when the healer asks for it."""

    reset_command: Annotated[
        str,
        Meta(
            description="runs for a [reset](heal.md#hooks-of-the-node-agent); `{gpus}` are the uuids, `{pci}` the bus "
            "ids; empty: the agent refuses"
        ),
    ] = ""
    reboot_command: Annotated[
        str,
        Meta(
            description="runs for a reboot; the agent then sees the processes of the host; empty: it refuses"
        ),
    ] = ""
    command_seconds: Annotated[
        int, Meta(ge=1, le=3600, description="when such a command is ended")
    ] = 300


class NodeAgent(
    msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True
):
    """One pod per GPU node that publishes its GPUs and prepares claims on them."""

    enabled: Annotated[
        bool,
        Meta(description="run the [node agent](node-agent.md), a DaemonSet, instead of a driver"),
    ] = False
    mode: Annotated[
        str,
        Meta(
            description="`dra`: pods get GPUs by claims; `device-plugin`: by counted resources",
            extra_json_schema={"enum": list(AGENT_MODES)},
        ),
    ] = "dra"
    mig: Annotated[
        str,
        Meta(
            description="MIG devices: `dynamic` (made on demand), `static` (those that exist) or `off`",
            extra_json_schema={"enum": list(MIG_MODES)},
        ),
    ] = "dynamic"
    shares: Annotated[
        str,
        Meta(
            description="whether claims may share a GPU: `off`, `memory`, or how many at a time",
            extra_json_schema={"pattern": SHARES},
        ),
    ] = "off"
    replicas: Annotated[
        int,
        Meta(ge=1, le=64, description="containers that share a GPU in mode `device-plugin`"),
    ] = 1
    driver_root: Annotated[
        str, Meta(description="where the host has the files of NVIDIA's driver")
    ] = "/"
    kubelet_root: Annotated[str, Meta(description="root directory of the kubelet")] = (
        "/var/lib/kubelet"
    )
    cdi_directory: Annotated[
        str, Meta(description="where the container runtime reads CDI files")
    ] = "/var/run/cdi"
    cdi_hook: Annotated[
        str, Meta(description="path of `nvidia-cdi-hook` as the container runtime sees it")
    ] = "/usr/bin/nvidia-cdi-hook"
    health_policy: Annotated[
        dict[str, Any],
        Meta(description="[rules](node-agent-health.md) about faults of GPUs, before ours"),
    ] = {}
    heal: AgentHeal = AgentHeal()
    metrics_port: Annotated[
        int,
        Meta(
            ge=0,
            le=65_535,
            description="port for [metrics](metrics-of-devices.md) of the agent and its GPUs, which then sees "
            "the processes of the host; 0: none",
        ),
    ] = 0
    device_metrics: Annotated[
        str,
        Meta(
            description="seconds between two readings of the GPUs' use for metrics; `off` where DCGM exports it",
            extra_json_schema={"pattern": DEVICE_METRICS},
        ),
    ] = "5"
    idle_metrics: Annotated[
        bool,
        Meta(
            description="the scheduler reads the use of GPUs straight from the agents, for [idle policies]"
            "(../explanation/idle.md) where there is no Prometheus; needs `nodeAgent.metricsPort`"
        ),
    ] = False
    device_classes: Annotated[
        bool,
        Meta(description="create the device classes `gpu.nvidia.com` and `mig.nvidia.com`"),
    ] = True
    priority_class_name: Annotated[
        str, Meta(description="PriorityClass of the agent's pods; empty: none")
    ] = "system-node-critical"
    resources: Annotated[
        dict[str, Any], Meta(description="requests and limits of the agent's container")
    ] = msgspec.field(
        default_factory=lambda: {
            "requests": {"cpu": "20m", "memory": "64Mi"},
            "limits": {"memory": "256Mi"},
        }
    )
    node_selector: Annotated[
        dict[str, str], Meta(description="labels of the nodes with GPUs; empty: every node")
    ] = {}
    pools: Annotated[
        tuple[AgentPool, ...],
        Meta(
            description="[pools of nodes](gpu-stack.md#pools) with agents of their own: `name`, `nodeSelector`, and "
            "what differs of `mode`, `mig`, `shares`, `replicas`, `driverRoot`; nodes of no pool then have no agent"
        ),
    ] = ()
    tolerations: Annotated[
        tuple[dict[str, Any], ...], Meta(description="taints the agent's pods tolerate")
    ] = ({"operator": "Exists"},)


DASHBOARD_AUTH: Final = ("token", "proxy")


class DashboardProxy(
    msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True
):
    """How the dashboard recognises the proxy that signs users in."""

    networks: Annotated[
        tuple[str, ...], Meta(description="networks (CIDR) that the proxy connects from")
    ] = ()
    secret_name: Annotated[
        str,
        Meta(description="Secret whose `secret` the proxy sends as `Dovetail-Proxy-Secret`"),
    ] = ""


class Dashboard(
    msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True
):
    """A page about what runs, what waits and why, for users of the cluster."""

    enabled: Annotated[
        bool, Meta(description="run the [dashboard](dashboard.md), a Deployment that only reads")
    ] = False
    replicas: Annotated[
        int, Meta(ge=0, le=20, description="number of replicas; more than one need a session key")
    ] = 1
    port: Annotated[int, Meta(ge=1024, le=65535, description="port of the dashboard")] = 8080
    auth: Annotated[
        tuple[Annotated[str, Meta(extra_json_schema={"enum": list(DASHBOARD_AUTH)})], ...],
        Meta(
            description="how users sign in: `token` (a bearer token of the cluster), `proxy`",
            extra_json_schema={"minItems": 1},
        ),
    ] = ("token",)
    hosts: Annotated[
        tuple[str, ...],
        Meta(description="names users reach it by, besides localhost and the Service's"),
    ] = ()
    https: Annotated[
        bool, Meta(description="a proxy in front of it ends TLS, so that cookies are Secure")
    ] = False
    tls_secret_name: Annotated[
        str, Meta(description="Secret of type `kubernetes.io/tls` to serve https with")
    ] = ""
    session_secret_name: Annotated[
        str, Meta(description="Secret whose `key` seals session cookies; empty: a new key per pod")
    ] = ""
    proxy: DashboardProxy = DashboardProxy()
    allow_writes: Annotated[
        bool, Meta(description="users may carry out fixes and submit work, with their own tokens")
    ] = False
    from_: Annotated[
        tuple[dict[str, Any], ...],
        Meta(description="NetworkPolicy peers that may reach the dashboard; empty: all peers"),
    ] = msgspec.field(name="from", default=())
    priority_class_name: Annotated[
        str, Meta(description="PriorityClass of the dashboard's pods; empty: none")
    ] = ""
    resources: Annotated[
        dict[str, Any], Meta(description="requests and limits of the dashboard's container")
    ] = msgspec.field(
        default_factory=lambda: {
            "requests": {"cpu": "100m", "memory": "256Mi"},
            "limits": {"memory": "4Gi"},
        }
    )
    node_selector: Annotated[
        dict[str, str], Meta(description="labels of the nodes the dashboard may run on")
    ] = {}
    tolerations: Annotated[
        tuple[dict[str, Any], ...], Meta(description="taints the dashboard's pods tolerate")
    ] = ()


class HistoryStore(
    msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True
):
    """Where history is kept: a file on a volume, or PostgreSQL."""

    secret_name: Annotated[
        str,
        Meta(description="Secret whose `url` is that of a PostgreSQL database; empty: a volume"),
    ] = ""
    size: Annotated[
        str, Meta(description="size of the volume that is claimed for the SQLite file")
    ] = "20Gi"
    storage_class_name: Annotated[
        str, Meta(description="StorageClass of the volume; empty: the cluster's default")
    ] = ""


class History(
    msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True
):
    """Records who held which GPUs, who waited, and what the scheduler did."""

    enabled: Annotated[
        bool,
        Meta(description="record [history](history.md), a Deployment that only reads the cluster"),
    ] = False
    replicas: Annotated[
        int, Meta(ge=0, le=20, description="number of replicas; more than one need PostgreSQL")
    ] = 1
    store: HistoryStore = HistoryStore()
    keep: Annotated[str, Meta(description="how long history is kept")] = "400d"
    max_size: Annotated[
        str, Meta(description="beyond this the oldest days are dropped; empty: no bound")
    ] = "16Gi"
    prometheus: Annotated[
        str,
        Meta(description="address of a Prometheus that measures GPUs; empty: no measurements"),
    ] = ""
    prices_config_map: Annotated[
        str,
        Meta(
            description="ConfigMap whose `prices.yaml` is the [price file](cost.md#the-price-file); empty: no prices"
        ),
    ] = ""
    port: Annotated[
        int, Meta(ge=1, le=65_535, description="port of the recorder's health and metrics")
    ] = 9103
    egress: Annotated[
        tuple[dict[str, Any], ...],
        Meta(description="NetworkPolicy rules for the way to PostgreSQL and Prometheus"),
    ] = ()
    priority_class_name: Annotated[
        str, Meta(description="PriorityClass of the recorder's pods; empty: none")
    ] = ""
    resources: Annotated[
        dict[str, Any], Meta(description="requests and limits of the recorder's container")
    ] = msgspec.field(
        default_factory=lambda: {
            "requests": {"cpu": "50m", "memory": "256Mi"},
            "limits": {"memory": "4Gi"},
        }
    )
    node_selector: Annotated[
        dict[str, str], Meta(description="labels of the nodes the recorder may run on")
    ] = {}
    tolerations: Annotated[
        tuple[dict[str, Any], ...], Meta(description="taints the recorder's pods tolerate")
    ] = ()


class Exporter(
    msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True
):
    """Serves metrics of claims, slices, device classes, queues and gangs."""

    enabled: Annotated[
        bool,
        Meta(
            description="serve [metrics](metrics-of-devices.md) of objects, by a Deployment that only reads the cluster"
        ),
    ] = False
    port: Annotated[
        int, Meta(ge=1, le=65_535, description="port of the exporter's health and metrics")
    ] = 9102
    partitions: Annotated[
        bool, Meta(description="also list the MIG partitions that GPUs could have")
    ] = False
    priority_class_name: Annotated[
        str, Meta(description="PriorityClass of the exporter's pod; empty: none")
    ] = ""
    resources: Annotated[
        dict[str, Any], Meta(description="requests and limits of the exporter's container")
    ] = msgspec.field(
        default_factory=lambda: {
            "requests": {"cpu": "50m", "memory": "128Mi"},
            "limits": {"memory": "2Gi"},
        }
    )
    node_selector: Annotated[
        dict[str, str], Meta(description="labels of the nodes the exporter may run on")
    ] = {}
    tolerations: Annotated[
        tuple[dict[str, Any], ...], Meta(description="taints the exporter's pod tolerates")
    ] = ()


class Healing(
    msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True
):
    """Remedies for faulty GPUs."""

    enabled: Annotated[
        bool,
        Meta(
            description="[heal](heal.md) faulty GPUs: pods may be moved away from them, and nodes asked for resets"
        ),
    ] = False
    policy: Annotated[
        dict[str, Any],
        Meta(
            description="limits, breaker and windows: the content of a file for `dovetail lifecycle --heal-policy`; "
            "empty: the defaults"
        ),
    ] = {}


class OperatorRights(
    msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True
):
    """Whether upgrades may go through NVIDIA's GPU Operator."""

    enabled: Annotated[
        bool,
        Meta(
            description="upgrades may patch the ClusterPolicy, NVIDIADrivers and GPUClusters, and delete driver pods"
        ),
    ] = False
    namespace: Annotated[
        str, Meta(description="namespace of the GPU Operator's driver pods; it must exist")
    ] = "gpu-operator"


class Lifecycle(
    msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True
):
    """Carries out StackUpgrades: drains nodes, has them upgraded, validates them."""

    enabled: Annotated[
        bool,
        Meta(
            description="carry out [upgrades of the GPU stack](stack-upgrade.md), by a Deployment that may evict pods"
        ),
    ] = False
    replicas: Annotated[
        int, Meta(ge=0, le=20, description="number of replicas; the one with the Lease works")
    ] = 2
    port: Annotated[
        int, Meta(ge=1, le=65_535, description="port of the process's health and metrics")
    ] = 9104
    checks: Annotated[
        dict[str, Any],
        Meta(
            description="what a node is validated by: the content of a file for `dovetail lifecycle --checks`; "
            "empty: all checks that need no Job"
        ),
    ] = {}
    heal: Healing = Healing()
    operator: OperatorRights = OperatorRights()
    priority_class_name: Annotated[
        str, Meta(description="PriorityClass of the process's pods; empty: none")
    ] = ""
    resources: Annotated[
        dict[str, Any], Meta(description="requests and limits of the process's container")
    ] = msgspec.field(
        default_factory=lambda: {
            "requests": {"cpu": "100m", "memory": "256Mi"},
            "limits": {"memory": "4Gi"},
        }
    )
    node_selector: Annotated[
        dict[str, str], Meta(description="labels of the nodes the process may run on")
    ] = {}
    tolerations: Annotated[
        tuple[dict[str, Any], ...], Meta(description="taints the process's pods tolerate")
    ] = ()
