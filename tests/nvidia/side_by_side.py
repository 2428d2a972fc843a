"""NVIDIA's driver and the node agent in turn on one machine: the same claims, and a record of all that happened.

Given hardware and claims. A turn records the answers to the kubelet, the CDI files and the hardware after each step, so
that two records can be compared as a whole.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Mapping
from typing import Any

import msgspec

from dovetail.devcluster import control_plane
from dovetail.devcluster.fake_gpus.hardware import Hardware
from tests.nvidia import agent_node, claims, dra_driver, dra_node
from tests.support import rest

Tree = dict[str, Any]


class Side:
    """One driver's turn: what it said and wrote, and what it did to the hardware."""

    def __init__(self, driver: dra_node.DraNode, hardware: Hardware) -> None:
        self.driver = driver
        self.hardware = hardware
        self.seen: list[Any] = []
        self._is_running = True

    def prepare(self, claim: Tree) -> None:
        """Prepares and records."""
        answer = self.driver.prepare(claim)
        assert not answer.error, answer.error
        # NVIDIA's driver answers by groups of equal configurations, in an order that differs from run to run.
        devices = sorted(answer.devices, key=lambda prepared: (prepared.device, prepared.share_id))
        self.seen.append(msgspec.structs.replace(answer, devices=tuple(devices)))
        self.seen.append(in_any_order(self.driver.cdi_spec(claim["metadata"]["uid"])))
        self.seen.append(geometry(self.hardware))

    def unprepare(self, claim: Tree) -> None:
        """Releases and records."""
        error = self.driver.unprepare(claim)
        assert not error, error
        self.seen.append(self.driver.cdi_spec(claim["metadata"]["uid"]))
        self.seen.append(geometry(self.hardware))

    def refusal(self, claim: Tree) -> str:
        """Why the claim is not prepared."""
        error = self.driver.prepare(claim).error
        assert error, "prepared"
        return error

    def end(self) -> None:
        """Ends the turn."""
        if self._is_running:
            self._is_running = False
            self.driver.stop()


class Pair:
    """Both drivers for one node of one machine, one after the other."""

    def __init__(self, plane: control_plane.ControlPlane, hardware: Hardware) -> None:
        self._plane = plane
        self._hardware = hardware
        self._node = f"node-{uuid.uuid4().hex[:8]}"
        self._rest = rest.Rest(plane)
        self._turns: list[Side] = []

    def close(self) -> None:
        """Ends what a failed story left running."""
        for turn in self._turns:
            turn.end()
        self._rest.close()

    def claim(self, *devices: str, parameters: Mapping[str, Any] | None = None) -> Tree:
        """A claim for devices of the node, for both turns."""
        return claims.allocated(self._rest, self._node, devices, parameters=parameters)

    def nvidia(self, gates: Mapping[str, bool]) -> Side:
        """NVIDIA's turn. One turn ends before the next begins."""
        driver = dra_driver.DraOracle(self._hardware, self._plane, self._node, feature_gates=gates)
        return self._turn(driver)

    def agent(self, mig: str, *, shares: str = "off") -> Side:
        """The node agent's turn."""
        driver = agent_node.AgentNode(
            self._hardware, self._plane, self._node, mig=mig, shares=shares
        )
        return self._turn(driver)

    def _turn(self, driver: dra_node.DraNode) -> Side:
        self._turns.append(Side(driver, self._hardware))
        return self._turns[-1]


def geometry(hardware: Hardware) -> list[Any]:
    """What drivers change of GPUs. Ids of instances and UUIDs of MIG devices are new each time."""
    return [
        (
            gpu.mig_mode,
            gpu.compute_mode,
            gpu.time_slice,
            [
                (instance.profile, instance.start, len(instance.compute_instances))
                for instance in gpu.gpu_instances
            ],
        )
        for gpu in hardware.snapshot().gpus
    ]


def in_any_order(tree: Any) -> Any:
    """A specification whose lists are sorted, arguments of hooks aside: a runtime applies them in any order."""
    if isinstance(tree, dict):
        return {key: value if key == "args" else in_any_order(value) for key, value in tree.items()}
    if isinstance(tree, list):
        return sorted((in_any_order(value) for value in tree), key=json.dumps)
    return tree
