"""What is wrong with values of the chart: unknown fields, wrong types, values that contradict each other.

Given values as they were written, or the structs made of them. Each problem names its path, need and have. Never
changes a value.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Final

from msgspec import UNSET

from dovetail.install import chart_values, component_values
from dovetail.kubetypes import names, untyped
from dovetail.model import configuration_problems

_is_digest: Final = re.compile(chart_values.DIGEST).fullmatch
_is_shares: Final = re.compile(component_values.SHARES).fullmatch


def misfits(tree: object) -> list[untyped.Misfit]:
    """Unknown fields, wrong types and numbers out of range."""
    wrong = [
        misfit
        for field in chart_values.fields()
        for misfit in configuration_problems.value_misfits(field, tree)
    ]
    return untyped.misfits(chart_values.Values, tree) + wrong


def problems(values: chart_values.Values) -> Iterator[untyped.Misfit]:
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
    if values.image.pull_policy not in chart_values.PULL_POLICIES:
        got = values.image.pull_policy
        yield untyped.Misfit(
            "image.pullPolicy",
            f'expected one of {", ".join(chart_values.PULL_POLICIES)}, got "{got}"',
        )
    if values.kai_shares.mode not in chart_values.SHARE_MODES:
        got = values.kai_shares.mode
        yield untyped.Misfit(
            "kaiShares.mode", f'expected one of {", ".join(chart_values.SHARE_MODES)}, got "{got}"'
        )
    if not _is_digest(values.image.digest):
        yield untyped.Misfit(
            "image.digest", f'expected sha256: and 64 hex digits, got "{values.image.digest}"'
        )

    yield from _agent_problems(values.node_agent)
    yield from _dashboard_problems(values.dashboard)
    yield from _history_problems(values.history)

    for path in chart_values.DECIDED:
        if _is_set(values.configuration, path):
            yield untyped.Misfit(f"configuration.{path}", "is set by the chart; remove it")


def _agent_problems(agent: component_values.NodeAgent) -> Iterator[untyped.Misfit]:
    yield from _mode_problems("nodeAgent", agent)
    yield from _pool_problems(agent.pools)


def _pool_problems(pools: tuple[component_values.AgentPool, ...]) -> Iterator[untyped.Misfit]:
    """Pools that would not give each node one agent."""
    by_selector: dict[tuple[tuple[str, str], ...], str] = {}
    by_name: dict[str, int] = {}
    for index, pool in enumerate(pools):
        path = f"nodeAgent.pools[{index}]"
        if not names.is_dns_label(pool.name) or len(pool.name) > component_values.LONGEST_POOL:
            yield untyped.Misfit(
                f"{path}.name",
                f'{names.LABEL_RULE} (here at most {component_values.LONGEST_POOL}), got "{pool.name}"',
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


def _mode_problems(
    path: str, agent: component_values.NodeAgent | component_values.AgentPool
) -> Iterator[untyped.Misfit]:
    for name, value, allowed in (
        ("mode", agent.mode, component_values.AGENT_MODES),
        ("mig", agent.mig, component_values.MIG_MODES),
    ):
        if value is not UNSET and value not in allowed:
            yield untyped.Misfit(
                f"{path}.{name}", f'expected one of {", ".join(allowed)}, got "{value}"'
            )
    if agent.shares is not UNSET and not _is_shares(agent.shares):
        yield untyped.Misfit(
            f"{path}.shares", f'expected off, memory or a positive number, got "{agent.shares}"'
        )


def _history_problems(history: component_values.History) -> Iterator[untyped.Misfit]:
    if history.replicas > 1 and not history.store.secret_name:
        yield untyped.Misfit(
            "history.store.secretName",
            f"is required with {history.replicas} replicas: they cannot share a file",
        )


def _dashboard_problems(dashboard: component_values.Dashboard) -> Iterator[untyped.Misfit]:
    if not dashboard.auth:
        yield untyped.Misfit(
            "dashboard.auth", "is empty, so that no user could sign in; name token or proxy"
        )
    for index, means in enumerate(dashboard.auth):
        if means not in component_values.DASHBOARD_AUTH:
            allowed = ", ".join(component_values.DASHBOARD_AUTH)
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
