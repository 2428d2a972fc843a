"""Runs kubectl as the administrator of a local control plane, for the few objects that a real node needs.

Given arguments and, for standard input, an object. Raises StartFailed with what kubectl complained about.
"""

from __future__ import annotations

import subprocess

import msgspec

from dovetail.devcluster import control_plane


def run(plane: control_plane.ControlPlane, *arguments: str, tree: object = None) -> str:
    """What kubectl printed."""
    cache = plane.directory / "kubectl-cache"
    common = [f"--kubeconfig={plane.kubeconfig}", f"--cache-dir={cache}"]
    done = subprocess.run(  # noqa: S603 - no shell reads it
        [plane.parts.kubectl, *common, *arguments],
        input=msgspec.json.encode(tree).decode(),
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        raise control_plane.StartFailed(f"kubectl {arguments[0]} failed: {done.stderr.strip()}")
    return done.stdout
