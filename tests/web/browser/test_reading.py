"""How people read the dashboard: filters and links, why something waits, what-if, files to take along, keys alone."""

from __future__ import annotations

import csv
import io
import json
import re
from pathlib import Path

import pytest
from playwright import sync_api

from tests.web.browser import browsing

pytestmark = pytest.mark.slow

WHY = "/workloads?why=research/pod/too-wide"
MOST_TABS = 60  # no page has so many stops before its content


def _rows(page: sync_api.Page) -> list[str]:
    return page.get_by_role("grid").locator("tbody").get_by_role("row").all_inner_texts()


def _names(page: sync_api.Page) -> list[str]:
    return [row.split("pod/")[1].split()[0] for row in _rows(page)]


def _choice(page: sync_api.Page, label: str) -> sync_api.Locator:
    return page.get_by_role("combobox", name=re.compile(f"^{label}"))


def _address(page: sync_api.Page, reader: browsing.Visit) -> str:
    return page.url.removeprefix(reader.url)


def _active(page: sync_api.Page, selector: str) -> bool:
    """Whether the focus is on an element that fits, or inside one."""
    script = "(selector) => document.activeElement.closest(selector) !== null"
    return bool(page.evaluate(script, selector))


def _tab_to(page: sync_api.Page, selector: str) -> None:
    for _ in range(MOST_TABS):
        if page.evaluate("(selector) => document.activeElement.matches(selector)", selector):
            return
        page.keyboard.press("Tab")
    raise AssertionError(f"no Tab leads to {selector}")


# Filters and links


def test_a_filtered_view_is_the_same_behind_its_link(reader: browsing.Visit) -> None:
    page = reader.open("/workloads")
    everything = len(_rows(page))
    page.get_by_role("button", name="Pending").click()
    page.get_by_role("searchbox").fill("research")
    browsing.until(page, lambda: "text=research" in page.url, "the search in the address")
    page.get_by_role("button", name="Name", exact=True).click()
    browsing.until(page, lambda: "sort=name" in page.url, "the order in the address")
    rows = _rows(page)
    assert 1 < len(rows) < everything
    assert all("research" in row and "Pending" in row for row in rows)
    names = _names(page)
    assert names == sorted(names)

    other = reader.open(_address(page, reader), reader.watched_page())
    assert _names(other) == names
    assert other.get_by_role("searchbox").input_value() == "research"
    other.close()


def test_a_view_of_the_fleet_is_the_same_behind_its_link(reader: browsing.Visit) -> None:
    page = reader.open("/fleet")
    _choice(page, "Type").select_option("GB200")
    _choice(page, "Colour by").select_option("holder")
    page.get_by_role("group", name="Legend: colour by holder").wait_for()
    page.get_by_role("button", name="Nearer").click()
    browsing.until(page, lambda: "zoom=" in page.url, "the zoom in the address")
    legend = page.locator(".legend").inner_text()
    assert "research/" in legend

    other = reader.open(_address(page, reader), reader.watched_page())
    assert other.locator(".legend").inner_text() == legend
    assert _choice(other, "Type").input_value() == "GB200"
    assert "Map of 18 nodes" in (other.locator(".map-scroll").get_attribute("aria-label") or "")
    other.close()


def test_the_way_back_leads_to_the_view_before(reader: browsing.Visit) -> None:
    page = reader.open("/workloads?state=Pending")
    page.get_by_role("row", name="too-wide").click()
    page.get_by_role("dialog").wait_for()
    page.go_back()
    sync_api.expect(page.get_by_role("dialog")).to_have_count(0)
    assert _address(page, reader) == "/workloads?state=Pending"


# Why, and what if


def test_why_shows_the_funnel_and_fixes_and_a_patch_can_be_copied(reader: browsing.Visit) -> None:
    reader.context.grant_permissions(["clipboard-read", "clipboard-write"])
    page = reader.open("/workloads?state=Pending")
    page.get_by_role("row", name="too-wide").click()
    drawer = page.get_by_role("dialog", name="Why research/pod/too-wide")
    drawer.get_by_text("What helps").wait_for()

    left = drawer.locator(".funnel").first.locator(".funnel-left").all_inner_texts()
    counts = [int(text) for text in left]
    assert counts == sorted(counts, reverse=True)
    assert (counts[0], counts[-1]) == (26, 0)

    fix = drawer.locator(".fix").first
    fix.get_by_role("button", name="JSON").click()
    shown = fix.locator("pre").inner_text()
    fix.get_by_role("button", name="Copy change as JSON").click()
    fix.get_by_text("Copied").wait_for()
    assert page.evaluate("navigator.clipboard.readText()").strip() == shown.strip()
    [change, *_] = json.loads(shown)
    assert change["object"]["kind"]

    fix.get_by_role("button", name="kubectl").click()
    assert fix.locator("pre").inner_text().startswith("kubectl ")


