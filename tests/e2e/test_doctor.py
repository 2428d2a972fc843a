"""`dovetail doctor` on a real API server: what is wrong is found, the rest is not complained about; also offline."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.namespace_scene import Scene, exactly, scene
from tests.support import live
from tests.support.live import Live

pytestmark = pytest.mark.slow

CODE = "import sys; from dovetail.cli.main import main; sys.exit(main())"
Report = dict[str, Any]


def dovetail(*arguments: str) -> subprocess.CompletedProcess[str]:
    """The program, as a user would run it."""
    command = [sys.executable, "-c", CODE, *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, cwd=live.ROOT)


def report(*arguments: str) -> Report:
    """What the doctor says, for programs."""
    done = dovetail("doctor", *arguments, "-o", "json")
    assert done.stdout, done.stderr
    made: Report = json.loads(done.stdout)
    errors = [item for item in made["findings"] if item["severity"] == "error"]
    assert done.returncode == (1 if errors else 0)
    return made


def about(made: Report, story: Scene) -> dict[tuple[str, str], str]:
    """Findings that name the scene, by check and severity: other tests' things may be lying around."""
    return {
        (item["check"], item["severity"]): item.get("next", "")
        for item in made["findings"]
        if story.namespace in item.get("where", "")
    }


def test_what_is_wrong_is_found_and_the_rest_is_not_complained_about(
    cluster: Live, tmp_path: Path
) -> None:
    with scene(cluster) as story:
        whole, torn = (
            story.node("whole"),
            story.node("torn", labels={"nvidia.com/gpu.product": "NVIDIA-L4"}),
        )
        story.classed()
        story.slice(whole, [{"name": "gpu-0"}])
        story.put(
            "resourceslices",
            {
                "apiVersion": "resource.k8s.io/v1",
                "kind": "ResourceSlice",
                "metadata": {"name": f"{torn}-devices"},
                "spec": {
                    "driver": story.driver,
                    "nodeName": torn,
                    "pool": {"name": torn, "generation": 3, "resourceSliceCount": 2},
                    "devices": [{"name": "gpu-0"}],
                },
            },
        )
        story.classed(
            f"{story.namespace}-none",
            selectors=[{"cel": {"expression": "device.driver == 'no.such'"}}],
        )
        story.claim("for-none", exactly("gpu", f"{story.namespace}-none"))
        made = report("--kubeconfig", str(cluster.plane.kubeconfig))
        result = about(made, story)
        assert set(result) == {
            ("slices", "error"),
            ("classes", "warning"),
            ("general pods", "note"),
        }
        assert (
            result["general pods", "note"]
            == f"kubectl taint nodes {torn} nvidia.com/gpu=present:NoSchedule"
        )
        # Ours leads, has its rights, and its clock is the server's.
        severe = {item["check"] for item in made["findings"] if item["severity"] != "note"}
        assert not severe & {"versions", "kinds", "clock", "rights", "leader"}, made["findings"]
        assert made["unchecked"] == {}
        assert made["serverVersion"] == cluster.plane.parts.version

        saved = tmp_path / "saved"
        done = dovetail(
            "snapshot", "save", str(saved), "--kubeconfig", str(cluster.plane.kubeconfig)
        )
        assert done.returncode == 0, done.stderr
        offline = report("--snapshot", str(saved))
        assert about(offline, story).items() >= result.items()
        assert set(offline["unchecked"]) >= {"rights", "leader", "clock", "kinds"}


def test_pods_whose_scheduler_does_not_run_are_warned_of(cluster: Live) -> None:
    with scene(cluster) as story:
        absent = f"absent-{story.namespace}"
        story.pod("waits", schedulerName=absent)
        findings = report("--kubeconfig", str(cluster.plane.kubeconfig))["findings"]
        warning = next(finding for finding in findings if absent in finding.get("next", ""))
        assert warning["severity"] == "warning"
        assert f'1 pod waits for scheduler "{absent}", which does not run here' in warning["what"]
        assert warning["where"] == f"{story.namespace}/waits"


def test_without_rights_the_report_names_what_could_not_be_checked(cluster: Live) -> None:
    kubeconfig = cluster.plane.write_kubeconfig("nobody", token="tester-token")
    done = dovetail("doctor", "--kubeconfig", str(kubeconfig))
    assert done.returncode == 0  # nothing was seen to be wrong
    for check in ("slices", "rights", "leader", "schedulers"):
        assert f"not checked: {check} (may not be read" in done.stderr
    assert "checked: versions, kinds, clock\n" in done.stderr
    own = dovetail("doctor", "--kubeconfig", str(kubeconfig), "--service-account", "")
    assert own.returncode == 1
    assert "error    rights: your user has none of the" in own.stdout
    assert "Traceback" not in done.stderr + own.stderr


def test_rights_of_a_service_account_that_does_not_exist(cluster: Live) -> None:
    made = report(
        "--kubeconfig", str(cluster.plane.kubeconfig), "--service-account", "nowhere/nobody"
    )
    rights = [item for item in made["findings"] if item["check"] == "rights"]
    assert [finding["severity"] for finding in rights] == [
        "note"
    ]  # ours leads, so it has its rights from elsewhere
    assert "system:serviceaccount:nowhere:nobody" in rights[0]["what"]
