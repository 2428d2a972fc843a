"""What `apply` says while the scheduler of the embedded cluster works, and how soon pods have a reason there."""

from __future__ import annotations

import io
import sys
from pathlib import Path

import pytest

from dovetail.cli.cluster import settling_notice
from tests.cli import running

TYPO = """
apiVersion: v1
kind: Pod
metadata: {name: typo}
spec:
  resourceClaims: [{name: gpu, resourceClaimTemplateName: onne}]
  containers: [{name: main, image: x, resources: {claims: [{name: gpu}]}}]
"""
GATED = """
apiVersion: v1
kind: Pod
metadata: {name: gated}
spec:
  schedulingGates: [{name: example.com/later}]
  containers: [{name: main, image: x}]
"""


def test_apply_ends_with_the_reason_of_a_pod_whose_template_is_not_there(state: Path) -> None:
    run = running.inside(state, "apply", "-f", "-", stdin=TYPO)
    assert run.code == 0
    assert "still to give" not in run.err
    (why,) = running.inside(state, "get", "pods", "-o", "wide").column("WHY NOT")
    assert why.startswith("resourceClaims gpu: template onne does not exist in namespace default")


def test_a_pod_that_names_a_node_which_is_not_there_is_not_waited_for(state: Path) -> None:
    lost = GATED.replace("schedulingGates: [{name: example.com/later}]", "nodeName: nonode")
    run = running.inside(state, "apply", "-f", "-", stdin=lost)
    assert (run.code, "still to give" in run.err) == (0, False)


def test_a_gated_pod_says_which_gate_it_waits_behind(state: Path) -> None:
    assert running.inside(state, "apply", "-f", "-", stdin=GATED).code == 0
    (why,) = running.inside(state, "get", "pods", "-o", "wide").column("WHY NOT")
    assert "gate" in why.lower()
    assert "of its pods are there" not in why


def test_a_quick_answer_needs_no_words(capsys: pytest.CaptureFixture[str]) -> None:
    notice = settling_notice.SettlingNotice(iter((0.0, 0.5, 0.9)).__next__)
    notice.report(0, 2)
    notice.report(1, 2)
    notice.report(2, 2)
    notice.finish()
    assert capsys.readouterr().err == ""


def test_a_missing_answer_is_said_with_numbers_and_the_next_step(
    capsys: pytest.CaptureFixture[str],
) -> None:
    notice = settling_notice.SettlingNotice(iter((0.0, 10.0, 10.0)).__next__)
    notice.report(0, 4)
    notice.report(3, 4)
    notice.finish()
    assert capsys.readouterr().err == (
        "the scheduler has 1 of 4 answers still to give after 10 s;"
        " dovetail get pods -A -w shows them as they come\n"
    )


class Screen(io.StringIO):
    """A terminal that keeps what it was sent."""

    def isatty(self) -> bool:
        return True


def test_a_slow_answer_is_waited_for_in_words_on_a_terminal(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    screen = Screen()
    monkeypatch.setattr(sys, "stderr", screen)
    notice = settling_notice.SettlingNotice(iter((0.0, 0.9, 1.1, 1.2, 2.0)).__next__)
    for answered in (0, 1, 3, 3, 4):
        notice.report(answered, 4)
    notice.finish()
    line = "waiting for the scheduler: 3 of 4 answers"
    assert screen.getvalue() == f"\r{line}\r{' ' * len(line)}\r"
