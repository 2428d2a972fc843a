"""What a tenant with the `edit` role can do to a scheduler. Each attack sends a bounded number of requests and returns.

`ATTACKS` names them all; a campaign runs each alone and then random mixtures. An attack uses nothing but what the API
server lets such a user do. Sizes scale with `Tenant.chance` only where variety matters.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any, Final

from tests.hostile.tenant import TEMPLATE, Tenant, job, pod, template

HIGH: Final = "hostile-high"  # a PriorityClass that any tenant may name
ENDLESS: Final = 2**63 - 1
FAR_SECONDS: Final = 300_000_000_000  # beyond the calendar, and still accepted for a Job
ETCD_BYTES: Final = 1_572_864  # etcd's default limit of a request
GANG: Final = "dovetail.dev/gang"
Attack = Callable[[Tenant], None]


def far_deadlines(tenant: Tenant) -> None:
    """Jobs that run, whose deadline is moved beyond the calendar, and Jobs that wait with such a deadline."""
    running, waiting = tenant.name("far"), tenant.name("far")
    tenant.create("pods", pod(tenant.name("tie"), labels={GANG: tenant.name("tie")}))
    tenant.create("jobs", job(running, parallelism=2, pod_tree=pod("x")))
    huge = pod("x", requests={"cpu": "9999"})
    tenant.create(
        "jobs", job(waiting, parallelism=2, pod_tree=huge, activeDeadlineSeconds=FAR_SECONDS)
    )
    tenant.patch("jobs", running, {"spec": {"activeDeadlineSeconds": FAR_SECONDS}})
    for text in ("99999999999h", "1e300h", "-1s", str(ENDLESS)):
        for key in ("max-runtime", "expected-runtime", "checkpoint-interval"):
            tenant.create(
                "pods", pod(tenant.name("far"), annotations={f"dovetail.dev/{key}": text})
            )


def never_fitting_priorities(tenant: Tenant) -> None:
    """Important pods that fit nowhere, among running and waiting ones: preemption is asked for in vain."""
    tenant.create("pods", pod(tenant.name("runs")))
    for cpu in ("9999", "5000", "300"):
        tenant.create("pods", pod(tenant.name("large"), requests={"cpu": cpu}))
        tenant.create(
            "pods", pod(tenant.name("large"), requests={"cpu": cpu}, priorityClassName=HIGH)
        )
        tenant.create(
            "pods", pod(tenant.name("polite"), requests={"cpu": cpu}, preemptionPolicy="Never")
        )


def expensive_selectors(tenant: Tenant) -> None:
    """Claims whose selectors cost as much as one may, read an attribute that is unique, and are new each time."""
    for selectors in (1, 8, 32):
        name = tenant.name("bomb")
        texts = [_bomb(f"{name}-{number}") for number in range(selectors)]
        tenant.create("resourceclaimtemplates", template(name, selectors=texts))
        tenant.create("pods", pod(tenant.name("bomb"), templates=(name,)))


def many_selectors(tenant: Tenant) -> None:
    """Cheap selectors, as many as a claim can carry, each of another text."""
    name = tenant.name("many")
    texts = iter(
        f"device.attributes['gpu.nvidia.com'].uuid != '{name}-{number}'"
        for number in itertools.count()
    )
    tree = template(name)
    requests = [
        {
            "name": f"r{number}",
            "exactly": {
                "deviceClassName": "gpu.nvidia.com",
                "selectors": [{"cel": {"expression": next(texts)}} for _ in range(32)],
            },
        }
        for number in range(8)
    ]
    tree["spec"]["spec"]["devices"]["requests"] = requests
    tenant.create("resourceclaimtemplates", tree)
    tenant.create("pods", pod(tenant.name("many"), templates=(name,)))


def elastic_gang(tenant: Tenant) -> None:
    """A gang of hundreds of pods of which one is enough."""
    gang = tenant.name("sweep")
    for _ in range(500):
        tenant.create("pods", pod(tenant.name("sweep"), labels={GANG: gang, f"{GANG}-min": "1"}))


def groups_of_one(tenant: Tenant) -> None:
    """A gang of hundreds of groups."""
    gang = tenant.name("groups")
    for number in range(300):
        tenant.create(
            "pods", pod(tenant.name("group"), labels={GANG: gang, f"{GANG}-group": f"g{number}"})
        )


def incomplete_gangs(tenant: Tenant) -> None:
    """Gangs that never get all their members."""
    for _ in range(100):
        labels = {
            GANG: tenant.name("lonely"),
            f"{GANG}-min": str(tenant.chance.choice((2, 50, 2**31 - 1))),
        }
        tenant.create("pods", pod(tenant.name("lonely"), labels=labels))


def many_sizes(tenant: Tenant) -> None:
    """Hundreds of pods that wait, no two alike."""
    for number in range(400):
        tenant.create("pods", pod(tenant.name("size"), requests={"cpu": f"{300_000 + number}m"}))


def largest_objects(tenant: Tenant) -> None:
    """Pods so large that the store takes them, and not one byte more: no write about them can succeed."""
    size = _largest(tenant)
    for _ in range(70):
        tenant.create("pods", _sized(tenant.name("big"), size))


def forced_deletions(tenant: Tenant) -> None:
    """Pods with an endless grace period, removed by force: their devices are in doubt."""
    for _ in range(4):
        name = tenant.name("gone")
        tenant.create("pods", pod(name, templates=(TEMPLATE,)) | {})
        tenant.patch("pods", name, {"metadata": {"labels": {"hostile": "true"}}})
        tenant.wait_bound(name)
        tenant.delete("pods", name, gracePeriodSeconds=0)
    for _ in range(4):
        name = tenant.name("gone")
        tenant.create(
            "pods", pod(name, templates=(TEMPLATE,), terminationGracePeriodSeconds=ENDLESS)
        )
        tenant.wait_bound(name)
        tenant.delete("pods", name, gracePeriodSeconds=0)


def hoarding(tenant: Tenant) -> None:
    """More pods without a controller than the quota has room for, and budgets that forbid all evictions."""
    name = tenant.name("keep")
    budget = {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": name},
        "spec": {"maxUnavailable": 0, "selector": {"matchLabels": {"keep": name}}},
    }
    tenant.create("poddisruptionbudgets", budget)
    for _ in range(60):
        tenant.create("pods", pod(tenant.name("bare"), templates=(TEMPLATE,)))
    kept = pod("x", templates=(TEMPLATE,), labels={"keep": name})
    tenant.create("jobs", job(name, parallelism=60, pod_tree=kept))


def liars(tenant: Tenant) -> None:
    """Pods that say they will be done in a minute."""
    eight = tenant.name("eight")
    tenant.create("resourceclaimtemplates", template(eight, count=8))
    for _ in range(20):
        notes = {"dovetail.dev/expected-runtime": "60s"}
        tenant.create("pods", pod(tenant.name("liar"), templates=(eight,), annotations=notes))


def unreadable_quantities(tenant: Tenant) -> None:
    """Quantities that the server stores although no machine has so much."""
    for requests in (
        {"cpu": "1e1100"},
        {"memory": "1e1500"},
        {"cpu": "1e-1100"},
        {"cpu": "9223372036854775807"},
    ):
        tenant.create("pods", pod(tenant.name("odd"), requests=requests))
    tree = template(tenant.name("odd"))
    (request,) = tree["spec"]["spec"]["devices"]["requests"]
    request["exactly"]["capacity"] = {"requests": {"memory": "1e1100"}}
    tenant.create("resourceclaimtemplates", tree)
    tenant.create("pods", pod(tenant.name("odd"), templates=(tree["metadata"]["name"],)))


def heavy_updates(tenant: Tenant) -> None:
    """A claim that is slow to read, changed again and again."""
    name = tenant.name("heavy")
    tree: dict[str, Any] = {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim"}
    tree["metadata"] = {"name": name, "annotations": {"filler": "\u0001" * 40_000}}
    tree["spec"] = template()["spec"]["spec"]
    parameters = {"half": "\ud800"}
    opaque = {"driver": "gpu.nvidia.com", "parameters": parameters}
    tree["spec"]["devices"]["config"] = [{"opaque": opaque}]
    tenant.create("resourceclaims", tree)
    for number in range(40):
        tenant.patch("resourceclaims", name, {"metadata": {"labels": {"turn": str(number)}}})


def forged_owners(tenant: Tenant) -> None:
    """Pods that claim to belong to what is not theirs, or is not there."""
    for kind, group in (
        ("Job", "batch/v1"),
        ("ReplicaSet", "apps/v1"),
        ("JobSet", "jobset.x-k8s.io/v1alpha2"),
    ):
        name = tenant.name("forged")
        owner = {"apiVersion": group, "kind": kind, "name": name, "uid": name, "controller": True}
        tree = pod(
            name,
            annotations={"kai.scheduler/queue": "../../x", "dovetail.dev/order-priority": "nan"},
        )
        tree["metadata"]["ownerReferences"] = [owner]
        tenant.create("pods", tree)


def misspelt_wishes(tenant: Tenant) -> None:
    """Annotations and labels of ours with every value but a sensible one."""
    values = ("", "none", "\u202e", "-1", "1e400", "nan", "x" * 60, str(2**70))
    for key in ("topology-required", "topology-preferred", "max-runtime", "idle-after", "gang-min"):
        value = tenant.chance.choice(values)
        notes = {f"dovetail.dev/{key}": value}
        tenant.create(
            "pods", pod(tenant.name("typo"), annotations=notes, labels={GANG: tenant.name("typo")})
        )


def churn(tenant: Tenant) -> None:
    """Pods that come and go faster than they can be placed."""
    names = [tenant.name("fly") for _ in range(150)]
    for name in names:
        tenant.create("pods", pod(name, templates=(TEMPLATE,)))
    for name in names:
        tenant.delete("pods", name, gracePeriodSeconds=0)


ATTACKS: Final[dict[str, Attack]] = {
    attack.__name__: attack
    for attack in (
        far_deadlines,
        never_fitting_priorities,
        expensive_selectors,
        many_selectors,
        elastic_gang,
        groups_of_one,
        incomplete_gangs,
        many_sizes,
        largest_objects,
        forced_deletions,
        hoarding,
        liars,
        unreadable_quantities,
        heavy_updates,
        forged_owners,
        misspelt_wishes,
        churn,
    )
}


def _bomb(mark: str) -> str:
    """An expression near the most expensive one that is admitted; it reads an attribute that no two devices share."""
    body = "a+b>0"
    for name in reversed("abcde"):
        body = f"[1,2,3,4,5,6,7,8,9,10].all({name},{body})"
    return f"{body} && device.attributes['gpu.nvidia.com'].uuid != '{mark}'"


def _sized(name: str, size: int) -> dict[str, Any]:
    """A pod with environment variables of so many bytes."""
    tree = pod(name)
    values = [{"name": f"E{number}", "value": "x" * (size // 10)} for number in range(10)]
    tree["spec"]["containers"][0]["env"] = values
    return tree


def _largest(tenant: Tenant) -> int:
    """The largest pod that can be created, found by halving; each that was taken stays."""
    fits, fails = 1_400_000, ETCD_BYTES
    while fails - fits > 100:
        middle = (fits + fails) // 2
        if tenant.create("pods", _sized(tenant.name("big"), middle)):
            fits = middle
        else:
            fails = middle
    return fits
