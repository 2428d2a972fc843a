"""Stories about CronJobs, and the times that schedules name."""

from __future__ import annotations

import datetime
import zoneinfo
from typing import Any

import pytest

from dovetail.sim.controllers.batch import cron_schedule
from tests.sim.controllers.tiny_store import Cluster, job

Tree = dict[str, Any]
UTC = datetime.UTC


def cron_job(schedule: str = "*/10 * * * *", **spec: Any) -> Tree:
    template = {"metadata": {"labels": {"team": "data"}}, "spec": job()["spec"]}
    return {
        "apiVersion": "batch/v1",
        "kind": "CronJob",
        "metadata": {"name": "report"},
        "spec": {"schedule": schedule, "jobTemplate": template} | spec,
    }


def jobs(cluster: Cluster) -> list[str]:
    return [tree["metadata"]["name"] for tree in cluster.every("Job")]


def test_a_job_starts_at_each_time_named_by_its_minute() -> None:
    cluster = Cluster()
    cluster.apply(cron_job())
    assert jobs(cluster) == []
    cluster.wait(599)
    assert jobs(cluster) == []
    cluster.wait(2)
    minute = int(datetime.datetime(2026, 3, 2, 12, 10, tzinfo=UTC).timestamp()) // 60
    assert jobs(cluster) == [f"report-{minute}"]
    (tree,) = cluster.every("Job")
    assert tree["metadata"]["labels"] == {"team": "data"}
    annotations = tree["metadata"]["annotations"]
    stamp = annotations["batch.kubernetes.io/cronjob-scheduled-timestamp"]
    assert stamp == "2026-03-02T12:10:00Z"
    status = cluster.status("CronJob", "report")
    assert status["lastScheduleTime"] == "2026-03-02T12:10:00Z"
    assert [reference["name"] for reference in status["active"]] == jobs(cluster)
    assert len(cluster.pods) == 1
    cluster.finish()
    status = cluster.status("CronJob", "report")
    assert "active" not in status
    assert status["lastSuccessfulTime"] == "2026-03-02T12:10:01Z"


@pytest.mark.parametrize(("policy", "expected"), [("Allow", 3), ("Forbid", 1), ("Replace", 1)])
def test_concurrency_policies(policy: str, expected: int) -> None:
    cluster = Cluster()
    cluster.apply(cron_job(concurrencyPolicy=policy))
    cluster.wait(1801)
    assert len(cluster.status("CronJob", "report")["active"]) == expected
    assert len(jobs(cluster)) == expected
    last = cluster.status("CronJob", "report")["lastScheduleTime"]
    assert last == ("2026-03-02T12:10:00Z" if policy == "Forbid" else "2026-03-02T12:30:00Z")


def test_a_forbidden_start_is_made_up_when_the_running_job_ends() -> None:
    cluster = Cluster()
    cluster.apply(cron_job(concurrencyPolicy="Forbid"))
    cluster.wait(1300)
    cluster.finish()
    assert cluster.status("CronJob", "report")["lastScheduleTime"] == "2026-03-02T12:20:00Z"


def test_a_starting_deadline_skips_what_is_too_late() -> None:
    cluster = Cluster()
    cluster.apply(cron_job(suspend=True, startingDeadlineSeconds=60))
    cluster.wait(900)
    cluster.patch("CronJob", "report", {"spec": {"suspend": False}})
    assert jobs(cluster) == []
    cluster.wait(301)
    assert len(jobs(cluster)) == 1


def test_a_missed_time_is_made_up_once() -> None:
    cluster = Cluster()
    cluster.apply(cron_job(suspend=True))
    cluster.wait(3600 * 30)
    cluster.patch("CronJob", "report", {"spec": {"suspend": False}})
    assert len(jobs(cluster)) == 1
    assert cluster.status("CronJob", "report")["lastScheduleTime"] == "2026-03-03T18:00:00Z"
    assert "TooManyMissedTimes" in cluster.reasons("CronJob", "report")


def test_history_is_limited_by_outcome() -> None:
    cluster = Cluster()
    cluster.apply(cron_job(successfulJobsHistoryLimit=2, failedJobsHistoryLimit=1))
    for number in range(6):
        cluster.wait(600)
        cluster.wait(1)
        running = [pod for pod in cluster.pods if pod["status"]["phase"] == "Pending"]
        names = [pod["metadata"]["name"] for pod in running]
        if number % 2:
            cluster.finish(*names)
        else:
            cluster.patch("Job", jobs(cluster)[-1], {"spec": {"backoffLimit": 0}})
            cluster.fail(*names)
    ends = [
        [entry["type"] for entry in tree["status"]["conditions"]][-1]
        for tree in cluster.every("Job")
    ]
    assert sorted(ends) == ["Complete", "Complete", "Failed"]


