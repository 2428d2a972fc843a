"""`dovetail tune`: the search, the parts of the jobs, what counts as better, and the command."""

from __future__ import annotations

import json
import random
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import msgspec
import pytest
from click.testing import CliRunner, Result
from hypothesis import given
from hypothesis import strategies as st

from dovetail import errors
from dovetail.cli.answers import tune_command
from dovetail.files import configuration_file
from dovetail.model import configuration, policy
from dovetail.sim.fleet import fleet_spec
from dovetail.study.queueing import job_list, past_runtimes, study_file, study_runs
from dovetail.study.report import tuning_page
from dovetail.study.tuning import (
    held_out_jobs,
    point_search,
    policy_settings,
    policy_tuning,
    tuning_objective,
)

JOBS = "name,submit_s,duration_s,num_gpus,queue\n"


def outcome(
    *, waiting: float = 100.0, below: float = 10.0, used: float = 50.0, ended: int = 10
) -> tuning_objective.Outcome:
    return tuning_objective.Outcome(
        ended=ended, never_started=0, waiting_mean_s=waiting, small_waiting_mean_s=waiting,
        below_quota_gpu_hours=below, utilisation_pct=used, lost_gpu_hours=0.0, evictions=0,
    )  # fmt: skip


# The search


def test_the_search_finds_the_lowest_point_of_a_bowl() -> None:
    lowest = (0.2, 0.9, 0.5)

    def bowl(point: point_search.Point) -> float:
        return sum((place - best) ** 2 for place, best in zip(point, lowest, strict=True))

    best = point_search.search(bowl, (0.5, 0.1, 0.9), trials=300, seed=3)
    assert best == pytest.approx(lowest, abs=0.06)


def test_the_search_asks_as_often_as_it_may_and_repeats_itself() -> None:
    def asked(seed: int) -> list[point_search.Point]:
        points: list[point_search.Point] = []

        def value(point: point_search.Point) -> float:
            points.append(point)
            return sum(point)

        point_search.search(value, (0.5, 0.5), trials=20, seed=seed)
        return points

    assert asked(1) == asked(1) != asked(2)
    assert len(asked(1)) == 20
    assert asked(1)[0] == (0.5, 0.5)
    assert all(0 <= place <= 1 for point in asked(1) for place in point)


def test_where_all_points_are_equal_the_first_one_stays() -> None:
    assert point_search.search(lambda point: 1.0, (0.3, 0.7), trials=30, seed=1) == (0.3, 0.7)


# Settings


def test_settings_are_fields_of_the_configuration_and_their_choices_hold_the_default() -> None:
    usual = policy_settings.default(policy_settings.SETTINGS)
    for each in policy_settings.SETTINGS:
        assert usual[each.path] in each.choices, each.path
    assert policy_settings.policy_of(usual) == policy.DEFAULT
    assert policy_settings.tree(usual) == {
        "apiVersion": configuration.API_VERSION,
        "kind": configuration.KIND,
    }


def test_every_choice_is_a_configuration_that_the_scheduler_accepts_and_changes_the_policy() -> (
    None
):
    for each in policy_settings.SETTINGS:
        usual = policy_settings.default(policy_settings.SETTINGS)[each.path]
        for value in each.choices:
            read = configuration_file.read(
                json.dumps(policy_settings.tree({each.path: value})), file="policy.yaml"
            )
            changed = configuration.policy_of(read) != configuration.policy_of(
                configuration.SchedulerConfiguration()
            )
            assert changed == (value != usual), (each.path, value)


@given(st.lists(st.floats(0, 1), min_size=20, max_size=20))
def test_a_point_and_the_point_of_its_values_mean_the_same(places: list[float]) -> None:
    settings = policy_settings.SETTINGS
    values = policy_settings.values(settings, places[: len(settings)])
    assert policy_settings.values(settings, policy_settings.point(settings, values)) == values


# What is better


def test_the_default_scores_one_and_half_the_waiting_less() -> None:
    weights = {"waiting": 1.0, "fairness": 1.0}
    usual = outcome()
    assert tuning_objective.score(usual, usual, weights) == 1
    assert tuning_objective.score(outcome(waiting=50), usual, weights) == 0.75
    # Almost nothing below quota: no division by it, and the default still scores 1.
    nothing = outcome(below=0.0)
    assert tuning_objective.score(nothing, nothing, weights) == 1
    assert tuning_objective.score(outcome(below=1.0), nothing, weights) == 1.5


