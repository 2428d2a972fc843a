"""The dashboard shows what the command line prints: the same structs, the same rows, in the same order."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from dovetail.ask import cluster_view
from dovetail.web import api, asked, endpoints
from tests.cli import running
from tests.web.api import clusters

Tree = dict[str, Any]
CLUSTER = "same"


class Place:
    """A saved cluster, asked by commands and by endpoints."""

    def __init__(self, directory: Path) -> None:
        self._state = directory / "state"
        self._path = clusters.saved(clusters.typical(), directory / "cluster.json")
        view = cluster_view.of_path(str(self._path))
        self._question = asked.Asked(clusters.Frame(view), asked.EVERYTHING)

    def command(self, *arguments: str) -> running.Run:
        return running.inside(self._state, *arguments, "--snapshot", str(self._path))

    def printed(self, *arguments: str) -> Any:
        return json.loads(self.command(*arguments, "-o", "json").out)

    def answer(self, path: str, **params: Any) -> Any:
        endpoint = next(each for each in api.ENDPOINTS if each.path == path)
        result = endpoint.answer(self._question, endpoint.params(**params))
        return json.loads(msgspec.json.encode(result))


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Place:
    return Place(tmp_path_factory.mktemp("same"))


def test_work_is_that_of_queue(place: Place) -> None:
    assert place.answer("/workloads")["items"] == place.printed("queue")["items"]


def test_work_is_filtered_as_by_queue(place: Place) -> None:
    printed = place.printed("queue", "-n", "train", "--pending")["items"]
    assert place.answer("/workloads", namespace=("train",), state=("Pending",))["items"] == printed
    assert [item["name"] for item in printed] == ["pod/wide-0"]


def test_starts_are_those_of_when(place: Place) -> None:
    assert place.answer("/when")["items"] == place.printed("when")
    one = place.answer("/when", name="wide-0", namespace="train")["items"]
    assert one == place.printed("when", "wide-0", "-n", "train")


def test_why_is_that_of_the_command(place: Place) -> None:
    asked_about = {"namespace": "train", "kind": "pod", "name": "wide-0"}
    answer = place.answer("/why/{namespace}/{kind}/{name}", **asked_about)
    assert answer == place.printed("why", "pod/wide-0", "-n", "train")


def test_capacity_is_that_of_the_command(place: Place) -> None:
    assert place.answer("/capacity") == place.printed("capacity")
    answer = place.answer("/capacity", gpus=8, type="h100", gang=2)
    assert answer == place.printed("capacity", "--gpus", "8", "--type", "h100", "--gang", "2")


def test_what_if_is_that_of_the_command(place: Place, tmp_path: Path) -> None:
    answer = place.answer("/what-if", add=("2xh100",), drain=("node/h100-1",), horizon="6h")
    options = ("--add", "2xh100", "--drain", "node/h100-1", "--horizon", "6h")
    assert answer == place.printed("what-if", *options)


def test_new_work_is_given_as_text(place: Place, tmp_path: Path) -> None:
    manifest = json.dumps(clusters.pod("fresh", where="train", gpus=1))
    file = tmp_path / "fresh.json"
    file.write_text(manifest, encoding="utf-8")
    answer = place.answer("/what-if", manifest=manifest, prices={"h100": 2.5})
    printed = place.printed("what-if", "-f", str(file), "--price", "h100=2.5")
    assert answer["difference"] == printed["difference"]
    assert [job["work"] for job in answer["difference"]["newWork"]] == ["train/pod/fresh"]


@pytest.mark.parametrize(
    ("path", "table", "word"),
    [("/pods", "pods", "pod"), ("/claims", "claims", "resourceclaim.resource.k8s.io")],
)
def test_lists_have_the_rows_of_get(place: Place, path: str, table: str, word: str) -> None:
    printed = place.command("get", table, "-A", "-o", "name").lines
    assert [f"{word}/{item['name']}" for item in place.answer(path)["items"]] == printed


def test_devices_have_the_rows_and_states_of_get(place: Place) -> None:
    run = place.command("get", "devices")
    items = place.answer("/devices")["items"]
    assert [item["device"] for item in items] == run.column("DEVICE")
    assert [item["state"] for item in items] == run.column("STATE")


def test_queues_have_the_rows_of_get(place: Place) -> None:
    run = place.command("get", "queues")
    items = place.answer("/queues")["items"]
    indented = ["  " * item["depth"] + item["name"] for item in items]
    assert indented == run.column("QUEUE")
    gpus = [item["resources"][0] for item in items]
    assert [f"{each['quota']:g}" for each in gpus] == run.column("QUOTA")


def test_pods_say_what_get_says(place: Place) -> None:
    run = place.command("get", "pods", "-A", "-o", "wide")
    items = place.answer("/pods")["items"]
    assert [item["status"] for item in items] == run.column("STATUS")
    assert [item["queue"] or "-" for item in items] == run.column("QUEUE")


@pytest.mark.parametrize("endpoint", api.ENDPOINTS, ids=lambda each: each.path)
def test_every_endpoint_is_described(endpoint: endpoints.Endpoint) -> None:
    assert endpoint.summary
    assert endpoint.params.__struct_config__.forbid_unknown_fields
    assert msgspec.json.schema(endpoint.result)
