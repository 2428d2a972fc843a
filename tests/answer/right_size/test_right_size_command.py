"""`dovetail right-size`: the table, the reasons, and patches that make pods run on the smaller device."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from dovetail.model.accounting import records
from tests.answer.right_size import building
from tests.answer.right_size.test_size_patches import deployment, template
from tests.cli import running
from tests.cli.conftest import _small, small

__all__ = ["_small", "small"]

NAMESPACE = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "team"}}


def saved(directory: Path, given: records.Records) -> str:
    path = directory / "records.json"
    path.write_bytes(msgspec.json.encode(given))
    return str(path)


def of_pod(pod: dict[str, Any]) -> records.Records:
    """Records about a pod that runs: 8 GiB of an H100 for eight days."""
    metadata = pod["metadata"]
    (owner,) = metadata["ownerReferences"]
    held_by = records.Owner(
        "team", metadata["name"], metadata["uid"], owner["kind"], owner["name"], "",
        metadata["labels"],
    )  # fmt: skip
    return building.work(metadata["name"], owner_=held_by)


def test_records_alone_give_advice_without_patches(tmp_path: Path) -> None:
    file = saved(tmp_path, building.work())
    run = running.inside(tmp_path, "right-size", "--history", file, "--no-cluster")
    assert run.code == 0
    assert run.lines[1].split()[:5] == ["deployment/team/chat", "whole", "GPU", "MIG", "1g.10gb"]
    assert "shrink whole GPU -> MIG 1g.10gb" in run.out
    assert "not smaller: there is nothing smaller on this board" in run.out
    assert "164.6 of 192.0 GPU-hours saved" in run.out
    assert "back-test: the rule, asked halfway, held until the end for 1 of 1" in run.out


def test_a_cluster_that_cannot_be_read_costs_the_patches_only(tmp_path: Path) -> None:
    file = saved(tmp_path, building.work())
    run = running.inside(tmp_path / "none", "right-size", "--history", file, "-o", "json")
    assert run.code == 0
    assert "no cluster was read" in run.err
    (advice,) = msgspec.json.decode(run.out)["work"]
    assert advice["recommended"]["profile"] == "1g.10gb"
    assert advice["whatIf"] is None


def test_prices_and_partial_figures_are_shown(tmp_path: Path) -> None:
    prices = tmp_path / "prices.yaml"
    prices.write_text("h100: 2.5\n")
    gap = records.Gap(records.GapSource.METRICS, 0, 1)
    file = saved(tmp_path, building.with_field(building.work(), gaps=(gap,)))
    run = running.inside(
        tmp_path, "right-size", "--history", file, "--no-cluster", "--prices", str(prices)
    )
    assert "411.43" in run.lines[1]
    assert "8.0 GiB*" in run.lines[1]
    assert "* partial: 1 gap without samples while GPUs were held" in run.out


def test_nothing_measured_is_said(tmp_path: Path) -> None:
    file = saved(tmp_path, building.with_field(building.work(), usage=()))
    run = running.inside(tmp_path, "right-size", "--history", file, "--no-cluster")
    assert run.code == 0
    assert "no usage was measured in this window: nothing is recommended" in run.out
    assert "?" in run.lines[1]


def test_the_window_and_the_namespace_choose(tmp_path: Path) -> None:
    file = saved(tmp_path, building.work())
    other = running.inside(tmp_path, "right-size", "--history", file, "--no-cluster", "-n", "other")
    assert "no work held a GPU in this window" in other.out
    short = running.inside(
        tmp_path, "right-size", "--history", file, "--no-cluster", "--window", "2d", "-o", "json"
    )
    (advice,) = msgspec.json.decode(short.out)["work"]
    assert advice["gpuHoursHeld"] == 48
    assert advice["verdict"] == "unknown"  # 48 samples


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ((), "Missing option '--history'"),
        (("--history", "absent.json"), "absent.json: cannot be read"),
        (("--history", "-", "--window", "soon"), '--window "soon": expected a duration'),
        (("--history", "-"), "<stdin>: expected an object with assets, allocations"),
        (("--history", "-", "--prices", "absent.yaml"), "<stdin>: expected an object"),
    ],
)
def test_bad_input(tmp_path: Path, options: tuple[str, ...], problem: str) -> None:
    run = running.inside(tmp_path, "right-size", *options, "--no-cluster", stdin="[]")
    assert run.code == 2
    assert problem in run.err


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ('{"usage": [{"asset": "a", "allocation": "", "start": 0, "end": 99999999999999999}]}', "usage[0].end"),
        ('{"assets": [{"asset": "a", "node": "n", "product": "p", "start": -1}]}', "assets[0].start"),
        ('{"other": ' + "[" * 100_000, "<stdin>: not JSON"),
    ],
)  # fmt: skip
def test_hostile_records_are_refused_by_name(tmp_path: Path, text: str, problem: str) -> None:
    run = running.inside(tmp_path, "right-size", "--history", "-", "--no-cluster", stdin=text)
    assert run.code == 2
    assert problem in run.err


@pytest.mark.slow
def test_patches_make_the_pod_run_on_the_smaller_device(small: Path, tmp_path: Path) -> None:
    wanted = 'device.attributes["gpu.nvidia.com"].productName.startsWith("NVIDIA H100")'
    manifests = msgspec.json.encode(
        {"apiVersion": "v1", "kind": "List", "items": [NAMESPACE, template(wanted), deployment()]}
    )
    applied = running.inside(small, "apply", "-f", "-", stdin=manifests.decode())
    assert applied.code == 0, applied.err
    pod = _running_pod(small)
    file = saved(tmp_path, of_pod(pod))
    run = running.inside(small, "right-size", "--history", file, "-o", "json")
    (advice,) = msgspec.json.decode(run.out)["work"]
    assert advice["isPatchable"]
    assert advice["whatIf"]["fitBefore"] == 15
    assert advice["whatIf"]["fitAfter"] == 16 * 7 - 1
    shown = running.inside(small, "right-size", "--history", file, "-o", "wide")
    assert "kubectl delete resourceclaimtemplate.resource.k8s.io gpu -n team" in shown.out

    for patch in advice["patches"]:
        _carry_out(small, patch)
    after = _running_pod(small, other_than=pod["metadata"]["uid"])
    (status,) = after["status"]["resourceClaimStatuses"]
    claim = _object(small, "resourceclaim", status["resourceClaimName"])
    (result,) = claim["status"]["allocation"]["devices"]["results"]
    assert "mig-1g10gb" in result["device"]


def _carry_out(state: Path, patch: dict[str, Any]) -> None:
    ref = patch["object"]
    if patch.get("delete"):
        name = f"{ref['kind'].lower()}/{ref['name']}"
        run = running.inside(state, "delete", name, "-n", ref["namespace"])
    else:
        assert "create" in patch
        text = msgspec.json.encode(patch["create"]).decode()
        run = running.inside(state, "create", "-f", "-", stdin=text)
    assert run.code == 0, run.err


def _running_pod(state: Path, *, other_than: str = "") -> dict[str, Any]:
    def pods(run: running.Run) -> list[dict[str, Any]]:
        items = msgspec.json.decode(run.out)["items"]
        return [
            pod
            for pod in items
            if pod["metadata"]["uid"] != other_than
            and pod.get("status", {}).get("phase") == "Running"
        ]

    run = running.until(
        state, "get", "pods", "-n", "team", "-o", "json", shows=pods, what="a running pod"
    )
    return pods(run)[0]


def _object(state: Path, kind: str, name: str) -> dict[str, Any]:
    run = running.inside(state, "get", f"{kind}/{name}", "-n", "team", "-o", "json")
    tree: dict[str, Any] = msgspec.json.decode(run.out)
    return tree
