"""Cost and utilisation of a cluster that `dovetail up` started: recorded beside it, shown by command, API and pages."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest
from playwright import sync_api

from dovetail.files import state_directory
from tests.support import waiting
from tests.web.browser import browsing, embedded_cluster

pytestmark = pytest.mark.slow

NAMESPACE = "ledger"
QUEUED = "curves"


@pytest.fixture(scope="module")
def ledger(sample: embedded_cluster.Cluster) -> embedded_cluster.Cluster:
    """The sample fleet with a pod that holds a GPU in a namespace of its own."""
    namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}}
    sample.apply(namespace, *embedded_cluster.one_gpu("booked", NAMESPACE))
    return sample


def cost_by_command(
    cluster: embedded_cluster.Cluster, aggregate: str = "namespace"
) -> dict[str, Any]:
    """Rows by namespace or another key, of the store in the state directory."""
    store = str(cluster.state / state_directory.HISTORY)
    asked = ("--prices", "examples", "--window", "1h", "--aggregate", aggregate, "-o", "json")
    done = cluster.run("cost", "--history", store, *asked)
    table = msgspec.json.decode(done.out)
    return {row["name"]: row for row in table["steps"][0]["rows"]}


def test_command_and_api_show_what_was_recorded(
    ledger: embedded_cluster.Cluster, reader: browsing.Visit
) -> None:
    def is_booked() -> bool:
        row = cost_by_command(ledger).get(NAMESPACE)
        return row is not None and row["gpuHours"]["total"] > 0

    waiting.wait_until(is_booked, "the pod's GPU to be in the history")
    reply = reader.context.request.get(f"{reader.url}/api/v1/cost?window=1h")
    assert reply.ok
    table = reply.json()
    rows = {row["name"]: row for row in table["steps"][0]["rows"]}
    assert rows[NAMESPACE]["gpuHours"]["unmeasured"] > 0
    assert [note["code"] for note in table["notes"]] == ["example-prices"]


def test_costs_are_chosen_by_the_address_and_saved(
    ledger: embedded_cluster.Cluster, reader: browsing.Visit, tmp_path: Path
) -> None:
    page = reader.open("/cost?window=1h&aggregate=pod")
    sync_api.expect(page.get_by_role("grid", name="Costs")).to_contain_text("booked")
    sync_api.expect(page.get_by_label("Window")).to_have_value("1h")
    sync_api.expect(page.get_by_role("img", name="Cost over time")).to_be_visible()
    with page.expect_download() as download:
        page.get_by_role("button", name="CSV").click()
    saved = tmp_path / "cost.csv"
    download.value.save_as(saved)
    assert "booked" in saved.read_text()

    page.get_by_role("combobox", name="By").select_option("namespace,product")
    sync_api.expect(page.get_by_role("grid", name="Costs")).to_contain_text(f"{NAMESPACE} / ")
    assert "aggregate=namespace,product" in page.url
    assert "window=1h" in page.url


def test_utilisation_says_that_nothing_was_measured(
    ledger: embedded_cluster.Cluster, reader: browsing.Visit
) -> None:
    page = reader.open("/utilisation?window=1h&by=namespace")
    table = page.get_by_role("grid", name="Utilisation")
    row = table.get_by_role("row").filter(has_text=NAMESPACE)
    sync_api.expect(row).to_contain_text("not measured")
    sync_api.expect(page.get_by_text("No measurements.")).to_be_visible()
    sync_api.expect(page.get_by_role("img", name=f"{NAMESPACE}: at most")).to_be_visible()


def test_a_window_that_is_none_is_refused_with_what_was_expected(reader: browsing.Visit) -> None:
    page = reader.open("/cost?window=often")
    sync_api.expect(page.locator(".state-error").first).to_contain_text("expected today")
    reader.complaints.clear()  # the browser notes the 400


def test_queues_show_what_they_held_over_recorded_time(
    ledger: embedded_cluster.Cluster, reader: browsing.Visit
) -> None:
    metadata = {"name": QUEUED, "labels": {"team": QUEUED}}
    spec = {"namespaceSelector": {"matchLabels": {"team": QUEUED}}}
    queue = {"apiVersion": "dovetail.dev/v1alpha1", "kind": "Queue", "metadata": {"name": QUEUED}}
    namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": metadata}
    ledger.apply(namespace, queue | {"spec": spec}, *embedded_cluster.one_gpu("held", QUEUED))
    try:
        waiting.wait_until(
            lambda: QUEUED in cost_by_command(ledger, "queue"), "the queue to be in the history"
        )
        page = reader.open("/queues")
        chart = page.get_by_role("img", name=f"GPUs of {QUEUED}: at most")
        sync_api.expect(chart).to_be_visible(timeout=waiting.GIVE_UP_SECONDS * 1000)
    finally:
        ledger.run("delete", "queue", QUEUED)  # other tests see a cluster without queues
