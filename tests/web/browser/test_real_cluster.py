"""The dashboard of a real API server with the live scheduler: every page, work that starts, why it waits, what-if.

The dashboard has the rights of the chart's service account; the reader is an administrator of the cluster.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import pytest
from playwright import sync_api

from tests.e2e import namespace_scene
from tests.support import cluster, live
from tests.web.browser import browsing, chart_dashboards

pytestmark = pytest.mark.slow

# Addresses, and a text that their pages show about the sample fleet.
PAGES: Final = {
    "/": "GB200",
    "/fleet": "26 nodes, 120 GPUs",
    "/fleet?view=table": "a100-0",
    "/queues": "Queues",
    "/workloads": "Workloads",
    "/claims": "Claims",
    "/devices": "a100-0",
    "/timeline": "Timeline",
    "/what-if?add=2xh100": "Before and after",
    "/capacity?gpus=8&type=h100": "8 GPUs",
    "/policy": "Steps of a decision",
    "/nodes/a100-0": "A100-SXM4-80GB",
}


@pytest.fixture(scope="module")
def scene() -> Iterator[namespace_scene.Scene]:
    with namespace_scene.scene(live.cluster()) as made:
        yield made


@pytest.fixture(scope="module")
def reader(browser: sync_api.Browser, scene: namespace_scene.Scene) -> Iterator[browsing.Visit]:
    """An administrator."""
    plane, namespace = scene.live.plane, scene.namespace
    name = f"admin-{namespace}"
    cluster.kubectl(plane, "create", "serviceaccount", "admin", "-n", namespace)
    cluster.kubectl(
        plane,
        *("create", "clusterrolebinding", name, "--clusterrole=cluster-admin"),
        f"--serviceaccount={namespace}:admin",
    )
    token = cluster.kubectl(plane, "create", "token", "admin", "-n", namespace).strip()
    try:
        with (
            chart_dashboards.served(plane, namespace) as url,
            chart_dashboards.signed_in(browser, url, token) as visit,
        ):
            yield visit
    finally:
        cluster.kubectl(plane, "delete", "clusterrolebinding", name)


@pytest.mark.parametrize("address", list(PAGES))
def test_a_page_shows_the_real_cluster(reader: browsing.Visit, address: str) -> None:
    page = reader.open(address)
    sync_api.expect(page.locator("main")).to_contain_text(PAGES[address])
    assert page.locator(".state-error").count() == 0
    reader.assert_no_complaints()


def test_a_pod_that_the_scheduler_starts_is_seen_without_a_reload(
    reader: browsing.Visit, scene: namespace_scene.Scene
) -> None:
    request = namespace_scene.exactly("gpu", "gpu.nvidia.com")
    scene.claim("one-gpu", request)
    page = reader.open(f"/workloads?namespace={scene.namespace}")
    page.evaluate("window.isTheSameDocument = true")
    scene.rest.create("pods", namespace_scene.pod_tree("seen", claims=["one-gpu"]), scene.namespace)
    row = page.get_by_role("row", name="seen")
    row.get_by_text("Running").wait_for()
    assert page.evaluate("window.isTheSameDocument")
    reader.assert_no_complaints()


def test_why_a_pod_waits_is_answered_with_the_scheduler_s_words_and_fixes(
    reader: browsing.Visit, scene: namespace_scene.Scene
) -> None:
    request = namespace_scene.exactly("gpu", "gpu.nvidia.com", count=16)
    scene.claim("too-many", request)
    tree = namespace_scene.pod_tree("waits", claims=["too-many"])
    scene.rest.create("pods", tree, scene.namespace)
    scene.wait_refused("waits")
    page = reader.open(f"/workloads?why={scene.namespace}/pod/waits")
    drawer = page.get_by_role("dialog")
    drawer.get_by_text("asks for 16 devices on one node").wait_for()
    drawer.get_by_text("What helps").wait_for()
    assert drawer.locator(".funnel").count() >= 1
    reader.assert_no_complaints()
