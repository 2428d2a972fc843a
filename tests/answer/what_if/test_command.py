"""`dovetail what-if` on a running cluster: what it prints, what it refuses, and that it is what happens."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.cli import running

JOB = """
apiVersion: batch/v1
kind: Job
metadata: {name: fine-tune, namespace: default}
spec:
  parallelism: 3
  completions: 3
  template:
    metadata: {annotations: {dovetail.dev/gang-min: "3"}}
    spec:
      restartPolicy: Never
      containers:
        - {name: main, image: training, resources: {limits: {nvidia.com/gpu: %d}}}
"""

TEMPLATE = """
apiVersion: resource.k8s.io/v1
kind: ResourceClaimTemplate
metadata: {name: two-l4, namespace: default}
spec:
  spec:
    devices:
      requests:
        - name: gpus
          exactly:
            deviceClassName: gpu.nvidia.com
            count: 2
            selectors:
              - cel:
                  expression: device.attributes["gpu.nvidia.com"].productName == "NVIDIA L4"
"""
POD = """
apiVersion: v1
kind: Pod
metadata: {name: two, namespace: default}
spec:
  resourceClaims: [{name: gpus, resourceClaimTemplateName: two-l4}]
  containers: [{name: main, image: x, resources: {claims: [{name: gpus}]}}]
