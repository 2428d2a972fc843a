"""A directory with the programs that an installation has, for shells that look them up on their path."""

from __future__ import annotations

import os
import shlex
import sys
from pathlib import Path

RUN = ("run", "--image", "x", "--type", "l4", "-y", "-d", "--name", "train", "--", "sh")
ENTRY = "#!/bin/sh\nexec {python} -c 'import sys; from {module} import {name}; sys.exit({name}())' \"$@\"\n"
PROGRAMS = {
    "dovetail": ("dovetail.cli.main", "main"),
    "kubectl-dovetail": ("dovetail.cli.main", "kubectl_plugin"),
    "kubectl_complete-dovetail": ("dovetail.cli.work.completion", "kubectl_complete"),
}
KUBECONFIG = """\
apiVersion: v1
kind: Config
current-context: here
clusters: [{{name: here, cluster: {{server: "{server}"}}}}]
contexts: [{{name: here, context: {{cluster: here, user: me}}}}]
users: [{{name: me, user: {{}}}}]
"""


def install(directory: Path) -> Path:
    """Writes the programs. Returns the directory."""
    directory.mkdir()
    for program, (module, name) in PROGRAMS.items():
        file = directory / program
        python = shlex.quote(sys.executable)
        file.write_text(ENTRY.format(python=python, module=module, name=name), encoding="utf-8")
        file.chmod(0o755)
    return directory


def environment(programs: Path, **more: str) -> dict[str, str]:
    """Variables of a user who has the programs, and no cluster unless one is named."""
    return {"PATH": f"{programs}:{os.environ['PATH']}", "HOME": str(programs), **more}


def kubeconfig(server: str) -> str:
    """A file that names one cluster."""
    return KUBECONFIG.format(server=server)
