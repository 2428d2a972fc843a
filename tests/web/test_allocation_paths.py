"""The paths of OpenCost's API on a dashboard: a user is needed, bad words are 400, files are read again."""

from __future__ import annotations

import urllib.parse
from pathlib import Path

from dovetail.ask import cost_source
from dovetail.sim.server.api_server import SimApi
from dovetail.web import api_endpoints
from tests.web.api import clusters
from tests.web.serving_dashboards import Client, story

EXAMPLES = Path(__file__).parents[2] / "examples" / "cost"
WEEK = "2026-11-02T00:00:00Z,2026-11-09T00:00:00Z"
PATHS = ("/allocation", "/allocation/compute", "/api/v1/cost")
HOSTILE = (
    "window=%00",
    "window=7d&aggregate=" + "x," * 400,
    "window=7d&filter=%22",
    "window=7d&filter=" + "(" * 3000,
    "window=9999999999999999999999d",
    "window=1,2&step=0m",
    "window=7d&nonsense=1",
    "window=7d&window=8d",
    "window=%F0%28%8C%28",
    "window=7d&aggregate=label:",
)


def words(**given: str) -> str:
    return urllib.parse.urlencode({"window": WEEK, **given})


def test_costs_need_a_user() -> None:
    async def tell(client: Client, api: SimApi) -> None:
        for path in (*PATHS, "/allocation/none"):
            answer = await client.get(f"{path}?{words()}", token="")
            assert answer.status == 401, path
            assert answer.headers["Content-Type"] == "application/problem+json"

    story(tell, given=api_endpoints.all_endpoints())


def test_bad_words_are_refused_and_never_break_the_server() -> None:
    async def tell(client: Client, api: SimApi) -> None:
        for path in PATHS:
            for query in HOSTILE:
                answer = await client.get(f"{path}?{query}")
                assert answer.status == 400, (path, query, answer)
                assert answer.tree["detail"]
        assert (await client.get("/allocation/none")).status == 404
        refused = await client.ask("POST", "/allocation", headers={"Dovetail-Request": "1"})
        assert refused.status == 405

    story(
        tell,
        given=api_endpoints.all_endpoints(),
        accounting=clusters.Accounted(clusters.RECORDED),
    )


def test_a_dashboard_answers_from_files_and_reads_prices_again_when_they_change(
    tmp_path: Path,
) -> None:
    prices = tmp_path / "prices.yaml"
    prices.write_text((EXAMPLES / "prices.yaml").read_text())
    source = cost_source.CostSource(str(EXAMPLES / "week.json"), str(prices))

    async def tell(client: Client, api: SimApi) -> None:
        query = words(aggregate="namespace", includeIdle="true")
        (data,) = (await client.get(f"/allocation/compute?{query}")).tree["data"]
        total = sum(row["totalCost"] for row in data.values())
        assert round(total, 2) == 1301.80
        own = (await client.get(f"/api/v1/cost?{words()}")).tree
        assert own["total"]["cost"]["total"] == 1301.80
        for name, row in data.items():
            exact = next(each for each in own["steps"][0]["rows"] if each["name"] == name)
            assert abs(row["totalCost"] - float(exact["exactCost"])) <= 0.00001

        prices.write_text("currency: USD\nprices: [{perHour: 1}]\n# and so on\n")
        (data,) = (await client.get(f"/allocation?{query}&accumulate=true")).tree["data"]
        assert round(sum(row["totalCost"] for row in data.values()), 2) == round(
            168 * 6 + 42 + 1 / 3 + 90, 2
        )

        prices.write_text("currency: USD\nprices: [{perhour: 1}]\n")
        answer = await client.get(f"/allocation?{query}&accumulate=false")
        assert answer.status == 503
        assert "prices[0].perhour" in answer.tree["detail"]

    story(tell, given=api_endpoints.all_endpoints(), accounting=source)
