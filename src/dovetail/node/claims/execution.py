"""Carries out the steps of a claim on the hardware, between two marks in the checkpoint.

Given plans of `plan_prepare` and `plan_undo`. The claim is recorded as started before the first step and as completed
after the last, so that a process killed anywhere knows on its next start what to undo. All calls block; the caller
holds the locks of the GPUs concerned. Failures are the caller's to answer. Never decides what to do.
"""

from __future__ import annotations

import logging
import operator
from collections.abc import Callable, Iterable
from typing import assert_never

import msgspec

from dovetail.node.cdi import claim_specs
from dovetail.node.claims import checkpoint, instructions, plan_sharing
from dovetail.node.claims.checkpoint_file import CheckpointFile
from dovetail.node.claims.device_metadata import DeviceMetadata
from dovetail.node.claims.instructions import Instruction, LiveGpu
from dovetail.node.claims.mps import Daemon, MpsDaemons
from dovetail.node.claims.plan_prepare import Plan
from dovetail.node.claims.plan_undo import plan_undo
from dovetail.node.gpu_control import (
    GpuControl,
    GpuFailure,
    GpuGone,
    GpuUnresponsive,
    GpuUnsupported,
)
from dovetail.node.inventory import Inventory

LOG = logging.getLogger("dovetail.node.claims")


