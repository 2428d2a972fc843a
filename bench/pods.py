"""The worlds allocation benchmarks run on: identical devices, MIG nodes, large fleets, and claims for them."""

from __future__ import annotations

import random
from typing import Any

from dovetail.sim.fleet import fleet_objects, fleet_spec

Tree = dict[str, Any]
DRIVER = "gpu.example.com"
MIX = (
    "1g.10gb",
    "1g.10gb",
    "1g.10gb",
    "2g.20gb",
    "2g.20gb",
    "3g.40gb",
    "1g.20gb",
    "4g.40gb",
    "7g.80gb",
)
MAX_PER_CLAIM = 32  # devices, resource.k8s.io/v1


def identical(count: int, wanted: list[list[int]]) -> Tree:
    """One node with devices that nothing tells apart; a list of counts per claim."""
    devices = [{"name": f"gpu-{at:03}"} for at in range(count)]
    spec = {
        "driver": DRIVER,
        "nodeName": "a",
        "pool": {"name": "a", "resourceSliceCount": 1},
        "devices": devices,
    }
    return {
        "nodes": [{"metadata": {"name": "a"}}],
        "deviceClasses": [
            {
                "metadata": {"name": "gpu"},
                "spec": {"selectors": [_cel(f'device.driver == "{DRIVER}"')]},
            }
        ],
        "resourceSlices": [{"metadata": {"name": "s"}, "spec": spec}],
        "claims": [
            _claim(number, [_exactly(f"r{at}", "gpu", count=one) for at, one in enumerate(counts)])
            for number, counts in enumerate(wanted)
        ],
    }


def one_more_than(count: int) -> list[list[int]]:
    """Counts per claim that ask for one device too many, in as few claims as the API allows."""
    whole, rest = divmod(count + 1, MAX_PER_CLAIM)
    return [[MAX_PER_CLAIM]] * whole + ([[rest]] if rest else [])


def mig_node(claims: int, seed: int) -> Tree:
    """One node of eight H100 with every MIG candidate, and claims for a mix of profiles."""
    rng = random.Random(seed)
    made = _fleet(fleet_spec.Pool(name="mig", count=1, gpu="H100-SXM5-80GB", mig=True))
    chosen = [rng.choice(MIX) for _ in range(claims)]
    return {
        **made,
        "claims": [_claim(number, [_slice(profile)]) for number, profile in enumerate(chosen)],
    }


def profile_of(claim: Tree) -> str:
    """The MIG profile a claim of `mig_node` asks for."""
    expression: str = claim["spec"]["devices"]["requests"][0]["exactly"]["selectors"][0]["cel"][
        "expression"
    ]
    return expression.split("'")[-2]


def whole_gpus(nodes: int, claims: int) -> Tree:
    """Nodes of eight whole GPUs, each device with a uuid of its own, and claims for one GPU each."""
    made = _fleet(
        fleet_spec.Pool(name="h100", count=nodes, gpu="H100-SXM5-80GB", cpu="224", memory="2Ti")
    )
    wanted = _exactly("gpu", "gpu.nvidia.com", count=1)
    return {**made, "claims": [_claim(number, [wanted]) for number in range(claims)]}


def _fleet(pool: fleet_spec.Pool) -> Tree:
    found: dict[str, list[Tree]] = {}
    for one in fleet_objects.objects_of(fleet_spec.Fleet(name="bench", pools=(pool,))):
        found.setdefault(one["kind"], []).append(one)
    return {
        "nodes": found["Node"],
        "deviceClasses": found["DeviceClass"],
        "resourceSlices": found["ResourceSlice"],
    }


def _slice(profile: str) -> Tree:
    expression = f"device.attributes['gpu.nvidia.com'].profile == '{profile}'"
    return _exactly("slice", "mig.nvidia.com", count=1, selectors=[_cel(expression)])


def _exactly(name: str, class_name: str, **wanted: Any) -> Tree:
    return {
        "name": name,
        "exactly": {"deviceClassName": class_name, "allocationMode": "ExactCount", **wanted},
    }


def _cel(expression: str) -> Tree:
    return {"cel": {"expression": expression}}


def _claim(number: int, requests: list[Tree]) -> Tree:
    metadata = {"name": f"claim-{number}", "namespace": "default", "uid": f"claim-{number}"}
    return {"metadata": metadata, "spec": {"devices": {"requests": requests}}}
