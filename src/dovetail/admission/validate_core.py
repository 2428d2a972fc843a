"""Light rules for pods, nodes and kinds without rules of their own: enough to name a mistake early.

Given the object; adds a problem for names, amounts and references that no API server would take. What a pod
runs is not judged, nor who may run it.
"""

from typing import Final

from dovetail.admission import validate_metadata, validate_placement
from dovetail.kubetypes import codec, field_errors, meta, names
from dovetail.kubetypes.core import nodes, pods
from dovetail.kubetypes.field_errors import Problems
from dovetail.model import pod_requests
from dovetail.quantity import quantity

POD_TAINT_EFFECTS: Final = ("NoExecute", "NoSchedule", "PreferNoSchedule")
POD_TOLERATION_OPERATORS: Final = ("Equal", "Exists", "Gt", "Lt")
SPREAD_ACTIONS: Final = ("DoNotSchedule", "ScheduleAnyway")
SELECTOR_OPERATORS: Final = ("DoesNotExist", "Exists", "In", "NotIn")
MAX_PORT: Final = 65535
MAX_PREFERENCE: Final = 100  # weight of a preferred term, core/v1


def check_pod(problems: Problems, pod: pods.Pod) -> None:
    """Metadata, containers and what they ask for, claims, placement."""
    validate_metadata.check_create(problems, pod.metadata, is_namespaced=True)
    spec = pod.spec
    if not spec.containers:
        field_errors.required(problems, "spec.containers", "a pod has at least one container")
    known_claims = frozenset(claim.name for claim in spec.resource_claims)
    container_names: set[str] = set()
    for listed, path in (
        (spec.init_containers, "spec.initContainers"),
        (spec.containers, "spec.containers"),
    ):
        for index, container in enumerate(listed):
            at = f"{path}[{index}]"
            _check_container(problems, container, at, known_claims=known_claims)
            if container.name and container.name in container_names:
                field_errors.duplicate(problems, f"{at}.name", container.name)
            container_names.add(container.name)
    if spec.resources is not None:
        _check_resources(problems, spec.resources, "spec.resources")
    _check_amounts(problems, spec.overhead, "spec.overhead")
    _check_claims(problems, spec.resource_claims, "spec.resourceClaims")
    if spec.node_name:
        names.check_subdomain(problems, "spec.nodeName", spec.node_name)
    validate_metadata.check_labels(problems, spec.node_selector, "spec.nodeSelector")
    _check_affinity(problems, spec.affinity, "spec.affinity")
    for index, toleration in enumerate(spec.tolerations):
        _check_toleration(problems, toleration, f"spec.tolerations[{index}]")
    for index, constraint in enumerate(spec.topology_spread_constraints):
        _check_spread(problems, constraint, f"spec.topologySpreadConstraints[{index}]")
    gates = tuple(gate.name for gate in spec.scheduling_gates)
    for index, gate in enumerate(gates):
        names.check_label_key(problems, f"spec.schedulingGates[{index}].name", gate)
    validate_placement.check_unique(problems, gates, "spec.schedulingGates")


def check_node(problems: Problems, node: nodes.Node) -> None:
    """Metadata, taints, amounts."""
    validate_metadata.check_create(problems, node.metadata, is_namespaced=False)
    for index, taint in enumerate(node.spec.taints):
        at = f"spec.taints[{index}]"
        names.check_label_key(problems, f"{at}.key", taint.key)
        names.check_label_value(problems, f"{at}.value", taint.value)
        _check_choice(problems, taint.effect, f"{at}.effect", POD_TAINT_EFFECTS)
    _check_amounts(problems, node.status.capacity, "status.capacity")
    _check_amounts(problems, node.status.allocatable, "status.allocatable")


def check_generic(problems: Problems, generic: codec.Object) -> None:
    """Metadata alone; names of such kinds only have to fit into a path."""
    name = generic.metadata.name
    if not name and not generic.metadata.generate_name:
        field_errors.required(problems, "metadata.name", "name or generateName is required")
    elif name in (".", "..") or "/" in name or "%" in name:
        field_errors.invalid(
            problems, "metadata.name", f'"{name[:80]}" must fit into a path: no "/", no "%"'
        )
    if generic.metadata.namespace:
        names.check_label(problems, "metadata.namespace", generic.metadata.namespace)
    validate_metadata.check_labels(problems, generic.metadata.labels, "metadata.labels")
    validate_metadata.check_annotations(
        problems, generic.metadata.annotations, "metadata.annotations"
    )


