"""Work that is submitted on the page: only where users may write, refused in words, seen when it is there."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from playwright import sync_api

from tests.web.browser import browsing, dashboard_server, embedded_cluster

pytestmark = pytest.mark.slow

MANIFEST = """\
apiVersion: v1
kind: Pod
metadata: {name: submitted}
spec:
  containers:
    - name: main
      image: i
      resources: {limits: {cpu: 1}}
"""


@pytest.fixture(scope="module")
def writer(
    browser: sync_api.Browser,
    sample: embedded_cluster.Cluster,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[browsing.Visit]:
    """A reader of a dashboard that lets users write."""
    folder = tmp_path_factory.mktemp("writing")
    state = str(sample.state)
    with (
        dashboard_server.started(folder, "--allow-writes", DOVETAIL_STATE=state) as server,
        browsing.visit(browser, server.link) as visit,
    ):
        yield visit


def test_without_the_right_to_write_there_is_no_form(reader: browsing.Visit) -> None:
    page = reader.open("/workloads?submit=1")
    assert page.get_by_role("button", name="New work").count() == 0
    assert page.get_by_role("dialog").count() == 0


def test_a_manifest_is_refused_in_words_then_submitted_and_seen(
    writer: browsing.Visit, sample: embedded_cluster.Cluster
) -> None:
    page = writer.open("/workloads?text=submitted")  # rows out of sight are not in the document
    page.get_by_role("button", name="New work").click()
    form = page.get_by_role("dialog", name="New work")
    text = form.get_by_label("Manifest")
    assert form.get_by_role("button", name="Submit").is_disabled()
    assert not browsing.axe_findings(page)

    text.fill(MANIFEST.replace("kind: Pod", "kind: Secret"))
    form.get_by_role("button", name="Submit").click()
    form.get_by_role("alert").get_by_text("the dashboard writes no Secret").wait_for()
    assert text.input_value()  # what was typed is still there
    writer.complaints.clear()  # the refusal

    text.fill(MANIFEST)
    form.get_by_role("button", name="Submit").click()
    form.get_by_role("status").get_by_text("created Pod default/submitted").wait_for()
    page.keyboard.press("Escape")
    sync_api.expect(form).to_have_count(0)
    page.get_by_role("row", name="submitted").wait_for()
    writer.assert_no_complaints()
    sample.run("delete", "pod", "submitted")