class Execution:
    """The hands of the agent: one for the node."""

    def __init__(
        self,
        *,
        control: GpuControl,
        inventory: Callable[[], Inventory],
        file: CheckpointFile,
        specs: claim_specs.ClaimSpecs,
        mps: MpsDaemons,
        metadata: DeviceMetadata | None,
    ) -> None:
        self.control = control
        self.inventory = inventory
        self.file = file
        self.specs = specs
        self.mps = mps
        self.metadata = metadata

    def live(self, minors: Iterable[int]) -> dict[int, LiveGpu]:
        """What these GPUs are now. Raises GpuFailure; a minor number without a GPU is left out."""
        inventory = self.inventory()
        gpus: dict[int, LiveGpu] = {}
        for minor in sorted(set(minors)):
            gpu = inventory.gpu(minor)
            if gpu is None:
                continue
            self.control.compute_mode(minor)  # raises GpuGone for a GPU that is lost
            is_enabled = gpu.is_mig_capable and self.control.is_mig_enabled(minor)
            instances = self.control.mig_devices(minor) if is_enabled else ()
            gpus[minor] = LiveGpu(minor, gpu.uuid, is_enabled, instances)
        return gpus

    def prepare(self, plan: Plan) -> checkpoint.Claim:
        """Does all steps and returns the completed claim. What was begun is undone before a failure is raised."""
        claim = plan.claim
        unmade = {index for index, device in enumerate(claim.devices) if device.instance is None}
        self.file.change(lambda known: known.with_claim(claim))
        try:
            for step in plan.steps:
                if isinstance(step, instructions.CreateInstance):
                    claim = self._create(step, claim, unmade)
                else:
                    self._do(step, claim)
            self._write_files(claim)
            ids = self.metadata.write(claim) if self.metadata is not None else {}
            completed = msgspec.structs.replace(
                claim, state=checkpoint.State.COMPLETED, metadata_ids=ids
            )
            self.file.change(lambda known: known.with_claim(completed))
        except Exception:
            self._roll_back(claim, frozenset(unmade))
            raise
        return completed

    def undo(self, claim: checkpoint.Claim, *, unmade: frozenset[int] = frozenset()) -> None:
        """Leaves nothing of a claim. Can be repeated after a failure."""
        # No longer complete from here on: an agent that is killed now finds it as one to undo.
        begun = msgspec.structs.replace(claim, state=checkpoint.State.STARTED)
        self.file.change(lambda known: known.with_claim(begun))
        self.specs.remove(claim.uid)
        if self.metadata is not None:
            self.metadata.remove(claim)
        orphans = self._undo_steps(claim, self.file.read(), unmade)
        self.file.change(lambda known: known.without_claim(claim.uid).with_orphans(orphans))

    def undo_rebuilt(self, claim: checkpoint.Claim, known: checkpoint.Checkpoint) -> None:
        """As `undo`, for a claim known from its CDI file alone, which is therefore removed last."""
        self._undo_steps(claim, known, frozenset())
        self.specs.remove(claim.uid)

    def is_intact(self, claim: checkpoint.Claim) -> bool:
        """Whether everything made for a completed claim is still there; a reset of a GPU takes partitions away."""
        if not self.specs.has(claim.uid):
            return False
        live = self._live_of(claim)
        for device in claim.devices:
            gpu = live.get(device.gpu_uuid)
            if gpu is None:
                return False
            uuids = [instance.uuid for instance in gpu.instances]
            if device.instance is not None and device.instance.uuid not in uuids:
                return False
        return True

    def restart_daemons(self, claim: checkpoint.Claim) -> None:
        """Starts the MPS daemons of a completed claim that have died."""
        for group, sharing in enumerate(claim.sharing):
            if sharing.strategy != checkpoint.MPS or self.mps.is_alive(daemon_name(claim, group)):
                continue
            LOG.warning(
                "claim.mps_daemon_died: it is started again",
                extra={"claim": str(claim), "group": group},
            )
            for step in plan_sharing.steps(claim):
                self._do(step, claim)

    def disable_idle_mig(self, minors: Iterable[int]) -> None:
        """Switches MIG mode off where it could not be when the last partition went."""
        known = self.file.read()
        in_use = {held.gpu_uuid for claim in known.claims.values() for held in claim.devices}
        for gpu in self.live(minors).values():
            is_idle = gpu.gpu_uuid not in in_use and not gpu.instances
            if is_idle and gpu.gpu_uuid in known.mig_enabled_here:
                self._disable_mig(gpu.minor, gpu.gpu_uuid)

    def destroy_orphans(self, minors: Iterable[int]) -> None:
        """Destroys MIG devices that claims left on GPUs which were lost and are back."""
        orphans = self.file.read().orphans
        for gpu in self.live(minors).values():
            for instance in gpu.instances:
                if instance.uuid in orphans:
                    self.control.destroy_mig_device(gpu.minor, gi_id=instance.gi_id)
                    self.file.change(operator.methodcaller("without_orphan", instance.uuid))

    def _undo_steps(
        self, claim: checkpoint.Claim, known: checkpoint.Checkpoint, unmade: frozenset[int]
    ) -> tuple[str, ...]:
        """Returns the MIG devices it could not destroy because their GPU is gone for now."""
        live = self._live_of(claim)
        for step in plan_undo(claim, live=live, known=known, unmade=unmade):
            try:
                self._do(step, claim)
            except GpuFailure as error:
                if not _may_stay(step, error):
                    raise
                LOG.warning(
                    "claim.step_not_undone",
                    extra={"claim": str(claim), "step": str(step), "why": str(error)},
                )
        others = [other for uid, other in known.claims.items() if uid != claim.uid]
        in_use = {held.instance.uuid for other in others for held in other.devices if held.instance}
        return tuple(
            held.instance.uuid
            for held in claim.devices
            if held.is_made_here and held.instance and held.gpu_uuid not in live
            if held.instance.uuid not in in_use
        )

    def _live_of(self, claim: checkpoint.Claim) -> dict[str, LiveGpu]:
        """The claim's GPUs that are still there, by uuid: a minor number may belong to another GPU by now."""
        uuids = {device.gpu_uuid for device in claim.devices}
        live: dict[str, LiveGpu] = {}
        for gpu in self.inventory().gpus:
            if gpu.uuid not in uuids:
                continue
            try:
                live.update({state.gpu_uuid: state for state in self.live([gpu.minor]).values()})
            except GpuGone as error:
                LOG.warning(
                    "claim.gpu_gone",
                    extra={"claim": str(claim), "gpu": gpu.uuid, "why": str(error)},
                )
        return live

    def _roll_back(self, claim: checkpoint.Claim, unmade: frozenset[int]) -> None:
        try:
            self.undo(claim, unmade=unmade)
        except Exception as error:
            # It stays recorded as started: the next attempt, or the next start of the agent, begins with undoing it.
            LOG.warning("claim.not_rolled_back", extra={"claim": str(claim), "why": str(error)})

    def _create(
        self, step: instructions.CreateInstance, claim: checkpoint.Claim, unmade: set[int]
    ) -> checkpoint.Claim:
        try:
            made = self.control.create_mig_device(
                step.minor, gi_profile_id=step.gi_profile_id, start=step.start
            )
        except GpuUnresponsive:
            unmade.discard(step.index)  # the driver may still make it
            raise
        unmade.discard(step.index)
        assert made.ci_id is not None, "a MIG device that was made has a compute instance"
        instance = checkpoint.Instance(uuid=made.uuid, gi_id=made.gi_id, ci_id=made.ci_id)
        devices = tuple(
            msgspec.structs.replace(device, instance=instance) if index == step.index else device
            for index, device in enumerate(claim.devices)
        )
        made_claim = msgspec.structs.replace(claim, devices=devices)
        self.file.change(lambda known: known.with_claim(made_claim))
        return made_claim

    def _do(self, step: Instruction, claim: checkpoint.Claim) -> None:
        match step:
            case instructions.EnableMig(minor, gpu_uuid):
                # Recorded first: a note too many is harmless, a missing one would leave the mode on.
                self.file.change(lambda known: known.with_mig_enabled(gpu_uuid, is_ours=True))
                self.control.set_mig_mode(minor, enabled=True)
            case instructions.DisableMig(minor, gpu_uuid):
                self._disable_mig(minor, gpu_uuid)
            case instructions.DestroyInstance(minor, gi_id, _):
                self.control.destroy_mig_device(minor, gi_id=gi_id)
            case instructions.SetComputeMode(minor, mode):
                if self.control.compute_mode(minor) != mode:
                    self.control.set_compute_mode(minor, mode)
            case instructions.SetTimeSlice(minor, interval):
                self.control.set_time_slice(minor, interval)
            case instructions.StartMps(group):
                self.mps.start(_daemon(claim, group))
            case instructions.StopMps(group):
                self.mps.stop(daemon_name(claim, group))
            case instructions.CreateInstance():
                raise AssertionError("instances are made in `prepare`, which records them")
            case _:
                assert_never(step)

    def _disable_mig(self, minor: int, gpu_uuid: str) -> None:
        if self.control.is_mig_enabled(minor):
            self.control.set_mig_mode(minor, enabled=False)
        self.file.change(lambda known: known.with_mig_enabled(gpu_uuid, is_ours=False))

    def _write_files(self, claim: checkpoint.Claim) -> None:
        devices: list[claim_specs.ClaimDevice] = []
        for held in claim.devices:
            group = held.group
            is_mps = group is not None and claim.sharing[group].strategy == checkpoint.MPS
            entry = claim_specs.ClaimDevice(
                name=held.device,
                minor=held.gpu_minor,
                pci_bus_id=held.pci_bus_id,
                instance=(held.instance.gi_id, held.instance.ci_id) if held.instance else None,
            )
            if is_mps and group is not None:
                entry = entry._replace(edits=self.mps.edits(daemon_name(claim, group)))
            devices.append(entry)
        driver_version = self.inventory().driver_version
        self.specs.write(claim.uid, devices, driver_version=driver_version)


def _may_stay(step: Instruction, error: GpuFailure) -> bool:
    """Whether a claim can end although this step of undoing it failed."""
    if isinstance(error, GpuGone | GpuUnsupported):
        return True  # what a lost GPU had is gone; what a GPU cannot do was never done to it
    # A monitoring program that has the GPU open blocks the mode. Idle MIG mode harms no claim; it is tried again.
    return isinstance(step, instructions.DisableMig)


def daemon_name(claim: checkpoint.Claim, group: int) -> str:
    """The folder of a group's MPS daemon. The first has the claim's uid alone: paths of sockets must be short."""
    return claim.uid if group == 0 else f"{claim.uid}-{group}"


def _daemon(claim: checkpoint.Claim, group: int) -> Daemon:
    sharing = claim.sharing[group]
    uuids = {
        held.device: held.instance.uuid if held.instance is not None else held.gpu_uuid
        for held in claim.devices
        if held.group == group
    }
    limits = {uuids[device]: limit for device, limit in sharing.memory_limits.items()}
    return Daemon(
        name=daemon_name(claim, group),
        device_uuids=tuple(uuids.values()),
        active_thread_percentage=sharing.active_thread_percentage,
        memory_limits=limits,
        is_multi_user=sharing.is_multi_user,
    )
