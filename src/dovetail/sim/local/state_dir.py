"""Wires the local cluster of the command line: state directory, clock, expression engine.

Given a directory, answers what the commands ask: start a fleet, read the cluster, apply objects. The only
place of the command line that reads the clock. Never prints.
"""

import datetime
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final

import msgspec

from dovetail import errors, timestamps
from dovetail.kubetypes import field_errors
from dovetail.sim.fleet import fleet_objects, fleet_spec
from dovetail.sim.local import local_cluster, state_store

STATE_VARIABLE: Final = "DOVETAIL_STATE"


class Started(msgspec.Struct, frozen=True):
    """The cluster after `up`, and whether it was made just now."""

    cluster: local_cluster.Cluster
    is_new: bool


class Local:
    """The cluster in one state directory."""

    def __init__(
        self, directory: Path, *, clock: Callable[[], datetime.datetime] | None = None
    ) -> None:
        self.store = state_store.Store(directory)
        self._clock = clock or _utc_now

    def now(self) -> datetime.datetime:
        """The time, with its zone."""
        return self._clock()

    def cluster(self) -> local_cluster.Cluster | None:
        """The cluster as it is now, or None where nothing was started yet. Keeps what time has changed, if anything."""
        found = self.store.load()
        if found is None or not self.is_due(found):
            return found

        def step(
            old: local_cluster.Cluster | None,
        ) -> tuple[local_cluster.Cluster | None, local_cluster.Cluster | None]:
            current = None if old is None else self._current(old)
            return None if current is old else current, current

        try:
            return self.store.change(step)
        except (
            errors.StateError
        ):  # who may only read sees the same: time brings the same to everybody
            return self._current(found)

    def is_due(self, cluster: local_cluster.Cluster) -> bool:
        """Whether time alone has changed the cluster since it was kept."""
        if not any(
            key.kind == "Pod" and bytes(record.applied) for key, record in cluster.records.items()
        ):
            return False
        from dovetail.sim.local import control  # fleets without pods have none

        return control.is_due(cluster, now=self.now())

    def up(self, fleet: fleet_spec.Fleet | None, *, fresh: bool, is_empty: bool = False) -> Started:
        """The stored cluster, or a new one of the fleet. `fresh` starts over.

        Without a fleet it is the sample, with the sample workload placed on it unless it is to be empty.
        """

        def step(old: local_cluster.Cluster | None) -> tuple[local_cluster.Cluster | None, Started]:
            if old is not None and not fresh:
                if fleet is not None and fleet.name != old.name:
                    raise errors.InputError(
                        f'a cluster of fleet "{old.name}" is already up in {self.store.directory}; '
                        f'add --fresh to replace it by "{fleet.name}"'
                    )
                current = self._current(old)
                return None if current is old else current, Started(current, is_new=False)
            made = self._built(fleet or fleet_spec.sample())
            if fleet is None and not is_empty:
                made = self._filled(made)
            return made, Started(made, is_new=True)

        return self.store.change(step)

    def apply(
        self, given: Sequence[local_cluster.Given], *, namespace: str, dry_run: bool
    ) -> local_cluster.Applied | local_cluster.Refused:
        """All objects or none. Without a cluster the sample fleet is what they are applied to."""

        def step(
            old: local_cluster.Cluster | None,
        ) -> tuple[local_cluster.Cluster | None, local_cluster.Applied | local_cluster.Refused]:
            outcome = local_cluster.apply(
                # What is due happens first: it cannot make room for what did not exist yet.
                self._current(old) if old is not None else self._built(fleet_spec.sample()),
                given,
                now=self._timestamp(),
                check_selector=check_selector,
                namespace=namespace,
            )
            if isinstance(outcome, local_cluster.Refused):
                return None, outcome
            if not dry_run:
                outcome = msgspec.structs.replace(outcome, cluster=self._decided(outcome.cluster))
            return outcome.cluster, outcome

        if dry_run:
            return step(self.store.load())[1]
        return self.store.change(step)

    def _filled(self, cluster: local_cluster.Cluster) -> local_cluster.Cluster:
        from dovetail.sim.fleet import sample_workload  # only a new sample needs it

        given = [
            local_cluster.Given(tree, "sample workload")
            for tree in sample_workload.objects_of_sample()
        ]
        outcome = local_cluster.apply(
            cluster, given, now=self._timestamp(), check_selector=check_selector
        )
        if isinstance(outcome, local_cluster.Refused):
            raise errors.InputError("\n".join(map(str, outcome.problems)))
        return self._decided(outcome.cluster)

    def _current(self, cluster: local_cluster.Cluster) -> local_cluster.Cluster:
        """The cluster after what was due has happened; the same one if nothing was."""
        return self._decided(cluster) if self.is_due(cluster) else cluster

    def _decided(self, cluster: local_cluster.Cluster) -> local_cluster.Cluster:
        """The cluster after its control plane had a turn; left alone where there is nothing to say."""
        if not any(key.kind in ("Pod", "Queue") for key in cluster.records):
            return cluster
        from dovetail.sim.local import control  # most commands place nothing

        return control.turn(cluster, now=self.now())

    def _built(self, fleet: fleet_spec.Fleet) -> local_cluster.Cluster:
        given = [
            local_cluster.Given(tree, f"fleet {fleet.name}")
            for tree in fleet_objects.objects_of(fleet)
        ]
        outcome = local_cluster.apply(
            local_cluster.Cluster(fleet.name),
            given,
            now=self._timestamp(),
            check_selector=check_selector,
            as_manifest=False,
        )
        if isinstance(outcome, local_cluster.Refused):
            raise errors.InputError("\n".join(map(str, outcome.problems)))
        return outcome.cluster

    def _timestamp(self) -> str:
        return timestamps.to_text(self.now())


def state_directory(given: str | None, environ: Mapping[str, str] = os.environ) -> Path:
    """Where the cluster is kept: what was given, else $DOVETAIL_STATE, else the user's state directory."""
    if chosen := given or environ.get(STATE_VARIABLE):
        return Path(chosen).expanduser()
    home = environ.get("XDG_STATE_HOME")
    if home and Path(home).is_absolute():  # the XDG rules say to ignore relative ones
        return Path(home) / "dovetail"
    return Path("~/.local/state/dovetail").expanduser()


def check_selector(expression: str) -> field_errors.ExpressionFault | None:
    """What the expression engine says against a device selector."""
    from dovetail.cel import selectors  # only objects with selectors need the engine

    return selectors.problem(expression)


def _utc_now() -> datetime.datetime:
    return datetime.datetime.now(datetime.UTC)
