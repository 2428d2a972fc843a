"""Completion in a real bash and through a real kubectl; silent where there is nothing to ask."""

from __future__ import annotations

import shlex
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.cli import running
from tests.cli.work import shell_programs
from tests.support import cluster

ASK = """
source <(dovetail completion bash)
COMP_LINE={line}; COMP_POINT=${{#COMP_LINE}}
_dovetail_completion dovetail
printf '%s\\n' "${{COMPREPLY[@]}}"
"""


@pytest.fixture
def programs(tmp_path: Path) -> Path:
    """A directory with the programs that an installation has."""
    return shell_programs.install(tmp_path / "bin")


def completed(programs: Path, *words: str, **more: str) -> list[str]:
    """What bash offers for the last word."""
    script = ASK.format(line=shlex.quote(" ".join(("dovetail", *words))))
    done = subprocess.run(
        ["bash", "-c", script],
        env=shell_programs.environment(programs, **more),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stderr == ""
    return done.stdout.split()


def test_bash_completes_kinds_names_namespaces_and_types(small: Path, programs: Path) -> None:
    running.inside(small, *shell_programs.RUN)
    state = {"DOVETAIL_STATE": str(small)}
    assert "pods" in completed(programs, "get", "po", **state)
    assert completed(programs, "cancel", "job/", **state) == ["job/train"]
    assert completed(programs, "get", "pods", "-n", "kube-s", **state) == ["kube-system"]
    assert completed(programs, "run", "--type", "h", **state) == ["h100-80gb-hbm3"]


def test_without_a_cluster_nothing_is_offered_and_nothing_is_said(programs: Path) -> None:
    assert completed(programs, "get", "pods", "") == []
    assert completed(programs, "explain", "QueueLimit") == ["QueueLimitReached"]


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_every_shell_gets_a_script_of_its_own(empty: Path, shell: str) -> None:
    done = running.inside(empty, "completion", shell)
    assert done.code == 0
    assert f"_DOVETAIL_COMPLETE={shell}_complete" in done.out
    if shutil.which(shell):
        subprocess.run([shell, "-n"], input=done.out, text=True, check=True)
    assert running.inside(empty, "completion", "tcsh").code == 2


@pytest.mark.slow
def test_kubectl_runs_and_completes_the_plugin(small: Path, programs: Path) -> None:
    running.inside(small, *shell_programs.RUN)
    (programs / "kubectl").symlink_to(cluster.parts().kubectl)
    more = {"KUBECONFIG": str(small / "kubeconfig")}

    def kubectl(*arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [programs / "kubectl", *arguments],
            env=shell_programs.environment(programs, **more),
            capture_output=True,
            text=True,
            check=False,
        )

    usage = kubectl("dovetail", "--help")
    assert usage.stdout.startswith("Usage: kubectl dovetail "), usage.stderr
    queue = kubectl("dovetail", "queue")
    assert "job/train" in queue.stdout, queue.stderr
    assert queue.stderr.splitlines()[-1].startswith("next: kubectl dovetail ")
    offered = kubectl("__complete", "dovetail", "cancel", "job/")
    assert offered.stdout.splitlines()[:2] == ["job/train", ":4"], offered.stderr
