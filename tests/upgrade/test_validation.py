"""A node after its upgrade: what lets work return, what is waited for, and what keeps the node fenced."""

from __future__ import annotations

import msgspec
import pytest

from dovetail import errors
from dovetail.answer.stack.stack_facts import fact, unknown
from dovetail.model import node_annotations
from dovetail.upgrade.validation import (
    validation_checks,
    validation_facts,
    validation_job,
    validation_verdict,
)
from dovetail.upgrade.validation.validation_checks import Check, Checks, Subject
from dovetail.upgrade.validation.validation_facts import NodeFacts, PoolState
from dovetail.upgrade.validation.validation_verdict import Invalid, NotYet, Valid, Verdict

BEFORE = NodeFacts(
    node="gpu-01",
    gpus=8,
    driver=fact("580.95.05", "slices"),
    toolkit=fact("1.18.0", "pod"),
    pool=PoolState(slices=2, expected=2, devices=8, generation=3),
    allocatable={},
)
AFTER = msgspec.structs.replace(
    BEFORE,
    driver=fact("595.91.7", "slices"),
    rehearsal=node_annotations.Rehearsal(id="a", result="ok", device="gpu-0"),
)
TARGET = {"driver": "595.91.07"}


def judged(
    facts: NodeFacts, checks: Checks = validation_checks.DEFAULTS, *, waited: float = 30.0
) -> Verdict:
    return validation_verdict.validate(
        checks,
        facts,
        baseline=validation_facts.recorded(BEFORE),
        target=TARGET,
        waited_seconds=waited,
    )


def changed(**fields: object) -> NodeFacts:
    return msgspec.structs.replace(AFTER, **fields)


def only(*checks: Check) -> Checks:
    return Checks(checks=checks)


def test_a_node_that_is_as_before_with_the_new_driver_may_take_work() -> None:
    assert judged(AFTER) == Valid()


def test_a_missing_gpu_is_waited_for_and_then_keeps_the_node_fenced() -> None:
    verdict = judged(changed(gpus=7))
    assert isinstance(verdict, NotYet)
    (reason,) = verdict.missing
    assert str(reason).startswith("gpu-count: needs 8 GPUs; has 7; next: ")
    assert judged(changed(gpus=7), waited=600.0) == Invalid((reason,))


def test_the_old_driver_is_waited_for_and_a_third_one_is_an_error() -> None:
    assert isinstance(judged(changed(driver=BEFORE.driver)), NotYet)
    verdict = judged(changed(driver=fact("570.172.08", "slices")))
    assert isinstance(verdict, Invalid)
    assert "needs driver 595.91.07; has 570.172.08" in str(verdict.reasons[0])


@pytest.mark.parametrize(
    "pool",
    [PoolState(), PoolState(slices=1, expected=2, devices=4, generation=4)],
    ids=["no slice", "half a generation"],
)
def test_a_pool_that_is_not_whole_is_not_ready(pool: PoolState) -> None:
    verdict = judged(changed(pool=pool))
    assert isinstance(verdict, NotYet)
    assert [reason.check for reason in verdict.missing] == ["slice"]


def test_an_agent_that_could_not_prepare_a_claim_keeps_the_node_fenced_at_once() -> None:
    refused = node_annotations.Rehearsal(id="a", result="refused", message="no such GPU")
    verdict = judged(changed(rehearsal=refused))
    assert isinstance(verdict, Invalid)
    assert "refused: no such GPU" in str(verdict.reasons[0])


def test_what_nothing_can_judge_is_listed_and_holds_the_node_back_where_it_is_required() -> None:
    facts = changed(rehearsal=None, toolkit=unknown("the host has it"))
    verdict = judged(facts)
    assert isinstance(verdict, Valid)
    assert [reason.check for reason in verdict.unknown] == ["toolkit", "prepare"]
    strict = only(Check(check=Subject.PREPARE, required=True))
    assert isinstance(judged(facts, strict), NotYet)


