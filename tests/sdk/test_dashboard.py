"""A cluster behind a dashboard answers as one that was read: same methods, same results, problems as exceptions."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import msgspec
import pytest

from dovetail.ports import failures
from dovetail.sdk import Changes, Cluster, InputError, NotFound, Refused, Unauthorised, Unavailable
from tests.sdk import dashboard_server

JOB = """
apiVersion: v1
kind: Pod
metadata: {namespace: vision, name: new}
spec: {containers: [{name: main, image: training}]}
"""


@pytest.fixture
def server(cluster: Cluster) -> Iterator[dashboard_server.DashboardServer]:
    with dashboard_server.serving(cluster) as serving:
        yield serving


@pytest.fixture
def remote(server: dashboard_server.DashboardServer) -> Cluster:
    return Cluster.connect(url=server.url + "/", token=dashboard_server.TOKEN)


@pytest.mark.parametrize(
    "ask",
    [
        Cluster.devices,
        lambda cluster: cluster.devices(node="l4-0"),
        Cluster.pods,
        lambda cluster: cluster.pods(namespace="vision", node="l4-0"),
        lambda cluster: cluster.pods(labels="app=trainer"),
        Cluster.claims,
        Cluster.queues,
        Cluster.work,
        lambda cluster: cluster.work("vision", pending=True),
        Cluster.when,
        lambda cluster: cluster.when("big", namespace="speech"),
        Cluster.why_waiting,
        lambda cluster: cluster.why("big", namespace="speech"),
        lambda cluster: cluster.why(cluster.pods().filter(name="big")[0]),
        lambda cluster: cluster.capacity(gpus=8, type="h100", gang=2),
        lambda cluster: cluster.capacity(gpu_memory="20Gi", queue="vision", priority=3),
        lambda cluster: cluster.what_if(add="2xh100", prices={"h100": 2.5}, horizon="7d"),
        lambda cluster: cluster.what_if(drain="node/h100-0", set={"queue/vision.quota": 6}),
        lambda cluster: cluster.what_if(work=JOB),
    ],
)
def test_answers_are_those_of_the_cluster(
    cluster: Cluster, remote: Cluster, ask: Callable[[Cluster], Any]
) -> None:
    there, here = ask(remote), ask(cluster)
    assert msgspec.json.encode(_data(there)) == msgspec.json.encode(_data(here))
    assert str(there) == str(here)
    assert type(there) is type(here)


def _data(result: Any) -> Any:
    return result.to_dicts() if hasattr(result, "to_dicts") else result.to_dict()


def test_gpus_are_those_of_the_fleet(cluster: Cluster, remote: Cluster) -> None:
    here, there = cluster.gpus(), remote.gpus()
    assert [(row.node, row.free, row.tiles) for row in there] == [
        (row.node, row.free, row.tiles) for row in here
    ]
    assert [row.node for row in remote.gpus(node="l4-1")] == ["l4-1"]


def test_its_name_and_time_are_those_of_the_dashboard(
    cluster: Cluster, remote: Cluster, server: dashboard_server.DashboardServer
) -> None:
    assert remote.now == cluster.now
    assert remote.name == f"saved (dashboard {server.url})"
    assert remote.refresh() is remote
    assert remote.problems == ()


def test_the_token_is_sent_and_a_wrong_one_is_an_exception(
    server: dashboard_server.DashboardServer,
) -> None:
    with pytest.raises(Unauthorised, match=r"not accepted\nnext: try again"):
        Cluster.connect(url=server.url, token="wrong")
    with pytest.raises(Unauthorised):
        Cluster.connect(url=server.url)


def test_problems_become_the_exceptions_of_other_clusters(remote: Cluster) -> None:
    with pytest.raises(NotFound, match="did you mean big"):
        remote.why("bigg", namespace="speech")
    with pytest.raises(NotFound, match="did you mean big"):
        remote.when("bigg")
    with pytest.raises(InputError, match=r"^add 1xh900: there is no GPU type"):
        remote.what_if(add="1xh900")


@pytest.mark.parametrize(
    "ask",
    [
        Cluster.nodes,
        lambda cluster: cluster.gpus(labels="a=b"),
        lambda cluster: cluster.claims(node="h100-0"),
        Cluster.usage,
        lambda cluster: cluster.capacity(like="vision/sweep-0"),
        lambda cluster: cluster.pods().objects(),
        lambda cluster: cluster.what_if(Changes().drain("node/h100-0").add("1xh100")),
    ],
)
def test_what_a_dashboard_does_not_offer_is_said(
    remote: Cluster, ask: Callable[[Cluster], Any]
) -> None:
    with pytest.raises(InputError, match="a dashboard does not offer"):
        ask(remote)


def test_a_redirect_is_not_followed_with_the_token(
    cluster: Cluster, remote: Cluster, server: dashboard_server.DashboardServer
) -> None:
    with dashboard_server.serving(cluster) as other:
        server.redirect = f"{other.url}/api/v1/pods"
        with pytest.raises(Refused, match="status 302"):
            remote.pods()
        assert other.requests == []


@pytest.mark.parametrize("content", [b"<html>", b"[]", b'{"items": [{"name": 3}]}', b"\xff"])
def test_an_answer_of_another_server_is_no_answer(
    remote: Cluster, server: dashboard_server.DashboardServer, content: bytes
) -> None:
    server.broken = content
    with pytest.raises(Unavailable):
        remote.pods()


def test_an_address_must_be_one() -> None:
    for url in (
        "file:///etc/passwd",
        "127.0.0.1:80",
        "http://",
        "http://a/?token=x",
        "http://a/#x",
    ):
        with pytest.raises(InputError, match="url"):
            Cluster.connect(url=url)
    with pytest.raises(InputError, match="leave the others out"):
        Cluster.connect(url="http://127.0.0.1:9", context="x")
    with pytest.raises(failures.ApiFailure, match="cannot be reached"):
        Cluster.connect(url="http://127.0.0.1:9")
