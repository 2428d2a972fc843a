"""Judges an allocation by the validity rules of the conformance data, on plain JSON trees.

Shares no code with the package under test: quantities, node selectors, pools, counters and the form of results are
written here once more, from the rules. What selectors say comes from outside: recorded, or from the oracle.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from fractions import Fraction
from typing import Any, NamedTuple

from tests.allocate import checker_capacity, checker_form, checker_pools
from tests.allocate.checker_form import Choice
from tests.allocate.checker_pools import DeviceKey, Place, Pool, Tree, Use

Verdict = Callable[[str, Place], bool]  # does this expression match this device
MAX_DEVICES_PER_CLAIM = 32


class Violation(NamedTuple):
    """The number of the rule that is broken, and how."""

    rule: int
    text: str


class Scene(NamedTuple):
    """Everything the rules look at."""

    world: Tree
    node: Tree
    pools: Sequence[Pool]
    places: dict[DeviceKey, Place]
    use: Use
    classes: dict[str, Tree]
    matches: Verdict


def violations(
    world: Tree,
    node: Tree,
    *,
    results: Sequence[Tree],
    matches: Verdict,
    are_shares_distinct: bool = True,
) -> list[Violation]:
    """What is wrong with these allocations, one per claim of the world; nothing for a valid one."""
    scene = _scene(world, node, matches)
    claims = world["claims"]
    if len(results) != len(claims):
        return [Violation(10, f"{len(results)} results for {len(claims)} claims")]
    result: list[Violation] = []
    chosen: list[list[Choice]] = []
    for index, (claim, allocation) in enumerate(zip(claims, results, strict=True)):
        choices, problems = _resolved(claim, allocation, scene)
        chosen.append(choices)
        problems += _claim_violations(claim, choices, scene)
        form = checker_form.problems(
            claim,
            choices,
            allocation=allocation,
            classes=scene.classes,
            node=node["metadata"]["name"],
        )
        problems += [Violation(10, text) for text in form]
        result += [Violation(rule, f"claims[{index}]: {text}") for rule, text in problems]
    result += _sharing_violations(chosen, scene)
    result += _counter_violations(chosen, scene)
    result += _capacity_violations(chosen, scene)
    if are_shares_distinct:
        result += _share_id_violations(chosen, scene)
    return result


def _scene(world: Tree, node: Tree, matches: Verdict) -> Scene:
    pools = checker_pools.pools(world, node)
    places = {place.key: place for pool in pools for place in pool.offered}
    classes = {item["metadata"]["name"]: item for item in world.get("deviceClasses") or ()}
    return Scene(world, node, pools, places, checker_pools.use_of(world), classes, matches)


def _resolved(claim: Tree, allocation: Tree, scene: Scene) -> tuple[list[Choice], list[Violation]]:
    """The entries with their devices and options. Rules 1, 2 and the names of rule 4."""
    options = dict(_options(claim))
    choices, outcome = [], []
    for result in (allocation.get("devices") or {}).get("results") or ():
        key = (result["driver"], result["pool"], result["device"])
        if result["request"] not in options:
            outcome.append(Violation(4, f"no request {result['request']!r}"))
        elif key not in scene.places:
            outcome.append(
                Violation(
                    _why_not_offered(key, scene), f"{'/'.join(key)} is not usable on this node"
                )
            )
        else:
            request, option = options[result["request"]]
            choices.append(Choice(result, scene.places[key], option, request))
    return choices, outcome


def _why_not_offered(key: DeviceKey, scene: Scene) -> int:
    """Rule 2 for a device whose pool is invalid or that is meant for another node, else rule 1."""
    for part in scene.world["resourceSlices"]:
        spec = part["spec"]
        if (spec["driver"], spec["pool"]["name"]) == key[:2] and spec.get("perDeviceNodeSelection"):
            return 2
    return 2 if any(pool.problem for pool in scene.pools) else 1


def _options(claim: Tree) -> Iterator[tuple[str, tuple[int, Tree]]]:
    for index, request in enumerate((claim["spec"].get("devices") or {}).get("requests") or ()):
        if request.get("exactly"):
            yield request["name"], (index, request["exactly"])
        for option in request.get("firstAvailable") or ():
            yield f"{request['name']}/{option['name']}", (index, option)


def _claim_violations(claim: Tree, choices: Sequence[Choice], scene: Scene) -> list[Violation]:
    result = list(_request_violations(claim, choices, scene))
    if len(choices) > MAX_DEVICES_PER_CLAIM:
        result.append(Violation(4, f"{len(choices)} devices in one claim"))
    exclusive = Counter(choice.place.key for choice in choices if not choice.place.is_shareable)
    result += [
        Violation(5, f"{'/'.join(key)} twice in one claim")
        for key, times in exclusive.items()
        if times > 1
    ]
    for choice in choices:
        result += _device_violations(choice, scene)
    return result + _constraint_violations(claim, choices)


def _request_violations(
    claim: Tree, choices: Sequence[Choice], scene: Scene
) -> Iterator[Violation]:
    """Rule 4: one option per request, as many devices as it says, none of them twice."""
    requests = (claim["spec"].get("devices") or {}).get("requests") or []
    for index, request in enumerate(requests):
        mine = [choice for choice in choices if choice.request == index]
        name = request["name"]
        if len({choice.result["request"] for choice in mine}) > 1:
            yield Violation(4, f"{name}: more than one option is used")
        keys = [choice.place.key for choice in mine]
        if len(keys) != len(set(keys)):
            yield Violation(4, f"{name}: a device occurs twice")
        if mine:
            option = mine[0].option
        else:
            option = request.get("exactly") or request["firstAvailable"][0]
        if option.get("allocationMode") == "All":
            yield from _all_violations(name, option, keys=set(keys), scene=scene)
        elif len(mine) != option.get("count", 0):
            yield Violation(4, f"{name}: {len(mine)} devices, asked for {option.get('count', 0)}")


def _all_violations(
    name: str, option: Tree, *, keys: set[DeviceKey], scene: Scene
) -> Iterator[Violation]:
    if any(not pool.is_complete or pool.problem for pool in scene.pools):
        yield Violation(4, f"{name}: all devices, but a pool is incomplete or invalid")
    expected = {
        key
        for key, place in scene.places.items()
        if _selected(option, place, scene)
        and checker_capacity.consumed(place.device, _asked(option)) is not None
    }
    if not expected or keys != expected:
        yield Violation(4, f"{name}: {len(keys)} devices, all would be {len(expected)}")


def _device_violations(choice: Choice, scene: Scene) -> Iterator[Violation]:
    """Rules 3, 5 (in use), 6 and the filter of 8 for one device."""
    option, place = choice.option, choice.place
    name = "/".join(place.key)
    if not _selected(option, place, scene):
        yield Violation(3, f"{name} does not satisfy the selectors of {choice.result['request']}")
    if not option.get("adminAccess") and place.key in scene.use.exclusive:
        yield Violation(5, f"{name} is in use")
    for taint in checker_pools.taints(scene.world, place):
        if taint["effect"] in ("NoSchedule", "NoExecute") and not _is_tolerated(taint, option):
            yield Violation(6, f"{name} has taint {taint['key']}")
    expected = checker_capacity.consumed(place.device, _asked(option))
    if expected is None:
        yield Violation(8, f"{name} cannot serve the capacity asked for")
        return
    messages = {
        key: checker_pools.amount(text)
        for key, text in (choice.result.get("consumedCapacity") or {}).items()
    }
    if messages != (expected if place.is_shareable else {}):
        yield Violation(
            8,
            f"{name}: consumedCapacity {choice.result.get('consumedCapacity')}, expected {expected}",
        )


def _selected(option: Tree, place: Place, scene: Scene) -> bool:
    chosen = scene.classes.get(option["deviceClassName"])
    if chosen is None:
        return False
    selectors = [
        *((chosen.get("spec") or {}).get("selectors") or ()),
        *(option.get("selectors") or ()),
    ]
    return all(scene.matches(selector["cel"]["expression"], place) for selector in selectors)


def _asked(option: Tree) -> Tree:
    return dict((option.get("capacity") or {}).get("requests") or {})


def _is_tolerated(taint: Tree, option: Tree) -> bool:
    for item in option.get("tolerations") or ():
        fits_effect = not item.get("effect") or item["effect"] == taint["effect"]
        fits_key = not item.get("key") or item["key"] == taint["key"]
        is_any_value = item.get("operator") == "Exists"
        if (
            fits_effect
            and fits_key
            and (is_any_value or item.get("value", "") == taint.get("value", ""))
        ):
            return True
    return False


def _constraint_violations(claim: Tree, choices: Sequence[Choice]) -> list[Violation]:
    """Rule 9."""
    result = []
    for number, constraint in enumerate(
        (claim["spec"].get("devices") or {}).get("constraints") or ()
    ):
        named = set(constraint.get("requests") or ())
        covered = [
            choice
            for choice in choices
            if not named
            or choice.result["request"] in named
            or choice.result["request"].partition("/")[0] in named
        ]
        match = constraint.get("matchAttribute")
        values = [
            _values(choice.place, match or constraint["distinctAttribute"]) for choice in covered
        ]
        if not all(values):
            result.append(Violation(9, f"constraints[{number}]: a device lacks the attribute"))
        elif match and values and not set.intersection(*values):
            result.append(Violation(9, f"constraints[{number}]: no common value of {match}"))
        elif not match and any(one & other for one, other in itertools.combinations(values, 2)):
            result.append(
                Violation(
                    9,
                    f"constraints[{number}]: a value of {constraint['distinctAttribute']} repeats",
                )
            )
    return result


def _values(place: Place, attribute: str) -> set[tuple[str, Any]]:
    """The typed values of an attribute; a list has several."""
    attributes = place.device.get("attributes") or {}
    domain, _, identifier = attribute.partition("/")
    result = attributes.get(attribute)
    if result is None and domain == place.key[0]:
        result = attributes.get(identifier)
    values: set[tuple[str, Any]] = set()
    for kind, value in (result or {}).items():
        several = value if isinstance(value, list) else [value]
        values |= {
            (kind.removesuffix("s") if isinstance(value, list) else kind, each) for each in several
        }
    return values


def _sharing_violations(chosen: Sequence[Sequence[Choice]], scene: Scene) -> list[Violation]:
    """Rule 5 across claims: an exclusive device serves one request of the pod, admin access aside."""
    used = Counter(
        choice.place.key
        for choices in chosen
        for choice in choices
        if not choice.place.is_shareable and not choice.option.get("adminAccess")
    )
    return [
        Violation(5, f"{'/'.join(key)} serves {times} requests")
        for key, times in used.items()
        if times > 1
    ]


def _counter_violations(chosen: Sequence[Sequence[Choice]], scene: Scene) -> list[Violation]:
    """Rule 7. Admin access charges nothing; a shareable device is charged once, and not again when in use."""
    charged = {
        choice.place.key: choice.place
        for choices in chosen
        for choice in choices
        if not choice.option.get("adminAccess")
        and not (choice.place.is_shareable and scene.use.holds_share(choice.place.key))
    }
    result = []
    for pool in scene.pools:
        left = dict(pool.counters)
        for place in pool.everywhere:
            if scene.use.holds(place.key):
                for counter, value in checker_pools.consumption(place.device):
                    left[counter] -= value
        mine = [place for place in pool.offered if place.key in charged]
        touched = set()
        for place in mine:
            for counter, value in checker_pools.consumption(place.device):
                left[counter] -= value
                touched.add(counter)
        result += [
            Violation(7, f"counter {'/'.join(each)} is overdrawn")
            for each in sorted(touched)
            if left[each] < 0
        ]
    return result


def _capacity_violations(chosen: Sequence[Sequence[Choice]], scene: Scene) -> list[Violation]:
    """Rule 8 over all shares of a device."""
    taken: dict[DeviceKey, list[dict[str, Fraction]]] = {}
    for choice in itertools.chain.from_iterable(chosen):
        share = checker_capacity.consumed(choice.place.device, _asked(choice.option))
        if choice.place.is_shareable and share is not None:
            taken.setdefault(choice.place.key, []).append(share)
    result = []
    for key, shares in taken.items():
        for name, capacity in (scene.places[key].device.get("capacity") or {}).items():
            before = scene.use.capacity.get(key, {}).get(name, Fraction(0))
            total = before + sum((share[name] for share in shares), Fraction(0))
            if total > checker_pools.amount(capacity["value"]):
                result.append(
                    Violation(
                        8, f"{'/'.join(key)}: {total} of {name} in shares, has {capacity['value']}"
                    )
                )
    return result


def _share_id_violations(chosen: Sequence[Sequence[Choice]], scene: Scene) -> list[Violation]:
    """Rule 8: the id of a share differs from every other share's on its device."""
    mine = [
        (choice.place.key, choice.result["shareID"])
        for choices in chosen
        for choice in choices
        if choice.result.get("shareID") is not None
    ]
    repeated = len(mine) != len(set(mine)) or any(share in scene.use.shares for share in mine)
    return [Violation(8, "a shareID occurs twice")] if repeated else []
