"""What happens in the cluster appears on open pages by itself."""

from __future__ import annotations

import re

import pytest
from playwright import sync_api

from tests.web.browser import browsing, embedded_cluster

pytestmark = pytest.mark.slow

MARK = "window.isTheSameDocument"


def test_a_pod_that_starts_and_ends_is_seen_without_a_reload(
    reader: browsing.Visit, sample: embedded_cluster.Cluster
) -> None:
    name = "seen-live"
    work = reader.open(f"/workloads?text={name}")
    fleet = reader.open(f"/fleet?view=table&text={name}", reader.watched_page())
    free = reader.open("/fleet", reader.watched_page())
    pages = (work, fleet, free)
    for page in pages:
        page.evaluate(f"{MARK} = true")
    free_before = _whole_free(free)

    sample.apply(*embedded_cluster.one_gpu(name))
    row = work.get_by_role("row", name=name)
    row.get_by_text("Running").wait_for()
    node = re.search(r"on ([\w-]+)", row.inner_text())
    assert node
    fleet.get_by_role("row", name=f"default/{name}").wait_for()
    assert node[1] in fleet.get_by_role("row", name=f"default/{name}").inner_text()
    browsing.until(free, lambda: _whole_free(free) == free_before - 1, "one GPU less to be free")

    sample.run("delete", "pod", name)
    sample.run("delete", "resourceclaim", name)
    sync_api.expect(row).to_have_count(0)
    browsing.until(free, lambda: _whole_free(free) == free_before, "the GPU to be free again")
    assert all(page.evaluate(MARK) for page in pages)
    for page in (fleet, free):
        page.close()


def _whole_free(page: sync_api.Page) -> int:
    about = page.locator(".about").inner_text()
    found = re.search(r"(\d+) whole ones free", about)
    assert found, about
    return int(found[1])
