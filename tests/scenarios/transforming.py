"""Ways to write a scenario differently of which one knows what they do to the answer: nothing, or other names.

Each is given a document and a source of chance and answers with another document, what is expected of it included; None
where the change does not apply. Never decides anything.
"""

from __future__ import annotations

import copy
import random
from collections.abc import Callable, Iterable, Mapping
from typing import Any

Document = dict[str, Any]
Change = Callable[[Document, random.Random], Document | None]
Names = dict[str, dict[str, str]]  # by kind: old to new

_LETTERS = "abcdefghijklmnopqrstuvwxyz"


# Names


def names_in_order(document: Document, chance: random.Random) -> Document | None:
    """Every object has another name, in the same order by name."""
    return renamed(
        document, {kind: _ordered(old, chance) for kind, old in _names(document).items()}
    )


def names_at_random(document: Document, chance: random.Random) -> Document | None:
    """Nodes, queues, topologies and claims are called anything: no rule decides by these names."""
    free = ("nodes", "queues", "topologies", "claims")
    return renamed(
        document,
        {kind: _drawn(old, chance) for kind, old in _names(document).items() if kind in free},
    )


def names_beyond_labels(document: Document, chance: random.Random) -> Document | None:
    """Names that no label may hold, in the same order: long, with blanks, of other alphabets."""
    return renamed(
        document,
        {
            kind: {
                name: f"{place:04d} {chance.choice(('ß', 'задача', '作業', '/'))}{'x' * 80}"
                for place, name in enumerate(sorted(old))
            }
            for kind, old in _names(document).items()
            if kind in ("jobs", "groups", "pods")
        },
    )


def renamed(document: Document, names: Names) -> Document:
    """The document with other names wherever one is spoken of."""
    result = copy.deepcopy(document)

    def new(kind: str, name: Any) -> Any:
        return names.get(kind, {}).get(name, name) if isinstance(name, str) else name

    for kind in ("nodes", "queues", "topologies", "claims"):
        for item in result.get(kind, ()):
            item["name"] = new(kind, item["name"])
    for queue in result["queues"]:
        queue["parent"] = new("queues", queue.get("parent"))
    for item in result.get("device_slices", ()):
        item["node"] = new("nodes", item["node"])
    for claim in result.get("claims", ()):
        claim["queue"] = new("queues", claim.get("queue"))
        claim["reserved_for"] = [new("pods", pod) for pod in claim.get("reserved_for", ())]
    for job in result["jobs"]:
        _rename_job(job, new)
    result["expect"] = _renamed_expectation(result["expect"], new)
    return result


def _rename_job(job: Document, new: Callable[[str, Any], Any]) -> None:
    job["name"], job["queue"] = new("jobs", job["name"]), new("queues", job["queue"])
    for item in (job, *job["groups"]):
        if item.get("topology"):
            item["topology"]["topology"] = new("topologies", item["topology"].get("topology"))
    for group in job["groups"]:
        group["name"], group["parent"] = (
            new("groups", group["name"]),
            new("groups", group.get("parent")),
        )
    for pod in job["pods"]:
        pod["name"], pod["group"] = new("pods", pod["name"]), new("groups", pod["group"])
        for key in ("node",):
            if key in pod:
                pod[key] = new("nodes", pod[key])
        if pod.get("allowed_nodes") is not None:
            pod["allowed_nodes"] = [new("nodes", name) for name in pod["allowed_nodes"]]
        if "claims" in pod:
            pod["claims"] = [new("claims", name) for name in pod["claims"]]


def _renamed_expectation(expect: Document, new: Callable[[str, Any], Any]) -> Document:
    result = dict(expect)
    result["jobs"] = {new("jobs", name): one for name, one in expect["jobs"].items()}
    for item in result["jobs"].values():
        if "groups" in item:
            item["groups"] = {
                new("groups", name): states for name, states in item["groups"].items()
            }
    result["unchecked_jobs"] = [new("jobs", name) for name in expect.get("unchecked_jobs", ())]
    result["pods"] = {
        new("pods", name): one | ({"node": new("nodes", one["node"])} if "node" in one else {})
        for name, one in expect["pods"].items()
    }
    return result