"""


@pytest.fixture
def state(small: Path) -> Path:
    """The small fleet with the line of the example: llama and opt wait."""
    assert running.inside(small, "apply", "-f", str(running.EXAMPLES / "backfill.yaml")).code == 0
    return small


def asked(state: Path, *options: str) -> Any:
    run = running.inside(state, "what-if", *options, "-o", "json")
    assert run.code == 0, run.err
    return msgspec.json.decode(run.out)


def test_a_sentence_the_assumptions_numbers_and_lists(state: Path) -> None:
    run = running.inside(state, "what-if", "--add", "2xnode/h100-1", "--price", "h100=2.5")
    assert run.code == 0
    assert run.lines[0].endswith("waiting jobs would start now, 0 today")
    assert run.lines[2] == (
        "assumed: 2 nodes like h100-1: 8 x H100 80GB HBM3, empty, with its labels (rack r1)"
    )
    numbers = {line.split("   ")[0]: line.split()[-3:] for line in run.lines}
    assert numbers["nodes"] == ["5", "7", "+2"]
    assert numbers["cost per hour"] == ["40", "80", "+40"]
    assert "next: dovetail queue --pending" in run.err


def test_json_holds_both_sides_and_the_difference_and_is_the_same_twice(state: Path) -> None:
    saved = state.parent / "saved-what-if"
    assert running.inside(state, "snapshot", "save", str(saved)).code == 0
    options = ("--snapshot", str(saved), "--end", "pod/bert", "-o", "json")
    first, second = (running.inside(state, "what-if", *options) for _ in range(2))
    assert first.out == second.out
    answer = msgspec.json.decode(first.out)
    assert list(answer) == ["now", "horizonSeconds", "changes", "before", "after", "difference"]
    assert answer["changes"] == [
        {
            "change": "--end pod/bert",
            "assumption": "pod/default/bert ends now, with 1 pod, 1 running",
        }
    ]
    assert [entry["pod"] for entry in answer["difference"]["stopped"]] == ["default/bert"]


def test_changes_apply_in_the_order_given_across_options(state: Path) -> None:
    answer = asked(
        state, "--add", "1xnode/l4-0", "--cordon", "node/l4-0-added-1", "--add", "1xnode/l4-1"
    )
    assert [change["change"] for change in answer["changes"]] == [
        "--add 1xnode/l4-0",
        "--cordon node/l4-0-added-1",
        "--add 1xnode/l4-1",
    ]
    assert answer["after"]["gpus"]["L4"]["cordoned"] == 2


def test_work_of_a_file_starts_where_it_was_answered_to(state: Path, tmp_path: Path) -> None:
    file = tmp_path / "job.yaml"
    file.write_text(JOB % 2)
    answer = asked(state, "-f", str(file))
    (job,) = answer["difference"]["newWork"]
    assert (job["work"], job["pods"], job["gpus"]) == ("default/job/fine-tune", 3, 6)
    assert job["nodes"]

    assert running.inside(state, "apply", "-f", str(file)).code == 0
    shown = running.inside(state, "get", "pods")
    nodes = [
        node
        for name, node in zip(shown.column("NAME"), shown.column("NODE"), strict=True)
        if name.startswith("fine-tune")
    ]
    assert sorted(nodes) == sorted(
        node for node, count in job["nodes"].items() for _ in range(count)
    )


def test_a_file_may_use_what_an_earlier_one_brings(state: Path, tmp_path: Path) -> None:
    template, pod = tmp_path / "template.yaml", tmp_path / "pod.yaml"
    template.write_text(TEMPLATE)
    pod.write_text(POD)
    answer = asked(state, "-f", str(template), "-f", str(pod))
    (job,) = answer["difference"]["newWork"]
    assert (job["work"], job["gpus"]) == ("default/pod/two", 2)
    assert [name.partition("-")[0] for name in job["nodes"]] == ["l4"]
    assert running.inside(state, "what-if", "-f", str(pod), "-f", str(pod)).code == 2


def test_prices_may_stand_in_a_file(state: Path, tmp_path: Path) -> None:
    prices = tmp_path / "prices.yaml"
    prices.write_text("h100: 2.5\nl4: 0.5\n")
    answer = asked(state, "--cordon", "node/l4-0", "--price", str(prices))
    assert answer["before"]["costPerHour"] == 16 * 2.5 + 6 * 0.5
    prices.write_text("- h100\n")
    run = running.inside(state, "what-if", "--cordon", "node/l4-0", "--price", str(prices))
    assert (run.code, run.out) == (2, "")
    assert "expected lines such as h100: 2.5" in run.err


def test_work_that_cannot_start_says_so(state: Path, tmp_path: Path) -> None:
    file = tmp_path / "job.yaml"
    file.write_text(JOB % 16)
    run = running.inside(state, "what-if", "-f", str(file))
    assert "  default/job/fine-tune: 3 pods, 48 GPUs, not within 24h" in run.lines


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ((), "give at least one change"),
        (("--remove", "node/h100-9"), 'there is no node "h100-9"; did you mean h100-1 or h100-0?'),
        (("--remove", "node/l4-0", "--drain", "node/l4-0"), "an earlier change removes node l4-0"),
        (("--set", "queue/x.quota=-1"), "quota must not be negative"),
        (("--set", "node/l4-0.mig=1g.10gb"), "L4 has no MIG"),
        (("--cordon", "node/l4-0", "--horizon", "soon"), "expected a duration of at most a year"),
        (("--add", "1xh100", "--price", "h100=cheap"), "is not a price of one GPU-hour"),
        (("-f", "missing.yaml"), "missing.yaml"),
    ],
)
def test_what_cannot_be_is_exit_code_2_without_an_answer(
    state: Path, options: tuple[str, ...], message: str
) -> None:
    run = running.inside(state, "what-if", *options)
    assert (run.code, run.out) == (2, "")
    assert message in run.err


@pytest.mark.parametrize(
    ("manifest", "message"),
    [
        ("kind: Job\nmetadata: {name: x}", "apiVersion"),
        (JOB.replace("parallelism: 3", "parallelism: many") % 1, "parallelism"),
        (
            JOB.replace("namespace: default", "namespace: nowhere") % 1,
            'namespaces "nowhere" not found',
        ),
        (
            "apiVersion: jobset.x-k8s.io/v1alpha2\nkind: JobSet\nmetadata: {name: x}\nspec: {}",
            "no controller here creates the pods of a JobSet",
        ),
        (
            "apiVersion: v1\nkind: Pod\nmetadata: {name: bert}\n"
            "spec: {containers: [{name: main, image: x}]}",
            "Pod default/bert exists already",
        ),
    ],
)
def test_a_file_with_a_broken_manifest_is_refused(
    state: Path, tmp_path: Path, manifest: str, message: str
) -> None:
    file = tmp_path / "broken.yaml"
    file.write_text(manifest)
    run = running.inside(state, "what-if", "-f", str(file))
    assert (run.code, run.out) == (2, "")
    assert message in run.err
    assert "broken.yaml" in run.err
