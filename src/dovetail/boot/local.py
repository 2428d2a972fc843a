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

from dovetail import errors
from dovetail.model.validation import fields
from dovetail.sim import cluster as clusters
from dovetail.sim import fleet as fleets
from dovetail.sim import inventory
from dovetail.sim import store as stores

STATE_VARIABLE: Final = "DOVETAIL_STATE"


class Started(msgspec.Struct, frozen=True):
    """The cluster after `up`, and whether it was made just now."""

    cluster: clusters.Cluster
    is_new: bool


class Local:
    """The cluster in one state directory."""

    def __init__(self, directory: Path, *, clock: Callable[[], datetime.datetime] | None = None) -> None:
        self.store = stores.Store(directory)
        self._clock = clock or _utc_now

    def now(self) -> datetime.datetime:
        """The time, with its zone."""
        return self._clock()

    def cluster(self) -> clusters.Cluster | None:
        """The cluster as it is now, or None where nothing was started yet. Keeps what time has changed, if anything."""
        found = self.store.load()
        if found is None or not self.is_due(found):
            return found

        def step(old: clusters.Cluster | None) -> tuple[clusters.Cluster | None, clusters.Cluster | None]:
            current = None if old is None else self._current(old)
            return None if current is old else current, current

        try:
            return self.store.change(step)
        except errors.StateError:  # who may only read sees the same: time brings the same to everybody
            return self._current(found)

    def is_due(self, cluster: clusters.Cluster) -> bool:
        """Whether time alone has changed the cluster since it was kept."""
        if not any(key.kind == "Pod" and bytes(record.applied) for key, record in cluster.records.items()):
            return False
        from dovetail.sim import control  # fleets without pods have none

        return control.is_due(cluster, now=self.now())

    def up(self, fleet: fleets.Fleet | None, *, fresh: bool, is_empty: bool = False) -> Started:
        """The stored cluster, or a new one of the fleet. `fresh` starts over.

        Without a fleet it is the sample, with the sample workload placed on it unless it is to be empty.
        """

        def step(old: clusters.Cluster | None) -> tuple[clusters.Cluster | None, Started]:
            if old is not None and not fresh:
                if fleet is not None and fleet.name != old.name:
                    raise errors.InputError(
                        f'a cluster of fleet "{old.name}" is already up in {self.store.directory}; '
                        f'add --fresh to replace it by "{fleet.name}"'
                    )
                current = self._current(old)
                return None if current is old else current, Started(current, is_new=False)
            made = self._built(fleet or fleets.sample())
            if fleet is None and not is_empty:
                made = self._filled(made)
            return made, Started(made, is_new=True)

        return self.store.change(step)

    def apply(
        self, given: Sequence[clusters.Given], *, namespace: str, dry_run: bool
    ) -> clusters.Applied | clusters.Refused:
        """All objects or none. Without a cluster the sample fleet is what they are applied to."""

        def step(
            old: clusters.Cluster | None,
        ) -> tuple[clusters.Cluster | None, clusters.Applied | clusters.Refused]:
            outcome = clusters.apply(
                # What is due happens first: it cannot make room for what did not exist yet.
                self._current(old) if old is not None else self._built(fleets.sample()),
                given,
                now=self._timestamp(),
                check_selector=check_selector,
                namespace=namespace,
            )
            if isinstance(outcome, clusters.Refused):
                return None, outcome
            if not dry_run:
                outcome = msgspec.structs.replace(outcome, cluster=self._decided(outcome.cluster))
            return outcome.cluster, outcome

        if dry_run:
            return step(self.store.load())[1]
        return self.store.change(step)

    def _filled(self, cluster: clusters.Cluster) -> clusters.Cluster:
        from dovetail.sim import workload  # only a new sample needs it

        given = [clusters.Given(tree, "sample workload") for tree in workload.objects_of_sample()]
        outcome = clusters.apply(cluster, given, now=self._timestamp(), check_selector=check_selector)
        if isinstance(outcome, clusters.Refused):
            raise errors.InputError("\n".join(map(str, outcome.problems)))
        return self._decided(outcome.cluster)

    def _current(self, cluster: clusters.Cluster) -> clusters.Cluster:
        """The cluster after what was due has happened; the same one if nothing was."""
        return self._decided(cluster) if self.is_due(cluster) else cluster

    def _decided(self, cluster: clusters.Cluster) -> clusters.Cluster:
        """The cluster after its control plane had a turn; left alone where there is nothing to say."""
        if not any(key.kind in ("Pod", "Queue") for key in cluster.records):
            return cluster
        from dovetail.sim import control  # most commands place nothing

        return control.turn(cluster, now=self.now())

    def _built(self, fleet: fleets.Fleet) -> clusters.Cluster:
        given = [clusters.Given(tree, f"fleet {fleet.name}") for tree in inventory.objects_of(fleet)]
        outcome = clusters.apply(
            clusters.Cluster(fleet.name),
            given,
            now=self._timestamp(),
            check_selector=check_selector,
            as_manifest=False,
        )
        if isinstance(outcome, clusters.Refused):
            raise errors.InputError("\n".join(map(str, outcome.problems)))
        return outcome.cluster

    def _timestamp(self) -> str:
        return self.now().astimezone(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def state_directory(given: str | None, environ: Mapping[str, str] = os.environ) -> Path:
    """Where the cluster is kept: what was given, else $DOVETAIL_STATE, else the user's state directory."""
    if chosen := given or environ.get(STATE_VARIABLE):
        return Path(chosen).expanduser()
    home = environ.get("XDG_STATE_HOME")
    if home and Path(home).is_absolute():  # the XDG rules say to ignore relative ones
        return Path(home) / "dovetail"
    return Path("~/.local/state/dovetail").expanduser()


def check_selector(expression: str) -> fields.ExpressionFault | None:
    """What the expression engine says against a device selector."""
    from dovetail.cel import selectors  # only objects with selectors need the engine

    return selectors.problem(expression)


def _utc_now() -> datetime.datetime:
    return datetime.datetime.now(datetime.UTC)