def test_time_zones_move_the_schedule() -> None:
    cluster = Cluster()
    cluster.apply(cron_job("0 9 * * *", timeZone="America/New_York"))
    cluster.wait(2 * 3600 + 1)
    (tree,) = cluster.every("Job")
    stamp = tree["metadata"]["annotations"]["batch.kubernetes.io/cronjob-scheduled-timestamp"]
    assert stamp == "2026-03-02T09:00:00-05:00"


def test_unreadable_schedules_and_zones_are_reported() -> None:
    cluster = Cluster()
    cluster.apply(cron_job("61 * * * *"))
    assert cluster.reasons("CronJob", "report") == ["UnparseableSchedule"]
    cluster.apply(cron_job(timeZone="Mars/Olympus"))
    assert cluster.reasons("CronJob", "report")[-1] == "UnknownTimeZone"


def test_deleting_a_cron_job_ends_everything_below() -> None:
    cluster = Cluster()
    cluster.apply(cron_job())
    cluster.wait(601)
    cluster.delete("CronJob", "report")
    cluster.confirm_deletions()
    assert cluster.every("Job") == []
    assert cluster.every("Pod") == []


NEXT_TIMES = [
    # The schedule, after, the next time; as robfig/cron computes them.
    ("0/15 * * * *", "2026-07-09T14:45:00", "2026-07-09T15:00:00"),
    ("20-35/15 * * * *", "2026-07-09T14:45:00", "2026-07-09T15:20:00"),
    ("0 0 * feb mon", "2026-07-09T00:00:00", "2027-02-01T00:00:00"),
    ("0 0 29 feb *", "2026-07-09T00:00:00", "2028-02-29T00:00:00"),
    ("0 0 1,15 * 5", "2026-07-09T00:00:00", "2026-07-10T00:00:00"),
    ("0 0 */2 * 5", "2026-07-09T00:00:00", "2026-07-10T00:00:00"),
    ("0 0 * * 5", "2026-07-10T00:00:00", "2026-07-17T00:00:00"),
    ("30 8 * * mon-fri", "2026-07-10T09:00:00", "2026-07-13T08:30:00"),
    ("@hourly", "2026-07-09T14:45:30", "2026-07-09T15:00:00"),
    ("@yearly", "2026-07-09T14:45:30", "2027-01-01T00:00:00"),
    ("@every 1h30m", "2026-07-09T14:45:30", "2026-07-09T16:15:30"),
]


@pytest.mark.parametrize(("schedule", "after", "expected"), NEXT_TIMES)
def test_the_next_time(schedule: str, after: str, expected: str) -> None:
    moment = datetime.datetime.fromisoformat(after).replace(tzinfo=UTC)
    following = cron_schedule.Schedule(schedule).after(moment)
    assert following is not None
    assert following.replace(tzinfo=None).isoformat() == expected


def test_a_date_that_never_comes() -> None:
    moment = datetime.datetime(2026, 1, 1, tzinfo=UTC)
    assert cron_schedule.Schedule("0 0 31 feb *").after(moment) is None


def test_clock_changes_skip_and_repeat_local_times() -> None:
    zone = zoneinfo.ZoneInfo("America/New_York")
    schedule = cron_schedule.Schedule("30 2 * * *", zone)
    before_spring = datetime.datetime(2026, 3, 7, 12, tzinfo=UTC)
    following = schedule.after(before_spring)
    assert following == datetime.datetime(2026, 3, 9, 6, 30, tzinfo=UTC), "8 March has no 2:30"
    repeated = cron_schedule.Schedule("30 1 * * *", zone)
    first = repeated.after(datetime.datetime(2026, 11, 1, 4, tzinfo=UTC))
    assert first == datetime.datetime(2026, 11, 1, 5, 30, tzinfo=UTC)
    assert repeated.after(first) == datetime.datetime(2026, 11, 1, 6, 30, tzinfo=UTC)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "* * * *",
        "* * * * * *",
        "60 * * * *",
        "*/0 * * * *",
        "5-1 * * * *",
        "a * * * *",
        "* * * * 7",
        "@every x",
        "@sometimes",
    ],
)
def test_unreadable_schedules(text: str) -> None:
    with pytest.raises(cron_schedule.ScheduleError):
        cron_schedule.Schedule(text)