def test_settings_that_leave_jobs_behind_have_no_score() -> None:
    weights = {"waiting": 1.0}
    assert tuning_objective.score(outcome(waiting=1, ended=9), outcome(), weights) == float("inf")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("power=1", 'no "power"; there are: waiting, small, fairness, utilisation, lost'),
        ("waiting=much", 'expected a number from 0, got "much"'),
        ("waiting=nan", 'got "nan"'),
        ("waiting=0", "at least one weight above 0"),
    ],
)
def test_a_wrong_objective_says_what_there_is(text: str, expected: str) -> None:
    with pytest.raises(errors.InputError, match=expected):
        tuning_objective.read(text)


AMOUNT = st.integers(0, 4).map(float)
OUTCOME = st.builds(
    lambda waiting, below, used: outcome(waiting=waiting, below=below, used=used),
    AMOUNT, AMOUNT, AMOUNT,
)  # fmt: skip


@given(st.lists(OUTCOME, min_size=1, max_size=12))
def test_the_front_holds_exactly_what_nothing_beats(
    outcomes: list[tuning_objective.Outcome],
) -> None:
    def place(each: tuning_objective.Outcome) -> tuple[float, float, float]:
        return each.waiting_mean_s, each.below_quota_gpu_hours, -each.utilisation_pct

    def beats(first: tuning_objective.Outcome, second: tuning_objective.Outcome) -> bool:
        pairs = list(zip(place(first), place(second), strict=True))
        return all(a <= b for a, b in pairs) and any(a < b for a, b in pairs)

    front = tuning_objective.front(outcomes)
    assert front
    for number, each in enumerate(outcomes):
        assert (number in front) == (not any(beats(other, each) for other in outcomes))


# The parts


@given(st.lists(st.integers(0, 10_000), min_size=30, max_size=60), st.floats(0.3, 0.6))
def test_the_parts_are_all_jobs_in_order_and_the_last_ones_are_held_out(
    seconds: list[int], holdout: float
) -> None:
    jobs = tuple(
        job_list.Job(name=f"j{number}", submit_seconds=second, duration_seconds=1, gpus=1, pods=1)
        for number, second in enumerate(sorted(seconds))
    )
    try:
        parts = held_out_jobs.divided(jobs, holdout=holdout)
    except errors.InputError as error:
        assert "more jobs, or another part" in str(error)  # noqa: PT017
        return
    names = [job.name for job in (*parts.searched, *parts.held_out)]
    assert names == [job.name for job in jobs]
    assert parts.searched[0].submit_seconds == parts.held_out[0].submit_seconds == 0


def test_shaking_moves_submissions_and_nothing_else() -> None:
    jobs = tuple(
        job_list.Job(name=f"j{number}", submit_seconds=600 * number, duration_seconds=7, gpus=1, pods=1)
        for number in range(20)
    )  # fmt: skip
    shaken = held_out_jobs.shaken(jobs, seed=1)
    assert shaken == held_out_jobs.shaken(jobs, seed=1) != held_out_jobs.shaken(jobs, seed=2)
    before = {job.name: job.submit_seconds for job in jobs}
    moves = [abs(job.submit_seconds - before[job.name]) for job in shaken]
    assert 0 < max(moves) <= 600
    assert {job.name for job in shaken} == set(before)
    assert [job.submit_seconds for job in shaken] == sorted(job.submit_seconds for job in shaken)


# The command


def rows(count: int, *, seed: int = 5) -> str:
    """Jobs of one GPU of a queue that fill nodes one by one, and gangs of another queue."""
    chance = random.Random(seed)
    lines = []
    for number in range(count):
        queue, gpus = ("a", 1) if number % 3 else ("b", 4)
        lines.append(f"j{number},{120 * number},{chance.randint(300, 3000)},{gpus},{queue}\n")
    return JOBS + "".join(lines)


def call(tmp_path: Path, *arguments: str, count: int = 28) -> Result:
    pool = "{name: node, count: 2, gpu: H100-SXM5-80GB, gpusPerNode: 4}"
    (tmp_path / "fleet.yaml").write_text(f"name: f\npools: [{pool}]\n")
    queues = "queues: [{name: a, quota: 4}, {name: b, quota: 4}]\npromises: 0\n"
    (tmp_path / "study.yaml").write_text(queues)
    (tmp_path / "jobs.csv").write_text(rows(count))
    files = ("jobs", "jobs.csv"), ("fleet", "fleet.yaml"), ("study", "study.yaml")
    options = [word for name, file in files for word in (f"--{name}", str(tmp_path / file))]
    return CliRunner().invoke(
        tune_command.command, [*options, "--budget", "4", *arguments], catch_exceptions=False
    )


