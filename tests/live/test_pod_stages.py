"""The stages of a bound pod: stages in, the next step and its due time out."""

from __future__ import annotations

import datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dovetail import errors
from dovetail.hollow import pod_stages
from dovetail.kubetypes import meta
from dovetail.kubetypes.core import pods

NOON = datetime.datetime(2026, 3, 1, 12, tzinfo=datetime.UTC)
EXAMPLES = Path(__file__).resolve().parents[2] / "examples" / "stages"


def later(seconds: float) -> datetime.datetime:
    return NOON + datetime.timedelta(seconds=seconds)


def text(moment: datetime.datetime) -> str:
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")


def pod(
    *,
    phase: str = "Pending",
    node: str = "n1",
    labels: dict[str, str] | None = None,
    annotations: dict[str, str] | None = None,
    namespace: str = "train",
    uid: str = "u1",
    leaves: tuple[datetime.datetime, int] | None = None,
    **spec: Any,
) -> pods.Pod:
    metadata = meta.ObjectMeta(
        name="p",
        namespace=namespace,
        uid=uid,
        labels=labels or {},
        annotations=annotations or {},
        deletion_timestamp=text(leaves[0]) if leaves else None,
        deletion_grace_period_seconds=leaves[1] if leaves else None,
    )
    status = pods.PodStatus(phase=phase, start_time=text(NOON) if phase == "Running" else None)
    return pods.Pod(metadata=metadata, spec=pods.PodSpec(node_name=node, **spec), status=status)


def step(
    walker: pods.Pod, walk: pod_stages.Stages = pod_stages.DEFAULT, *, passed: float = 0
) -> pod_stages.Step | None:
    """The next step of a pod that entered its phase at noon, so many seconds later."""
    return pod_stages.next_step(walker, walk, since=NOON, now=later(passed))


def phase_of(result: pod_stages.Step | None) -> tuple[str, float]:
    assert result is not None
    assert isinstance(result.action, pod_stages.EnterPhase)
    return result.action.phase, result.wait_seconds


def read(document: str) -> pod_stages.Stages:
    return pod_stages.read(document, file="stages.yaml")


# Without any rule


def test_a_bound_pod_runs_at_once_and_forever() -> None:
    assert phase_of(step(pod())) == ("Running", 0)
    assert step(pod(phase="Running")) is None


def test_a_pod_without_a_node_goes_nowhere() -> None:
    assert step(pod(node="")) is None
    assert step(pod(node="", leaves=(NOON, 0))) is None


def test_a_pod_that_says_how_long_succeeds_after_that() -> None:
    walker = pod(phase="Running", annotations={pod_stages.RUN_SECONDS: "30"})
    assert phase_of(step(walker)) == ("Succeeded", 30)
    assert phase_of(step(walker, passed=12)) == ("Succeeded", 18)
    assert phase_of(step(walker, passed=31)) == ("Succeeded", 0)


def test_a_pod_starts_before_it_ends() -> None:
    assert phase_of(step(pod(annotations={pod_stages.RUN_SECONDS: "30"}))) == ("Running", 0)


def test_an_exit_code_fails_a_pod() -> None:
    result = step(
        pod(phase="Running", annotations={pod_stages.RUN_SECONDS: "2.5", pod_stages.EXIT_CODE: "3"})
    )
    assert phase_of(result) == ("Failed", 2.5)
    assert result is not None
    assert isinstance(result.action, pod_stages.EnterPhase)
    assert result.action.exit_code == 3
    assert phase_of(step(pod(phase="Running", annotations={pod_stages.EXIT_CODE: "0"}))) == (
        "Succeeded",
        0,
    )


@pytest.mark.parametrize(
    ("name", "value"),
    [
        (pod_stages.RUN_SECONDS, "soon"),
        (pod_stages.RUN_SECONDS, "-1"),
        (pod_stages.RUN_SECONDS, "nan"),
        (pod_stages.RUN_SECONDS, "inf"),
        (pod_stages.EXIT_CODE, "one"),
        (pod_stages.EXIT_CODE, "256"),
        (pod_stages.EXIT_CODE, "-1"),
    ],
)
def test_an_annotation_that_cannot_be_read_fails_the_pod_and_says_so(name: str, value: str) -> None:
    result = step(pod(phase="Running", annotations={name: value}))
    assert phase_of(result) == ("Failed", 0)
    assert result is not None
    assert isinstance(result.action, pod_stages.EnterPhase)
    assert result.action.reason == "InvalidAnnotation"
    assert name in result.action.message
    assert value in result.action.message


