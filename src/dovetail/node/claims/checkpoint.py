"""What the agent has done for claims and must be able to undo: the content of checkpoint.json, apart from the file.

Structs, and their text with a checksum. The checksum covers the bytes of `data` as they stand in the file, never a
second encoding of them: a field that another version added cannot break it. Fields this version does not know are kept
at every level and written back. `oldestReader` is how a later version refuses to be read by an earlier one. Decides
nothing; never touches a file.
"""

from __future__ import annotations

import hashlib
from enum import StrEnum
from typing import Any, Final, TypeVar

import msgspec

from dovetail import errors
from dovetail.node.inventory import TimeSlice

FORMAT: Final = 1  # what this version writes
TIME_SLICING: Final = "TimeSlicing"
MPS: Final = "MPS"
Unknown = dict[str, msgspec.Raw]  # fields of another version

T = TypeVar("T", bound=msgspec.Struct)


class State(StrEnum):
    """How far a claim is."""

    STARTED = "PrepareStarted"  # something of it may exist: it is undone before anything else
    COMPLETED = "PrepareCompleted"


class Instance(msgspec.Struct, frozen=True, gc=False, rename="camel", kw_only=True):
    """A MIG device that exists. GPU instance ids are used again; the uuid never is."""

    uuid: str
    gi_id: int
    ci_id: int


class HeldDevice(
    msgspec.Struct, frozen=True, gc=False, kw_only=True, rename="camel", omit_defaults=True
):
    """One device of a claim, and the silicon it stands for."""

    request: str
    pool: str
    device: str
    gpu_uuid: str
    gpu_minor: int
    pci_bus_id: str = ""
    share_id: str | None = None
    is_admin: bool = False
    consumed: dict[str, str] = {}  # capacity by name, as Kubernetes quantities
    first_slice: int = 0
    slice_count: int = 0  # 0 is the whole GPU
    gi_profile_id: int | None = None  # of a partition
    profile: str = ""
    is_made_here: bool = False  # the agent creates and destroys the instance
    instance: Instance | None = None
    group: int | None = None  # index of its sharing
    unknown: Unknown = {}


class Sharing(
    msgspec.Struct, frozen=True, gc=False, kw_only=True, rename="camel", omit_defaults=True
):
    """How a group of devices is shared. Devices under one config form a group."""

    strategy: str  # TIME_SLICING, MPS
    interval: TimeSlice | None = None
    active_thread_percentage: int | None = None
    memory_limits: dict[str, int] = {}  # bytes by device name
    is_multi_user: bool = False
    is_exclusive: bool = False  # the daemon has the GPU alone
    unknown: Unknown = {}


class Claim(
    msgspec.Struct, frozen=True, gc=False, kw_only=True, rename="camel", omit_defaults=True
):
    """One claim."""

    uid: str
    namespace: str
    name: str
    state: State
    devices: tuple[HeldDevice, ...] = ()
    sharing: tuple[Sharing, ...] = ()
    pod_claim_name: str = ""  # its name in the pod's spec, if a template made it
    metadata_ids: dict[str, str] = {}  # CDI id of the device metadata, by request
    unknown: Unknown = {}

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name} ({self.uid})"

    @property
    def has_daemons(self) -> bool:
        """Whether MPS daemons run for it."""
        return any(sharing.strategy == MPS for sharing in self.sharing)

    @property
    def minors(self) -> frozenset[int]:
        """The GPUs it concerns."""
        return frozenset(device.gpu_minor for device in self.devices)


class Checkpoint(
    msgspec.Struct, frozen=True, gc=False, kw_only=True, rename="camel", omit_defaults=True
):
    """All claims of the node."""

    boot_id: str
    format: int = FORMAT
    oldest_reader: int = 1
    claims: dict[str, Claim] = {}  # by uid
    mig_enabled_here: tuple[str, ...] = ()  # uuids of GPUs whose MIG mode the agent switched on
    orphans: tuple[str, ...] = ()  # uuids of MIG devices to destroy when their GPU is back
    unknown: Unknown = {}

    def with_claim(self, claim: Claim) -> Checkpoint:
        """With this claim, in place of what it was."""
        return msgspec.structs.replace(self, claims={**self.claims, claim.uid: claim})

    def without_claim(self, uid: str) -> Checkpoint:
        """Without it."""
        kept = {key: claim for key, claim in self.claims.items() if key != uid}
        return msgspec.structs.replace(self, claims=kept)

    def with_mig_enabled(self, gpu_uuid: str, *, is_ours: bool) -> Checkpoint:
        """With a note of who switched MIG mode on."""
        others = tuple(uuid for uuid in self.mig_enabled_here if uuid != gpu_uuid)
        ours = (*others, gpu_uuid) if is_ours else others
        return msgspec.structs.replace(self, mig_enabled_here=ours)

    def with_orphans(self, uuids: tuple[str, ...]) -> Checkpoint:
        """With MIG devices that no claim has any more and that could not be destroyed."""
        return msgspec.structs.replace(self, orphans=(*self.orphans, *uuids))

    def without_orphan(self, uuid: str) -> Checkpoint:
        """It was destroyed."""
        left = tuple(orphan for orphan in self.orphans if orphan != uuid)
        return msgspec.structs.replace(self, orphans=left)


