"""The pages of the GPU stack: an upgrade followed live, paused and aborted by those who may; versions with skew."""

from __future__ import annotations

import datetime
from collections.abc import Iterator
from typing import Any

import pytest
from playwright import sync_api

from dovetail import timestamps
from tests.web.api import stack_clusters
from tests.web.browser import browsing, upgrading_cluster
from tests.web.browser.upgrading_cluster import UpgradingCluster

pytestmark = pytest.mark.slow

MARK = "window.isTheSameDocument"
RULES_ABOUT_COLOURS = ("color-contrast", "link-in-text-block")
NODE = "h100-3"  # of the wave that runs


@pytest.fixture(scope="module")
def cluster() -> Iterator[UpgradingCluster]:
    with upgrading_cluster.started() as started:
        yield started


@pytest.fixture(scope="module")
def signed_in_here(
    browser: sync_api.Browser, cluster: UpgradingCluster
) -> Iterator[browsing.Visit]:
    with browsing.visit(browser, cluster.link(), color_scheme="light") as visit:
        yield visit


@pytest.fixture
def writer(signed_in_here: browsing.Visit) -> Iterator[browsing.Visit]:
    """A user who may write; the test fails if the browser complained while it ran."""
    signed_in_here.complaints.clear()
    yield signed_in_here
    signed_in_here.assert_no_complaints()


def _row(page: sync_api.Page, node: str) -> sync_api.Locator:
    header = page.get_by_role("rowheader", name=node, exact=True)
    return page.locator(".course tr").filter(has=header)


@pytest.mark.parametrize(
    ("address", "texts"),
    [
        ("/upgrades", ("A wave stopped", "XID 79", "By hand: 1 node", "Degraded (h100-2 failed)")),
        ("/stack", ("Skew", "driver loaded 570.211.01", "Unknown", "containerd 1.7.28")),
    ],
)
def test_a_page_of_the_stack_shows_its_data_fits_the_window_and_can_be_read_in_the_dark(
    writer: browsing.Visit, address: str, texts: tuple[str, ...]
) -> None:
    page = writer.open(address)
    for text in texts:
        sync_api.expect(page.locator("main")).to_contain_text(text)
    assert page.locator(".state-error").count() == 0
    assert not browsing.axe_findings(page)
    for width in (1440, 800):
        page.set_viewport_size({"width": width, "height": 900})
        writer.settle()
        assert browsing.overflow(page) == 0, f"{address} at {width} pixels"
        assert not browsing.clipped(page), f"{address} at {width} pixels"
    page.set_viewport_size(browsing.SIZE)
    page.emulate_media(color_scheme="dark")
    try:
        sync_api.expect(page.locator("html")).to_have_attribute("data-theme", "dark")
        assert not browsing.axe_findings(page, rules=RULES_ABOUT_COLOURS)
    finally:
        page.emulate_media(color_scheme="light")


def test_phases_are_drawn_in_their_order_with_a_text_for_those_who_do_not_see_them(
    writer: browsing.Visit,
) -> None:
    page = writer.open("/upgrades")
    bars = _row(page, stack_clusters.CANARY).locator(".course-bar")
    names = [bar.get_attribute("title") or "" for bar in bars.all()]
    phases = [step.partition("=")[0] for step in stack_clusters.STEPS]
    assert [name.split()[0] for name in names] == phases
    boxes = [bar.bounding_box() for bar in bars.all()]
    edges = [box["x"] for box in boxes if box]
    assert edges == sorted(edges)
    track = _row(page, stack_clusters.CANARY).get_by_role("img")
    spoken = track.get_attribute("aria-label") or ""
    assert [part.split()[0] for part in spoken.split(", ")[::2]] == [*phases, "Done"]
    service = page.get_by_role("img", name="GPUs in service: 32 of 64, at least 32")
    assert service.locator("path.course-curve").count() == 1


