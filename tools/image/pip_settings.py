"""Lets pip inside the build reach packages the way pip on this machine does.

Given pip's own list of its settings, writes those about the package index to a file that is mounted for the build: no
setting of this machine becomes part of the image. Never reads pip's files itself.
"""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path
from typing import Final

SETTINGS: Final = frozenset(
    (
        "cert",
        "default-timeout",
        "extra-index-url",
        "index-url",
        "proxy",
        "retries",
        "timeout",
        "trusted-host",
    )
)
CERTIFICATES: Final = "/run/pip-certificates.pem"  # inside the build


def volumes(scratch: Path) -> list[str]:
    """What is mounted for the build, as `--volume` takes it. Writes one file below `scratch`."""
    settings = _settings()
    mounts: list[str] = []
    if certificates := settings.get("cert"):
        mounts.append(f"{Path(certificates).resolve()}:{CERTIFICATES}:ro")
        settings["cert"] = CERTIFICATES

    lines = [f"{key} = {_value(text)}" for key, text in sorted(settings.items())]
    file = scratch / "pip.conf"
    file.touch(mode=0o600)  # an index may be named with a password
    file.write_text("\n".join(["[global]", *lines, ""]), encoding="utf-8")
    mounts.append(f"{file}:/etc/pip.conf:ro")
    return mounts


def _settings() -> dict[str, str]:
    """The settings that matter here. Those of the environment win over those of files, as for pip."""
    command = [sys.executable, "-m", "pip", "config", "list"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    from_files: dict[str, str] = {}
    from_environment: dict[str, str] = {}
    for line in done.stdout.splitlines():
        name, _, quoted = line.partition("=")
        section, _, key = name.rpartition(".")
        if key in SETTINGS:
            settings = from_environment if section == ":env:" else from_files
            settings[key] = ast.literal_eval(quoted)
    return from_files | from_environment


def _value(text: str) -> str:
    """A value of several lines continues indented."""
    return "\n    ".join(text.split("\n"))
