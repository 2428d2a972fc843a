"""What all tests in a browser share: the browser, the sample fleet, and a reader of its dashboard."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from playwright import sync_api

from tests.web.browser import browsing, embedded_cluster


@pytest.fixture(scope="package")
def browser() -> Iterator[sync_api.Browser]:
    with browsing.browser() as opened:
        yield opened


@pytest.fixture(scope="session")
def sample(tmp_path_factory: pytest.TempPathFactory) -> Iterator[embedded_cluster.Cluster]:
    """The sample fleet. Tests may add work of names of their own."""
    with embedded_cluster.started(tmp_path_factory.mktemp("sample") / "state") as cluster:
        yield cluster


@pytest.fixture(scope="package")
def signed_in(
    browser: sync_api.Browser, sample: embedded_cluster.Cluster
) -> Iterator[browsing.Visit]:
    """A reader of the sample's dashboard in light mode."""
    with browsing.visit(browser, sample.link(), color_scheme="light") as reader:
        yield reader


@pytest.fixture
def reader(signed_in: browsing.Visit) -> Iterator[browsing.Visit]:
    """The same; the test fails if the browser complained while it ran."""
    signed_in.complaints.clear()
    yield signed_in
    signed_in.assert_no_complaints()
