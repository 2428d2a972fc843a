"""The steps of preparing and undoing a claim, as data. Planned in `plan_prepare` and `plan_undo`, done in `execution`.

Each is idempotent: done twice, it has the effect of once. Structs only.
"""

import msgspec

from dovetail.node.inventory import ComputeMode, MigDevice, TimeSlice


class EnableMig(msgspec.Struct, frozen=True, gc=False):
    """Switches MIG mode on and records that the agent did."""

    minor: int
    gpu_uuid: str


class DisableMig(msgspec.Struct, frozen=True, gc=False):
    """Switches MIG mode off."""

    minor: int
    gpu_uuid: str


class CreateInstance(msgspec.Struct, frozen=True, gc=False):
    """Makes the MIG device of the claim's device at this index and records its uuid."""

    index: int
    minor: int
    gi_profile_id: int
    start: int


class DestroyInstance(msgspec.Struct, frozen=True, gc=False):
    """Destroys a GPU instance. The uuid guards against an id that was used again."""

    minor: int
    gi_id: int
    uuid: str


class SetComputeMode(msgspec.Struct, frozen=True, gc=False):
    """Who may open a context on a GPU."""

    minor: int
    mode: ComputeMode


class SetTimeSlice(msgspec.Struct, frozen=True, gc=False):
    """How long a process keeps a GPU."""

    minor: int
    interval: TimeSlice


class StartMps(msgspec.Struct, frozen=True, gc=False):
    """Starts the MPS daemon of the claim's sharing at this index and waits until it answers."""

    group: int


class StopMps(msgspec.Struct, frozen=True, gc=False):
    """Stops it and removes its folders."""

    group: int


Instruction = (
    EnableMig
    | DisableMig
    | CreateInstance
    | DestroyInstance
    | SetComputeMode
    | SetTimeSlice
    | StartMps
    | StopMps
)


class LiveGpu(msgspec.Struct, frozen=True, gc=False):
    """What is true of a GPU right now, read under its lock; planning needs no more of the hardware."""

    minor: int
    gpu_uuid: str
    is_mig_enabled: bool
    instances: tuple[MigDevice, ...]
