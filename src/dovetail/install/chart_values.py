"""The values of the chart: fields, defaults and rules. Data only.

The chart's values.schema.json and the reference page are generated from these structs, and `dovetail install` validates
values against them; values.yaml repeats the defaults for readers. Never reads a file, never renders anything.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Annotated, Any, Final

import msgspec
from msgspec import Meta

from dovetail.kubetypes import names, untyped
from dovetail.model import configuration as configurations

PULL_POLICIES: Final = ("Always", "IfNotPresent", "Never")
DIGEST: Final = "^(sha256:[0-9a-f]{64})?$"
# Fields of the configuration file that the chart sets. Values for them would be overwritten, so they are refused.
DECIDED: Final = (
    "apiVersion",
    "kind",
    "schedulerNames",
    "serving",
    "leaderElection.namespace",
    "leaderElection.name",
)

_is_digest: Final = re.compile(DIGEST).fullmatch


class Image(msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """The image the scheduler runs from."""

    repository: Annotated[str, Meta(description="where the image is, without tag; required")] = ""
    tag: Annotated[str, Meta(description="its tag; empty: the chart's appVersion")] = ""
    digest: Annotated[
        str,
        Meta(
            description="its digest, instead of a tag: `sha256:...`",
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
    """Who the scheduler is to the API server."""

    create: Annotated[bool, Meta(description="make the account; off: it is there already")] = True
    name: Annotated[str, Meta(description="its name; empty: that of the deployment")] = ""
    annotations: Annotated[dict[str, str], Meta(description="annotations of the account")] = {}


class Disruption(
    msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True
):
    """How many replicas a drain may take at once."""

    enabled: Annotated[bool, Meta(description="make a PodDisruptionBudget")] = True
    max_unavailable: Annotated[
        int, Meta(ge=0, le=100, description="replicas that may be away on purpose")
    ] = 1


class Network(
    msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True
):
    """What the scheduler's pods may be reached by, and reach."""

    enabled: Annotated[bool, Meta(description="make a NetworkPolicy")] = True
    from_: Annotated[
        tuple[dict[str, Any], ...],
        Meta(description="NetworkPolicy peers that may reach the port; empty: everybody"),
    ] = msgspec.field(name="from", default=())
    api_server_ports: Annotated[
        tuple[int, ...],
        Meta(
            description="ports the API server listens on, of the service and of the machine behind it"
        ),
    ] = (443, 6443)
    extra_egress: Annotated[
        tuple[dict[str, Any], ...],
        Meta(description="more NetworkPolicy egress rules, such as to a trace collector"),
    ] = ()


