"""`dovetail capacity` on a running cluster."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from tests.cli import running
from tests.cli.conftest import _small, small

__all__ = ["_small", "small"]

H100 = "H100 80GB HBM3"


def test_every_type_in_every_size(small: Path) -> None:
    shown = running.inside(small, "capacity")
    assert shown.code == 0
    rows = [line.split() for line in shown.lines[1:] if "GPU" in line and H100 in line]
    assert [(row[0], row[-2]) for row in rows] == [("1", "16"), ("2", "8"), ("4", "4"), ("8", "2")]


def test_one_shape_as_json(small: Path) -> None:
    run = running.inside(small, "capacity", "--gpus", "8", "--type", "h100", "-o", "json")
    (shape,) = msgspec.json.decode(run.out)["shapes"]
    assert (shape["now"], shape["afterMoving"], shape["ifLowerYields"]) == (2, 2, 2)
    assert {level["level"]: level["largest"] for level in shape["levels"]} == {
        "cluster": 2,
        "node": 1,
    }


def test_a_slice(small: Path) -> None:
    run = running.inside(small, "capacity", "--mig", "3g.40gb", "-o", "json")
    (shape,) = msgspec.json.decode(run.out)["shapes"]
    assert shape["now"] == 32  # two on each of sixteen boards


def test_the_shape_of_a_pod_and_a_gang_that_fits(small: Path) -> None:
    example = str(running.EXAMPLES / "eight-gpus-one-node.yaml")
    assert running.inside(small, "apply", "-f", example).code == 0
    shown = running.inside(small, "capacity", "--like", "train/train-0", "--gang", "2")
    assert "a gang of 2 starts if this work gives way" in shown.out
    assert "train/pod/train-0" in shown.out


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        (("--gang", "2"), "--gang needs the shape"),
        (("--gpus", "1", "--level", "rack"), "--level says where a gang must fit"),
        (("--mig", "1g.10gb", "--gpu-memory", "10Gi"), "give one of them"),
        (("--like", "a/b", "--gpus", "1"), "--like takes the shape of a pod"),
    ],
)
def test_contradictory_options(small: Path, options: tuple[str, ...], problem: str) -> None:
    run = running.inside(small, "capacity", *options)
    assert run.code == 2
    assert problem in run.err


def test_unknown_names(small: Path) -> None:
    unknown_type = running.inside(small, "capacity", "--gpus", "1", "--type", "h1000")
    assert unknown_type.code == 2
    assert 'no GPU type "h1000"' in unknown_type.err
    unknown_pod = running.inside(small, "capacity", "--like", "team/absent")
    assert unknown_pod.code == 2
    assert 'pods "absent" not found in namespace team' in unknown_pod.err
    unknown_queue = running.inside(small, "capacity", "--queue", "nowhere")
    assert unknown_queue.code == 2
    assert 'there is no queue "nowhere"' in unknown_queue.err
    unknown_level = running.inside(
        small, "capacity", "--gpus", "8", "--gang", "2", "--level", "rak"
    )
    assert unknown_level.code == 2
    assert 'there is no topology level "rak"' in unknown_level.err
    for option in ("--cpu", "--memory", "--gpu-memory"):
        done = running.inside(small, "capacity", "--gpus", "1", option, "10Zi")
        assert (done.code, done.out) == (2, "")
        assert f'{option} "10Zi": expected an amount' in done.err
