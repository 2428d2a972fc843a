"""`dovetail wait`, `cancel` and `logs`: for pods, jobs, gangs and what owns them."""

from __future__ import annotations

from pathlib import Path

import pytest

from dovetail.cli.work import wait_conditions, work_targets
from dovetail.cli.work.wait_conditions import Verdict
from tests.cli import running

RUN = ("run", "--image", "x", "--type", "l4", "-y", "-d")
DEPLOYMENT = """
apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  replicas: 2
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      containers: [{name: web, image: web}]
"""
GANG = "\n---\n".join(
    f"""
apiVersion: v1
kind: Pod
metadata:
  name: member-{number}
  labels: {{dovetail.dev/gang: team, dovetail.dev/gang-min: "2"}}
spec:
  containers: [{{name: a, image: x}}]
"""
    for number in range(2)
)
SHORT = """
apiVersion: v1
kind: Pod
metadata: {name: short, annotations: {dovetail.dev/run-seconds: "0"}}
spec:
  restartPolicy: Never
  containers: [{name: a, image: x}]
"""


def names(state: Path, kind: str) -> list[str]:
    return running.inside(state, "get", kind, "-o", "name").out.split()


def test_cancelling_a_pod_of_a_job_ends_the_job_and_its_template(small: Path) -> None:
    running.inside(small, *RUN, "--name", "train", "--", "sh")
    (pod,) = names(small, "pods")
    done = running.inside(small, "cancel", pod)
    assert (done.code, done.out) == (0, "job.batch/train (1 pod) cancelled\n"), done.err
    running.until(small, "get", "pods", shows=lambda run: "no pods" in run.err, what="its end")
    assert names(small, "jobs") == []
    running.until(
        small, "get", "templates", shows=lambda run: "no templates" in run.err, what="its template"
    )


def test_a_pod_of_a_deployment_takes_the_deployment_with_it_only_on_consent(small: Path) -> None:
    running.inside(small, "apply", "-f", "-", stdin=DEPLOYMENT)
    pod = names(small, "pods")[0]
    refused = running.inside(small, "cancel", pod)
    assert refused.code == 2
    assert "deployment.apps/web (2 pods)" in refused.err
    assert "add --yes" in refused.err
    looked = running.inside(small, "cancel", pod, "--dry-run")
    assert looked.out == "deployment.apps/web (2 pods) would be cancelled (dry run)\n"
    assert len(names(small, "pods")) == 2
    assert running.inside(small, "cancel", pod, "-y", "-o", "name").out == "deployment.apps/web\n"
    running.until(small, "get", "pods", shows=lambda run: "no pods" in run.err, what="its end")


def test_a_gang_by_label_ends_pod_by_pod(small: Path) -> None:
    running.inside(small, "apply", "-f", "-", stdin=GANG)
    assert running.inside(small, "wait", "gang/team", "--for", "started").code == 0
    done = running.inside(small, "cancel", "team", "--yes")
    assert done.out == "pod/member-0 cancelled\npod/member-1 cancelled\n", done.err
    gone = running.inside(small, "wait", "pod/member-0", "--for", "delete")
    assert (gone.code, gone.out) == (0, "pod/member-0 deleted\n")


def test_my_work_is_what_i_submitted(small: Path) -> None:
    running.inside(small, *RUN, "--name", "mine", "--", "sh")
    other = SHORT.replace("run-seconds", "other")
    assert running.inside(small, "apply", "-f", "-", stdin=other).code == 0
    assert running.inside(small, "cancel", "--me").out == "job.batch/mine (1 pod) cancelled\n"
    assert "pod/short" in names(small, "pods")


@pytest.mark.parametrize(
    ("words", "code", "complaint"),
    [
        ((), 2, "name the work to end"),
        (("a", "-l", "x=y"), 2, "name the work to end"),
        (("nothing",), 1, 'no job, gang or pod "nothing"'),
        (("job/nothing",), 1, 'jobs "nothing" not found in namespace default'),
        (("widget/a",), 1, 'serves no resource "widget"'),
        (("job/",), 1, "expected NAME or KIND/NAME"),
        (("-l", "no=such"), 1, "nothing to cancel"),
    ],
)
def test_what_is_not_there_is_not_cancelled(
    small: Path, words: tuple[str, ...], code: int, complaint: str
) -> None:
    done = running.inside(small, "cancel", *words)
    assert (done.code, done.out) == (code, "")
    assert complaint in done.err


