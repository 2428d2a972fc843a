"""The values of the chart: fields, defaults and rules. Data only.

The chart's values.schema.json and the reference page are generated from these structs, and `dovetail install` validates
values against them; values.yaml repeats the defaults for readers. Never reads a file, never renders anything.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Annotated, Any, Final

import msgspec
from msgspec import UNSET, Meta, UnsetType

from dovetail.kubetypes import names, untyped
from dovetail.model import configuration as configurations
from dovetail.model import configuration_problems

PULL_POLICIES: Final = ("Always", "IfNotPresent", "Never")
SHARE_MODES: Final = ("auto", "always", "never")
DIGEST: Final = "^(sha256:[0-9a-f]{64})?$"
# Fields of the configuration file that the chart sets. Values for them would be overwritten, so they are refused.
DECIDED: Final = (
    "apiVersion",
    "kind",
    "schedulerNames",
    "serving",
    "kaiShares",
    "leaderElection.namespace",
    "leaderElection.name",
)

_is_digest: Final = re.compile(DIGEST).fullmatch


class Image(msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """The image the scheduler runs from."""

    repository: Annotated[str, Meta(description="image repository, without a tag; required")] = ""
    tag: Annotated[str, Meta(description="image tag; empty: the chart's appVersion")] = ""
    digest: Annotated[
        str,
        Meta(
            description="image digest instead of a tag: `sha256:...`",
            extra_json_schema={"pattern": DIGEST},
        ),
    ] = ""
    pull_policy: Annotated[
        str,
        Meta(
            description="`Always`, `IfNotPresent` or `Never`",
            extra_json_schema={"enum": list(PULL_POLICIES)},
        ),
    ] = "IfNotPresent"


class ServiceAccount(
    msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True
):
    """The scheduler's identity at the API server."""

    create: Annotated[
        bool, Meta(description="create the service account; false: it exists already")
    ] = True
    name: Annotated[
        str, Meta(description="name of the service account; empty: the name of the deployment")
    ] = ""
    annotations: Annotated[
        dict[str, str], Meta(description="annotations of the service account")
    ] = {}


class Disruption(
    msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True
):
    """How many replicas a drain may take down at once."""

    enabled: Annotated[bool, Meta(description="create a PodDisruptionBudget")] = True
    max_unavailable: Annotated[
        int,
        Meta(ge=0, le=100, description="replicas that voluntary disruptions may take down at once"),
    ] = 1


class Network(
    msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True
):
    """Which peers may reach the scheduler's pods, and which the pods may reach."""

    enabled: Annotated[bool, Meta(description="create a NetworkPolicy")] = True
    from_: Annotated[
        tuple[dict[str, Any], ...],
        Meta(description="NetworkPolicy peers that may reach the port; empty: all peers"),
    ] = msgspec.field(name="from", default=())
    api_server_ports: Annotated[
        tuple[int, ...],
        Meta(description="ports of the API server: its service's and its host's"),
    ] = (443, 6443)
    extra_egress: Annotated[
        tuple[dict[str, Any], ...],
        Meta(description="additional NetworkPolicy egress rules, such as to a trace collector"),
    ] = ()


