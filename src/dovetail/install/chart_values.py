"""The values of the chart: fields and defaults. Data only.

The chart's values.schema.json and the reference page are generated from these structs, and `dovetail install` validates
values against them; values.yaml repeats the defaults for readers. Never reads a file, never renders anything.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any, Final

import msgspec
from msgspec import Meta

from dovetail.install.component_values import Dashboard, Exporter, History, Lifecycle, NodeAgent
from dovetail.model import configuration as configurations

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