class Reader(msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """A service account that may read metrics."""

    namespace: str
    name: str


class ServiceMonitor(
    msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True
):
    """How a Prometheus operator finds the metrics."""

    enabled: Annotated[
        bool, Meta(description="make a ServiceMonitor; the cluster must know the kind")
    ] = False
    interval: Annotated[str, Meta(description="between two scrapes")] = "30s"
    labels: Annotated[
        dict[str, str], Meta(description="labels by which the operator selects it")
    ] = {}


class Metrics(
    msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True
):
    """Who reads the metrics."""

    readers: Annotated[
        tuple[Reader, ...], Meta(description="service accounts that may: `{namespace, name}`")
    ] = ()
    service_monitor: ServiceMonitor = ServiceMonitor()


class Defaulting(
    msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True
):
    """Pods that become Dovetail's without naming it, in namespaces labelled for it."""

    enabled: Annotated[
        bool, Meta(description="make the MutatingAdmissionPolicy, where the server has the kind")
    ] = True
    resource_prefixes: Annotated[
        tuple[str, ...],
        Meta(description="a container that limits a resource whose name begins so asks for GPUs"),
    ] = ("nvidia.com/",)
    claims: Annotated[bool, Meta(description="a pod with resource claims asks for GPUs too")] = True


class KeepOff(
    msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True
):
    """Pods without GPUs kept off nodes tainted for GPUs."""

    enabled: Annotated[
        bool,
        Meta(
            description="[refuse](../how-to/keep-general-pods-off-gpu-nodes.md) pods that ask for no GPU on GPU nodes"
        ),
    ] = False
    exempt_namespaces: Annotated[
        tuple[str, ...], Meta(description="namespaces whose pods are not looked at")
    ] = (
        "kube-system",
        "gpu-operator",
    )


class Definitions(
    msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True
):
    """The kinds Dovetail adds to the cluster."""

    enabled: Annotated[
        bool, Meta(description="define `queues.dovetail.dev` and the other kinds of our own")
    ] = True
    keep: Annotated[
        bool, Meta(description="`helm uninstall` leaves the definitions, and so every queue")
    ] = True


class Values(msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """Everything that can be said about an installation."""

    image: Image = Image()
    image_pull_secrets: Annotated[
        tuple[str, ...], Meta(description="names of secrets to pull the image with")
    ] = ()
    scheduler_names: Annotated[
        tuple[str, ...],
        Meta(
            description="pods whose `schedulerName` is one of these are ours; the first is what policies set",
            extra_json_schema={"minItems": 1},
        ),
    ] = ("dovetail",)
    configuration: Annotated[
        dict[str, Any],
        Meta(
            description="sections of the [configuration file](configuration.md) but what the chart decides"
        ),
    ] = msgspec.field(default_factory=lambda: {"logging": {"format": "json"}})
    replicas: Annotated[
        int, Meta(ge=0, le=100, description="how many; one leads, the others stand by")
    ] = 2
    port: Annotated[
        int, Meta(ge=1, le=65535, description="where health and metrics are served")
    ] = 10351
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
        tuple[dict[str, Any], ...], Meta(description="more environment variables of the container")
    ] = ()
    pod_labels: Annotated[dict[str, str], Meta(description="more labels of the pods")] = {}
    pod_annotations: Annotated[
        dict[str, str], Meta(description="more annotations of the pods")
    ] = {}
    node_selector: Annotated[
        dict[str, str], Meta(description="labels of the nodes the pods may run on")
    ] = {}
    tolerations: Annotated[
        tuple[dict[str, Any], ...], Meta(description="taints the pods tolerate")
    ] = ()
    affinity: Annotated[
        dict[str, Any], Meta(description="affinity of the pods, beside the built-in spreading")
    ] = {}
    pod_disruption_budget: Disruption = Disruption()
    network_policy: Network = Network()
    metrics: Metrics = Metrics()
    defaulting: Defaulting = Defaulting()
    keep_general_pods_off: KeepOff = KeepOff()
    crds: Definitions = Definitions()


def fields() -> Iterator[configurations.Field]:
    """Every value with its path, type, default and meaning, in order."""
    return configurations.fields(Values)


def misfits(tree: object) -> list[untyped.Misfit]:
    """Unknown fields, wrong types and numbers out of range."""
    wrong = [misfit for field in fields() for misfit in configurations.value_misfits(field, tree)]
    return untyped.misfits(Values, tree) + wrong


def problems(values: Values) -> Iterator[untyped.Misfit]:
    """Rules that the types do not express: path, need, have."""
    if not values.scheduler_names:
        yield untyped.Misfit(
            "schedulerNames",
            "is empty, so no pod would be ours; name at least one, such as dovetail",
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
    if not _is_digest(values.image.digest):
        yield untyped.Misfit(
            "image.digest", f'expected sha256: and 64 hex digits, got "{values.image.digest}"'
        )

    for path in DECIDED:
        if _is_set(values.configuration, path):
            yield untyped.Misfit(
                f"configuration.{path}", "is decided by the installation; leave it out"
            )


def _is_set(configuration: dict[str, Any], path: str) -> bool:
    section, _, field = path.partition(".")
    section_tree = configuration.get(section)
    if not field:
        return section_tree is not None
    return isinstance(section_tree, dict) and field in section_tree
