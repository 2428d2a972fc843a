"""What an upgrade would do: images on drivers, parts that do not go together, and what cannot be told."""

from __future__ import annotations

import pytest

from dovetail import errors
from dovetail.answer.stack.chain_findings import State
from dovetail.answer.stack.stack_check import Outcome, StackCheck
from tests.answer.stack import fleets
from tests.gpus import requirement_strings

CUDA_13_2 = {"NVIDIA_REQUIRE_CUDA": requirement_strings.BY_CUDA["13.2"]}


def _verdicts(check: StackCheck) -> dict[str, tuple[str, str]]:
    return {each.image: (each.now.verdict.value, each.then.verdict.value) for each in check.images}


def _against(check: StackCheck) -> set[str]:
    """The parts of the chain that count against the upgrade."""
    return {each.finding.parts for each in check.chain if each.counts}


def test_a_newer_driver_can_break_an_image_that_runs() -> None:
    node = fleets.node("h100-0", driver="570.211.01", cuda="12.8")
    check = fleets.check(
        node, fleets.pod("a", "test/own:1", "h100-0", env=CUDA_13_2), to="driver=575.57.08"
    )
    assert _verdicts(check) == {"test/own:1": ("forward", "no")}
    assert check.outcome is Outcome.NO
    assert check.images[0].breaks


def test_the_ways_in_which_an_image_runs_and_their_rows() -> None:
    pods = [
        fleets.pod("a", "test/x:cuda13.0", "a100-0"),
        fleets.pod("b", "test/x:cuda13.2", "a100-0"),
        fleets.pod("c", "test/nvidia/cuda:13.2.0-base", "a100-0"),
    ]
    check = fleets.check(
        fleets.node("a100-0", fleets.A100, driver="535.309.01", cuda="12.2"),
        *pods,
        to="driver=580.178.04",
    )
    assert _verdicts(check) == {
        "test/x:cuda13.0": ("cannot tell", "native"),
        "test/x:cuda13.2": ("cannot tell", "minor"),
        "test/nvidia/cuda:13.2.0-base": ("forward", "minor"),
    }
    rows = {each.image: str(each.then.row) for each in check.images}
    assert rows["test/x:cuda13.0"] == "driver 580 contains cuda 13.0"
    assert rows["test/x:cuda13.2"] == "cuda 13 minor-floor driver >=580"
    assert check.outcome is Outcome.GO


def test_a_driver_without_the_gpu_runs_no_image_whatever_it_needs() -> None:
    check = fleets.check(
        fleets.node("v100-0", fleets.V100),
        fleets.pod("a", "test/own:latest", "v100-0"),
        to="driver=595.91.07",
    )
    assert _verdicts(check) == {"test/own:latest": ("cannot tell", "no")}
    assert str(check.images[0].then.row) == "gpu volta supports driver ..580"
    assert [str(node.outcome) for node in check.nodes] == ["no"]


def test_an_unknown_image_is_never_a_pass_where_the_driver_changes() -> None:
    trees = (fleets.node("h100-0"), fleets.pod("a", "test/own:latest", "h100-0"))
    assert fleets.check(*trees, to="driver=595.91.07").outcome is Outcome.UNKNOWN
    assert fleets.check(*trees).images[0].counts
    assert not fleets.check(*trees, to="kubernetes=1.35").images[0].counts


def test_a_geforce_board_gets_no_compatibility_package() -> None:
    node = fleets.node("pc-0", fleets.GEFORCE, driver="570.211.01", cuda="12.8")
    check = fleets.check(
        node, fleets.pod("a", "test/nvidia/cuda:13.2.0-base", "pc-0"), to="driver=570.211.01"
    )
    assert _verdicts(check) == {"test/nvidia/cuda:13.2.0-base": ("no", "no")}


def test_an_image_for_an_older_architecture_may_carry_ptx() -> None:
    board = ("NVIDIA-B200", "blackwell", "10.0")
    node = fleets.node("b200-0", board, driver="580.95.05", cuda="13.0")
    check = fleets.check(node, fleets.pod("a", "test/x:cuda11.8", "b200-0"))
    assert check.images[0].then.verdict == "cannot tell"
    assert "PTX" in check.images[0].then.why


def test_legacy_mode_refuses_what_minor_compatibility_would_carry() -> None:
    env = {"NVIDIA_REQUIRE_CUDA": requirement_strings.BY_CUDA["12.9"]}
    node = fleets.node("h100-0", driver="550.163.01", cuda="12.4")
    check = fleets.check(
        node, fleets.pod("a", "test/own:1", "h100-0", env=env), to="driver=555.42.06"
    )
    (image,) = check.images
    assert image.then.verdict == "minor"
    assert image.then.notes[0].startswith("a toolkit in legacy mode refuses to start it: needs")


def test_work_that_waits_is_judged_by_the_best_node() -> None:
    check = fleets.check(
        fleets.node("v100-0", fleets.V100),
        fleets.node("h100-0"),
        fleets.pod("a", "test/x:cuda13.0"),
        to="driver=580.178.04",
    )
    assert [(each.pool, str(each.then.verdict)) for each in check.images] == [
        ("(no node yet)", "native")
    ]


