"""Plays NVIDIA's MIG manager by its labels: refusal, pause, the wait that it gives up, geometry, resumption.

Given a node as a tree, changes its labels as the manager would. It wakes up for a change of the configuration label
only, which is what makes it hang. Written after mig-parted's reconfigure package.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from tests.upgrade import trees

CONFIG = "nvidia.com/mig.config"
STATE = "nvidia.com/mig.config.state"
CLIENTS = ("nvidia.com/gpu.deploy.device-plugin", "nvidia.com/gpu.deploy.dcgm-exporter")
KNOWN = ("all-disabled", "all-1g.10gb", "broken")


class MigManager:
    """The manager of one node."""

    def __init__(self, node: trees.Tree) -> None:
        self.node = node
        self.client_ends = True
        self.ends_after = ""  # clients that do not end do so once this configuration was asked for
        self.known: Collection[str] = KNOWN  # what its file has
        self.changes: list[str] = []  # configurations that it applied, in order
        self._last_read = node["metadata"]["labels"].get(CONFIG, "")

    @property
    def labels(self) -> dict[str, Any]:
        """Of the node."""
        labels: dict[str, Any] = self.node["metadata"]["labels"]
        return labels

    def act(self) -> None:
        """One run, if the label changed."""
        wanted = self.labels.get(CONFIG, "")
        if wanted == self._last_read:
            return
        self._last_read = wanted
        self.client_ends = self.client_ends or wanted == self.ends_after
        if wanted not in self.known:
            self._end("failed")
            return
        self.labels[STATE] = "pending"
        self.labels.update(dict.fromkeys(CLIENTS, "paused-for-mig-change"))
        if not self.client_ends:
            return  # it hangs: no state, no resumption
        self.changes += [wanted] if wanted != "broken" else []
        self._end("failed" if wanted == "broken" else "success")

    def _end(self, state: str) -> None:
        self.labels.update(dict.fromkeys(CLIENTS, "true"))
        self.labels[STATE] = state
