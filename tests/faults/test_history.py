"""The recorder misses nothing and knows who wrote, whatever happens to the store meanwhile."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from tests.faults import campaign_cluster, client, history, objects, records, signatures
from tests.faults.signatures import Request
from tests.faults.story import HistoryBuilder
from tests.support import cluster


@pytest.mark.slow
def test_every_revision_is_recorded_and_signed_across_a_restart_of_the_store(
    tmp_path: Path,
) -> None:
    with cluster.private_plane(**campaign_cluster.options(tmp_path)) as plane:

        async def main() -> records.History:
            people = client.Client(plane.url, ca=plane.ca, token=campaign_cluster.TOKENS["people"])
            rival = client.Client(plane.url, ca=plane.ca, token=campaign_cluster.TOKENS["rival"])
            async with people, rival, history.Recorder(plane.etcd_port) as recorder:
                await lives(people, rival, restart=plane.restart_etcd)
                recorded = await recorder.finish()
                listed = await people.get("/api/v1/nodes")
                assert set(recorder.objects["nodes"]) == {
                    node["metadata"]["name"] for node in listed["items"]
                }
                return recorded

        whole = signatures.signed(asyncio.run(main()), signatures.read(signatures.log_of(tmp_path)))
    assert whole.gaps == ()
    messages = [
        (revision.writer, revision.is_deleted)
        for revision in whole.revisions
        if revision.key == "default/p"
    ]
    assert messages[0] == ("people", False)
    assert messages[1] == ("rival", False)  # the binding
    assert messages[-1][1]
    bound = [
        revision.object["spec"].get("nodeName")
        for revision in whole.revisions
        if revision.key == "default/p"
    ]
    assert bound[:2] == [None, "whole-1"]
    numbers = [revision.number for revision in whole.revisions]
    assert numbers == sorted(set(numbers))
    gone = [revision.is_deleted for revision in whole.revisions if revision.key == "whole-2"]
    assert gone == [False] * (len(gone) - 1) + [True]


async def lives(people: client.Client, rival: client.Client, *, restart: object) -> None:
    """Two nodes, a pod that another scheduler binds, a restart, and the end of most of it."""
    assert callable(restart)
    for name in ("whole-1", "whole-2"):
        await people.create(objects.path_of("nodes"), objects.node(name))
    spec = {"containers": [{"name": "c", "image": "none"}], "schedulerName": "no-scheduler"}
    about = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": spec}
    pods = objects.path_of("pods", namespace="default")
    await people.create(pods, about)
    place = {"apiVersion": "v1", "kind": "Node", "name": "whole-1"}
    binding = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": "p"}, "target": place}
    await rival.create(f"{pods}/p/binding", binding)
    restart()
    await people.delete(f"{pods}/p", grace=0)
    await people.delete(objects.path_of("nodes", "whole-2"))


def request(user: str, key: str, **more: object) -> Request:
    messages: dict[str, object] = {
        "kind": "pods",
        "subresource": "",
        "code": 200,
        "version": 0,
        "began": 0.0,
        "ended": 99.0,
    }
    return Request(user=user, key=key, **(messages | more))  # type: ignore[arg-type]


def history_builder() -> HistoryBuilder:
    """A pod that is made, bound and deleted in two writes: revisions 101 to 104."""
    made = HistoryBuilder()
    made.pod("p")
    made.bind("p", "a", by="")
    made.change("pods", "t/p", metadata={"deletionTimestamp": "now"}, by="")
    made.delete("pods", "t/p", by="")
    return made


def writers(*requests: Request) -> tuple[list[str], tuple[str, ...]]:
    signed = signatures.signed(history_builder().history(), requests)
    return [revision.writer for revision in signed.revisions[1:3]], signed.gaps


MADE = request("people", "t/p", version=101)
BOUND = request("one", "t/p", subresource="binding", code=201)
DELETED = request("people", "t/p", verb="delete")


def test_bindings_and_deletions_are_known_by_their_object() -> None:
    assert writers(MADE, BOUND, DELETED) == (["one", "people"], ())


def test_a_write_whose_answer_was_lost_is_known_by_the_failed_request() -> None:
    lost = BOUND._replace(code=504)
    assert writers(MADE, lost, DELETED) == (["one", "people"], ())


def test_a_write_without_a_writer_is_a_gap() -> None:
    result, gaps = writers(MADE, DELETED)
    assert result == ["", "people"]
    assert gaps == ("revision 102 of pods t/p was written by an unknown user",)


def test_a_write_of_either_of_two_is_a_gap() -> None:
    _, gaps = writers(MADE, BOUND, BOUND._replace(user="two"), DELETED)
    assert gaps == ("revision 102 of pods t/p was written by one or two",)


def test_of_two_lost_writes_the_managed_fields_name_the_writer() -> None:
    builder = HistoryBuilder()
    builder.pod("p")
    fields = [{"manager": "kubelet", "operation": "Update", "time": "now"}]
    builder.change("pods", "t/p", metadata={"managedFields": fields}, by="")
    lost = request("one", "t/p", verb="patch", code=504, manager="dovetail")
    stored = request("kubelet-user", "t/p", verb="patch", code=504, manager="kubelet")
    signed = signatures.signed(builder.history(), [MADE, lost, stored])
    assert (signed.revisions[1].writer, signed.gaps) == ("kubelet-user", ())


def test_a_request_that_changed_nothing_is_not_the_writer() -> None:
    late = request("two", "t/p", version=101, began=50.0, ended=51.0)
    signed = signatures.signed(
        history_builder().history(), [late, MADE._replace(ended=1.5), BOUND, DELETED]
    )
    assert signed.revisions[0].writer == "people"


def test_a_refused_request_wrote_nothing() -> None:
    _, gaps = writers(MADE, BOUND._replace(code=404), DELETED)
    assert gaps


def test_a_binding_that_met_itself_is_known_unless_another_succeeded() -> None:
    """A server that lost its store for a moment tries again, and answers its own write with a conflict."""
    signed, gaps = writers(MADE, BOUND._replace(code=409), DELETED)
    assert not gaps
    assert BOUND.user in signed
    signed, gaps = writers(MADE, BOUND, BOUND._replace(code=409, user="late"), DELETED)
    assert not gaps
    assert "late" not in signed


def test_a_failure_long_ago_explains_nothing() -> None:
    _, gaps = writers(MADE, BOUND._replace(code=500, began=-99.0, ended=-98.0), DELETED)
    assert gaps


def test_a_half_written_line_of_the_log_is_left_out(tmp_path: Path) -> None:
    entry = {
        "user": {"username": "one"},
        "verb": "create",
        "objectRef": {"resource": "pods", "namespace": "t", "name": "p"},
        "responseStatus": {"code": 201},
        "responseObject": {"kind": "Pod", "metadata": {"resourceVersion": "7"}},
        "requestReceivedTimestamp": "2026-01-01T00:00:00.000000Z",
        "stageTimestamp": "2026-01-01T00:00:01.000000Z",
    }
    text = json.dumps(entry)
    (tmp_path / "audit.log").write_text(f"{text}\n{text[:40]}", encoding="utf-8")
    (result,) = signatures.read(signatures.log_of(tmp_path))
    assert (result.user, result.key, result.version, result.ended - result.began) == (
        "one",
        "t/p",
        7,
        1.0,
    )
