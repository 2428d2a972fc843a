"""What the dashboard's server answers: one module per resource, plain functions from a question to a struct."""

from __future__ import annotations

from typing import Final

from dovetail.web import endpoints
from dovetail.web.api import (
    capacity_resource,
    claim_resource,
    device_resource,
    fleet_resource,
    node_resource,
    overview_resource,
    pod_resource,
    policy_resource,
    queue_resource,
    timeline_resource,
    what_if_resource,
    when_resource,
    why_resource,
    work_resource,
)
from dovetail.web.api.accounting import allocation_resource, cost_resource, utilisation_resource
from dovetail.web.api.lifecycle import healing_resource, stack_resource, upgrade_resource

ENDPOINTS: Final[tuple[endpoints.Endpoint, ...]] = (
    *overview_resource.ENDPOINTS,
    *fleet_resource.ENDPOINTS,
    *node_resource.ENDPOINTS,
    *queue_resource.ENDPOINTS,
    *work_resource.ENDPOINTS,
    *pod_resource.ENDPOINTS,
    *claim_resource.ENDPOINTS,
    *device_resource.ENDPOINTS,
    *why_resource.ENDPOINTS,
    *when_resource.ENDPOINTS,
    *capacity_resource.ENDPOINTS,
    *what_if_resource.ENDPOINTS,
    *timeline_resource.ENDPOINTS,
    *policy_resource.ENDPOINTS,
    *utilisation_resource.ENDPOINTS,
    *cost_resource.ENDPOINTS,
    *allocation_resource.ENDPOINTS,
    *upgrade_resource.ENDPOINTS,
    *stack_resource.ENDPOINTS,
    *healing_resource.ENDPOINTS,
)
