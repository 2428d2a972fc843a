"""A machine of the catalogue as the objects of a cluster: its node and slices, for nodes of a type that is not there.

Given a board and a name. Built as the fleets of the embedded cluster are: 8 GPUs, or 4 with superchips, whole and not
partitioned. Never reads a cluster.
"""

from __future__ import annotations

from dovetail import errors, gpus
from dovetail.kubetypes import codec
from dovetail.sim.fleet import fleet_objects, fleet_spec

KINDS = ("Node", "ResourceSlice")


def build(board: gpus.Gpu, name: str) -> list[codec.Stored]:
    """The node and its slices. Raises InputError where too little is known about the board."""
    per_node = 4 if board.form_factor.value == "superchip" else 8
    pool = fleet_spec.Pool(name=name, count=1, gpu=board.name, gpus_per_node=per_node)
    fleet = fleet_spec.Fleet(name="what-if", pools=(pool,))
    if problems := list(fleet_spec.problems_of(fleet)):
        raise errors.InputError("; ".join(problems))
    trees = [tree for tree in fleet_objects.objects_of(fleet) if tree["kind"] in KINDS]
    # A fleet numbers the nodes of a pool; this one has a name of its own.
    numbered = f"{name}-0".encode()
    documents = [codec.encode_tree(tree).replace(numbered, name.encode()) for tree in trees]
    return [codec.decode(document) for document in documents]