def test_the_same_seed_gives_the_same_bytes_and_the_default_is_trial_0(tmp_path: Path) -> None:
    first = call(tmp_path, "-o", "json").stdout
    assert first == call(tmp_path, "-o", "json").stdout
    tuning = json.loads(first)
    assert tuning["trials"][0]["changes"] == {}
    assert tuning["trials"][0]["score"] == 1
    assert tuning["searched_jobs"] + tuning["held_out_jobs"] == 28
    assert tuning["searched_score"] <= 1
    assert any(trial["is_on_front"] for trial in tuning["trials"])
    assert "queues.promises" not in str(tuning["trials"])  # the study fixes them


def test_the_table_ends_with_the_verdict_and_the_page_draws_every_trial(tmp_path: Path) -> None:
    page_file, policy_file = tmp_path / "tuned.html", tmp_path / "policy.yaml"
    result = call(tmp_path, "--file", str(page_file), "--write", str(policy_file))
    verdict = result.stdout.splitlines()[-1]
    assert "the default" in verdict
    assert policy_file.exists() == verdict.startswith("beats the default")
    assert ("is not written" in result.stderr) != policy_file.exists()
    page = page_file.read_text()
    tree = ElementTree.fromstring(page[page.index("<main>") : page.index("</main>") + 7])
    pictures = tree.findall(".//{http://www.w3.org/2000/svg}svg")
    spots = [len(each.findall("{http://www.w3.org/2000/svg}circle")) for each in pictures]
    tried = int(result.stdout.splitlines()[1].split()[0])
    assert spots == [tried, tried]
    assert not any(word in page for word in ("<script", "src=", "href=", "url(", "@import"))


def test_too_few_jobs_to_hold_some_out_are_refused(tmp_path: Path) -> None:
    with pytest.raises(errors.InputError, match=r"leaves .* jobs to search on and"):
        call(tmp_path, count=8)


def study(*, count: int = 28) -> study_runs.StudyInput:
    pool = fleet_spec.Pool(name="n", count=2, gpu="H100-SXM5-80GB", gpus_per_node=4)
    queues = tuple(study_file.StudyQueue(name=name, quota=4) for name in "ab")
    return study_runs.StudyInput(
        "<b>&",
        job_list.read(rows(count), file="jobs.csv"),
        fleet_spec.Fleet(name="f", pools=(pool,)),
        study_file.Study(queues=queues, promises=0),
        past_runtimes.PastRuntimes(),
    )


def test_progress_never_falls_and_ends_with_all() -> None:
    shown: list[tuple[int, int]] = []
    request = policy_tuning.Request({"waiting": 1.0}, 3, 0.3, 1)
    tuning = policy_tuning.tune(
        study(), request, progress=lambda ended, total: shown.append((ended, total))
    )
    ended = [each for each, _ in shown]
    assert ended == sorted(ended)
    assert ended[-1] <= shown[-1][1]
    assert "&lt;b&gt;&amp;" in tuning_page.page(tuning)


def test_what_beats_the_default_is_written_as_a_configuration_of_the_scheduler(
    tmp_path: Path,
) -> None:
    tuning = policy_tuning.tune(study(), policy_tuning.Request({"waiting": 1.0}, 2, 0.3, 1))
    changes: policy_settings.Settings = {
        "queues.consolidationVictims": 64,
        "decide.weights.tightFitPerGpu": 300,
    }
    better = msgspec.structs.replace(tuning, beats_default=True, changes=changes)
    file = tmp_path / "policy.yaml"
    tune_command.write_policy(str(file), better)
    read = configuration_file.load(file)
    assert read.queues.consolidation_victims == 64
    assert read.decide.weights.tight_fit_per_gpu == 300
    assert len(file.read_text().splitlines()) == 7  # nothing but what differs


def test_only_what_is_better_everywhere_beats_the_default() -> None:
    def shake(score: float | None) -> policy_tuning.Shake:
        return policy_tuning.Shake(
            seed=1, score=score, waiting_mean_s=1.0, default_waiting_mean_s=1.0
        )

    better = [shake(0.9)] * policy_tuning.SHAKES
    assert policy_tuning.beats(0.9, better)
    assert not policy_tuning.beats(0.995, better)  # less than 1 %
    assert not policy_tuning.beats(0.9, [*better[1:], shake(1.0)])
    assert not policy_tuning.beats(0.9, [*better[1:], shake(None)])
    assert not policy_tuning.beats(float("inf"), better)


def test_a_change_that_brings_nothing_is_taken_back() -> None:
    settings = policy_settings.SETTINGS[1:3]
    usual = policy_settings.default(settings)
    best = {"queues.consolidationVictims": 64, "queues.reclaimMayMove": False}

    def value(chosen: policy_settings.Settings) -> float:
        return 0.8 if chosen["queues.consolidationVictims"] == 64 else 1.0

    kept = policy_tuning.simplified(best, usual, value)
    assert policy_settings.changed(kept) == {"queues.consolidationVictims": 64}
