"""Clusters whose GPU stack is being upgraded: versions, repairs, and upgrades on their way.

Objects as an API server stores them, with times before a given time. No lifecycle process runs.
"""

from __future__ import annotations

import datetime
import json
from typing import Any, Final

Tree = dict[str, Any]

OLD: Final = "570.211.01"
NEW: Final = "595.91.07"
UPGRADE: Final = "driver-595-91-07"
STEPS: Final = ("Fencing=20", "Draining=310", "Applying=620", "Validating=120", "Unfencing=10")
NODE_SECONDS: Final = 1080  # the sum of the steps
CANARY_MINUTES: Final = 58.0  # before now
CANARY: Final = "h100-0"


class StackCluster:
    """Objects at a time."""

    def __init__(self, now: datetime.datetime) -> None:
        self.now = now

    def at(self, minutes: float) -> str:
        """A time so many minutes before now."""
        moment = self.now - datetime.timedelta(minutes=minutes)
        return moment.strftime("%Y-%m-%dT%H:%M:%SZ")

    def objects(self) -> list[Tree]:
        """Eight nodes of which an upgrade is on its way, two other pools, an old upgrade, and a repair."""
        trees = [self.node(f"h100-{number}", driver=OLD) for number in range(1, 8)]
        trees.append(self.node(CANARY, driver=NEW))
        trees += [
            self.node(f"a100-{number}", pool="a100", product="NVIDIA-A100-SXM4-80GB", gpus=4)
            for number in range(2)
        ]
        trees.append(self.healing(self.node("l40s-0", pool="l40s", product="NVIDIA-L40S", gpus=4)))
        trees += [self.policy(), self.running_upgrade(), self.old_upgrade()]
        return trees

    # Nodes

    def node(
        self,
        name: str,
        *,
        pool: str = "h100",
        product: str = "NVIDIA-H100-80GB-HBM3",
        gpus: int = 8,
        driver: str = OLD,
    ) -> Tree:
        """A node as feature discovery labels it and its kubelet reports it."""
        cuda = {OLD: ("12", "8"), NEW: ("13", "2")}[driver]
        labels = {
            "nvidia.com/gpu.product": product,
            "nvidia.com/gpu.count": str(gpus),
            "nvidia.com/cuda.driver-version.full": driver,
            "nvidia.com/cuda.runtime-version.major": cuda[0],
            "nvidia.com/cuda.runtime-version.minor": cuda[1],
            "nvidia.com/gpu.deploy.driver": "true",
            "dovetail.dev/pool": pool,
        }
        kernel = "6.8.0-63-generic" if name == "h100-3" else "6.8.0-60-generic"
        return {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {"name": name, "uid": name, "labels": labels, "annotations": {}},
            "spec": {},
            "status": {
                "allocatable": {"nvidia.com/gpu": str(gpus), "cpu": "64", "memory": "512Gi"},
                "conditions": [
                    {"type": "Ready", "status": "True", "lastTransitionTime": self.at(9000)}
                ],
                "nodeInfo": {
                    "kernelVersion": kernel,
                    "osImage": "Ubuntu 24.04.2 LTS",
                    "containerRuntimeVersion": "containerd://1.7.28",
                    "kubeletVersion": "v1.34.3",
                    "architecture": "amd64",
                },
            },
        }

    def healing(self, node: Tree) -> Tree:
        """The node with a reset that the healer asked for, the second try."""
        now = self.now.timestamp()
        attempt = {"rung": "reset-gpu", "gpus": ["gpu-2"], "began": now - 4000, "ended": now - 3100}
        record = {
            "phase": "requested",
            "id": "reset-gpu-2",
            "rung": "reset-gpu",
            "gpus": ["gpu-2"],
            "fault": "nvidia.com/xid=79",
            "began": now - 700,
            "requested": now - 420,
            "attempts": [attempt | {"result": "failed"}],
        }
        response = {"id": "reset-gpu-2", "result": "done"}
        node["metadata"]["annotations"] = {
            "dovetail.dev/heal": json.dumps(record),
            "dovetail.dev/heal-response": json.dumps(response),
        }
        return node

    def policy(self) -> Tree:
        """The object of NVIDIA's operator, which wants the new driver."""
        return {
            "apiVersion": "nvidia.com/v1",
            "kind": "ClusterPolicy",
            "metadata": {"name": "cluster-policy", "creationTimestamp": self.at(9000)},
            "spec": {"driver": {"enabled": True, "version": NEW}},
            "status": {"state": "ready"},
        }

    # Upgrades

    def upgrade(self, name: str, spec: Tree, status: Tree, *, minutes: float) -> Tree:
        """An upgrade that a person created so many minutes ago."""
        return {
            "apiVersion": "dovetail.dev/v1alpha1",
            "kind": "StackUpgrade",
            "metadata": {"name": name, "uid": name, "creationTimestamp": self.at(minutes)},
            "spec": {"to": {"driver": NEW}} | spec,
            "status": status,
        }

    def running_upgrade(self, **spec: Any) -> Tree:
        """The canary is done; of the first wave a node failed; the second one has begun."""
        failed = self.gone("h100-2", 2, 38.0, steps=STEPS[:3], phase="Failed")
        failed["reason"] = "a GPU reported XID 79"
        nodes = [
            self.gone(CANARY, 1, CANARY_MINUTES),
            self.gone("h100-1", 2, 39.0),
            failed,
            self.under_way("h100-3", 3, "Applying", 9.0, 3.0),
            self.under_way("h100-4", 3, "Draining", 8.5, 8.2),
            self.under_way("h100-5", 3, "Applying", 8.0, 2.0),
            *({"name": f"h100-{number}", "wave": 4, "phase": "Waiting"} for number in (6, 7)),
        ]
        nodes[3]["reason"] = "the driver pod is being installed"
        nodes[4]["reason"] = "waits for research/llama: its budget allows no eviction"
        nodes[5]["byHand"] = [
            "log in to h100-5: it is fenced and empty",
            "install driver 595.91.07 from the image of the node, then reboot h100-5",
        ]
        nodes[5]["reason"] = "a person installs the driver of this node"
        waves = [
            self.wave(1, "Done", 58.0, 40.0) | {"isCanary": True},
            self.wave(2, "Stopped", 39.0, 20.0)
            | {"reason": "h100-2 failed: a GPU reported XID 79"},
            self.wave(3, "Running", 9.0),
            {"number": 4, "state": "Waiting"},
        ]
        conditions = [
            {"type": "Degraded", "status": "True", "reason": "Failures"},
            {"type": "Completed", "status": "False", "reason": "Progressing"},
        ]
        conditions[0]["message"] = "h100-2 failed"
        drain = {"gang": "research/llama", "pods": ["a", "b"], "since": self.at(6.0)}
        status = {
            "phase": "Progressing",
            "adapter": "operator",
            "isReversible": True,
            "reversibility": "the earlier versions can be installed again",
            "startedAt": self.at(CANARY_MINUTES),
            "updatedAt": self.at(0),
            "progress": "2/8",
            "nodes": nodes,
            "waves": waves,
            "conditions": conditions,
            "drain": drain | {"isEvicting": True},
        }
        given = {"waves": {"maxUnavailable": "50%"}, "stop": {"failures": 3}} | spec
        return self.upgrade(UPGRADE, given, status, minutes=CANARY_MINUTES + 1)

    def old_upgrade(self) -> Tree:
        """One that is over: its only node is done."""
        status = {
            "phase": "Completed",
            "reason": "1 done",
            "startedAt": self.at(9000),
            "finishedAt": self.at(9000 - NODE_SECONDS / 60),
            "isReversible": False,
            "reversibility": "the operator does not go back",
            "adapter": "operator",
            "nodes": [self.gone("a100-0", 1, 9000)],
            "waves": [self.wave(1, "Done", 9000, 9000 - NODE_SECONDS / 60)],
        }
        spec = {"to": {"operator": "26.7.0"}}
        return self.upgrade("operator-26-7-0", spec, status, minutes=9001)

    def gone(
        self,
        name: str,
        wave: int,
        minutes: float,
        *,
        steps: tuple[str, ...] = STEPS,
        phase: str = "Done",
    ) -> Tree:
        """A node that began so many minutes ago and has ended."""
        seconds = sum(int(step.partition("=")[2]) for step in steps)
        end = self.at(minutes - seconds / 60)
        return {
            "name": name,
            "wave": wave,
            "phase": phase,
            "since": end,
            "startedAt": self.at(minutes),
            "finishedAt": end,
            "passed": list(steps),
        }

    def under_way(self, name: str, wave: int, phase: str, began: float, since: float) -> Tree:
        """A node that is in a phase since so many minutes, fenced in 18 seconds."""
        seconds = round((began - since) * 60)
        passed = ["Fencing=18"]
        if phase != "Draining":
            passed.append(f"Draining={seconds - 18}")
        return {
            "name": name,
            "wave": wave,
            "phase": phase,
            "since": self.at(since),
            "startedAt": self.at(began),
            "passed": passed,
        }

    def wave(self, number: int, state: str, began: float, ended: float | None = None) -> Tree:
        tree = {"number": number, "state": state, "startedAt": self.at(began)}
        return tree if ended is None else tree | {"finishedAt": self.at(ended)}
