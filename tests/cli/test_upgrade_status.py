"""`dovetail stack upgrade status`: what happened in an upgrade, as text and as a picture."""

from __future__ import annotations

import asyncio
import datetime
from collections.abc import Callable
from pathlib import Path
from xml.etree import ElementTree

import msgspec
import pytest

from dovetail.boot import clocks
from dovetail.kubetypes import codec
from dovetail.kubetypes.custom.stack_upgrades import StackUpgrade
from dovetail.sim.server.api_server import SimApi
from dovetail.tables.stack import upgrade_items, upgrade_picture
from tests.cli import running
from tests.support import rest_place
from tests.web.api import stack_clusters

NOW = datetime.datetime(2026, 6, 1, 12, tzinfo=datetime.UTC)
CLUSTER = stack_clusters.StackCluster(NOW)


def _item() -> upgrade_items.UpgradeItem:
    document = codec.encode_tree(CLUSTER.running_upgrade())
    upgrade = codec.decode_struct(StackUpgrade, document)
    gpus = {f"h100-{number}": 8 for number in range(8)}
    return upgrade_items.item_of(upgrade, gpus, NOW)


def _bars(picture: str) -> list[ElementTree.Element]:
    root = ElementTree.fromstring(picture)
    bars = [each for each in root.iter() if each.tag.endswith("}rect")]
    return [bar for bar in bars if any(child.tag.endswith("}title") for child in bar)]


def test_the_picture_has_every_phase_at_its_time_and_escapes_names() -> None:
    item = _item()
    picture = upgrade_picture.svg(item, NOW)
    assert picture == upgrade_picture.svg(_item(), NOW)
    titles = ["".join(child.text or "" for child in bar) for bar in _bars(picture)]
    phases = [step.partition("=")[0] for step in stack_clusters.STEPS]
    assert [title.split()[0] for title in titles[: len(phases)]] == phases
    assert titles[0] == "Fencing 2026-06-01T11:02:00Z to 2026-06-01T11:02:20Z"
    assert "to now" in titles[-1]
    places = [float(bar.get("x", "")) for bar in _bars(picture)[: len(phases)]]
    assert places == sorted(places)
    assert "64 of the nodes here" in picture
    assert "at least 32 so far" in picture

    renamed = msgspec.structs.replace(item, reason="<script>&")
    page = upgrade_picture.page(renamed, NOW, ["<b>"])
    assert "<script" not in page
    assert "&lt;script&gt;" in page
    assert "&lt;b&gt;" in page


def test_an_upgrade_that_has_not_begun_is_an_empty_picture() -> None:
    upgrade = StackUpgrade()
    item = upgrade_items.item_of(upgrade, {}, NOW)
    assert _bars(upgrade_picture.svg(item, NOW)) == []


def test_a_thousand_nodes_are_rows_without_names() -> None:
    item = _item()
    wave = item.waves[0]
    many = msgspec.structs.replace(wave, nodes=wave.nodes * 1000)
    picture = upgrade_picture.svg(msgspec.structs.replace(item, waves=(many,)), NOW)
    assert len(_bars(picture)) == 1000 * len(stack_clusters.STEPS)
    assert f">{stack_clusters.CANARY}<" not in picture


@pytest.fixture
def run(tmp_path: Path) -> Callable[..., running.Run]:
    """Runs a command about a server in memory with an upgrade on its way."""

    async def asked(*arguments: str) -> running.Run:
        api = SimApi(clocks.SystemClock(), is_complete=True)
        for tree in CLUSTER.objects():
            if tree["kind"] != "ClusterPolicy":
                api.put(tree)
        async with rest_place.served(api, tmp_path) as kubeconfig:
            where = ("--kubeconfig", str(kubeconfig))
            command = ("stack", "upgrade", "status", *arguments, *where)
            return await asyncio.to_thread(running.inside, tmp_path / "state", *command)

    return lambda *arguments: asyncio.run(asked(*arguments))


def test_status_prints_text_and_pictures_of_one_upgrade(run: Callable[..., running.Run]) -> None:
    text = run(stack_clusters.UPGRADE, "-o", "wide")
    assert text.code == 0, text.err
    assert "h100-5: by hand: log in to h100-5" in text.out

    svg = run(stack_clusters.UPGRADE, "-o", "svg")
    assert svg.code == 0, svg.err
    assert len(_bars(svg.out)) > 20
    assert "64 of the nodes here" in svg.out  # GPUs by the labels of nodes

    page = run(stack_clusters.UPGRADE, "-o", "html")
    assert page.out.startswith("<!doctype html>")
    assert "<script" not in page.out


def test_a_picture_is_of_one_upgrade(run: Callable[..., running.Run]) -> None:
    refused = run("-o", "svg")
    assert refused.code == 2
    assert "draws one upgrade: name it" in refused.err