@pytest.mark.parametrize("phase", ["Succeeded", "Failed"])
def test_what_has_ended_stays_so(phase: str) -> None:
    assert step(pod(phase=phase, annotations={pod_stages.RUN_SECONDS: "1"})) is None


def test_a_deadline_stops_a_pod_before_its_own_end() -> None:
    walker = pod(
        phase="Running", annotations={pod_stages.RUN_SECONDS: "30"}, active_deadline_seconds=10
    )
    result = step(walker, passed=4)
    assert phase_of(result) == ("Failed", 6)
    assert result is not None
    assert isinstance(result.action, pod_stages.EnterPhase)
    assert result.action.reason == "DeadlineExceeded"
    early = pod(
        phase="Running", annotations={pod_stages.RUN_SECONDS: "3"}, active_deadline_seconds=10
    )
    assert phase_of(step(early)) == ("Succeeded", 3)
    assert phase_of(step(pod(phase="Running", active_deadline_seconds=10), passed=99)) == (
        "Failed",
        0,
    )


# Leaving


def test_a_terminating_pod_is_let_go_after_the_configured_time_at_most_its_grace() -> None:
    walk = pod_stages.Stages(terminate_seconds=5)
    leaving = pod(phase="Running", leaves=(later(30), 30))  # deleted at noon
    result = step(leaving, walk)
    assert result is not None
    assert result.wait_seconds == 5
    assert isinstance(result.action, pod_stages.Delete)
    assert result.action.last_phase is not None
    assert (result.action.last_phase.phase, result.action.last_phase.exit_code) == ("Failed", 143)
    hurried = step(pod(phase="Running", leaves=(later(2), 2)), walk)
    assert hurried is not None
    assert hurried.wait_seconds == 2
    late = step(leaving, walk, passed=60)
    assert late is not None
    assert late.wait_seconds == 0


def test_an_ended_pod_is_let_go_at_once_and_only_once() -> None:
    result = step(
        pod(phase="Succeeded", leaves=(later(30), 30)), pod_stages.Stages(terminate_seconds=20)
    )
    assert result == pod_stages.Step(0, pod_stages.Delete(last_phase=None))
    held_by_finalizers = pod(phase="Failed", leaves=(NOON, 0))
    assert step(held_by_finalizers) is None


# Rules


RULES = """
rules:
  - namespace: "train*"
    labels: {app: "llm-?"}
    steps:
      - {after: 3, phase: Running}
      - after: [10, 20]
        phase: Failed
        exitCode: 137
        reason: OOMKilled
        containers: [{name: side, exitCode: 0}]
  - annotations: {example.com/stuck: "true"}
    steps: []
  - namespace: batch
    steps: [{after: 7, phase: Succeeded}]
"""


def test_the_first_rule_that_matches_counts() -> None:
    walk = read(RULES)
    mine = pod(namespace="training", labels={"app": "llm-7"})
    assert phase_of(step(mine, walk)) == ("Running", 3)
    assert phase_of(step(pod(namespace="training", labels={"app": "llm-77"}), walk)) == (
        "Running",
        0,
    )
    assert phase_of(step(pod(namespace="other", labels={"app": "llm-7"}), walk)) == ("Running", 0)
    assert step(pod(annotations={"example.com/stuck": "true"}), walk) is None
    assert phase_of(step(pod(namespace="batch"), walk)) == ("Succeeded", 7)


def test_an_end_carries_what_the_rule_says_of_it() -> None:
    result = step(pod(phase="Running", labels={"app": "llm-7"}), read(RULES))
    assert result is not None
    action = result.action
    assert isinstance(action, pod_stages.EnterPhase)
    assert (action.phase, action.exit_code, action.reason) == ("Failed", 137, "OOMKilled")
    assert action.containers == (pod_stages.ContainerEnd(name="side", exit_code=0),)


