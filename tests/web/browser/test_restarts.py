"""Pages stay open while the cluster or the dashboard's server goes away and comes back: they say so, and recover."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from playwright import sync_api

from tests.web.browser import browsing, dashboard_server, embedded_cluster

pytestmark = pytest.mark.slow

FLEET = "name: tiny\npools: [{name: l4, count: 2, gpu: L4, gpusPerNode: 3}]\n"


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Iterator[embedded_cluster.Cluster]:
    folder = tmp_path_factory.mktemp("tiny")
    fleet = folder / "fleet.yaml"
    fleet.write_text(FLEET, encoding="utf-8")
    with embedded_cluster.started(folder / "state", "--fleet", str(fleet)) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def server(
    tiny: embedded_cluster.Cluster, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[dashboard_server.Server]:
    folder = tmp_path_factory.mktemp("server")
    with dashboard_server.started(folder, DOVETAIL_STATE=str(tiny.state)) as served:
        yield served


@pytest.fixture(scope="module")
def visit(browser: sync_api.Browser, server: dashboard_server.Server) -> Iterator[browsing.Visit]:
    with browsing.visit(browser, server.link) as reader:
        yield reader


def test_a_cluster_that_cannot_be_reached_is_announced_until_it_is_back(
    visit: browsing.Visit, tiny: embedded_cluster.Cluster
) -> None:
    page = visit.open("/workloads")
    banner = page.get_by_text("The cluster cannot be reached")
    assert banner.count() == 0
    tiny.run("down")
    banner.wait_for()
    page.get_by_role("heading", name="Workloads").wait_for()  # the page still shows what was known
    tiny.run("up", "--detach")
    sync_api.expect(banner).to_have_count(0)

    tiny.apply(*embedded_cluster.one_gpu("after-the-cluster"))
    page.get_by_role("row", name="after-the-cluster").get_by_text("Running").wait_for()
    assert not [text for text in visit.complaints if text.startswith("error")]


def test_a_server_that_restarts_is_announced_and_the_page_goes_on(
    visit: browsing.Visit, tiny: embedded_cluster.Cluster, server: dashboard_server.Server
) -> None:
    page = visit.open("/workloads")
    lost = page.get_by_text("Connection to the dashboard's server lost")
    server.end()
    lost.wait_for()
    server.start()
    sync_api.expect(lost).to_have_count(0)

    tiny.apply(*embedded_cluster.one_gpu("after-the-server"))
    page.get_by_role("row", name="after-the-server").get_by_text("Running").wait_for()
    assert page.get_by_text("Token").count() == 0  # the session is still good
    assert not [text for text in visit.complaints if text.startswith("error")]