def _check_container(
    problems: Problems, container: pods.Container, path: str, *, known_claims: frozenset[str]
) -> None:
    if not container.name:
        field_errors.required(problems, f"{path}.name")
    else:
        names.check_label(problems, f"{path}.name", container.name)
    _check_resources(problems, container.resources, f"{path}.resources")
    for index, claim in enumerate(container.resources.claims):
        at = f"{path}.resources.claims[{index}]"
        if not claim.name:
            field_errors.required(problems, f"{at}.name")
        elif claim.name not in known_claims:
            claim_names = ", ".join(sorted(known_claims)) or "none"
            message = f'no claim "{claim.name}" in spec.resourceClaims; there are: {claim_names}'
            problems.append(
                field_errors.FieldProblem(field_errors.NOT_FOUND, f"{at}.name", message)
            )
    for index, port in enumerate(container.ports):
        at = f"{path}.ports[{index}]"
        if not 1 <= port.container_port <= MAX_PORT:
            field_errors.invalid(problems, f"{at}.containerPort", f"must be from 1 to {MAX_PORT}")
        if not 0 <= port.host_port <= MAX_PORT:
            field_errors.invalid(
                problems, f"{at}.hostPort", f"must be from 1 to {MAX_PORT}, or absent"
            )


def _check_resources(problems: Problems, resources: pods.ResourceRequirements, path: str) -> None:
    _check_amounts(problems, resources.requests, f"{path}.requests")
    _check_amounts(problems, resources.limits, f"{path}.limits")
    for name, amount in resources.requests.items():
        limit = resources.limits.get(name)
        if not _may_be_overcommitted(name):
            _check_equal_limit(problems, name, amount, limit=limit, path=path)
        elif limit is not None and amount > limit:
            field_errors.invalid(
                problems, f"{path}.requests[{name}]", f"{amount} is more than the limit, {limit}"
            )


def _check_equal_limit(
    problems: Problems,
    name: str,
    amount: quantity.Quantity,
    *,
    limit: quantity.Quantity | None,
    path: str,
) -> None:
    """In upstream's words: people search for them."""
    if limit is None:
        message = f"Limit must be set for non overcommitable resources: {name}: {amount}"
        field_errors.required(problems, f"{path}.limits", message)
    elif amount != limit:
        message = f"{amount} must be equal to {name} limit of {limit}"
        field_errors.invalid(problems, f"{path}.requests[{name}]", message)


def _may_be_overcommitted(name: str) -> bool:
    """Whether a request may be lower than its limit: IsOvercommitAllowed of core/v1."""
    is_native = "/" not in name or pod_requests.NATIVE_DOMAIN in name
    return is_native and not name.startswith(pod_requests.HUGE_PAGES)


def _check_amounts(problems: Problems, amounts: dict[str, quantity.Quantity], path: str) -> None:
    for name, amount in amounts.items():
        if amount.nanos < 0:
            field_errors.invalid(problems, f"{path}[{name}]", f"{amount} must not be negative")
        elif amount.nanos % 10**9 and "/" in name:
            field_errors.invalid(problems, f"{path}[{name}]", f"{amount} must be a whole number")
        if not names.is_label_key(name):
            field_errors.invalid(problems, f"{path}[{name}]", f'"{name[:80]}" {names.KEY_RULE}')


def _check_claims(problems: Problems, claims: tuple[pods.PodResourceClaim, ...], path: str) -> None:
    for index, claim in enumerate(claims):
        at = f"{path}[{index}]"
        if not claim.name:
            field_errors.required(problems, f"{at}.name")
        else:
            names.check_label(problems, f"{at}.name", claim.name)
        sources = [
            name
            for name in (claim.resource_claim_name, claim.resource_claim_template_name)
            if name is not None
        ]
        if len(sources) != 1:
            field_errors.invalid(
                problems, at, "needs exactly one of resourceClaimName, resourceClaimTemplateName"
            )
        for field, name in (
            ("resourceClaimName", claim.resource_claim_name),
            ("resourceClaimTemplateName", claim.resource_claim_template_name),
        ):
            if name is not None:
                names.check_subdomain(problems, f"{at}.{field}", name)
    validate_placement.check_unique(problems, tuple(claim.name for claim in claims), path)