def test_what_if_answers_with_before_and_after(reader: browsing.Visit) -> None:
    page = reader.open("/what-if")
    page.get_by_label("Kind of change 1").select_option("add")
    page.get_by_label("Change 1", exact=True).fill("2xh100")
    page.get_by_role("button", name="Ask", exact=True).click()
    table = page.locator("table.compare")
    table.wait_for()

    def figures(name: str) -> list[str]:
        line = table.get_by_role("row").filter(
            has=page.get_by_role("rowheader", name=name, exact=True)
        )
        return line.get_by_role("cell").all_inner_texts()

    assert figures("nodes") == ["26", "28", "+2"]
    assert figures("GPUs") == ["120", "136", "+16"]
    assert "add=2xh100" in page.url
    page.get_by_text("dovetail what-if --add 2xh100").wait_for()


def test_what_if_about_a_node_that_is_not_there_says_so(reader: browsing.Visit) -> None:
    page = reader.open("/what-if?drain=node/nowhere")
    page.get_by_role("alert").get_by_text("nowhere").first.wait_for()
    reader.complaints.clear()  # the browser logs the refusal


# Files


def test_a_table_can_be_saved_as_csv_and_json(reader: browsing.Visit, tmp_path: Path) -> None:
    page = reader.open("/workloads?view=pods&namespace=research")

    def saved(form: str) -> str:
        with page.expect_download() as waited:
            page.get_by_role("button", name=form, exact=True).click()
        path = tmp_path / waited.value.suggested_filename
        waited.value.save_as(path)
        assert path.name == f"pods.{form.lower()}"
        return path.read_text(encoding="utf-8")

    pods = json.loads(saved("JSON"))
    lines = list(csv.DictReader(io.StringIO(saved("CSV"))))
    assert {pod["namespace"] for pod in pods} == {"research"}
    assert [line["name"] for line in lines] == [pod["name"] for pod in pods]
    assert len(lines) > 5
    assert page.get_by_text(f"{len(lines)} of ").count() == 1


# Keys alone


def test_a_reader_without_a_pointer_finds_why_something_waits(reader: browsing.Visit) -> None:
    page = reader.open("/")
    page.keyboard.press("g")
    page.keyboard.press("w")
    page.get_by_role("heading", name="Workloads").wait_for()
    reader.settle()

    page.keyboard.press("/")
    assert _active(page, "[data-search]")
    page.keyboard.type("too-wide")
    browsing.until(page, lambda: len(_rows(page)) == 1, "the one row")
    page.keyboard.press("Escape")
    browsing.until(page, lambda: len(_rows(page)) > 10, "all rows again")
    assert not _active(page, "[data-search]")

    _tab_to(page, "[role=grid]")
    for key in ("ArrowDown", "ArrowDown", "ArrowDown", "ArrowUp"):
        page.keyboard.press(key)
    current = page.locator("tr.is-current")
    assert current.get_attribute("aria-rowindex") == "3"
    page.keyboard.press("Enter")
    drawer = page.get_by_role("dialog")
    drawer.locator(".fix, .verdict").first.wait_for()

    for key in ("Tab",) * 30 + ("Shift+Tab",) * 35:
        page.keyboard.press(key)
        assert _active(page, "[role=dialog]")
    page.keyboard.press("Escape")
    sync_api.expect(drawer).to_have_count(0)
    assert _active(page, "[role=grid]")


def test_keys_are_explained_and_lead_to_pages(reader: browsing.Visit) -> None:
    page = reader.open("/")
    page.keyboard.press("?")
    help_ = page.get_by_role("dialog", name="Keys and help")
    lines = help_.get_by_role("row").all_inner_texts()
    assert _active(page, "[role=dialog]")
    page.keyboard.press("Escape")
    sync_api.expect(help_).to_have_count(0)

    letters = {line.split()[1]: line.split()[2] for line in lines if line.startswith("g")}
    assert len(letters) == 14
    for letter, title in letters.items():
        page.keyboard.press("g")
        page.keyboard.press(letter)
        page.get_by_role("heading", name=title, level=1).wait_for()
    reader.settle()


def test_arrows_walk_over_the_map_and_enter_opens_the_node(reader: browsing.Visit) -> None:
    page = reader.open("/fleet")
    _tab_to(page, ".map-scroll")
    page.keyboard.press("ArrowRight")
    tip = page.locator(".tip")
    tip.wait_for()
    first = tip.inner_text()
    page.keyboard.press("ArrowRight")
    browsing.until(page, lambda: tip.inner_text() != first, "the next GPU")
    name = tip.locator("b").first.inner_text()
    spoken = page.locator("[role=status][aria-live]").inner_text()
    assert spoken.startswith(f"{name} GPU 1, ")
    page.keyboard.press("Enter")
    page.get_by_role("heading", name=name, level=1).wait_for()
    reader.settle()
