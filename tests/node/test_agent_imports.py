"""What the agent's process loads: it runs on every node, so each room it does not need is memory times nodes."""

from __future__ import annotations

import subprocess
import sys

PROGRAM = """
import sys
from dovetail.cli import main
from dovetail.cli.processes import node_agent_command
from dovetail.boot import logs
from dovetail.boot.node import node_agent, node_dra, node_parts
print(" ".join(sorted(sys.modules)))
"""
# Rooms of Dovetail, and large packages.
NEVER = (
    "dovetail.live",
    "dovetail.answer",
    "dovetail.schedule",
    "dovetail.allocate",
    "dovetail.world",
    "dovetail.cel",
    "dovetail.admission",
    "dovetail.sim",
    "dovetail.hollow",
    "dovetail.devcluster",
    "dovetail.install",
    "dovetail.snapshot",
    "dovetail.ask",
    "dovetail.tables",
    "dovetail.web",
    "dovetail.replay",
    "dovetail.telemetry",
    "dovetail.node.device_plugin.device_plugins",
    "rich",
    "re2",
    "cryptography",
    "prometheus_client",
    "opentelemetry",
)


def test_the_agents_process_loads_no_scheduler_simulator_or_web() -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True
    )
    loaded = done.stdout.split()
    assert "dovetail.node.kubelet.dra_plugin" in loaded
    surplus = [
        name
        for name in loaded
        if any(name == room or name.startswith(f"{room}.") for room in NEVER)
    ]
    assert not surplus