def _names(document: Document) -> dict[str, list[str]]:
    result = {
        kind: [item["name"] for item in document.get(kind, ())]
        for kind in ("nodes", "queues", "topologies")
    }
    result["claims"] = [item["name"] for item in document.get("claims", ())]
    result["jobs"] = [job["name"] for job in document["jobs"]]
    result["groups"] = list(
        dict.fromkeys(group["name"] for job in document["jobs"] for group in job["groups"])
    )
    result["pods"] = [pod["name"] for job in document["jobs"] for pod in job["pods"]]
    return result


def _ordered(old: Iterable[str], chance: random.Random) -> dict[str, str]:
    return {
        name: f"{_LETTERS[place // 260]}{place % 260:03d}-{_word(chance)}"
        for place, name in enumerate(sorted(old))
    }


def _drawn(old: Iterable[str], chance: random.Random) -> dict[str, str]:
    return {name: f"{_word(chance)}-{place}" for place, name in enumerate(old)}


def _word(chance: random.Random) -> str:
    return "".join(chance.choices(_LETTERS, k=chance.randint(1, 9)))


# The order of writing


def shuffled(document: Document, chance: random.Random) -> Document | None:
    """Lists and keys in another order, wherever the order says nothing."""
    result = copy.deepcopy(document)
    for kind in (
        "nodes",
        "topologies",
        "device_classes",
        "device_slices",
        "claims",
        "queues",
        "jobs",
    ):
        chance.shuffle(result.get(kind, []))
    for job in result["jobs"]:
        chance.shuffle(job["groups"])
        chance.shuffle(job["pods"])
    written: Document = _with_keys_shuffled(result, chance)
    return written


def _with_keys_shuffled(value: Any, chance: random.Random) -> Any:
    if isinstance(value, dict):
        keys = list(value)
        chance.shuffle(keys)
        return {key: _with_keys_shuffled(value[key], chance) for key in keys}
    if isinstance(value, list):
        return [_with_keys_shuffled(item, chance) for item in value]
    return value


# The way of writing


def numbers_as_fractions(document: Document, chance: random.Random) -> Document | None:
    """Whole numbers with a point: 2.0 for 2."""

    def with_points(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: with_points(one) for key, one in value.items()}
        if isinstance(value, list):
            return [with_points(item) for item in value]
        return (
            float(value)
            if isinstance(value, int) and not isinstance(value, bool) and value < 2**53
            else value
        )

    return {
        key: with_points(value) if key != "expect" else value for key, value in document.items()
    }


def defaults_left_out(document: Document, chance: random.Random) -> Document | None:
    """Without what is as it would be anyway."""
    result = copy.deepcopy(document)
    _leave_out(
        result["settings"], {"consolidation_max_victims": None, "reclaim_may_move_victims": True}
    )
    _leave_out(
        result["settings"],
        {"reclaim_saturation_multiplier": 1, "usage_weight_k": 1, "quota_enforced": True},
    )
    _leave_out(result["settings"], {"stale_grace_s": 0, "device_strategy": "binpack"})
    for queue in result["queues"]:
        for name in ("quota", "limit"):
            _leave_out(queue[name], {"gpu": None, "cpu": None, "memory": None})
        _leave_out(queue["over_quota_weight"], {"gpu": 1, "cpu": 1, "memory": 1})
        _leave_out(
            queue,
            {"parent": None, "reclaim_min_runtime_s": 0, "preempt_min_runtime_s": 0, "quota": {}},
        )
        _leave_out(queue, {"limit": {}, "over_quota_weight": {}, "creation_order": 0})
    for job in result["jobs"]:
        _leave_out(job, {"preemptible": True, "after_eviction": "requeued", "min_groups": 1})
        for group in job["groups"]:
            _leave_out(group, {"parent": None, "kind": "pods", "min": 1})
        for pod in job["pods"]:
            _leave_out(pod["request"], {"gpu": 0, "cpu": 0, "memory": 0, "gpu_devices": 1})
            _leave_out(pod, {"group": "default"})
        _leave_out(job, {"groups": [{"name": "default"}]})
    for node in result["nodes"]:
        _leave_out(node["gpu"], {"count": 0, "memory_mib": 100, "mig": "none"})
        _leave_out(node, {"labels": {}, "gpu": {}})
    return result