def test_what_the_lifecycle_process_writes_appears_by_itself(
    writer: browsing.Visit, cluster: UpgradingCluster
) -> None:
    page = writer.open("/upgrades")
    page.evaluate(f"{MARK} = true")
    sync_api.expect(_row(page, NODE)).to_contain_text("the driver pod is being installed")

    def validated(status: dict[str, Any]) -> None:
        (node,) = [node for node in status["nodes"] if node["name"] == NODE]
        now = timestamps.to_text(datetime.datetime.now(datetime.UTC))
        node |= {"phase": "Validating", "since": now, "reason": "checks run"}
        node["passed"].append("Applying=180")

    cluster.report(validated)
    row = _row(page, NODE)
    row.get_by_text("Validating").wait_for()
    sync_api.expect(row).to_contain_text("checks run")
    assert page.evaluate(MARK)


def test_an_upgrade_is_paused_resumed_and_aborted_after_a_question(
    writer: browsing.Visit, cluster: UpgradingCluster
) -> None:
    page = writer.open("/upgrades")
    page.get_by_role("button", name="Pause", exact=True).click()
    resume = page.get_by_role("button", name="Resume", exact=True)
    resume.wait_for()
    assert cluster.upgrade().spec.paused
    resume.click()
    page.get_by_role("button", name="Pause", exact=True).wait_for()
    assert not cluster.upgrade().spec.paused

    page.get_by_role("button", name="Abort…").click()
    question = page.get_by_role("dialog", name="Abort driver-595-91-07")
    assert not browsing.axe_findings(page)
    page.keyboard.press("Escape")
    sync_api.expect(question).to_have_count(0)
    assert not cluster.upgrade().spec.aborted

    page.get_by_role("button", name="Abort…").click()
    question.get_by_role("button", name="Abort driver-595-91-07").click()
    sync_api.expect(page.get_by_role("button", name="Abort…")).to_have_count(0)
    assert cluster.upgrade().spec.aborted


def test_an_upgrade_that_ended_has_a_link_and_no_buttons(writer: browsing.Visit) -> None:
    page = writer.open("/upgrades")
    page.get_by_role("row", name="operator-26-7-0").click()
    page.get_by_role("region", name="Course of operator-26-7-0").wait_for()
    assert page.url.endswith("?name=operator-26-7-0")
    sync_api.expect(page.locator(".facts")).to_contain_text("forward only")
    assert page.get_by_role("button", name="Pause").count() == 0


def test_the_course_is_printed_without_its_frame(writer: browsing.Visit) -> None:
    page = writer.open("/upgrades")
    page.emulate_media(media="print")
    try:
        assert page.locator("nav.nav").is_hidden()
        assert browsing.colours(page) > 20
        assert len(page.pdf()) > 10_000
    finally:
        page.emulate_media(media="screen")


def test_without_an_upgrade_the_page_says_how_to_plan_one_and_readers_get_no_buttons(
    browser: sync_api.Browser,
) -> None:
    with (
        upgrading_cluster.started(is_empty=True, allow_writes=False) as cluster,
        browsing.visit(browser, cluster.link()) as reader,
    ):
        page = reader.page
        page.keyboard.press("g")
        page.keyboard.press("r")
        page.get_by_text("dovetail stack plan --to driver=").wait_for()
        reader.settle()
        page.get_by_role("button", name="Copy dovetail stack plan").wait_for()
        assert not browsing.axe_findings(page)
        page.get_by_role("grid", name="Healing").get_by_role("row", name="reset-gpu").wait_for()
        page.keyboard.press("g")
        page.keyboard.press("s")
        page.get_by_role("heading", name="Stack", level=1).wait_for()
        reader.settle()
        reader.assert_no_complaints()


def test_readers_who_may_not_write_see_commands_instead(browser: sync_api.Browser) -> None:
    with (
        upgrading_cluster.started(allow_writes=False) as cluster,
        browsing.visit(browser, cluster.link()) as reader,
    ):
        page = reader.open("/upgrades")
        page.get_by_text("dovetail stack upgrade pause driver-595-91-07").wait_for()
        assert page.get_by_role("button", name="Pause", exact=True).count() == 0
        reader.assert_no_complaints()
