"""The policies of a Job: what a failed pod means (podFailurePolicy), and when enough indexes are done (successPolicy).

Given a Job's spec and pods or indexes; returns verdicts. The first rule that matches decides. Never writes.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

from dovetail.sim.controllers import tree_fields
from dovetail.sim.controllers.batch import job_indexes

Tree = dict[str, Any]


class Verdict(NamedTuple):
    """What the failure of a pod means."""

    is_counted: bool = True  # against the backoff limit
    fails_index: bool = False
    fails_job: str = ""  # the message of the Job's failure; empty if the Job goes on


def verdict_on(pod: Tree, policy: Tree | None) -> Verdict:
    """What a failed pod means under the failure policy."""
    for number, rule in enumerate(_rules(policy)):
        message = _match(pod, rule)
        if message:
            full = f"{message} matching {rule['action']} rule at index {number}"
            return _verdict(rule["action"], full)
    return Verdict()


def success_message(policy: Tree | None, succeeded: set[int], completions: int) -> str:
    """Says which rule of the success policy the succeeded indexes fulfil; empty if none."""
    for number, rule in enumerate(_rules(policy)):
        if _is_fulfilled(rule, succeeded, completions):
            return f"Matched rules at index {number}"
    return ""


def _rules(policy: Tree | None) -> list[Tree]:
    return [] if policy is None else tree_fields.entries(policy, "rules")


def _verdict(action: str, message: str) -> Verdict:
    match action:
        case "Ignore":
            return Verdict(is_counted=False)
        case "FailIndex":
            return Verdict(fails_index=True)
        case "FailJob":
            return Verdict(fails_job=message)
        case _:
            return Verdict()


def _match(pod: Tree, rule: Tree) -> str:
    """Says how a rule matches a pod; empty if it does not."""
    name = f"{pod['metadata'].get('namespace', '')}/{pod['metadata']['name']}"
    status = tree_fields.mapping(pod, "status")
    if rule.get("onExitCodes"):
        for container in _ended_containers(status):
            code = container["state"]["terminated"].get("exitCode", 0)
            if _matches_exit(container["name"], code, rule["onExitCodes"]):
                return f"Container {container['name']} for pod {name} failed with exit code {code}"
        return ""
    patterns = {
        (entry.get("type"), entry.get("status") or "True")
        for entry in tree_fields.entries(rule, "onPodConditions")
    }
    for condition in tree_fields.entries(status, "conditions"):
        if (condition.get("type"), condition.get("status")) in patterns:
            return f"Pod {name} has condition {condition['type']}"
    return ""


def _ended_containers(status: Tree) -> Iterable[Tree]:
    statuses = (
        tree_fields.entries(status, "containerStatuses"),
        tree_fields.entries(status, "initContainerStatuses"),
    )
    for container in (*statuses[0], *statuses[1]):
        if tree_fields.mapping(container, "state").get("terminated"):
            yield container


def _matches_exit(container_name: str, code: int, requirement: Tree) -> bool:
    wanted_name = requirement.get("containerName")
    if code == 0 or wanted_name not in (None, container_name):
        return False
    is_listed = code in tree_fields.entries(requirement, "values")
    return is_listed if requirement.get("operator") == "In" else not is_listed


def _is_fulfilled(rule: Tree, succeeded: set[int], completions: int) -> bool:
    count = rule.get("succeededCount")
    if rule.get("succeededIndexes") is None:
        return count is not None and len(succeeded) >= count
    required = job_indexes.parsed(rule["succeededIndexes"], completions)
    if not required:
        return False
    done = len(required & succeeded)
    return done == len(required) or (count is not None and done >= count)