class Reader(msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """A service account that may read metrics."""

    namespace: str
    name: str


class ServiceMonitors(
    msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True
):
    """How the Prometheus operator finds the metrics."""

    enabled: Annotated[
        bool, Meta(description="create ServiceMonitors; the cluster must serve the kind")
    ] = False
    interval: Annotated[str, Meta(description="scrape interval")] = "30s"
    labels: Annotated[
        dict[str, str], Meta(description="labels by which the Prometheus operator selects them")
    ] = {}


class Rules(msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """Alerts and recorded series."""

    enabled: Annotated[
        bool,
        Meta(
            description="create a PrometheusRule with all [alerts](alerts.md); the cluster must serve the kind"
        ),
    ] = False
    labels: Annotated[
        dict[str, str], Meta(description="labels by which the Prometheus operator selects it")
    ] = {}
    runbooks: Annotated[
        str,
        Meta(
            description="what the links to runbooks begin with: where you publish `docs/runbooks/`"
        ),
    ] = "docs/runbooks/"


class GrafanaDashboards(
    msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True
):
    """Dashboards for a Grafana whose sidecar loads ConfigMaps."""

    enabled: Annotated[
        bool, Meta(description="create a ConfigMap per dashboard, for Grafana's sidecar")
    ] = False
    labels: Annotated[
        dict[str, str], Meta(description="labels by which the sidecar finds them")
    ] = msgspec.field(default_factory=lambda: {"grafana_dashboard": "1"})
    annotations: Annotated[
        dict[str, str], Meta(description="annotations, such as the folder: `grafana_folder: GPUs`")
    ] = {}


class Monitoring(
    msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True
):
    """What Prometheus and Grafana need to watch the cluster."""

    service_monitors: ServiceMonitors = ServiceMonitors()
    rules: Rules = Rules()
    dashboards: GrafanaDashboards = GrafanaDashboards()


class Metrics(
    msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True
):
    """Access to the metrics."""

    readers: Annotated[
        tuple[Reader, ...],
        Meta(description="service accounts that may read metrics: `{namespace, name}`"),
    ] = ()


class Defaulting(
    msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True
):
    """In labelled namespaces, pods that request GPUs and name no scheduler get Dovetail's name."""

    enabled: Annotated[
        bool,
        Meta(description="create the MutatingAdmissionPolicy if the API server serves the kind"),
    ] = True
    resource_prefixes: Annotated[
        tuple[str, ...],
        Meta(
            description="a container with a limit for a resource that begins with one of these requests GPUs"
        ),
    ] = ("nvidia.com/",)
    claims: Annotated[bool, Meta(description="a pod with resource claims requests GPUs too")] = True


class ShareClaims(
    msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True
):
    """Pods with KAI's annotations get a claim for the share of a GPU that they request."""

    mode: Annotated[
        str,
        Meta(
            description="`always` or `never` honour `gpu-fraction` and `gpu-memory` by "
            "[claims for shares](../how-to/migrate-from-kueue-and-kai.md#shares-of-a-gpu); "
            "`auto`: if `schedulerNames` has `kai-scheduler`",
            extra_json_schema={"enum": list(SHARE_MODES)},
        ),
    ] = "auto"


class KeepOff(
    msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True
):
    """Keeps pods that request no GPU off nodes tainted for GPUs."""

    enabled: Annotated[
        bool,
        Meta(
            description="[keep](../how-to/keep-general-pods-off-gpu-nodes.md) pods that request no GPU off GPU nodes"
        ),
    ] = False
    exempt_namespaces: Annotated[
        tuple[str, ...], Meta(description="namespaces that the policy skips")
    ] = (
        "kube-system",
        "gpu-operator",
    )


class Definitions(
    msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True
):
    """The kinds Dovetail adds to the cluster."""

    enabled: Annotated[
        bool,
        Meta(
            description="create the CustomResourceDefinitions of Dovetail, such as `queues.dovetail.dev`"
        ),
    ] = True
    keep: Annotated[
        bool, Meta(description="`helm uninstall` keeps the definitions, and so every queue")
    ] = True


AGENT_MODES: Final = ("dra", "device-plugin")
MIG_MODES: Final = ("dynamic", "static", "off")
SHARES: Final = "^(off|memory|[1-9][0-9]*)$"
DEVICE_METRICS: Final = r"^(off|[0-9]{1,4}(\.[0-9]{1,3})?)$"

LONGEST_POOL: Final = 20  # characters, so that names of DaemonSets stay within those of labels

_is_shares: Final = re.compile(SHARES).fullmatch


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


class Values(msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """The values of an installation."""

    image: Image = Image()
    image_pull_secrets: Annotated[
        tuple[str, ...], Meta(description="names of the secrets for pulling the image")
    ] = ()
    scheduler_names: Annotated[
        tuple[str, ...],
        Meta(
            description="Dovetail schedules pods whose `schedulerName` is one of these; policies set the first",
            extra_json_schema={"minItems": 1},
        ),
    ] = ("dovetail",)
    configuration: Annotated[
        dict[str, Any],
        Meta(
            description="sections of the [configuration file](configuration.md), without the fields that the chart sets"
        ),
    ] = msgspec.field(default_factory=lambda: {"logging": {"format": "json"}})
    replicas: Annotated[
        int, Meta(ge=0, le=100, description="number of replicas; one leads, the others stand by")
    ] = 2
    port: Annotated[int, Meta(ge=1, le=65535, description="port for health and metrics")] = 10351
    service_account: ServiceAccount = ServiceAccount()
    priority_class_name: Annotated[
        str, Meta(description="PriorityClass of the pods; empty: none")
    ] = "system-cluster-critical"
    resources: Annotated[
        dict[str, Any], Meta(description="requests and limits of the container")
    ] = msgspec.field(
        default_factory=lambda: {
            "requests": {"cpu": "500m", "memory": "512Mi"},
            "limits": {"memory": "4Gi"},
        }
    )
    env: Annotated[
        tuple[dict[str, Any], ...],
        Meta(description="additional environment variables of the container"),
    ] = ()
    pod_labels: Annotated[dict[str, str], Meta(description="additional labels of the pods")] = {}
    pod_annotations: Annotated[
        dict[str, str], Meta(description="additional annotations of the pods")
    ] = {}
    node_selector: Annotated[
        dict[str, str], Meta(description="labels of the nodes the pods may run on")
    ] = {}
    tolerations: Annotated[
        tuple[dict[str, Any], ...], Meta(description="taints the pods tolerate")
    ] = ()
    affinity: Annotated[
        dict[str, Any],
        Meta(description="affinity of the pods, in addition to the built-in spreading"),
    ] = {}
    pod_disruption_budget: Disruption = Disruption()
    network_policy: Network = Network()
    metrics: Metrics = Metrics()
    monitoring: Monitoring = Monitoring()
    defaulting: Defaulting = Defaulting()
    kai_shares: ShareClaims = ShareClaims()
    keep_general_pods_off: KeepOff = KeepOff()
    node_agent: NodeAgent = NodeAgent()
    dashboard: Dashboard = Dashboard()
    history: History = History()
    exporter: Exporter = Exporter()
    lifecycle: Lifecycle = Lifecycle()
    crds: Definitions = Definitions()


def fields() -> Iterator[configurations.Field]:
    """Every value with its path, type, default and meaning, in order."""
    return configurations.fields(Values)


def misfits(tree: object) -> list[untyped.Misfit]:
    """Unknown fields, wrong types and numbers out of range."""
    wrong = [
        misfit for field in fields() for misfit in configuration_problems.value_misfits(field, tree)
    ]
    return untyped.misfits(Values, tree) + wrong


def problems(values: Values) -> Iterator[untyped.Misfit]:
    """Rules that the types do not express: path, need, have."""
    if not values.scheduler_names:
        yield untyped.Misfit(
            "schedulerNames",
            "is empty, so Dovetail would schedule no pod; name at least one, such as dovetail",
        )
    for index, name in enumerate(values.scheduler_names):
        if not names.is_dns_subdomain(name):
            yield untyped.Misfit(
                f"schedulerNames[{index}]", f'{names.SUBDOMAIN_RULE}, got "{name}"'
            )
    if values.image.pull_policy not in PULL_POLICIES:
        got = values.image.pull_policy
        yield untyped.Misfit(
            "image.pullPolicy", f'expected one of {", ".join(PULL_POLICIES)}, got "{got}"'
        )
    if values.kai_shares.mode not in SHARE_MODES:
        got = values.kai_shares.mode
        yield untyped.Misfit(
            "kaiShares.mode", f'expected one of {", ".join(SHARE_MODES)}, got "{got}"'
        )
    if not _is_digest(values.image.digest):
        yield untyped.Misfit(
            "image.digest", f'expected sha256: and 64 hex digits, got "{values.image.digest}"'
        )

    yield from _agent_problems(values.node_agent)
    yield from _dashboard_problems(values.dashboard)
    yield from _history_problems(values.history)

    for path in DECIDED:
        if _is_set(values.configuration, path):
            yield untyped.Misfit(f"configuration.{path}", "is set by the chart; remove it")


def _agent_problems(agent: NodeAgent) -> Iterator[untyped.Misfit]:
    yield from _mode_problems("nodeAgent", agent)
    yield from _pool_problems(agent.pools)


def _pool_problems(pools: tuple[AgentPool, ...]) -> Iterator[untyped.Misfit]:
    """Pools that would not give each node one agent."""
    by_selector: dict[tuple[tuple[str, str], ...], str] = {}
    by_name: dict[str, int] = {}
    for index, pool in enumerate(pools):
        path = f"nodeAgent.pools[{index}]"
        if not names.is_dns_label(pool.name) or len(pool.name) > LONGEST_POOL:
            yield untyped.Misfit(
                f"{path}.name",
                f'{names.LABEL_RULE} (here at most {LONGEST_POOL}), got "{pool.name}"',
            )
        if pool.name in by_name:
            yield untyped.Misfit(
                f"{path}.name", f'pool {by_name[pool.name]} has it too: "{pool.name}"'
            )
        by_name.setdefault(pool.name, index)

        selector = tuple(sorted(pool.node_selector.items()))
        if not selector:
            yield untyped.Misfit(
                f"{path}.nodeSelector", "is empty, so every node would be in the pool; name labels"
            )
        elif selector in by_selector:
            yield untyped.Misfit(
                f"{path}.nodeSelector",
                f'selects the nodes of pool "{by_selector[selector]}": a node would have two agents',
            )
        by_selector.setdefault(selector, pool.name)
        yield from _mode_problems(path, pool)


def _mode_problems(path: str, agent: NodeAgent | AgentPool) -> Iterator[untyped.Misfit]:
    for name, value, allowed in (
        ("mode", agent.mode, AGENT_MODES),
        ("mig", agent.mig, MIG_MODES),
    ):
        if value is not UNSET and value not in allowed:
            yield untyped.Misfit(
                f"{path}.{name}", f'expected one of {", ".join(allowed)}, got "{value}"'
            )
    if agent.shares is not UNSET and not _is_shares(agent.shares):
        yield untyped.Misfit(
            f"{path}.shares", f'expected off, memory or a positive number, got "{agent.shares}"'
        )


def _history_problems(history: History) -> Iterator[untyped.Misfit]:
    if history.replicas > 1 and not history.store.secret_name:
        yield untyped.Misfit(
            "history.store.secretName",
            f"is required with {history.replicas} replicas: they cannot share a file",
        )


def _dashboard_problems(dashboard: Dashboard) -> Iterator[untyped.Misfit]:
    if not dashboard.auth:
        yield untyped.Misfit(
            "dashboard.auth", "is empty, so that no user could sign in; name token or proxy"
        )
    for index, means in enumerate(dashboard.auth):
        if means not in DASHBOARD_AUTH:
            allowed = ", ".join(DASHBOARD_AUTH)
            yield untyped.Misfit(
                f"dashboard.auth[{index}]", f'expected one of {allowed}, got "{means}"'
            )
    has_proof = dashboard.proxy.networks or dashboard.proxy.secret_name
    if "proxy" in dashboard.auth and not has_proof:
        yield untyped.Misfit(
            "dashboard.proxy",
            "needs networks or secretName with auth: [proxy]: else every pod could claim to be any user",
        )
    if dashboard.replicas > 1 and not dashboard.session_secret_name:
        yield untyped.Misfit(
            "dashboard.sessionSecretName",
            f"is required with {dashboard.replicas} replicas: a session of one is unknown to the others",
        )


def _is_set(configuration: dict[str, Any], path: str) -> bool:
    section, _, field = path.partition(".")
    section_tree = configuration.get(section)
    if not field:
        return section_tree is not None
    return isinstance(section_tree, dict) and field in section_tree