def test_without_a_record_a_required_check_never_passes_silently() -> None:
    verdict = validation_verdict.validate(
        validation_checks.DEFAULTS, AFTER, baseline=None, target={}, waited_seconds=0.0
    )
    assert isinstance(verdict, NotYet)
    checks = [reason.check for reason in verdict.missing]
    assert checks == ["gpu-count", "driver", "allocatable"]


def test_a_slow_fabric_and_a_failed_diagnosis_keep_the_node_fenced() -> None:
    nccl = Check(check=Subject.NCCL, min_gigabytes_per_second=150.0, image="nccl:1")
    dcgm = Check(check=Subject.DCGM, level=2, image="dcgm:1")
    assert isinstance(judged(AFTER, only(nccl, dcgm)), NotYet)
    results = {
        "nccl": validation_job.result_of(nccl, "busbw=112.5\n"),
        "dcgm": validation_job.result_of(dcgm, ""),
    }
    verdict = judged(changed(jobs=results), only(nccl, dcgm))
    assert isinstance(verdict, Invalid)
    assert [reason.have for reason in verdict.reasons] == [
        "112.5 GB/s",
        "the container left no termination message",
    ]
    good = {
        "nccl": validation_job.result_of(nccl, "busbw=212"),
        "dcgm": validation_job.result_of(dcgm, "ok"),
    }
    assert judged(changed(jobs=good), only(nccl, dcgm)) == Valid()


def test_a_job_runs_on_its_node_with_all_gpus_and_ends() -> None:
    check = Check(check=Subject.DCGM, level=3, image="dcgm:1")
    job = validation_job.job(check, "gpu-01", gpus=8, attempt="w1")
    pod = job["spec"]["template"]["spec"]
    assert pod["nodeSelector"] == {"kubernetes.io/hostname": "gpu-01"}
    assert "dcgmi diag -r 3" in pod["containers"][0]["command"][2]
    assert job["spec"]["activeDeadlineSeconds"] == 3_600


def test_the_record_survives_the_annotation_and_an_unreadable_one_is_none() -> None:
    record = validation_facts.recorded(BEFORE)
    text = validation_facts.encoded(record)
    assert validation_facts.baseline_of({node_annotations.BASELINE: text}) == record
    assert validation_facts.baseline_of({node_annotations.BASELINE: "{"}) is None


def test_checks_are_read_from_a_file() -> None:
    text = """
settleSeconds: 900
checks:
  - gpu-count
  - check: driver
    expect: 595.91.07
  - check: dcgm
    level: 2
    image: dcgm:4
    required: false
"""
    checks = validation_checks.read(text, "checks.yaml")
    assert checks.settle_seconds == 900
    assert [check.check for check in checks.checks] == ["gpu-count", "driver", "dcgm"]
    assert not checks.checks[2].is_required


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("checks: []", "c.yaml: checks: 0 of them"),
        ("checks: [vram]", "checks[0]: check: 'vram': expected one of gpu-count"),
        (
            "checks: [{check: slice, expect: 3}]",
            "slice has no field 'expect'; known: check, required",
        ),
        ("checks: [{check: dcgm, level: 2}]", "checks[0]: image is missing"),
        ("checks: [{check: dcgm, level: 9, image: a}]", "level: 9: dcgmi diag has levels 1 to 4"),
        ("checks: [{check: nccl, image: a}]", "minGigabytesPerSecond: expected a number above 0"),
        ("checks: [{check: gpu-count, expect: many}]", "expected a number of GPUs"),
        ("checks: [driver, driver]", "checks[1]: driver stands there twice"),
        ("settleSeconds: soon\nchecks: [driver]", "settleSeconds: 'soon'"),
        ("check: [driver]", "expected a list `checks`"),
        ("checks: [driver]\nmore: 1", "unknown field 'more'"),
        ("checks: [{check: driver, required: perhaps}]", "checks[0]: Expected `bool | null`"),
    ],
)
def test_a_file_that_cannot_be_used_is_refused_with_the_place(text: str, message: str) -> None:
    with pytest.raises(errors.InputError) as refusal:
        validation_checks.read(text, "c.yaml")
    assert message in str(refusal.value)