def nothings_written_out(document: Document, chance: random.Random) -> Document | None:
    """With null for whatever a pod, a job or a group may do without, and with unknown fields."""
    result = copy.deepcopy(document)
    for job in result["jobs"]:
        _write_out(job, ("topology", "started_s_ago", "stale_for_s", "stale_grace_s"))
        for group in job["groups"]:
            _write_out(group, ("topology",))
        for pod in job["pods"]:
            _write_out(
                pod, ("node", "allowed_nodes", "affinity", "anti_affinity", "order_priority")
            )
            _write_out(pod["request"], ("gpu_fraction", "gpu_memory_mib"))
            pod["mood"] = "hopeful"
    for node in result["nodes"]:
        _write_out(node, ("numa",))
        node["rack_colour"] = ["grey"]
    return result | {"weather": {"rain": None}}


def _leave_out(document: Document, defaults: Mapping[str, Any]) -> None:
    for key, value in defaults.items():
        if (
            key in document
            and document[key] == value
            and isinstance(document[key], bool) == isinstance(value, bool)
        ):
            del document[key]


def _write_out(document: Document, keys: Iterable[str]) -> None:
    for key in keys:
        document.setdefault(key, None)


# Things that play no part


def node_without_room(document: Document, chance: random.Random) -> Document | None:
    """Another node, with room for nothing."""
    room = {"cpu": 0, "memory": 0, "pods": 0, "nvidia.com/gpu": 0}
    gpu = {"count": 0, "memory_mib": 100, "mig": chance.choice(("none", "none", "mixed"))}
    added = {"name": f"{_word(chance)}-full", "labels": {}, "allocatable": room, "gpu": gpu}
    return document | {"nodes": _inserted(document["nodes"], added, chance)}


def queue_without_jobs(document: Document, chance: random.Random) -> Document | None:
    """Another queue that wants nothing, wherever it stands and whatever it is due."""
    amounts = {name: chance.choice((0, 1, None)) for name in ("gpu", "cpu", "memory")}
    leaves = {job["queue"] for job in document["jobs"]}
    parents = [
        None,
        *(queue["name"] for queue in document["queues"] if queue["name"] not in leaves),
    ]
    added = {
        "name": f"{_word(chance)}-empty",
        "parent": chance.choice(parents),
        "priority": chance.choice((0, 100, 200)),
        "creation_order": chance.randint(0, 9),
        "quota": amounts,
        "limit": {"gpu": None, "cpu": None, "memory": None},
        "over_quota_weight": dict.fromkeys(("gpu", "cpu", "memory"), chance.randint(0, 4)),
    }
    return document | {"queues": _inserted(document["queues"], added, chance)}


def job_that_is_over(document: Document, chance: random.Random) -> Document | None:
    """Another job, all of whose pods ended."""
    if not document["nodes"]:
        return None
    return _with_job(
        document, chance, states=("succeeded", "failed"), node=document["nodes"][0]["name"]
    )


def job_that_may_not_start(document: Document, chance: random.Random) -> Document | None:
    """Another job, all of whose pods are held back."""
    return _with_job(document, chance, states=("gated",), node=None)


def _with_job(
    document: Document, chance: random.Random, *, states: tuple[str, ...], node: str | None
) -> Document:
    name = f"{_word(chance)}-apart"
    leaves = sorted({job["queue"] for job in document["jobs"]})
    request = {"cpu": 1, "memory": 1000, "gpu": chance.randint(0, 2)}
    pods = [
        {"name": f"{name}-{number}", "group": "default", "request": request, "state": state}
        | ({} if node is None else {"node": node})
        for number, state in enumerate(states)
    ]
    added = {
        "name": name,
        "queue": chance.choice(leaves),
        "priority": chance.choice((0, 50, 200)),
        "preemptible": chance.random() < 0.5,
        "age_s": chance.randint(0, 1000),
        "groups": [{"name": "default", "parent": None, "kind": "pods", "min": 1}],
        "pods": pods,
    }
    return document | {"jobs": _inserted(document["jobs"], added, chance)}


