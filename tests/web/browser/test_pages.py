"""Every page of the dashboard in a browser: its data, light and dark, on wide and narrow windows, on paper."""

from __future__ import annotations

from typing import Final, NamedTuple

import pytest
from playwright import sync_api

from tests.web.browser import browsing, embedded_cluster

pytestmark = pytest.mark.slow


class Shown(NamedTuple):
    """An address, and texts that its page shows about the sample fleet."""

    address: str
    texts: tuple[str, ...]


PAGES: Final = {
    "overview": Shown("/", ("GB200", "H100", "Needs a look", "Next in line", "too-wide")),
    "fleet": Shown("/fleet", ("26 nodes, 120 GPUs", "in use", "joined by NVLink")),
    "fleet-table": Shown("/fleet?view=table", ("a100-0", "slices in use", "notebooks/")),
    "queues": Shown("/queues", ("The cluster has no queues",)),
    "workloads": Shown("/workloads", ("too-wide", "NodeLabelsDiffer", "Pending", "Running")),
    "pods": Shown("/workloads?view=pods", ("nb-2g-0", "a100-", "Running")),
    "why": Shown("/workloads?why=research/pod/too-wide", ("What helps", "needs 16")),
    "claims": Shown("/claims", ("research", "gpu")),
    "devices": Shown("/devices", ("a100-0", "gpu-0-mig-", "540 rows")),
    "timeline": Shown("/timeline", ("started", "research")),
    "utilisation": Shown("/utilisation?window=1h", ("GB200", "No measurements", "In GPU-hours")),
    "cost": Shown("/cost?window=1h", ("Prices are placeholders", "research", "Budgets")),
    "stack": Shown("/stack", ("GB200", "26 nodes", "no ClusterPolicy and no NVIDIADriver")),
    "upgrades": Shown("/upgrades", ("No upgrade is under way", "dovetail stack plan --to driver=")),
    "what-if": Shown("/what-if?add=2xh100", ("Before and after", "jobs starting now")),
    "capacity": Shown("/capacity", ("GPU",)),
    "policy": Shown("/policy", ("Steps of a decision", "Weights of a placement")),
    "node": Shown("/nodes/a100-0", ("A100-SXM4-80GB", "r2", "3g.40gb", "notebooks")),
}


RULES_ABOUT_COLOURS: Final = ("color-contrast", "link-in-text-block")


@pytest.mark.parametrize("name", list(PAGES))
def test_a_page_shows_its_data_fits_the_window_and_can_be_read_in_the_dark(
    reader: browsing.Visit, name: str
) -> None:
    shown = PAGES[name]
    page = reader.open(shown.address)
    for text in shown.texts:
        sync_api.expect(page.locator("body")).to_contain_text(text)
    assert page.locator(".state-error, .note-warn").count() == 0
    assert page.title().endswith("Dovetail")
    assert not browsing.axe_findings(page)

    for width in (1440, 800):
        page.set_viewport_size({"width": width, "height": 900})
        reader.settle()
        assert browsing.overflow(page) == 0, f"{name} at {width} pixels"
        assert not browsing.clipped(page), f"{name} at {width} pixels"
    page.set_viewport_size(browsing.SIZE)

    page.emulate_media(color_scheme="dark")
    try:
        _assert_dark(page)
        # The document is the same: only rules about colours can have another outcome.
        assert not browsing.axe_findings(page, rules=RULES_ABOUT_COLOURS)
    finally:
        page.emulate_media(color_scheme="light")


def test_a_reader_whose_system_is_dark_begins_in_the_dark(
    browser: sync_api.Browser, sample: embedded_cluster.Cluster
) -> None:
    with browsing.visit(browser, sample.link(), color_scheme="dark") as visit:
        page = visit.open("/")
        _assert_dark(page)
        assert not browsing.axe_findings(page)
        visit.assert_no_complaints()


def _assert_dark(page: sync_api.Page) -> None:
    sync_api.expect(page.locator("html")).to_have_attribute("data-theme", "dark")
    background = page.evaluate("getComputedStyle(document.body).backgroundColor")
    channels = [int(part) for part in background.strip("rgba()").split(",")[:3]]
    assert max(channels) < 64


def test_the_theme_is_chosen_by_a_key_and_kept(reader: browsing.Visit) -> None:
    page = reader.open("/")
    root = page.locator("html")
    sync_api.expect(root).to_have_attribute("data-theme", "light")
    page.keyboard.press("t")  # as the system -> light
    page.keyboard.press("t")
    sync_api.expect(root).to_have_attribute("data-theme", "dark")
    reader.open("/queues")
    sync_api.expect(root).to_have_attribute("data-theme", "dark")
    page.keyboard.press("t")
    sync_api.expect(root).to_have_attribute("data-theme", "light")


@pytest.mark.parametrize("address", ["/", "/fleet", "/workloads?why=research/pod/too-wide"])
def test_a_page_is_printed_without_its_frame(reader: browsing.Visit, address: str) -> None:
    page = reader.open(address)
    page.emulate_media(media="print")
    try:
        assert page.locator("nav.nav").is_hidden()
        assert browsing.colours(page) > 20  # a blank sheet has one
        assert len(page.pdf()) > 10_000
    finally:
        page.emulate_media(media="screen")


def test_all_rows_of_a_table_are_printed(reader: browsing.Visit) -> None:
    page = reader.open("/devices")
    rows = page.get_by_role("grid").get_by_role("row")
    total = int(page.get_by_role("grid").get_attribute("aria-rowcount") or 0)
    assert rows.count() < total > 400  # on the screen only what is in sight
    page.evaluate("window.dispatchEvent(new Event('beforeprint'))")
    sync_api.expect(rows).to_have_count(total)
    page.evaluate("window.dispatchEvent(new Event('afterprint'))")


def test_a_path_that_is_no_page_says_so(reader: browsing.Visit) -> None:
    page = reader.open("/no-such-page")
    page.get_by_text("There is no page /no-such-page").wait_for()