@pytest.mark.parametrize(
    ("to", "parts"),
    [
        ("kubernetes=1.36", "kubernetes 1.34.3 to 1.36"),
        ("kubernetes=1.36", "kubernetes 1.36 with containerd 1.7.28"),
        ("kubernetes=1.35", "operator 25.10.1 with kubernetes 1.35"),
        ("containerd=2.2.1", "operator 25.10.1 with containerd 2.2.1"),
        ("toolkit=1.18.0", "toolkit 1.18.0, always"),
    ],
)
def test_parts_that_do_not_go_together(to: str, parts: str) -> None:
    toolkit = fleets.daemon_set("nvidia-container-toolkit-daemonset", "test/toolkit:v1.18.1")
    check = fleets.check(
        fleets.node("h100-0"), fleets.policy("25.10.1", "570.211.01"), toolkit, to=to
    )
    assert parts in _against(check)
    assert check.outcome is Outcome.NO


def test_a_whole_chain_that_fits() -> None:
    toolkit = fleets.daemon_set("nvidia-container-toolkit-daemonset", "test/toolkit:v1.18.1")
    check = fleets.check(
        fleets.node("h100-0"),
        fleets.policy("25.10.1", "570.211.01"),
        toolkit,
        fleets.pod("a", "test/x:cu130", "h100-0"),
        to="operator=26.3.3,driver=595.91.07,kubernetes=1.35,containerd=2.2.1,toolkit=1.19.1",
    )
    assert _against(check) == set()
    assert check.outcome is Outcome.GO


def test_a_kubelet_too_old_or_too_new() -> None:
    old = fleets.check(fleets.node("cpu-0", None, kubelet="v1.31.9"), to="kubernetes=1.35")
    assert "kubernetes 1.35 with kubelet 1.31.9" in _against(old)
    new = fleets.check(fleets.node("cpu-0", None, kubelet="v1.35.1"), server="v1.34.3")
    assert "kubernetes 1.34.3 with kubelet 1.35.1" in _against(new)


def test_known_bad_versions_apply_under_their_conditions() -> None:
    mixed = {"nvidia.com/mig.strategy": "mixed", "nvidia.com/mig-1g.10gb.count": "7"}
    parts = "driver 570.133.20, mig-mixed"
    bad = fleets.check(fleets.node("h100-0", **mixed), to="driver=570.133.20")
    assert parts in _against(bad)
    assert parts not in _against(fleets.check(fleets.node("h100-0"), to="driver=570.133.20"))
    assert parts not in _against(
        fleets.check(fleets.node("h100-0", **mixed), to="driver=570.172.08")
    )


def test_what_is_so_today_is_marked_and_the_unknown_of_today_does_not_count() -> None:
    check = fleets.check(fleets.node("h100-0", containerd="1.7.20"), to="driver=580.178.04")
    states = {each.finding.parts: (each.finding.state, each.is_new) for each in check.chain}
    assert states["kubernetes 1.34.3 with containerd 1.7.20"] == (State.NO, False)
    assert states["toolkit unknown with containerd 1.7.20"] == (State.UNKNOWN, False)
    assert "toolkit unknown with containerd 1.7.20" not in _against(check)


def test_a_pre_installed_driver_is_a_matter_of_the_node_image() -> None:
    labels = {"nvidia.com/gpu.deploy.driver": "pre-installed"}
    check = fleets.check(fleets.node("aks-0", **labels), to="driver=580.178.04")
    warnings = [each.finding.parts for each in check.chain if each.finding.state is State.WARNING]
    assert warnings == ["driver 580.178.04 on a pre-installed node"]


def test_a_version_that_is_assumed_is_a_warning() -> None:
    check = fleets.check(fleets.node("cpu-0", None), server="")
    states = {each.finding.parts: each.finding.state for each in check.chain}
    assert states["kubernetes 1.34.3"] is State.WARNING
    assert states["kubernetes 1.34.3 with containerd 1.7.28"] is State.OK


def test_ends_of_life_by_day() -> None:
    check = fleets.check(fleets.node("h100-0"), to="driver=595.91.07")
    endings = {each.component: (each.support.value, each.days) for each in check.endings}
    assert endings["kubernetes"] == ("ended", -21)
    assert endings["driver"] == ("ends soon", 134)


@pytest.mark.parametrize(
    ("to", "problem"),
    [
        ("driver=999", "no row knows it; known: 450"),
        ("driver=new", "'new' is not a version"),
        ("drivers=580", "did you mean driver?"),
        ("driver", "no version"),
        ("driver=580,driver=595", "given twice"),
        ("toolkit=1.20.0", "no node has toolkit"),
    ],
)
def test_a_target_that_cannot_be_checked_is_refused(to: str, problem: str) -> None:
    with pytest.raises(errors.InputError, match=problem):
        fleets.check(fleets.node("cpu-0", None), to=to)


def test_a_cluster_without_nodes_is_no_pass() -> None:
    with pytest.raises(errors.InputError, match="nothing to check"):
        fleets.check()