class _File(msgspec.Struct, frozen=True, gc=False):
    checksum: str
    data: msgspec.Raw


class _Versions(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    format: int = 0
    oldest_reader: int = 0


def encode(checkpoint: Checkpoint) -> bytes:
    """The text of the file."""
    data = msgspec.json.encode(_tree(checkpoint))
    return msgspec.json.encode(_File(_checksum(data), msgspec.Raw(data))) + b"\n"


def decode(text: bytes) -> Checkpoint:
    """The checkpoint in a file. Raises StateError with what is wrong."""
    try:
        file = msgspec.json.decode(text, type=_File)
        data = bytes(file.data)
        if _checksum(data) != file.checksum:
            raise errors.StateError("the checksum does not match the content")
        versions = msgspec.json.decode(data, type=_Versions)
        if versions.oldest_reader > FORMAT:
            raise errors.StateError(
                f"a later version wrote it (format {versions.format}, readable from format "
                f"{versions.oldest_reader} on; this version reads {FORMAT})"
            )
        return _checkpoint(data)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise errors.StateError(f"it is not a checkpoint: {error}") from None


def _checksum(data: bytes) -> str:
    return "sha256:" + hashlib.sha256(data).hexdigest()


def _checkpoint(data: bytes) -> Checkpoint:
    checkpoint = _with_unknown(Checkpoint, data)
    fields = msgspec.json.decode(data, type=dict[str, msgspec.Raw])
    written = msgspec.json.decode(fields.get("claims", b"{}"), type=dict[str, msgspec.Raw])
    claims = {uid: _claim(bytes(raw)) for uid, raw in written.items()}
    return msgspec.structs.replace(checkpoint, claims=claims)


def _claim(data: bytes) -> Claim:
    claim = _with_unknown(Claim, data)
    fields = msgspec.json.decode(data, type=dict[str, msgspec.Raw])
    devices = msgspec.json.decode(fields.get("devices", b"[]"), type=list[msgspec.Raw])
    sharing = msgspec.json.decode(fields.get("sharing", b"[]"), type=list[msgspec.Raw])
    return msgspec.structs.replace(
        claim,
        devices=tuple(_with_unknown(HeldDevice, bytes(raw)) for raw in devices),
        sharing=tuple(_with_unknown(Sharing, bytes(raw)) for raw in sharing),
    )


def _with_unknown(kind: type[T], data: bytes) -> T:
    struct = msgspec.json.decode(data, type=kind)
    fields = msgspec.json.decode(data, type=dict[str, msgspec.Raw])
    known = kind.__struct_encode_fields__  # msgspec.structs.fields looks types up again each time
    unknown = {name: msgspec.Raw(bytes(raw)) for name, raw in fields.items() if name not in known}
    return msgspec.structs.replace(struct, unknown=unknown) if unknown else struct


def _tree(checkpoint: Checkpoint) -> dict[str, Any]:
    tree = _fields(checkpoint)
    # Versions are always written: a reader must not have to guess them.
    tree["format"] = checkpoint.format
    tree["oldestReader"] = checkpoint.oldest_reader
    tree["claims"] = {uid: _claim_tree(claim) for uid, claim in checkpoint.claims.items()}
    return tree


def _claim_tree(claim: Claim) -> dict[str, Any]:
    tree = _fields(claim)
    tree["devices"] = [_fields(device) for device in claim.devices]
    tree["sharing"] = [_fields(sharing) for sharing in claim.sharing]
    return tree


def _fields(struct: Checkpoint | Claim | HeldDevice | Sharing) -> dict[str, Any]:
    """The known fields, then those of another version."""
    bare = msgspec.structs.replace(struct, unknown={})
    known = msgspec.json.decode(msgspec.json.encode(bare), type=dict[str, msgspec.Raw])
    return {**known, **struct.unknown}
