"""`dovetail sim compare` and `report` on drawn jobs: equal by seed, complete as data, self-contained as a page."""

from __future__ import annotations

import csv
import importlib.util
import json
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from dovetail import errors
from dovetail.cli.answers import sim_command, sim_progress
from dovetail.study.queueing import comparison, generated_jobs, study_file
from dovetail.study.report import chart_scales, comparison_page

POOL = "{name: node, count: 2, gpu: H100-SXM5-80GB, gpusPerNode: 8}"
QUEUES = "queues: [{name: vision, quota: 8}, {name: speech, quota: 8}]\ncheckpointSeconds: 600\n"
DRAWN = ["--generate", "days=1,load=1.2,median_seconds=3000"]


def call(tmp_path: Path, *arguments: str) -> Result:
    (tmp_path / "fleet.yaml").write_text(f"name: f\npools: [{POOL}]\n")
    (tmp_path / "study.yaml").write_text(QUEUES)
    files = ["--fleet", str(tmp_path / "fleet.yaml"), "--study", str(tmp_path / "study.yaml")]
    return CliRunner().invoke(sim_command.group, [*arguments, *files])


def compared(tmp_path: Path) -> str:
    policies = ["--policies", "fifo,kai", "-o", "json"]
    result = call(tmp_path, "compare", *DRAWN, *policies)
    assert result.exit_code == 0, result.output
    return result.stdout


def test_the_same_seed_gives_the_same_comparison(tmp_path: Path) -> None:
    first, again = compared(tmp_path), compared(tmp_path)
    assert first == again
    policies = {each["policy"]: each["figures"] for each in json.loads(first)["policies"]}
    assert set(policies) == {"fifo", "kai"}
    assert policies["kai"]["waiting_mean_s"] < policies["fifo"]["waiting_mean_s"]
    assert set(policies["kai"]["queues"]) == {"vision", "speech"}


def test_a_table_ends_with_the_bound_and_csv_has_a_column_for_every_header(tmp_path: Path) -> None:
    table = call(tmp_path, "compare", *DRAWN, "--policies", "fifo,kai").stdout
    assert "lower bound" in table
    rows = list(csv.reader(call(tmp_path, "compare", *DRAWN, "-o", "csv").stdout.splitlines()))
    assert rows[0][:3] == ["policy", "waiting", "p95"]
    assert [row[0] for row in rows[1:]] == [
        "fifo",
        "backfill",
        "partitions",
        "kueue",
        "kai",
        "lower bound",
    ]
    assert {len(row) for row in rows} == {len(rows[0])}


def test_rows_of_all_policies_go_to_one_file(tmp_path: Path) -> None:
    rows = tmp_path / "rows.csv"
    result = call(tmp_path, "compare", *DRAWN, "--policies", "fifo,kai", "--rows", str(rows))
    assert result.exit_code == 0, result.output
    lines = list(csv.DictReader(rows.read_text().splitlines()))
    jobs = len({line["name"] for line in lines})
    assert [sum(line["policy"] == name for line in lines) for name in ("fifo", "kai")] == [jobs] * 2


@pytest.mark.skipif(importlib.util.find_spec("pyarrow") is not None, reason="pyarrow is there")
def test_parquet_without_pyarrow_says_what_to_install_before_anything_runs(tmp_path: Path) -> None:
    result = call(tmp_path, "compare", *DRAWN, "--rows", str(tmp_path / "rows.parquet"))
    assert "pip install 'dovetail[parquet]'" in str(result.exception)


def test_a_page_is_well_formed_draws_every_policy_and_loads_nothing(tmp_path: Path) -> None:
    saved, page_file = tmp_path / "compared.json", tmp_path / "page.html"
    saved.write_text(compared(tmp_path))
    result = CliRunner().invoke(
        sim_command.group, ["report", "--from", str(saved), "--file", str(page_file)]
    )
    assert result.exit_code == 0, result.output
    page = page_file.read_text()
    body = page[page.index("<main>") : page.index("</main>") + len("</main>")]
    tree = ElementTree.fromstring(body)
    pictures = tree.findall(".//{http://www.w3.org/2000/svg}svg")
    # Two of waiting, its distribution, three curves, four bars, three of fairness, two queues.
    assert len(pictures) == 15
    assert not any(word in page for word in ("<script", "src=", "href=", "url(", "@import"))


def test_names_of_foreign_origin_are_escaped(tmp_path: Path) -> None:
    saved = comparison.Comparison(
        study="<b>&", seed=1, gpus=1, jobs=1, quotas={}, until_s=1, quantiles_pct=[],
        bound_jct_s=0, bound_waiting_s=0, policies=[],
    )  # fmt: skip
    assert "&lt;b&gt;&amp;" in comparison_page.page(saved)
    assert "<b>" not in comparison_page.page(saved)


def test_drawn_jobs_offer_the_load_and_follow_day_and_week() -> None:
    arrivals = generated_jobs.Arrivals(days=28, load=0.9, spread=0.5, weekend=0.2)
    queues = (study_file.StudyQueue(name="a", quota=96), study_file.StudyQueue(name="b", quota=32))
    jobs = generated_jobs.draw(arrivals, gpus_by_node=[8] * 16, queues=queues, seed=7)
    work = sum(job.gpus * job.duration_seconds for job in jobs)
    assert work / (128 * 28 * 86_400) == pytest.approx(0.9, rel=0.1)
    by_day = [sum(job.submit_seconds // 86_400 % 7 == day for job in jobs) for day in range(7)]
    assert max(by_day[5:]) < min(by_day[:5]) / 2
    hours = [sum(job.submit_seconds // 3600 % 24 == hour for job in jobs) for hour in (15, 3)]
    assert hours[0] > 2 * hours[1]
    share = sum(job.queue == "a" for job in jobs) / len(jobs)
    assert share == pytest.approx(0.75, abs=0.03)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("dayz=3", 'no "dayz"; there are: days, load'),
        ("load=much", "load: expected a number"),
        ("load=0", "load: expected 0.01 to 10"),
        ("days=3650,load=10,median_seconds=1,spread=0", "jobs are more than"),
    ],
)
def test_wrong_settings_are_refused(text: str, expected: str) -> None:
    with pytest.raises(errors.InputError, match=expected):
        generated_jobs.draw(generated_jobs.read(text), gpus_by_node=[8] * 100, queues=(), seed=1)


def test_the_bar_says_how_far_which_run_and_how_long() -> None:
    bar = sim_progress.Bar(["fifo", "kai"])
    text = bar.text(1, 25, 100, 10.0)
    assert text.startswith("kai (2 of 2) [#######.")
    assert text.endswith("25 of 100 jobs ended, 30 s left")


def test_axes_name_round_values() -> None:
    assert [tick.label for tick in chart_scales.amounts(37)] == ["0", "10", "20", "30", "40"]
    assert [tick.label for tick in chart_scales.days(3 * 86_400)][:2] == ["day 0", "day 1"]
    scale = chart_scales.Scale(0, 100, 200, 0)
    assert (scale.at(0), scale.at(25), scale.at(1000)) == (200, 150, 0)