def _inserted(listed: list[Document], added: Document, chance: random.Random) -> list[Document]:
    place = chance.randint(0, len(listed))
    return [*listed[:place], added, *listed[place:]]


# Numbers of which only the order counts


def priorities_stretched(document: Document, chance: random.Random) -> Document | None:
    """Other priorities of jobs and of queues, in the same order."""
    result = copy.deepcopy(document)
    for kind in ("jobs", "queues"):
        listed = sorted({item["priority"] for item in result[kind]})
        start = chance.randint(-1000, 1000)
        other = {old: start + place * chance.randint(1, 1) * 37 for place, old in enumerate(listed)}
        for item in result[kind]:
            item["priority"] = other[item["priority"]]
    return result


def ages_stretched(document: Document, chance: random.Random) -> Document | None:
    """Other ages of jobs and other numbers for the order of queues, in the same order."""
    if any(job.get("may_evict_after_s") for job in document["jobs"]):
        return None
    result = copy.deepcopy(document)
    listed = sorted({job["age_s"] for job in result["jobs"]})
    ages = sorted(chance.uniform(0, chance.choice((1, 1000, 1e8))) for _ in listed)
    other = dict(zip(listed, ages, strict=True))
    orders = sorted({queue["creation_order"] for queue in result["queues"]})
    placed = dict(zip(orders, sorted(chance.sample(range(1000), len(orders))), strict=True))
    for job in result["jobs"]:
        job["age_s"] = other[job["age_s"]]
    for queue in result["queues"]:
        queue["creation_order"] = placed[queue["creation_order"]]
    return result


# Units


def cpu_and_memory_scaled(document: Document, chance: random.Random) -> Document | None:
    """Three times the cpu and seven times the memory, for every pod, node and queue."""
    factors = {"cpu": 3, "memory": 7}
    result = copy.deepcopy(document)
    amounts = [node["allocatable"] for node in result["nodes"]]
    amounts += [queue[name] for queue in result["queues"] for name in ("quota", "limit")]
    pods = [pod for job in result["jobs"] for pod in job["pods"]]
    amounts += [pod["request"] for pod in pods]
    amounts += [held for pod in pods for held in pod.get("numa_placement", {}).values()]
    for node in result["nodes"]:
        for zone in (node.get("numa") or {}).get("zones", ()):
            amounts += [zone["allocatable"], zone["available"]]
    for amount in amounts:
        for name, factor in factors.items():
            if amount.get(name) is not None and amount[name] < 10**18:
                amount[name] *= factor
    return result


def gpu_memory_scaled(document: Document, chance: random.Random) -> Document | None:
    """GPUs of eight times the memory everywhere, and eight times what is asked of it."""
    result = copy.deepcopy(document)
    pods = [pod["request"] for job in result["jobs"] for pod in job["pods"]]
    if any(item.get("gpu_fraction") and (item["gpu_fraction"] * 100) % 1 > 1e-9 for item in pods):
        return None
    for node in result["nodes"]:
        node["gpu"]["memory_mib"] *= 8
    for item in pods:
        if item.get("gpu_memory_mib"):
            item["gpu_memory_mib"] *= 8
    return result


# Runs


def any_steps(document: Document, chance: random.Random) -> Document | None:
    """Where nothing happens in all steps together, nothing happens in some of them, in any order."""
    if "no_change" not in document["tags"]:
        return None
    actions = list(document["run"]["actions"])
    chance.shuffle(actions)
    kept = actions[: chance.randint(1, len(actions))] + actions[: chance.randint(0, 2)]
    return document | {"run": document["run"] | {"actions": kept}}


def more_cycles(document: Document, chance: random.Random) -> Document | None:
    """What settled stays as it is, however often it is asked again."""
    run = document["run"]
    if run["mode"] != "cycles" or not run["cycles_stable"]:
        return None
    return document | {"run": run | {"cycles_stable": run["cycles_stable"] + 3}}
