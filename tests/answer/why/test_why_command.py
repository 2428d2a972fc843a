"""`dovetail why` on a running cluster of five nodes and on a snapshot of it: text, JSON, exit codes, bad input."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
import yaml

from tests.cli import running

WRONG_CASE = """
apiVersion: resource.k8s.io/v1
kind: ResourceClaim
metadata: {name: four}
spec:
  devices:
    requests:
    - name: gpus
      exactly:
        deviceClassName: gpu.nvidia.com
        count: 4
        selectors:
        - cel:
            expression: device.attributes["gpu.nvidia.com"].architecture == "hopper"
---
apiVersion: v1
kind: Pod
metadata: {name: waits}
spec:
  containers: [{name: main, image: x, resources: {claims: [{name: gpus}]}}]
  resourceClaims: [{name: gpus, resourceClaimName: four}]
---
apiVersion: v1
kind: Pod
metadata: {name: runs}
spec:
  containers: [{name: main, image: x}]
"""
SENTENCE = (
    'claim gpus, request gpus: none of 16 devices satisfies `architecture == "hopper"`; '
    'seen "Hopper" on 16 devices'
)


@pytest.fixture
def state(small: Path, tmp_path: Path) -> Path:
    """The small fleet with a pod that runs and one whose selector is wrong."""
    file = tmp_path / "pods.yaml"
    file.write_text(WRONG_CASE)
    assert running.inside(small, "apply", "-f", str(file)).code == 0
    return small


def test_the_sentence_comes_first_and_nothing_is_wider_than_a_page(state: Path) -> None:
    run = running.inside(state, "why", "waits")
    assert run.code == 1
    assert " ".join(run.out.split()).startswith(f"pod default/waits waits: {SENTENCE} [config,")
    assert max(map(len, run.lines)) <= 100
    assert "next: dovetail when" in run.err


@pytest.mark.parametrize("name", ["waits", "pod/waits", "po/waits", "pods/waits"])
def test_json_has_the_cause_and_the_numbers(state: Path, name: str) -> None:
    run = running.inside(state, "why", name, "-o", "json")
    assert run.code == 1
    answer = msgspec.json.decode(run.out)
    assert answer["schedulable"] is False
    assert answer["cause"] == {
        "class": "config",
        "code": "SelectorMatchesTooFew",
        "sentence": SENTENCE,
    }
    assert [step["left"] for step in answer["funnel"]] == [5, 0, 422, 22, 0, 0]
    assert answer["holders"] == []


def test_yaml_is_the_same_answer(state: Path) -> None:
    as_json = running.inside(state, "why", "waits", "-o", "json")
    as_yaml = running.inside(state, "why", "waits", "-o", "yaml")
    assert yaml.safe_load(as_yaml.out) == msgspec.json.decode(as_json.out)


def test_a_pod_that_runs(state: Path) -> None:
    run = running.inside(state, "why", "runs")
    assert run.code == 0
    assert run.out.startswith("pod default/runs has its node: ")


def test_every_pod_that_waits_in_one_line(state: Path) -> None:
    run = running.inside(state, "why")
    assert run.code == 1
    assert run.column("POD") == ["waits"]
    assert run.column("CLASS") == ["config"]
    assert "next: dovetail why waits -n default" in run.err
    everywhere = running.inside(state, "why", "-A", "-o", "json")
    assert [item["subject"]["name"] for item in msgspec.json.decode(everywhere.out)] == ["waits"]


def test_nothing_waits_elsewhere(state: Path) -> None:
    run = running.inside(state, "why", "-n", "elsewhere")
    assert (run.code, run.out) == (0, "")
    assert "nothing waits" in run.err


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (("wait",), "pod default/wait does not exist; did you mean waits?"),
        (("waits", "-n", "x"), "pod x/waits does not exist; there is one in namespace default"),
        (("job/waits",), "job default/waits does not exist"),
        (("boat/waits",), '"boat" is no kind of workload'),
        (("/waits",), "expected NAME or KIND/NAME"),
        (("-n", "a", "-A"), "give -n or -A, not both"),
        (("waits", "-A"), "give -n instead of -A"),
        (("waits", "-o", "name"), "'name' is not one of"),
        (("-w", "--snapshot", "x"), "a snapshot does not change"),
    ],
)
def test_bad_input_is_refused_with_what_to_do(
    state: Path, arguments: tuple[str, ...], problem: str
) -> None:
    run = running.inside(state, "why", *arguments)
    assert run.code == 2
    assert problem in run.err
    assert run.out == ""


def test_a_snapshot_is_asked_like_the_cluster(state: Path, tmp_path: Path) -> None:
    saved = tmp_path / "saved"
    assert running.inside(state, "snapshot", "save", str(saved)).code == 0
    other = tmp_path / "other"
    run = running.inside(other, "why", "waits", "--snapshot", str(saved), "-o", "json")
    assert run.code == 1
    assert msgspec.json.decode(run.out)["cause"]["sentence"] == SENTENCE
