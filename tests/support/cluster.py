"""Real control planes for tests: one per version and test process, started on first use.

`control_plane` gives a running one, `stop_all` ends them all at the end of the session. Each test works in a
namespace of its own (`fresh_namespace`); cluster-scoped objects are the test's to name and to delete. A test that
breaks a part on purpose starts a plane of its own with `private_plane`.
"""

from __future__ import annotations

import contextlib
import subprocess
import tempfile
import uuid
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec
import pytest

from dovetail.devcluster import certificates, go_build, kube_binaries, processes
from dovetail.devcluster import control_plane as controlplane
from tests.support import real, rest
from tests.support.waiting import wait_until

# The one place that decides which tests need which version: `make test` runs on the newest pinned Kubernetes alone,
# `make test-skew` runs what is marked `skew`, on the others.
NEWEST: Final = kube_binaries.DEFAULT
OLDER: Final = kube_binaries.VERSIONS[-1]
EACH_VERSION: Final = tuple(
    version
    if version == NEWEST
    else pytest.param(version, marks=(pytest.mark.slow, pytest.mark.skew))
    for version in kube_binaries.VERSIONS
)
# Every test process may bring these users besides the admin: they have no rights until a test grants some.
TESTER = controlplane.Bearer("tester-token", "tester", ("testers",))

_running: dict[str, tuple[controlplane.ControlPlane, tempfile.TemporaryDirectory[str]]] = {}
_connected: dict[Path, rest.Rest] = {}  # by the directory of the control plane


def parts(version: str = kube_binaries.DEFAULT) -> kube_binaries.Parts:
    """The programs of a version. Skips, or fails under REQUIRE_REAL=1, where they cannot be had."""
    real.refuse_unbuilt(f"kubernetes-{version}")
    try:
        return kube_binaries.binaries(version)
    except kube_binaries.PartsMissing as missing:
        real.missing(str(missing))
    except go_build.BuildFailed as failed:
        pytest.fail(str(failed), pytrace=False)


def control_plane(version: str = kube_binaries.DEFAULT) -> controlplane.ControlPlane:
    """The control plane of this version that all tests of this process share."""
    if version not in _running:
        scratch = tempfile.TemporaryDirectory(prefix="dovetail-plane-", ignore_cleanup_errors=True)
        try:
            _running[version] = (_started(version, Path(scratch.name)), scratch)
        except BaseException:
            scratch.cleanup()
            raise
    return _running[version][0]


def stop_all() -> None:
    """Ends the shared control planes. Meant for the teardown of a session fixture."""
    while _running:
        _, (plane, scratch) = _running.popitem()
        _stop(plane)
        scratch.cleanup()


@contextlib.contextmanager
def private_plane(
    version: str = kube_binaries.DEFAULT, **options: Any
) -> Iterator[controlplane.ControlPlane]:
    """A control plane that only this test uses, and may break. `options` are those of `controlplane.start`."""
    with tempfile.TemporaryDirectory(
        prefix="dovetail-plane-", ignore_cleanup_errors=True
    ) as scratch:
        plane = _started(version, Path(scratch), **options)
        try:
            yield plane
        finally:
            _stop(plane)


def kubectl(plane: controlplane.ControlPlane, *arguments: str, input: str | None = None) -> str:
    """What kubectl printed; its complaint fails the test."""
    done = run_kubectl(plane, *arguments, input=input)
    assert done.returncode == 0, f"kubectl {' '.join(arguments)}: {done.stderr.strip()}"
    return done.stdout


def run_kubectl(
    plane: controlplane.ControlPlane,
    *arguments: str,
    input: str | None = None,
    kubeconfig: Path | None = None,
) -> subprocess.CompletedProcess[str]:
    """kubectl as the admin or as the kubeconfig's user, however it ends."""
    common = [
        f"--kubeconfig={kubeconfig or plane.kubeconfig}",
        f"--cache-dir={plane.directory / 'kubectl-cache'}",
    ]
    return subprocess.run(
        [plane.parts.kubectl, *common, *arguments],
        input=input,
        stdin=subprocess.DEVNULL if input is None else None,
        capture_output=True,
        text=True,
        check=False,
    )


def apply(
    plane: controlplane.ControlPlane,
    objects: Sequence[Mapping[str, Any]],
    *,
    namespace: str = "default",
) -> None:
    """Creates or changes objects given as trees."""
    listed = {"apiVersion": "v1", "kind": "List", "items": list(objects)}
    kubectl(
        plane,
        "apply",
        "--server-side",
        "-n",
        namespace,
        "-f",
        "-",
        input=msgspec.json.encode(listed).decode(),
    )


def get(plane: controlplane.ControlPlane, *arguments: str) -> Any:
    """What `kubectl get ... -o json` says, decoded."""
    return msgspec.json.decode(kubectl(plane, "get", *arguments, "-o", "json"))


def api(plane: controlplane.ControlPlane) -> rest.Rest:
    """The admin's connection to a control plane of this module, for what is asked often: kubectl is slow to start."""
    if plane.directory not in _connected:
        _connected[plane.directory] = rest.Rest(plane)
    return _connected[plane.directory]


def fresh_namespace(plane: controlplane.ControlPlane) -> str:
    """A new, unique namespace. Over HTTP: hundreds of tests begin with it, and kubectl takes long to start."""
    name = f"test-{uuid.uuid4().hex[:12]}"
    with contextlib.closing(rest.Rest(plane)) as api:
        api.create("namespaces", {"metadata": {"name": name}})
    return name


def wait_until_gone(process: processes.ProcessRecord) -> None:
    """Waits until the process has ended."""
    wait_until(
        lambda: not processes.is_alive(process), f"the end of {process.name}, process {process.pid}"
    )


def _stop(plane: controlplane.ControlPlane) -> None:
    if connection := _connected.pop(plane.directory, None):
        connection.close()
    plane.stop(graceful=False)


def _started(version: str, directory: Path, **options: Any) -> controlplane.ControlPlane:
    options.setdefault("tokens", (TESTER,))
    try:
        return controlplane.start(parts(version), directory, **options)
    except certificates.OpensslMissing as missing:
        real.missing(str(missing))
