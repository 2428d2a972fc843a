"""The environment for learners: what its rewards mean, that it always ends, and the example that learns in it."""

from __future__ import annotations

import os
import random
import subprocess
import sys

import pytest

from dovetail import errors
from dovetail.sdk import QueueEnvironment
from dovetail.study.queueing import job_list, job_rules, rule_run, study_file
from tests.cli import running

GPUS_BY_NODE = [8, 8]


def drawn() -> QueueEnvironment:
    return QueueEnvironment.drawn(GPUS_BY_NODE, days=0.5, load=1.3, choices=5)


def listed(*jobs: tuple[int, int, int]) -> QueueEnvironment:
    """Jobs by submission, duration and GPUs, on one node of 8."""
    listed_jobs = [
        job_list.Job(name=f"j{number}", submit_seconds=submit, duration_seconds=seconds,
                     gpus=gpus, pods=1)
        for number, (submit, seconds, gpus) in enumerate(jobs)
    ]  # fmt: skip
    return QueueEnvironment([8], lambda seed: listed_jobs, choices=3)


def played(environment: QueueEnvironment, seed: int, chance: random.Random | None) -> list[float]:
    """The rewards of an episode in which the first job with room starts, or one by chance."""
    _, info = environment.reset(seed=seed)
    rewards: list[float] = []
    is_ended = False
    while not is_ended:
        actions = [number for number, allowed in enumerate(info["action_mask"]) if allowed]
        action = actions[0] if chance is None else chance.choice(actions)
        _, reward, is_ended, is_cut, info = environment.step(action)
        assert not is_cut
        rewards.append(reward)
    return rewards


@pytest.mark.parametrize("chance", [None, random.Random(4)])
def test_the_rewards_of_an_episode_are_all_the_waiting(chance: random.Random | None) -> None:
    environment = drawn()
    rewards = played(environment, 3, chance)
    rows = environment.log.rows.values()
    assert all(row.end_s is not None for row in rows)
    assert sum(rewards) == pytest.approx(-sum(row.waiting_s for row in rows) / 3600)
    assert sum(rewards) < 0


def test_to_start_the_first_with_room_is_the_rule_pooled_where_all_waiting_jobs_are_offered() -> (
    None
):
    jobs = [
        job_list.Job(
            name=f"j{number}", submit_seconds=60 * number, duration_seconds=100 + 37 * number,
            gpus=1 + number % 8, pods=1,
        )
        for number in range(40)
    ]  # fmt: skip
    environment = QueueEnvironment(GPUS_BY_NODE, lambda seed: jobs, choices=40)
    played(environment, 0, None)
    pooled = rule_run.RuleRun(
        GPUS_BY_NODE, jobs, rule=job_rules.named("pooled"), study=study_file.Study()
    ).run()
    assert environment.log.rows == pooled.rows


def test_the_same_seed_gives_the_same_episode_and_another_seed_another_one() -> None:
    environment = drawn()
    first = environment.reset(seed=3)[0]
    rewards = played(environment, 3, None)
    assert environment.reset(seed=3)[0] == first
    assert played(environment, 3, None) == rewards
    assert played(environment, 4, None) != rewards


def test_the_action_chooses_who_starts() -> None:
    environment = listed((0, 100, 8), (10, 1000, 8), (10, 50, 8))
    environment.reset()
    environment.step(0)
    # The first one has ended; the second and the third wait.
    _, _, is_ended, _, info = environment.step(1)
    assert info["seconds"] == 150
    assert not is_ended
    assert environment.log.rows["j2"].first_start_s == 100
    assert environment.log.rows["j1"].first_start_s is None


def test_waiting_for_ever_starts_what_fits_in_the_end() -> None:
    environment = listed((0, 100, 8), (500, 100, 8))
    environment.reset()
    rewards, is_ended = [], False
    while not is_ended:
        _, reward, is_ended, _, _ = environment.step(3)
        rewards.append(reward)
    assert environment.log.ended == 2
    assert sum(rewards) < -500 / 3600


def test_a_job_larger_than_the_cluster_does_not_keep_the_episode_from_ending() -> None:
    environment = listed((0, 100, 64), (10, 100, 8))
    environment.reset()
    assert environment.step(1)[2]
    assert environment.log.rows["j0"].first_start_s is None
    assert environment.log.ended == 1


def test_features_have_one_length_and_lie_between_0_and_1() -> None:
    environment = drawn()
    environment.reset(seed=1)
    lengths = set()
    for _ in range(50):
        features = environment.features()
        lengths.add(len(features))
        assert all(0 <= value <= 1 for value in features)
        if environment.step(environment.action_mask().index(1))[2]:
            break
    assert len(lengths) == 1


def test_what_makes_no_sense_is_refused() -> None:
    environment = listed((0, 100, 8))
    with pytest.raises(errors.InputError, match="call reset first"):
        environment.step(0)
    environment.reset()
    with pytest.raises(errors.InputError, match="expected 0 to 3"):
        environment.step(4)
    assert environment.step(0)[2]
    with pytest.raises(errors.InputError, match="call reset"):
        environment.step(0)


def test_the_example_learns_and_shows_the_rules_beside_it() -> None:
    path = running.EXAMPLES / "learning" / "learn_a_queue_policy.py"
    done = subprocess.run(
        [sys.executable, str(path), "--generations", "1", "--days", "0.1"],
        env={**os.environ, "PYTHONUTF8": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[0].startswith("weights: ")
    assert [line.split()[0] for line in lines[1:]] == ["fifo", "pooled", "sjf", "qssf", "learned"]
