"""A fleet of 2,000 nodes with 16,000 GPUs in a browser: it is drawn, searched, pointed at. How fast is for bench/."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from playwright import sync_api

from bench import what_if
from tests.web.browser import browsing, dashboard_server

pytestmark = pytest.mark.slow

NODES = 2_000


@pytest.fixture(scope="module")
def large(
    browser: sync_api.Browser, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[browsing.Visit]:
    """A reader of the dashboard of a snapshot of that fleet."""
    folder: Path = tmp_path_factory.mktemp("large")
    dump = folder / "fleet.json"
    listed = {"apiVersion": "v1", "kind": "List", "items": what_if.cluster_of(NODES)}
    dump.write_bytes(msgspec.json.encode(listed))
    with (
        dashboard_server.started(folder, "--snapshot", str(dump)) as server,
        browsing.visit(browser, server.link) as reader,
    ):
        yield reader


def test_the_map_is_drawn_searched_and_pointed_at(large: browsing.Visit) -> None:
    page = large.open("/fleet")
    page.get_by_text("2,000 nodes, 16,000 GPUs").wait_for()
    drawn = "performance.getEntriesByName('dovetail:fleet-drawn').length"
    browsing.until(page, lambda: page.evaluate(drawn), "the map")
    assert browsing.colours(page) > 20

    page.get_by_role("searchbox").fill("h100-1234")
    page.get_by_text("8 GPUs fit").wait_for()
    page.get_by_role("searchbox").fill("")

    area = page.locator(".map-scroll").bounding_box()
    assert area
    tip = page.locator(".tip")
    page.mouse.move(area["x"] + 16, area["y"] + 31)  # the first GPU of the first rack
    tip.wait_for()
    name = tip.locator("b").first.inner_text()
    page.mouse.click(area["x"] + 16, area["y"] + 31)
    page.get_by_role("heading", name=name, level=1).wait_for()
    large.settle()
    large.assert_no_complaints()


def test_long_tables_hold_only_what_is_in_sight(large: browsing.Visit) -> None:
    page = large.open("/fleet?view=table")
    grid = page.get_by_role("grid")
    assert grid.get_attribute("aria-rowcount") == "16001"
    assert grid.get_by_role("row").count() < 200
    grid.focus()
    page.keyboard.press("End")
    page.locator("tr[aria-rowindex='16001']").wait_for()
    large.assert_no_complaints()


def test_a_snapshot_says_that_it_does_not_change(large: browsing.Visit) -> None:
    page = large.open("/")
    banner = page.locator(".banner")
    assert re.search("snapshot as of .* nothing on these pages changes", banner.inner_text())
    page.get_by_text("of 16,000 GPUs allocated").wait_for()
    assert not browsing.axe_findings(page)