@given(st.text(max_size=40), st.floats(0, 1000), st.floats(0, 1000))
def test_a_span_is_resolved_by_the_uid_alone(uid: str, low: float, extra: float) -> None:
    ends = pod_stages.Stage(phase="Succeeded", after=(low, low + extra))
    walk = pod_stages.Stages(
        rules=(pod_stages.Rule(steps=(pod_stages.Stage(phase="Running"), ends)),)
    )
    _, first = phase_of(step(pod(phase="Running", uid=uid), walk))
    _, again = phase_of(step(pod(phase="Running", uid=uid, labels={"other": "x"}), walk))
    assert first == again
    assert low <= first <= low + extra


def test_a_span_spreads_pods_over_all_of_it() -> None:
    ends = pod_stages.Stage(phase="Succeeded", after=(0, 100))
    walk = pod_stages.Stages(rules=(pod_stages.Rule(steps=(ends,)),))
    times = sorted(phase_of(step(pod(uid=f"u{index}"), walk))[1] for index in range(200))
    assert times[0] < 10
    assert times[-1] > 90
    assert len(set(times)) == 200


def test_a_pods_own_word_comes_before_its_rule() -> None:
    walker = pod(
        phase="Running", labels={"app": "llm-7"}, annotations={pod_stages.RUN_SECONDS: "1"}
    )
    assert phase_of(step(walker, read(RULES))) == ("Succeeded", 1)
    waiting = pod(labels={"app": "llm-7"}, annotations={pod_stages.RUN_SECONDS: "1"})
    assert phase_of(step(waiting, read(RULES))) == ("Running", 3)


# Reading


@pytest.mark.parametrize("file", sorted(EXAMPLES.glob("*.yaml")), ids=lambda path: path.name)
def test_the_examples_can_be_read(file: Path) -> None:
    assert pod_stages.read(file.read_text(), file=file.name).rules


@pytest.mark.parametrize(
    ("document", "place"),
    [
        ("rules: [{steps: [{phase: Running, afer: 3}]}]", "rules[0].steps[0]"),
        ("rules: [{steps: [{phase: Sleeping}]}]", "rules[0].steps[0].phase"),
        ("rules: [{steps: [{phase: Running, after: -1}]}]", "rules[0].steps[0].after"),
        ("rules: [{steps: [{phase: Running, after: [5, 2]}]}]", "rules[0].steps[0].after"),
        ("rules: [{steps: [{phase: Succeeded}, {phase: Running}]}]", "rules[0].steps[1].phase"),
        ("rules: [{steps: [{phase: Failed, exitCode: 0}]}]", "rules[0].steps[0].exitCode"),
        ("rules: [{steps: [{phase: Succeeded, exitCode: 1}]}]", "rules[0].steps[0].exitCode"),
        ("rules: [{namespace: x}]", "rules[0]"),
        ("terminateSeconds: later", "terminateSeconds"),
        ("kind: Stages", "stages.yaml"),
        ("[]", "stages.yaml"),
        ("{", "stages.yaml"),
        ("a: 1\n---\nb: 2", "expected one document"),
    ],
)
def test_what_cannot_be_played_is_refused_with_its_place(document: str, place: str) -> None:
    with pytest.raises(errors.InputError) as caught:
        read(document)
    assert str(caught.value).startswith("stages.yaml: ")
    assert place in str(caught.value)


# When it began


def test_the_object_says_since_when() -> None:
    scheduled = pods.PodCondition(
        type="PodScheduled", status="True", last_transition_time=text(later(5))
    )
    waiting = pods.Pod(status=pods.PodStatus(phase="Pending", conditions=(scheduled,)))
    assert pod_stages.phase_since(waiting) == later(5)
    running = pods.Pod(
        status=pods.PodStatus(phase="Running", conditions=(scheduled,), start_time=text(later(9)))
    )
    assert pod_stages.phase_since(running) == later(9)
    assert pod_stages.phase_since(pods.Pod()) is None
