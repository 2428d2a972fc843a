"""Dovetail from Python: what a cluster has, why work waits, when it starts, what changes would do.

    from dovetail.sdk import Cluster

    cluster = Cluster.connect()            # as the command line chooses: kubeconfig, or the embedded cluster
    cluster = Cluster.load("snapshot/")    # a saved cluster, or any files as kubectl prints them
    cluster.gpus()
    cluster.why("train-0", namespace="research")

    history = History.open("history.sqlite", prices="prices.yaml")
    history.cost(window="30d", by="namespace")

Results are frozen structs, the same as `-o json` prints; lists of them are `Table`s that notebooks show. Everything is
synchronous. It only reads: no method changes a cluster.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any, Final

from dovetail.errors import DovetailError, InputError, NotFound, StateError
from dovetail.ports.failures import ApiFailure, Refused, Unauthorised, Unavailable
from dovetail.sdk.change_list import Changes
from dovetail.sdk.cluster import Cluster
from dovetail.sdk.result_table import ObjectTable, Table

if TYPE_CHECKING:
    from dovetail.answer.cost.budget_forecast import BudgetState
    from dovetail.answer.when import Expectation
    from dovetail.sdk.queue_environment import QueueEnvironment
    from dovetail.sdk.recorded_gpus import History
    from dovetail.sdk.shown_answers import Capacity, WhatIf, Why
    from dovetail.sdk.shown_history import Cost, RightSizes, Utilisation
    from dovetail.sdk.usage import Usage
    from dovetail.tables.items.claim_items import ClaimItem
    from dovetail.tables.items.device_items import DeviceItem
    from dovetail.tables.items.gpu_items import GpuNodeItem
    from dovetail.tables.items.node_items import NodeItem
    from dovetail.tables.items.pod_items import PodItem
    from dovetail.tables.items.queue_items import QueueItem, QueueResource
    from dovetail.tables.work.gpu_holdings import UsageRow
    from dovetail.tables.work.work_items import WorkItem

__all__ = [
    "ApiFailure",
    "BudgetState",
    "Capacity",
    "Changes",
    "ClaimItem",
    "Cluster",
    "Cost",
    "DeviceItem",
    "DovetailError",
    "Expectation",
    "GpuNodeItem",
    "History",
    "InputError",
    "NodeItem",
    "NotFound",
    "ObjectTable",
    "PodItem",
    "QueueEnvironment",
    "QueueItem",
    "QueueResource",
    "Refused",
    "RightSizes",
    "StateError",
    "Table",
    "Unauthorised",
    "Unavailable",
    "Usage",
    "UsageRow",
    "Utilisation",
    "WhatIf",
    "Why",
    "WorkItem",
]

# The engine is loaded by the first question, and these with it: most programs never name them.
_LATER: Final = {
    "Utilisation": "dovetail.sdk.shown_history",
    "RightSizes": "dovetail.sdk.shown_history",
    "History": "dovetail.sdk.recorded_gpus",
    "Cost": "dovetail.sdk.shown_history",
    "BudgetState": "dovetail.answer.cost.budget_forecast",
    "Capacity": "dovetail.sdk.shown_answers",
    "ClaimItem": "dovetail.tables.items.claim_items",
    "DeviceItem": "dovetail.tables.items.device_items",
    "Expectation": "dovetail.answer.when",
    "GpuNodeItem": "dovetail.tables.items.gpu_items",
    "NodeItem": "dovetail.tables.items.node_items",
    "PodItem": "dovetail.tables.items.pod_items",
    "QueueEnvironment": "dovetail.sdk.queue_environment",
    "QueueItem": "dovetail.tables.items.queue_items",
    "QueueResource": "dovetail.tables.items.queue_items",
    "Usage": "dovetail.sdk.usage",
    "UsageRow": "dovetail.tables.work.gpu_holdings",
    "WhatIf": "dovetail.sdk.shown_answers",
    "Why": "dovetail.sdk.shown_answers",
    "WorkItem": "dovetail.tables.work.work_items",
}


def __getattr__(name: str) -> Any:
    module = _LATER.get(name)
    if module is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(module), name)


def __dir__() -> list[str]:
    return __all__
