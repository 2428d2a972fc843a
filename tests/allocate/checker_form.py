"""How an allocation must be written: rule 10 of the validity rules. Given the chosen devices, returns what is wrong."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from tests.allocate.checker_pools import Place, Tree

_RESULT_FIELDS = {
    "request",
    "driver",
    "pool",
    "device",
    "adminAccess",
    "tolerations",
    "bindingConditions",
    "bindingFailureConditions",
    "shareID",
    "consumedCapacity",
}


class Choice(NamedTuple):
    """One entry of an allocation, resolved: the entry, the device, the option it serves, and that option's place."""

    result: Tree
    place: Place
    option: Tree
    request: int  # index in the claim


def problems(
    claim: Tree, choices: Sequence[Choice], *, allocation: Tree, classes: dict[str, Tree], node: str
) -> Iterator[str]:
    """Everything about the form of one claim's allocation that is not as upstream writes it."""
    if not set(allocation) <= {"devices", "nodeSelector"}:
        yield f"unknown fields in {sorted(allocation)}"
    for choice in choices:
        yield from _entry_problems(choice)
    if (order := [choice.request for choice in choices]) != sorted(order):
        yield "results are not in request order"
    wanted_selector = _selector(choices, node)
    if allocation.get("nodeSelector") != wanted_selector:
        yield f"nodeSelector {allocation.get('nodeSelector')}, expected {wanted_selector}"
    wanted_config = _config(claim, choices, classes)
    config = (allocation.get("devices") or {}).get("config") or []
    if config != wanted_config:
        yield f"config {config}, expected {wanted_config}"


def _entry_problems(choice: Choice) -> Iterator[str]:
    result, device = choice.result, choice.place.device
    if unknown := set(result) - _RESULT_FIELDS:
        yield f"unknown fields {sorted(unknown)}"
    is_admin = bool(choice.option.get("adminAccess"))
    if result.get("adminAccess") != (True if is_admin else None):
        yield f"adminAccess {result.get('adminAccess')}, asked for: {is_admin}"
    for field, source in (
        ("tolerations", choice.option),
        ("bindingConditions", device),
        ("bindingFailureConditions", device),
    ):
        if _without_empty_texts(result.get(field) or []) != _without_empty_texts(
            source.get(field) or []
        ):
            yield f"{field} {result.get(field)}, expected {source.get(field)}"
    if (result.get("shareID") is not None) != choice.place.is_shareable:
        yield f"shareID {result.get('shareID')} on a device with allowMultipleAllocations {choice.place.is_shareable}"


def _without_empty_texts(node: Any) -> Any:
    """Without empty texts: the API writes them as absent."""
    if isinstance(node, dict):
        return {key: value for key, value in node.items() if value != ""}
    return [_without_empty_texts(item) for item in node] if isinstance(node, list) else node


def _selector(choices: Sequence[Choice], node: str) -> Tree | None:
    """One node, or what all of the devices ask of a node, or nothing."""
    term: dict[str, list[Tree]] = {"matchExpressions": [], "matchFields": []}
    for choice in choices:
        spec, device = choice.place.part["spec"], choice.place.device
        source = device if spec.get("perDeviceNodeSelection") else spec
        if source.get("nodeName") is not None or device.get("bindsToNode"):
            item = {"key": "metadata.name", "operator": "In", "values": [node]}
            return {"nodeSelectorTerms": [{"matchFields": [item]}]}
        for item in (source.get("nodeSelector") or {}).get("nodeSelectorTerms") or ():
            for field, kept in term.items():
                kept += [
                    test
                    for test in item.get(field) or ()
                    if not any(_same(test, other) for other in kept)
                ]
    result = {field: kept for field, kept in term.items() if kept}
    return {"nodeSelectorTerms": [result]} if result else None


def _same(tree: Tree, other: Tree) -> bool:
    alike = tree["key"] == other["key"] and tree["operator"] == other["operator"]
    return alike and set(tree.get("values") or ()) == set(other.get("values") or ())


def _config(claim: Tree, choices: Sequence[Choice], classes: dict[str, Tree]) -> list[Tree]:
    requests = (claim["spec"].get("devices") or {}).get("requests") or []
    served = _served(requests, choices)
    trees: list[Tree] = []
    users: dict[str, list[str]] = {}
    for name, option in served:
        users.setdefault(option["deviceClassName"], []).append(name)
    for class_name, names in users.items():
        for config in (classes.get(class_name, {}).get("spec") or {}).get("config") or ():
            trees.append({"source": "FromClass", "requests": names, **config})
    both = [{name, name.partition("/")[0]} for name, _ in served]
    for config in (claim["spec"].get("devices") or {}).get("config") or ():
        named = config.get("requests") or []
        if not named or any(names & set(named) for names in both):
            trees.append({"source": "FromClaim", **config, "requests": named})
    for config in trees:
        if all(names & set(config["requests"]) for names in both):
            config["requests"] = []
    return [{key: value for key, value in config.items() if value != []} for config in trees]


def _served(requests: Sequence[Tree], choices: Sequence[Choice]) -> list[tuple[str, Any]]:
    """The name and option each request ended with. A request for no devices at all ends with its first option."""
    chosen = {choice.request: (choice.result["request"], choice.option) for choice in choices}
    result = []
    for index, request in enumerate(requests):
        if index in chosen:
            result.append(chosen[index])
        elif request.get("exactly"):
            result.append((request["name"], request["exactly"]))
        else:
            first = request["firstAvailable"][0]
            result.append((f"{request['name']}/{first['name']}", first))
    return result
