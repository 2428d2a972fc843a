"""What the agent does about the past when it starts, and when the checkpoint cannot be trusted.

Given the checkpoint, the CDI files and the hardware. After a restart of the node everything prepared is gone: it is
forgotten and its files are deleted. Claims that were only begun are undone. GPU instances that no claim of the
checkpoint explains were made by an administrator: they are left alone and block their silicon.

A checkpoint that cannot be read, or is missing although claims have CDI files, is never overwritten while a claim may
be in use. The CDI files then say which claims there are, so that ending pods can be undone; nothing is prepared until
none is left. All calls block.
"""

from __future__ import annotations

import logging

import msgspec

from dovetail import errors
from dovetail.node.claims import checkpoint, device_names
from dovetail.node.claims.execution import Execution
from dovetail.node.claims.plan_prepare import MigPolicy, Settings

LOG = logging.getLogger("dovetail.node.claims")


def begin(execution: Execution) -> None:
    """Brings hardware, files and checkpoint into agreement as far as possible. Raises nothing the agent survives."""
    execution.specs.remove_leftovers()
    try:
        known = execution.file.read()
        if known.boot_id != execution.file.boot_id:
            known = _forget(execution, known)
        trusted(execution)
    except errors.StateError as error:
        LOG.error("checkpoint.not_trusted", extra={"why": str(error)})
        start_again_if_unused(execution)
        return
    for claim in known.claims.values():
        if claim.state is checkpoint.State.STARTED:
            undo_begun(execution, claim)
    _remove_strays(execution)
    report_foreign(execution)


def trusted(execution: Execution) -> checkpoint.Checkpoint:
    """The checkpoint, if it can be trusted. Raises StateError with the way out."""
    known = execution.file.read()
    if execution.file.path.exists() or not execution.specs.uids():
        return known
    raise errors.StateError(
        f"{execution.file.path}: is missing, but {len(execution.specs.uids())} claims have CDI files, so their devices "
        "may be in use. Drain the node: the agent undoes the claims that end and goes on when none is left; restarting "
        "the node has the same effect"
    )


def undo_begun(execution: Execution, claim: checkpoint.Claim) -> None:
    """Undoes a claim that was only begun. A failure is logged: the next attempt repeats it."""
    try:
        execution.undo(claim)
        LOG.info("claim.rolled_back", extra={"claim": str(claim)})
    except (errors.DovetailError, OSError) as error:
        LOG.warning("claim.not_rolled_back", extra={"claim": str(claim), "why": str(error)})


def rebuilt(execution: Execution, settings: Settings) -> checkpoint.Checkpoint:
    """What the CDI files say about claims: enough to undo them, not enough to prepare others beside them."""
    claims = {uid: _rebuilt_claim(uid, execution, settings) for uid in execution.specs.uids()}
    return checkpoint.Checkpoint(boot_id=execution.file.boot_id, claims=claims)


def start_again_if_unused(execution: Execution) -> bool:
    """Begins a new checkpoint in place of one that cannot be trusted, once no claim has a CDI file.

    GPU instances that are left may be ours: the new checkpoint does not know them, so they block their silicon.
    """
    if execution.specs.uids():
        return False
    if execution.file.path.exists():
        aside = execution.file.set_aside()
        LOG.warning("checkpoint.set_aside", extra={"path": str(aside)})
    execution.file.change(lambda known: known)
    _remove_strays(execution)
    report_foreign(execution)
    return True


def report_foreign(execution: Execution) -> None:
    """Logs the GPU instances that no claim explains."""
    claims = execution.file.read().claims.values()
    ours = {held.instance.uuid for claim in claims for held in claim.devices if held.instance}
    for gpu in execution.inventory().gpus:
        foreign = [instance for instance in gpu.mig_devices if instance.uuid not in ours]
        for instance in foreign:
            LOG.info(
                "mig.instance_left_alone",
                extra={"gpu": gpu.name, "gi": instance.gi_id, "uuid": instance.uuid},
            )


def _forget(execution: Execution, known: checkpoint.Checkpoint) -> checkpoint.Checkpoint:
    """After a restart of the node: partitions, daemons and modes are gone, and no container runs."""
    LOG.info("checkpoint.forgotten: the node has restarted", extra={"claims": len(known.claims)})
    for uid in execution.specs.uids():
        execution.specs.remove(uid)
    for claim in known.claims.values():
        if execution.metadata is not None:
            execution.metadata.remove(claim)
    empty = checkpoint.Checkpoint(boot_id=execution.file.boot_id, unknown=known.unknown)
    return execution.file.change(lambda _: empty)


def _remove_strays(execution: Execution) -> None:
    """Stops daemons and deletes CDI files that no claim of the checkpoint explains."""
    known = execution.file.read()
    for name in execution.mps.names():
        if not any(name.startswith(uid) for uid in known.claims):
            try:
                execution.mps.stop(name)
            except errors.DovetailError as error:
                LOG.warning("mps.stray_daemon", extra={"daemon": name, "why": str(error)})
    for uid in execution.specs.uids():
        if uid not in known.claims:
            execution.specs.remove(uid)


def _rebuilt_claim(uid: str, execution: Execution, settings: Settings) -> checkpoint.Claim:
    inventory = execution.inventory()
    try:
        names = execution.specs.device_names(uid)
    except (OSError, ValueError) as error:
        LOG.warning("cdi.file_not_understood", extra={"claim": uid, "why": str(error)})
        names = ()
    group_count = _group_count(uid, execution.mps.names())
    held: list[checkpoint.HeldDevice] = []
    for name in names:
        device = device_names.device_of(name, inventory)
        if isinstance(device, device_names.Unknown):
            continue
        facts = _held(device, name, is_dynamic=settings.mig is MigPolicy.DYNAMIC)
        held.append(msgspec.structs.replace(facts, group=0 if group_count else None))
    sharing = checkpoint.Sharing(strategy=checkpoint.MPS, is_exclusive=True)
    return checkpoint.Claim(
        uid=uid,
        namespace="",
        name="",
        state=checkpoint.State.COMPLETED,
        devices=tuple(held),
        sharing=(sharing,) * group_count,
    )


def _group_count(uid: str, daemons: tuple[str, ...]) -> int:
    """How many groups a claim may have had, from the folders of its daemons: uid, uid-1 ..."""
    suffixes = [name.removeprefix(uid) for name in daemons if name.startswith(uid)]
    numbers = [suffix.removeprefix("-") or "0" for suffix in suffixes]
    return max((int(number) for number in numbers if number.isdecimal()), default=-1) + 1


def _held(device: device_names.Device, name: str, *, is_dynamic: bool) -> checkpoint.HeldDevice:
    held = checkpoint.HeldDevice(
        request="",
        pool="",
        device=name,
        gpu_uuid=device.gpu.uuid,
        gpu_minor=device.gpu.minor,
    )
    if isinstance(device, device_names.WholeGpu):
        return held
    return msgspec.structs.replace(
        held,
        first_slice=device.placement.start,
        slice_count=device.placement.size,
        gi_profile_id=device.profile.gi_profile_id,
        is_made_here=is_dynamic,
    )
