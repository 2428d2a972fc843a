"""How the image runs: as an ordinary user, on a root file system that it cannot write, without compiling anything."""

from __future__ import annotations

import pytest

import dovetail
from tests.image import installation
from tests.support import gpu_node, product_image

pytestmark = pytest.mark.slow

PYTHON = "/opt/dovetail/bin/python"
SCRATCH = {
    "volumeMounts": [{"name": "scratch", "mountPath": "/tmp"}],
    "securityContext": {"readOnlyRootFilesystem": True, "allowPrivilegeEscalation": False},
}
VOLUMES = {"volumes": [{"name": "scratch", "emptyDir": {"medium": "Memory"}}]}

WRITES = """
import os, pathlib
print(os.getuid())
for folder in ("/opt/dovetail", "/etc", "/var/lib", "/tmp"):
    try:
        pathlib.Path(folder, "probe").write_text("")
    except OSError as error:
        print(folder, error.strerror)
    else:
        print(folder, "written")
"""
# Python says on stderr for each module whether it had to compile the source.
IMPORTS = """
import subprocess, sys
done = subprocess.run(
    [sys.executable, "-v", "-c", "import dovetail.boot.scheduler"], stderr=subprocess.PIPE, text=True
)
lines = done.stderr.splitlines()
print(done.returncode)
print(sum(line.startswith("# code object from '/opt/dovetail") and line.endswith(".pyc'") for line in lines))
print(*[line for line in lines if line.startswith("# code object from") and not line.endswith(".pyc'")])
"""


def run(node: gpu_node.GpuNode, *arguments: str, command: list[str] | None = None) -> list[str]:
    """What a container of the image prints, with nothing but /tmp to write to."""
    override = {"command": command} if command else {}
    namespace = installation.namespace_with_account(node.plane)
    pod = node.run_pod(
        namespace,
        arguments=arguments,
        container=SCRATCH | override | {"image": product_image.NAME},
        # The kubelet refuses the pod unless it can see that the image's user is not root.
        spec=VOLUMES | {"restartPolicy": "Never", "securityContext": {"runAsNonRoot": True}},
        phase="Succeeded",
    )
    return node.log_lines(pod)


def test_the_image_says_its_version(node: gpu_node.GpuNode) -> None:
    (line, *_) = run(node, "version")
    assert line.split()[:2] == ["dovetail", dovetail.__version__]


def test_the_image_runs_as_its_own_user_and_writes_to_tmp_alone(node: gpu_node.GpuNode) -> None:
    assert run(node, WRITES, command=[PYTHON, "-c"]) == [
        "65532",
        "/opt/dovetail Read-only file system",
        "/etc Read-only file system",
        "/var/lib Read-only file system",
        "/tmp written",
    ]


def test_the_node_agent_explains_itself_on_a_read_only_root(node: gpu_node.GpuNode) -> None:
    text = "\n".join(run(node, "node-agent", "--help"))
    assert "Serve the GPUs of this node to the kubelet" in text


def test_nothing_is_compiled_when_the_scheduler_starts(node: gpu_node.GpuNode) -> None:
    code, loaded, compiled = run(node, IMPORTS, command=[PYTHON, "-c"])
    assert code == "0"
    assert int(loaded) > 100
    assert compiled == ""
