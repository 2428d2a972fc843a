"""History answers as the commands do, from a document, a store or a dashboard."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from dovetail.history import stores
from dovetail.model.accounting import records
from dovetail.sdk import Cluster, History, InputError, Unavailable
from tests.answer.cost import accounts
from tests.answer.right_size import building
from tests.cli import running
from tests.sdk import dashboard_server

PRICES = "currency: USD\nprices: [{perHour: 2}]\nbudgets: [{queue: research, perMonth: 100}]\n"
WINDOW = "2026-11-02T00:00:00Z,2026-11-03T00:00:00Z"
JOB = accounts.held("g0", accounts.owner("train", "job-0", queue="research"), 0, 6)
RECORDED = records.Records(
    assets=(accounts.gpu("g0", 0, 24),),
    allocations=(JOB,),
    usage=(accounts.busy(JOB, 0, 6, 0.25),),
)


@pytest.fixture
def prices(tmp_path: Path) -> Path:
    path = tmp_path / "prices.yaml"
    path.write_text(PRICES)
    return path


@pytest.fixture(params=["document", "store"])
def location(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    path = tmp_path / "history"
    if request.param == "document":
        path.write_bytes(msgspec.json.encode(RECORDED))
        return path
    with stores.open_store(str(path), create=True) as store:
        store.append(RECORDED, watched_until=accounts.at(24))
        store.compact(accounts.at(24))
    return path


def test_cost_is_that_of_the_command(location: Path, prices: Path, tmp_path: Path) -> None:
    cost = History.open(location, prices=prices).cost(window=WINDOW, by=("namespace", "queue"))
    assert [(row.name, row.cost.total) for row in cost.steps[0].rows] == [
        ("train/research", 12.0),
        ("__idle__/__idle__", 36.0),
    ]
    given = ("--history", str(location), "--prices", str(prices), "--window", WINDOW)
    keys = ("--aggregate", "namespace,queue")
    assert running.inside(tmp_path, "cost", *given, *keys).out.rstrip() in cost.to_text()
    printed = running.inside(tmp_path, "cost", *given, *keys, "-o", "json").out
    assert msgspec.json.decode(printed) | {"asOf": ""} == cost.to_dict() | {"asOf": ""}
    assert cost.to_csv() == running.inside(tmp_path, "cost", *given, *keys, "-o", "csv").out
    assert "<table" in cost._repr_html_()


def test_use_and_budgets_and_records(location: Path, prices: Path) -> None:
    history = History.open(location, prices=prices)
    used = history.utilisation(window=WINDOW, by="queue")
    assert (used.total.allocated, used.total.busy, used.total.unallocated) == (6.0, 1.5, 18.0)
    assert [line.split()[0] for line in used.to_text().splitlines()[1:4]] == [
        "research",
        "__idle__",
        "total",
    ]
    assert used._repr_html_().count("<tr>") == 4
    [budget] = history.budgets()
    assert (budget.queue, budget.budget) == ("research", 100.0)
    assert "research" in str(history.budgets())
    assert len(history.records(window=WINDOW).allocations) == 1


def test_right_sizes_without_and_with_a_cluster(tmp_path: Path) -> None:
    path = tmp_path / "records.json"
    path.write_bytes(msgspec.json.encode(building.work()))
    history = History.open(path)
    answer = history.right_size(prices={"h100": 2.5})
    assert answer.work[0].recommended is not None
    printed = running.inside(tmp_path, "right-size", "--history", str(path), "--no-cluster").out
    assert history.right_size().to_text(columns=80).split() == printed.split()
    assert "<table" in answer._repr_html_()
    saved = tmp_path / "objects.yaml"
    saved.write_text("apiVersion: v1\nkind: Node\nmetadata: {name: n1}\n")
    inside = history.right_size(cluster=Cluster.load(saved))
    assert inside.work[0].patch_note


@pytest.mark.parametrize(
    ("ask", "problem"),
    [
        (lambda path: History.open(path / "absent.json"), "absent.json: cannot be read"),
        (lambda path: History.open("-"), "standard input is not read here"),
        (lambda path: History.open(path / "h", prices=path / "absent"), "absent: cannot be read"),
        (lambda path: History.open(path / "h").cost(window="soon"), 'window "soon": expected'),
        (lambda path: History.open(path / "h").cost(by="pood"), 'unknown key "pood"'),
        (lambda path: History.open(path / "h").right_size(window="soon"), '^window "soon"'),
    ],
)
def test_bad_input_is_said_in_the_words_of_python(
    tmp_path: Path, ask: Callable[[Path], Any], problem: str
) -> None:
    (tmp_path / "h").write_bytes(msgspec.json.encode(RECORDED))
    with pytest.raises(InputError, match=problem):
        ask(tmp_path)


class Answering(dashboard_server.DashboardServer):
    """A dashboard that answers from a history."""

    def __init__(self, history: History) -> None:
        super().__init__(Cluster.__new__(Cluster))
        self._answers: dict[str, Any] = {
            "/cost": history.cost(window=WINDOW),
            "/utilisation": history.utilisation(window=WINDOW),
            "/budgets": {"items": list(history.budgets())},
        }

    def respond(self, path: str) -> bytes:
        return msgspec.json.encode(self._answers[path])


@pytest.fixture
def dashboard(tmp_path: Path, prices: Path) -> Iterator[Answering]:
    path = tmp_path / "document.json"
    path.write_bytes(msgspec.json.encode(RECORDED))
    server = Answering(History.open(path, prices=prices))
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


def test_a_dashboard_answers_the_same(dashboard: Answering, tmp_path: Path, prices: Path) -> None:
    here = History.open(tmp_path / "document.json", prices=prices)
    there = History.connect(dashboard.url, token=dashboard_server.TOKEN)
    dashboard.broken = dashboard.respond("/cost")
    assert there.cost(window=WINDOW).steps == here.cost(window=WINDOW).steps
    asked, headers = dashboard.requests[-1]
    assert asked.startswith("/api/v1/cost?window=2026-11-02T00%3A00%3A00Z")
    assert headers["Authorization"] == f"Bearer {dashboard_server.TOKEN}"
    dashboard.broken = dashboard.respond("/utilisation")
    assert there.utilisation(window=WINDOW).rows == here.utilisation(window=WINDOW).rows
    dashboard.broken = dashboard.respond("/budgets")
    assert there.budgets()[0].queue == "research"
    dashboard.broken = b'{"items": 3}'
    with pytest.raises(Unavailable, match="does not answer as a dashboard"):
        there.budgets()
    with pytest.raises(InputError, match="a dashboard does not offer"):
        there.records()
    with pytest.raises(InputError, match="a dashboard does not offer"):
        there.right_size()