def test_a_name_that_means_two_things_is_not_guessed(small: Path) -> None:
    running.inside(small, *RUN, "--name", "short", "--", "sh")
    running.inside(small, "apply", "-f", "-", stdin=SHORT)
    done = running.inside(small, "cancel", "short")
    assert done.code == 1
    assert '"short" may mean job.batch/short or pod/short; write which' in done.err


def test_all_names_are_looked_up_before_anything_ends(small: Path) -> None:
    running.inside(small, *RUN, "--name", "train", "--", "sh")
    assert running.inside(small, "cancel", "train", "nothing", "--yes").code == 1
    assert names(small, "jobs") == ["job.batch/train"]


def test_waiting_ends_with_0_when_it_comes_and_with_1_when_it_does_not(small: Path) -> None:
    running.inside(small, "apply", "-f", "-", stdin=SHORT)
    running.inside(small, *RUN, "--name", "train", "--", "sh")
    done = running.inside(small, "wait", "pod/short", "--for", "finished")
    assert (done.code, done.out) == (0, "pod/short end met\n")
    assert running.inside(small, "wait", "train", "--for=started").code == 0
    late = running.inside(small, "wait", "job", "train", "--for", "finished", "--timeout", "0")
    assert (late.code, late.out) == (1, "")
    assert late.err == "error: timed out waiting for end of job.batch/train\n"
    ready = running.inside(small, "wait", "pods", "-l", "x=y", "--for", "condition=Ready")
    assert (ready.code, ready.err) == (1, "error: no matching resources found\n")
    path = "jsonpath={.status.phase}=Succeeded"
    assert running.inside(small, "wait", "pod/short", "--for", path).code == 0
    absent = running.inside(small, "wait", "pod/none", "--for", "condition=Ready")
    assert absent.code == 1
    assert 'pods "none" not found' in absent.err


@pytest.mark.parametrize(
    "wanted", ["", "ready", "condition", "condition=", "delete=x", "jsonpath={.a"]
)
def test_what_cannot_be_waited_for_is_wrong_usage(small: Path, wanted: str) -> None:
    done = running.inside(small, "wait", "pod/a", "--for", wanted)
    assert (done.code, done.out) == (2, "")


def work(*phases: str, conditions: dict[str, str] | None = None, parallelism: int | None = None):  # type: ignore[no-untyped-def]
    pods = tuple({"metadata": {"name": "p"}, "status": {"phase": phase}} for phase in phases)
    listed = [{"type": key, "status": value} for key, value in (conditions or {}).items()]
    tree = {"metadata": {}, "spec": {}, "status": {"conditions": listed}}
    if parallelism is not None:
        tree["spec"] = {"parallelism": parallelism}
    from dovetail.ports import api

    target = api.Target(work_targets.JOB, "default", "train")
    return work_targets.Work("job.batch/train", target, tree, pods)


@pytest.mark.parametrize(
    ("wanted", "subject", "verdict"),
    [
        ("started", work("Running", "Pending", parallelism=2), Verdict.NOT_YET),
        ("started", work("Running", parallelism=2), Verdict.NOT_YET),
        ("started", work("Running", "Succeeded", parallelism=2), Verdict.MET),
        ("started", work(conditions={"Complete": "True"}, parallelism=2), Verdict.MET),
        ("started", None, Verdict.NOT_YET),
        ("finished", work("Succeeded", parallelism=2), Verdict.NOT_YET),
        ("finished", work(conditions={"Complete": "True"}), Verdict.MET),
        ("finished", work(conditions={"Failed": "True"}), Verdict.FAILED),
        ("finished", work(conditions={"Failed": "False"}), Verdict.NOT_YET),
        ("condition=complete", work(conditions={"Complete": "True"}), Verdict.MET),
        ("condition=Complete=false", work(conditions={"Complete": "True"}), Verdict.NOT_YET),
        ("condition=Complete=false", work(conditions={"Complete": "False"}), Verdict.MET),
        ("delete", None, Verdict.MET),
        ("delete", work(), Verdict.NOT_YET),
        ("create", work(), Verdict.MET),
    ],
)
def test_the_state_of_work_decides(
    wanted: str, subject: work_targets.Work | None, verdict: Verdict
) -> None:
    assert wait_conditions.condition_of(wanted).test(subject) is verdict


def test_the_embedded_cluster_has_no_logs_and_says_so(small: Path) -> None:
    running.inside(small, *RUN, "--name", "train", "--", "sh")
    for arguments in (("train",), ("job/train", "-f"), ("job/train", "--all-pods")):
        done = running.inside(small, "logs", *arguments)
        assert (done.code, done.out) == (1, "")
        assert "runs no containers" in done.err
    assert 'pods "x" not found' in running.inside(small, "logs", "pod/x").err
