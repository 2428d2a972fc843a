"""A sample workload for the sample fleet: three teams, four dozen pods, most of which fit and some of which cannot.

Returns plain trees, the same ones each time: namespaces, a priority class, claim templates, claims, pods.
Never stores or places them.
"""

from typing import Any, Final

from dovetail.kubetypes import registry
from dovetail.sim.server import priority_classes

Tree = dict[str, Any]

LARGE: Final = "large-training"  # a priority class
TEAMS: Final = ("research", "serve", "notebooks")
_MODEL: Final = "device.attributes['gpu.nvidia.com'].productName.startsWith('NVIDIA {}')"
_PROFILE: Final = "device.attributes['gpu.nvidia.com'].profile == '{}'"
_SAME_PRODUCT: Final = [{"requests": ["gpus"], "matchAttribute": "gpu.nvidia.com/productName"}]


def objects_of_sample() -> list[Tree]:
    """Everything the teams apply, in an order that can be applied."""
    return [
        *({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": team}} for team in TEAMS),
        {
            "apiVersion": priority_classes.VERSION,
            "kind": priority_classes.KIND,
            "metadata": {"name": LARGE},
            "value": 10,
        },
        *_training(),
        *_serving(),
        *_notebooks(),
    ]


def _training() -> list[Tree]:
    """Whole nodes for large jobs, a part of the NVLink rack, and two requests that no node can meet."""
    trees = [
        _template(
            "research", "eight-h100", _whole(8, _MODEL.format("H100")), constraints=_SAME_PRODUCT
        ),
        _template(
            "research", "four-gb200", _whole(4, _MODEL.format("GB200")), constraints=_SAME_PRODUCT
        ),
        _template(
            "research", "sixteen-h100", _whole(16, _MODEL.format("H100")), constraints=_SAME_PRODUCT
        ),
        _template("research", "two-b300", _whole(2, _MODEL.format("B300"))),
    ]
    trees += [
        _pod(
            "research",
            f"llama-{index}",
            "eight-h100",
            cpu="96",
            memory="1Ti",
            priorityClassName=LARGE,
        )
        for index in range(2)
    ]
    trees += [
        _pod("research", f"moe-{index}", "four-gb200", cpu="128", memory="800Gi")
        for index in range(9)
    ]
    trees.append(
        _pod("research", "too-wide", "sixteen-h100", cpu="16", memory="128Gi")
    )  # no node has 16
    trees.append(
        _pod("research", "not-here", "two-b300", cpu="16", memory="128Gi")
    )  # the fleet has none
    return trees


def _serving() -> list[Tree]:
    """Small models on any GPU, a claim that two replicas share, and a pod that requests more memory than a node has."""
    either = {
        "name": "gpus",
        "firstAvailable": [
            _wanted("gpu.nvidia.com", _MODEL.format("H100")) | {"name": "h100"},
            _wanted("mig.nvidia.com", _PROFILE.format("3g.40gb")) | {"name": "half-a100"},
        ],
    }
    shared = {"devices": {"requests": [_whole(1, _MODEL.format("GB200"))]}}
    trees = [
        _template("serve", "h100-or-half", either),
        _template("serve", "one-gpu", _whole(1)),
        _object("ResourceClaim", "serve", "shared-gpu", {"spec": shared}),
    ]
    trees += [
        _pod("serve", f"chat-{index}", "h100-or-half", cpu="8", memory="64Gi") for index in range(6)
    ]
    trees += [
        _pod("serve", f"embed-{index}", "one-gpu", cpu="4", memory="32Gi") for index in range(8)
    ]
    trees += [
        _pod("serve", f"rank-{index}", claim="shared-gpu", cpu="4", memory="16Gi")
        for index in range(2)
    ]
    trees.append(_pod("serve", "huge-cache", cpu="8", memory="4Ti"))  # the largest node has 2Ti
    trees += [_pod("serve", f"gateway-{index}", cpu="2", memory="4Gi") for index in range(3)]
    return trees


def _notebooks() -> list[Tree]:
    """Slices of A100s, and one pod with a node selector that matches no node."""
    trees = []
    for profile, count in (("1g.10gb", 9), ("2g.20gb", 4), ("3g.40gb", 3)):
        name = f"slice-{profile.replace('.', '-')}"
        trees.append(_template("notebooks", name, _slice(profile)))
        trees += [
            _pod("notebooks", f"nb-{profile[:2]}-{index}", name, cpu="2", memory="16Gi")
            for index in range(count)
        ]
    nowhere: Tree = {"nodeSelector": {"dovetail.dev/pool": "l40s"}}
    trees.append(_pod("notebooks", "picky", "slice-1g-10gb", cpu="2", memory="16Gi", **nowhere))
    return trees


def _whole(count: int, *expressions: str) -> Tree:
    return {"name": "gpus", "exactly": _wanted("gpu.nvidia.com", *expressions) | {"count": count}}


def _slice(profile: str) -> Tree:
    return {"name": "slice", "exactly": _wanted("mig.nvidia.com", _PROFILE.format(profile))}


def _wanted(device_class: str, *expressions: str) -> Tree:
    selectors = [{"cel": {"expression": expression}} for expression in expressions]
    return {"deviceClassName": device_class} | ({"selectors": selectors} if selectors else {})


def _template(team: str, name: str, request: Tree, constraints: list[Tree] | None = None) -> Tree:
    devices: Tree = {"requests": [request]} | ({"constraints": constraints} if constraints else {})
    return _object("ResourceClaimTemplate", team, name, {"spec": {"spec": {"devices": devices}}})


def _pod(
    team: str, name: str, template: str = "", *, cpu: str, memory: str, claim: str = "", **spec: Any
) -> Tree:
    resources: Tree = {"requests": {"cpu": cpu, "memory": memory}}
    if template or claim:
        source = (
            {"resourceClaimTemplateName": template} if template else {"resourceClaimName": claim}
        )
        spec = spec | {"resourceClaims": [{"name": "gpu", **source}]}
        resources["claims"] = [{"name": "gpu"}]
    container = {
        "name": "main",
        "image": f"{name.rpartition('-')[0] or name}:latest",
        "resources": resources,
    }
    return _object("Pod", team, name, {"spec": {"containers": [container], **spec}})


def _object(kind: str, team: str, name: str, body: Tree) -> Tree:
    version = registry.CORE_V1 if kind == "Pod" else registry.RESOURCE_V1
    return {
        "apiVersion": version,
        "kind": kind,
        "metadata": {"name": name, "namespace": team},
        **body,
    }
