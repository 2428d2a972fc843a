"""How the image runs: as an ordinary user, on a root file system that it cannot write, without compiling anything."""

from __future__ import annotations

import msgspec
import pytest

import dovetail
from tests.image import installation
from tests.support import gpu_node, product_image

pytestmark = pytest.mark.slow

# One container reports everything: each takes seconds to start.
PROBE = """
import json, os, pathlib, subprocess, sys

def write(folder):
    try:
        pathlib.Path(folder, "probe").write_text("")
    except OSError as error:
        return error.strerror
    return "written"

def output(*command):
    done = subprocess.run(command, capture_output=True, text=True)
    return done.stdout if done.returncode == 0 else done.stderr

# Python says on stderr for each module where its code came from.
verbose = [sys.executable, "-v", "-c", "import dovetail.boot.scheduler"]
imports = subprocess.run(verbose, stderr=subprocess.PIPE, text=True, check=True).stderr
origins = [line for line in imports.splitlines() if line.startswith("# code object from")]
print(json.dumps({
    "user": os.getuid(),
    "writes": {folder: write(folder) for folder in ("/opt/dovetail", "/etc", "/var/lib", "/tmp")},
    "version": output("dovetail", "version"),
    "agent_help": output("dovetail", "node-agent", "--help"),
    "cached": sum(line.endswith(".pyc'") for line in origins),
    "compiled": [line for line in origins if not line.endswith(".pyc'")],
}))
"""


class Report(msgspec.Struct, frozen=True):
    """What the probe found inside a container of the image."""

    user: int
    writes: dict[str, str]
    version: str
    agent_help: str
    cached: int
    compiled: list[str]


@pytest.fixture(scope="module")
def report(node: gpu_node.GpuNode) -> Report:
    """The report of a container with a read-only root file system and nothing but /tmp in memory."""
    pod = node.run_pod(
        installation.namespace_with_account(node.plane),
        arguments=[PROBE],
        container={
            "image": product_image.NAME,
            "command": ["/opt/dovetail/bin/python", "-c"],
            "volumeMounts": [{"name": "scratch", "mountPath": "/tmp"}],
            "securityContext": {"readOnlyRootFilesystem": True, "allowPrivilegeEscalation": False},
        },
        spec={
            "volumes": [{"name": "scratch", "emptyDir": {"medium": "Memory"}}],
            "restartPolicy": "Never",
            # The kubelet refuses the pod unless it can see that the image's user is not root.
            "securityContext": {"runAsNonRoot": True},
        },
        phase="Succeeded",
    )
    (line,) = node.log_lines(pod)
    return msgspec.json.decode(line, type=Report)


def test_the_image_says_its_version(report: Report) -> None:
    assert report.version.split()[:2] == ["dovetail", dovetail.__version__]


def test_the_image_runs_as_its_own_user_and_writes_to_tmp_alone(report: Report) -> None:
    assert report.user == 65532
    assert report.writes == {
        "/opt/dovetail": "Read-only file system",
        "/etc": "Read-only file system",
        "/var/lib": "Read-only file system",
        "/tmp": "written",
    }


def test_the_node_agent_explains_itself_on_a_read_only_root(report: Report) -> None:
    assert "Serve the GPUs of this node to the kubelet" in report.agent_help


def test_nothing_is_compiled_when_the_scheduler_starts(report: Report) -> None:
    assert report.cached > 100
    assert report.compiled == []
