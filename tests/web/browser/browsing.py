"""A real Chromium for tests of the dashboard: pages that note every complaint, links that sign in, findings of axe.

Playwright drives it from this thread and keeps an event loop there: while a browser is open, no test may run a loop of
its own in that thread. The browser therefore ends with the tests of this package.
"""

from __future__ import annotations

import base64
import contextlib
import importlib.resources
import shutil
from collections.abc import Callable, Iterator
from typing import Any, Final
from urllib.parse import urlsplit

from playwright import sync_api

from tests.support import real, waiting

PROGRAM: Final = "chromium"
FLAGS: Final = (
    "--no-sandbox",  # tests run as root in containers
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-shm-usage",
)
GIVE_UP_MS: Final = waiting.GIVE_UP_SECONDS * 1000
SERIOUS: Final = ("serious", "critical")
SIZE: Final = sync_api.ViewportSize(width=1440, height=900)
CLIPPED: Final = """[...document.querySelectorAll(".panel")]
  .filter((panel) => getComputedStyle(panel).overflowX === "hidden")
  .filter((panel) => panel.scrollWidth > panel.clientWidth + 1)
  .map((panel) => panel.innerText)"""
COUNT_COLOURS: Final = """async (url) => {
  const image = new Image();
  image.src = url;
  await image.decode();
  const canvas = new OffscreenCanvas(image.width, image.height);
  const context = canvas.getContext("2d");
  context.drawImage(image, 0, 0);
  const { data } = context.getImageData(0, 0, image.width, image.height);
  return new Set(new Uint32Array(data.buffer)).size;
}"""


@contextlib.contextmanager
def browser() -> Iterator[sync_api.Browser]:
    """A browser while the block lasts. Skips, or fails under REQUIRE_REAL=1, where there is no Chromium."""
    program = shutil.which(PROGRAM)
    if program is None:
        real.missing(f"{PROGRAM}; make system-deps installs it")
    sync_api.expect.set_options(timeout=GIVE_UP_MS)
    with sync_api.sync_playwright() as playwright:
        opened = playwright.chromium.launch(executable_path=program, args=list(FLAGS))
        try:
            yield opened
        finally:
            opened.close()


class Visit:
    """One reader of a dashboard: a context with its own cookies, one page, and what went wrong on it."""

    def __init__(self, opened: sync_api.Browser, url: str, **options: Any) -> None:
        self.url = url.rstrip("/")
        self.complaints: list[str] = []
        self.context = opened.new_context(**({"viewport": SIZE} | options))
        self.context.set_default_timeout(GIVE_UP_MS)
        self.page = self.watched_page()

    def watched_page(self) -> sync_api.Page:
        """A new page of the same reader."""
        page = self.context.new_page()
        page.on("console", self._note_message)
        page.on("pageerror", lambda error: self.complaints.append(f"error: {error}"))
        page.on("requestfailed", self._note_failure)
        page.on("response", self._note_response)
        return page

    def sign_in(self, link: str) -> None:
        """Opens a link with a token."""
        self.page.goto(link)
        self.page.locator("nav.nav").wait_for()
        assert "token" not in self.page.url

    def open(self, address: str, page: sync_api.Page | None = None) -> sync_api.Page:
        """Opens an address of the dashboard and waits until its data is there."""
        shown = page or self.page
        shown.goto(self.url + address)
        self.settle(shown)
        return shown

    def settle(self, page: sync_api.Page | None = None) -> None:
        """Returns when nothing on the page loads any more."""
        shown = page or self.page
        shown.locator("main h1, main .state-title").first.wait_for()
        sync_api.expect(shown.locator(".spinner")).to_have_count(0)

    def close(self) -> None:
        """Ends the reader's pages and forgets its cookies."""
        self.context.close()

    def assert_no_complaints(self) -> None:
        assert not self.complaints, "\n".join(self.complaints)

    def _note_message(self, message: sync_api.ConsoleMessage) -> None:
        if message.type in ("error", "warning"):
            self.complaints.append(f"console: {message.text}")

    def _note_failure(self, request: sync_api.Request) -> None:
        # A page that is left gives up what it asked for, and its stream.
        if request.failure != "net::ERR_ABORTED":
            self.complaints.append(f"{request.method} {request.url}: {request.failure}")

    def _note_response(self, response: sync_api.Response) -> None:
        is_foreign = urlsplit(response.url).netloc != urlsplit(self.url).netloc
        if (is_foreign and not response.url.startswith("blob:")) or response.status >= 400:
            self.complaints.append(f"{response.status} {response.request.method} {response.url}")


@contextlib.contextmanager
def visit(opened: sync_api.Browser, link: str, **options: Any) -> Iterator[Visit]:
    """A reader who came by a link."""
    reader = Visit(opened, link.partition("#")[0], **options)
    try:
        reader.sign_in(link)
        yield reader
    finally:
        reader.close()


def until(page: sync_api.Page, condition: Callable[[], Any], what: str) -> Any:
    """Waits for a condition outside the page's document, while the page goes on."""
    passed = 0.0
    while not (value := condition()):
        assert passed < GIVE_UP_MS, f"waited for {what}"
        page.wait_for_timeout(20)
        passed += 20
    return value


def axe_findings(page: sync_api.Page, *, rules: tuple[str, ...] = ()) -> list[str]:
    """What axe calls serious or critical, a line each: by its usual rules, or by these."""
    script = importlib.resources.files("axe_playwright_python") / "axe.min.js"
    # Through the debugging protocol: the content security policy of the page allows no other scripts.
    if not page.evaluate("'axe' in window"):
        page.evaluate(script.read_text(encoding="utf-8"))
    options: dict[str, Any] = {"resultTypes": ["violations"]}
    if rules:
        options["runOnly"] = {"type": "rule", "values": list(rules)}
    result = page.evaluate("(options) => axe.run(document, options)", options)
    return [
        f"{finding['id']} ({finding['impact']}): {node['html'][:160]}: {node['failureSummary']}"
        for finding in result["violations"]
        if finding["impact"] in SERIOUS
        for node in finding["nodes"]
    ]


def colours(page: sync_api.Page) -> int:
    """How many colours a picture of the page has."""
    picture = base64.b64encode(page.screenshot()).decode()
    return int(page.evaluate(COUNT_COLOURS, f"data:image/png;base64,{picture}"))


def overflow(page: sync_api.Page) -> int:
    """By how many pixels the page is wider than its window."""
    root = "document.documentElement"
    return int(page.evaluate(f"{root}.scrollWidth - {root}.clientWidth"))


def clipped(page: sync_api.Page) -> list[str]:
    """Panels whose content is cut off without a way to scroll to it, by their text."""
    cut: list[str] = page.evaluate(CLIPPED)
    return cut
