"""Two users of a real API server in two browsers: each sees what the cluster lets them list, as long as it does.

The dashboard itself connects with the rights that the chart gives its service account, and no others.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from playwright import sync_api

from tests.support import cluster
from tests.web import cluster_users
from tests.web.browser import browsing, chart_dashboards

pytestmark = pytest.mark.slow

PODS = "/workloads?view=pods"
REFUSED = {"/fleet": "nodes", "/queues": "queues", "/devices": "resourceslices"}


@pytest.fixture(scope="module")
def scene() -> cluster_users.Scene:
    return cluster_users.scene()


@pytest.fixture(scope="module")
def url(scene: cluster_users.Scene) -> Iterator[str]:
    """A dashboard with the rights of the chart."""
    with chart_dashboards.served(scene.plane, scene.mine) as address:
        yield address


def _namespaces(reader: browsing.Visit) -> set[str]:
    page = reader.open(PODS)
    cells = page.get_by_role("grid").locator("tbody tr td:first-child").all_inner_texts()
    return {text for text in cells if text.startswith("test-")}


def test_two_users_in_two_browsers_see_what_each_may_list(
    browser: sync_api.Browser, scene: cluster_users.Scene, url: str
) -> None:
    bob = scene.token_of(scene.theirs, "bob")
    scene.let(scene.theirs, cluster_users.account("bob", scene.theirs), "list")
    with (
        chart_dashboards.signed_in(browser, url, scene.token) as mine,
        chart_dashboards.signed_in(browser, url, bob) as theirs,
    ):
        assert _namespaces(mine) == {scene.mine}
        assert _namespaces(theirs) == {scene.theirs}
        assert mine.page.get_by_text("alice").count() == 1
        assert theirs.page.get_by_text("bob").count() == 1
        for reader in (mine, theirs):
            for address in ("/", "/claims", "/timeline", "/policy"):
                page = reader.open(address)
                assert page.locator(".state-error").count() == 0
            for address, plural in REFUSED.items():
                page = reader.open(address)
                page.get_by_role("alert").get_by_text(f"you may not list {plural}").wait_for()
            assert not [text for text in reader.complaints if "403" not in text]
        others = mine.open(f"/workloads?why={scene.theirs}/pod/a")
        others.get_by_role("alert").get_by_text("you may see").wait_for()


def test_a_user_who_loses_a_right_sees_less_without_a_restart(
    browser: sync_api.Browser, scene: cluster_users.Scene, url: str
) -> None:
    carol = scene.token_of(scene.mine, "carol")
    scene.let(scene.mine, cluster_users.account("carol", scene.mine), "list")
    with chart_dashboards.signed_in(browser, url, carol) as reader:
        assert _namespaces(reader) == {scene.mine}
        cluster.kubectl(scene.plane, "delete", "rolebinding", "pods-carol", "-n", scene.mine)
        browsing.until(reader.page, lambda: not _namespaces(reader), "the right to go")
        assert reader.page.locator("nav.nav").count() == 1  # signed in as before


def test_a_wrong_token_is_refused_in_words(browser: sync_api.Browser, url: str) -> None:
    reader = browsing.Visit(browser, url)
    reader.page.goto(url)
    reader.page.get_by_label("Token").fill("not-a-token")
    reader.page.get_by_role("button", name="Sign in").click()
    reader.page.get_by_role("alert").wait_for()
    assert reader.page.locator("nav.nav").count() == 0
    assert not browsing.axe_findings(reader.page)
    reader.close()
