"""Reads a machine's history alone and decides whether any silicon ever had two owners.

Shares no code with the library nor with its users: it knows only what the lines mean. Every memory slice of every
GPU has at most one GPU instance, every compute slice of an instance at most one compute instance.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

Key = tuple[int, int]


class Owners:
    """Who owns what, line by line."""

    def __init__(self) -> None:
        self.lines = 0
        self.instances: dict[Key, dict[str, Any]] = {}
        self.computes: dict[tuple[int, int, int], dict[str, Any]] = {}

    def read(self, path: Path) -> Owners:
        """Reads a whole history; fails at the first line that breaks a law."""
        for text in path.read_text(encoding="ascii").splitlines():
            line = json.loads(text)
            self.lines += 1
            assert line["sequence"] == self.lines, (
                f"line {self.lines} has the number {line['sequence']}"
            )
            handler = getattr(self, "_" + line["event"].replace("-", "_"), None)
            if handler is not None:
                handler(line)
        return self

    def _gpu_instance_created(self, line: dict[str, Any]) -> None:
        place = set(range(line["start"], line["start"] + line["size"]))
        for (gpu, gi), standing in self.instances.items():
            shared = place & set(range(standing["start"], standing["start"] + standing["size"]))
            assert gpu != line["gpu"] or not shared, (
                f"slices {shared} belong to {gi} already: {line}"
            )
        assert (line["gpu"], line["gi"]) not in self.instances
        self.instances[line["gpu"], line["gi"]] = line

    def _gpu_instance_destroyed(self, line: dict[str, Any]) -> None:
        inside = [key for key in self.computes if key[:2] == (line["gpu"], line["gi"])]
        assert not inside, f"{inside} live in what is destroyed: {line}"
        standing = self.instances.pop((line["gpu"], line["gi"]))
        assert standing["generation"] == line["generation"]

    def _compute_instance_created(self, line: dict[str, Any]) -> None:
        assert (line["gpu"], line["gi"]) in self.instances, f"no such instance: {line}"
        place = set(range(line["start"], line["start"] + line["size"]))
        for (gpu, gi, _), standing in self.computes.items():
            is_same_instance = (gpu, gi) == (line["gpu"], line["gi"])
            shared = place & set(range(standing["start"], standing["start"] + standing["size"]))
            assert not (is_same_instance and shared), f"compute slices {shared} are taken: {line}"
        self.computes[line["gpu"], line["gi"], line["ci"]] = line

    def _compute_instance_destroyed(self, line: dict[str, Any]) -> None:
        standing = self.computes.pop((line["gpu"], line["gi"], line["ci"]))
        assert standing["generation"] == line["generation"]
