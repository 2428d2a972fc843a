"""Verdicts of selectors for the checker: from the tables recorded with a world, or from the oracle."""

from __future__ import annotations

import json
from typing import Any

from tests.allocate.checker import Verdict
from tests.allocate.checker_pools import Place, Tree
from tests.support.oracle import Oracle


def verdicts(world: Tree) -> Verdict:
    """As recorded: a run-time error is no match, which is our rule."""
    columns = {name: at for at, name in enumerate(world["celDevices"])}

    def matches(expression: str, place: Place) -> bool:
        at = columns[f"{place.part['metadata']['name']}/{place.device['name']}"]
        return bool(world["cel"][expression][at] == "1")

    return matches


class Asked:
    """As the oracle says, each question asked once."""

    def __init__(self, oracle: Oracle, **features: bool) -> None:
        self._oracle = oracle
        self._features = features
        self._known: dict[tuple[str, str], bool] = {}

    def matches(self, expression: str, place: Place) -> bool:
        """For the checker. A compile or run-time error is no match."""
        device = _body(place)
        key = (expression, json.dumps(device, sort_keys=True))
        if key not in self._known:
            question = {
                "op": "cel",
                "expression": expression,
                "device": device,
                "features": self._features,
            }
            self._known[key] = self._oracle.ask(question).get("match", False)
        return self._known[key]


def _body(place: Place) -> dict[str, Any]:
    kept = ("attributes", "capacity", "allowMultipleAllocations")
    result = {name: place.device[name] for name in kept if name in place.device}
    return {"driver": place.part["spec"]["driver"], **result}