def _check_affinity(problems: Problems, affinity: pods.Affinity | None, path: str) -> None:
    if affinity is None:
        return
    if (node_affinity := affinity.node_affinity) is not None:
        at = f"{path}.nodeAffinity"
        if (
            required := node_affinity.required_during_scheduling_ignored_during_execution
        ) is not None:
            validate_placement.check_node_selector(
                problems, required, f"{at}.requiredDuringSchedulingIgnoredDuringExecution"
            )
        at = f"{at}.preferredDuringSchedulingIgnoredDuringExecution"
        for index, preferred in enumerate(
            node_affinity.preferred_during_scheduling_ignored_during_execution
        ):
            _check_weight(problems, preferred.weight, f"{at}[{index}].weight")
            validate_placement.check_node_selector_term(
                problems, preferred.preference, f"{at}[{index}].preference"
            )
    for name, near in (
        ("podAffinity", affinity.pod_affinity),
        ("podAntiAffinity", affinity.pod_anti_affinity),
    ):
        if near is None:
            continue
        at = f"{path}.{name}.requiredDuringSchedulingIgnoredDuringExecution"
        for index, term in enumerate(near.required_during_scheduling_ignored_during_execution):
            _check_term(problems, term, f"{at}[{index}]")
        at = f"{path}.{name}.preferredDuringSchedulingIgnoredDuringExecution"
        for index, weighted in enumerate(near.preferred_during_scheduling_ignored_during_execution):
            _check_weight(problems, weighted.weight, f"{at}[{index}].weight")
            _check_term(problems, weighted.pod_affinity_term, f"{at}[{index}].podAffinityTerm")


def _check_term(problems: Problems, term: pods.PodAffinityTerm, path: str) -> None:
    if not term.topology_key:
        field_errors.required(problems, f"{path}.topologyKey")
    else:
        names.check_label_key(problems, f"{path}.topologyKey", term.topology_key)
    _check_label_selector(problems, term.label_selector, f"{path}.labelSelector")
    _check_label_selector(problems, term.namespace_selector, f"{path}.namespaceSelector")


def _check_weight(problems: Problems, weight: int, path: str) -> None:
    if not 1 <= weight <= MAX_PREFERENCE:
        field_errors.invalid(problems, path, f"must be from 1 to {MAX_PREFERENCE}")


def _check_toleration(problems: Problems, toleration: pods.Toleration, path: str) -> None:
    if toleration.key:
        names.check_label_key(problems, f"{path}.key", toleration.key)
    elif toleration.operator != "Exists":
        field_errors.invalid(problems, f"{path}.operator", "must be Exists where there is no key")
    if toleration.operator == "Exists" and toleration.value:
        field_errors.invalid(
            problems, f"{path}.value", "must be empty where the operator is Exists"
        )
    if toleration.operator:
        _check_choice(problems, toleration.operator, f"{path}.operator", POD_TOLERATION_OPERATORS)
    if toleration.effect:
        _check_choice(problems, toleration.effect, f"{path}.effect", POD_TAINT_EFFECTS)


def _check_spread(problems: Problems, constraint: pods.TopologySpreadConstraint, path: str) -> None:
    if constraint.max_skew <= 0:
        field_errors.invalid(problems, f"{path}.maxSkew", "must be greater than zero")
    if not constraint.topology_key:
        field_errors.required(problems, f"{path}.topologyKey")
    _check_choice(
        problems, constraint.when_unsatisfiable, f"{path}.whenUnsatisfiable", SPREAD_ACTIONS
    )
    if constraint.min_domains is not None and constraint.min_domains <= 0:
        field_errors.invalid(problems, f"{path}.minDomains", "must be greater than zero")
    _check_label_selector(problems, constraint.label_selector, f"{path}.labelSelector")


def _check_label_selector(
    problems: Problems, selector: meta.LabelSelector | None, path: str
) -> None:
    if selector is None:
        return
    validate_metadata.check_labels(problems, selector.match_labels, f"{path}.matchLabels")
    for index, requirement in enumerate(selector.match_expressions):
        at = f"{path}.matchExpressions[{index}]"
        names.check_label_key(problems, f"{at}.key", requirement.key)
        if requirement.operator in ("In", "NotIn") and not requirement.values:
            field_errors.required(problems, f"{at}.values", "In and NotIn need a value")
        elif requirement.operator in ("Exists", "DoesNotExist") and requirement.values:
            field_errors.forbidden(
                problems, f"{at}.values", "Exists and DoesNotExist take no value"
            )
        elif requirement.operator not in SELECTOR_OPERATORS:
            field_errors.invalid(
                problems,
                f"{at}.operator",
                f'"{requirement.operator}" is not an operator of selectors',
            )


def _check_choice(problems: Problems, value: str, path: str, choices: tuple[str, ...]) -> None:
    if not value:
        field_errors.required(problems, path)
    elif value not in choices:
        field_errors.not_supported(problems, path, value, choices)
